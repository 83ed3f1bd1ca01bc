"""How a command reads its words and what its `--help` shows: the command as one writes it, its words, every option.

Options come from the signatures. A model's options are one mapping there; on the page each is a line of its own.
"""

import argparse
import json
import shutil
import textwrap
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import jsonargparse

from sympformer.errors import InputError
from sympformer.safe_files import LARGEST_YAML, parse_yaml, read_text
from sympformer.shipped import SUFFIXES, config_file, shipped

CONFIG = "A .yaml file, or the name of a config that ships with the package ('sympformer configs' lists them): {}."
# command -> the word that may open it, the option that the word stands for, and what it may be
OPENERS = {
    "train": ("CONFIG", "config", CONFIG),
    "compare": ("CONFIG", "config", CONFIG),
    "describe": ("MODEL", "name", "A variant, a run folder, or a Hugging Face folder that holds one of our models."),
    "configs": ("NAME", "name", "The config to print, or to copy with --out."),
}
ENTRIES = ("models", "factors", "published")  # options that hold named entries, which are options themselves


def opened(command: str, args: list[str]) -> list[str]:
    """`train cpu-small`, `describe softmax-ab2`: a first word that is no option stands for one."""
    if not args or args[0].startswith("-"):
        return args
    if command in OPENERS:
        option = OPENERS[command][1]
        word = config_file(args[0], command) if option == "config" else args[0]
        return [f"--{option}", word, *args[1:]]
    return ["--config", *args] if args[0].endswith(SUFFIXES) else args


def with_whole_entries(args: list[str]) -> list[str]:
    """`--models.gpt.lr 0.1` changes one option of one entry: the parser gets the entry, else it would drop the rest."""
    inside = tuple(f"--{name}." for name in ENTRIES)
    if not any(arg.startswith(inside) for arg in args):
        return args
    values, kept, changed, words = _config_of(args), list[str](), dict[str, Any](), iter(args)
    for word in words:
        option, given, text = word.partition("=")
        if not option.startswith(inside) or not (given or (text := next(words, ""))):
            kept.append(word)
            continue
        name, entry, *path = option.removeprefix("--").split(".")
        if f"--{name}" in (arg.partition("=")[0] for arg in args):
            raise InputError(f"give --{name} as a whole or {option}, not both")
        _put(values, (name, entry, *path), text, option)
        changed[f"--{name}.{entry}"] = values[name][entry]
    return [*kept, *(f"{option}={json.dumps(value)}" for option, value in changed.items())]


def _config_of(args: list[str]) -> dict[str, Any]:
    """What the config that the arguments name holds; nothing where it does not read, which the parser says."""
    import yaml

    files = [b for a, b in pairwise(args) if a == "--config"]
    files += [arg.removeprefix("--config=") for arg in args if arg.startswith("--config=")]
    with suppress(yaml.YAMLError):
        values = parse_yaml(read_text(Path(files[-1]), LARGEST_YAML, "the config ")) if files else {}
        return values if isinstance(values, dict) else {}
    return {}


def _put(values: dict[str, Any], path: tuple[str, ...], text: str, option: str) -> None:
    """A value where its path says, in groups that are there or are made."""
    import yaml

    for key in path[:-1]:
        values = values.setdefault(key, {})
        if not isinstance(values, dict):
            raise InputError(f"{option}: {key} is no group of options in the config")
    try:
        values[path[-1]] = parse_yaml(text)
    except yaml.YAMLError as error:
        raise InputError(f"{option} does not read: {error}") from error


class Parser(jsonargparse.ArgumentParser):
    """The parser of a command, with a page of our own."""

    def format_help(self, formatter: Any = None) -> str:
        command = str(self.prog).removeprefix("sympformer ")
        words = [action for action in self._actions if not action.option_strings]
        if self._subparsers is None:
            for action in words:
                action.metavar = _word(action.dest)
            usage = [f"[{OPENERS[command][0]}]"] if command in OPENERS else [str(action.metavar) for action in words]
            self.usage = " ".join(["%(prog)s", *usage, "[--OPTION VALUE ...]"])
        page = super().format_help(formatter).replace("\noptions:\n", f"\n{_opener(command)}options:\n", 1)
        return page + "".join(_model_page(action.dest) for action in self._actions if _is_model(action.dest))


def _word(name: str) -> str:
    """How a word of the command is called; a plural takes several."""
    one = name.upper().removesuffix("S")
    return f"{one} [{one} ...]" if name.endswith("s") else one


def _opener(command: str) -> str:
    """The lines on the word that may open a command; none where there is no such word."""
    if command not in OPENERS:
        return ""
    name, _, meaning = OPENERS[command]
    meaning = meaning.format(", ".join(key for key, one in shipped().items() if one.command == command))
    width = shutil.get_terminal_size().columns - 2
    return f"{textwrap.fill(f'  {name:<22}{meaning}', width, subsequent_indent=' ' * 24)}\n\n"


def _is_model(option: str) -> bool:
    return option in ("model", "common.model")


def _model_page(option: str) -> str:
    """Every option of a model, as `--model.NAME`."""
    import docstring_parser

    from sympformer.models import PRESETS, VARIANTS, ModelConfig

    lines = {"variant": ("NAME", ", ".join(VARIANTS)), "preset": ("NAME", ", ".join(PRESETS))}
    kinds = get_type_hints(ModelConfig)
    for owner in reversed(ModelConfig.__mro__[:-1]):
        for field in docstring_parser.parse_from_object(owner).params:
            lines[field.arg_name] = _kind(kinds[field.arg_name]), field.description or ""
    page = argparse.ArgumentParser(usage=argparse.SUPPRESS, add_help=False)
    group = page.add_argument_group(f"options of the model (--{option}.NAME)")
    for name, (kind, text) in lines.items():
        group.add_argument(f"--{option}.{name}", metavar=kind, help=text.replace("%", "%%"))
    return f"\n{page.format_help()}"


def _kind(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return f"{{{','.join(map(str, get_args(hint)))}}}"
    return {bool: "{true,false}", int: "INT", float: "FLOAT"}.get(hint, "NAME")
