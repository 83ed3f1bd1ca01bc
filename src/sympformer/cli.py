"""The command line: one table from subcommand to typed function; flags and help come from the signatures.

Only the chosen command's module is imported, so `sympformer --help` needs no torch.
"""

import difflib
import inspect
import json
import os
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

from sympformer import __version__
from sympformer.errors import InputError, SympformerError, unknown_name
from sympformer.progress import pulse

# subcommand -> (module:function or module:table of functions, one line of help)
COMMANDS: dict[str, tuple[str, str]] = {
    "audit": ("sympformer.audit.command:audit", "test any language model for leaks of future tokens"),
    "bench": ("sympformer.studies.bench.bench:bench", "measure what layers, memory and generation cost, as ratios"),
    "compare": ("sympformer.studies.compare.commands:compare", "train and compare several models under one budget"),
    "configs": ("sympformer.shipped:configs", "list the configs that ship with the package, or copy one"),
    "data": ("sympformer.data.commands:COMMANDS", "turn text into token files (prepare), show them (info)"),
    "describe": ("sympformer.studies.describe:describe", "show a model's parameters, kernel passes and scalars"),
    "eval": ("sympformer.studies.scoring.evaluate:evaluate", "score a trained model on text and on probes"),
    "export": ("sympformer.exchange.commands:export", "make a Hugging Face folder of a trained run, push it to a hub"),
    "flow": ("sympformer.studies.flow.command:flow", "run particle flows and draw tokens, energies and oracle calls"),
    "import": ("sympformer.exchange.commands:import_", "make a run folder of an exported one"),
    "play": ("sympformer.studies.play.page:play", "write a page in which a flow of particles runs live in the browser"),
    "report": (
        "sympformer.studies.compare.commands:report",
        "write a comparison, or runs side by side, as one HTML page",
    ),
    "sample": ("sympformer.training.commands:sample", "continue a text with a trained model"),
    "train": ("sympformer.training.commands:train", "train a language model, or continue a run"),
    "watch": ("sympformer.watching.command:watch", "show every token's way through models, as one HTML page"),
}

ECHO, LONGEST = 150, 700  # characters of an input that a sentence repeats, and of a sentence
ROOT = Path(__file__).parent
OPENED = ("config", "data", "model", "models", "common", "budget", "choose")  # perhaps files of options
NO_MEMORY = r"can't allocate memory|[Cc]annot allocate memory|failed to map segment|not enough memory|out of memory"
USAGE = "usage: sympformer [-h] [--version] COMMAND ..."


def help_text() -> str:
    """The page that `sympformer --help` prints."""
    width = max(map(len, COMMANDS))
    rows = [f"  {name:<{width}}  {summary}" for name, (_, summary) in COMMANDS.items()]
    return "\n".join(
        [
            USAGE,
            "",
            "Accelerated transformers: attention layers as steps of a damped Hamiltonian flow.",
            "",
            "commands:",
            *rows,
            "",
            "'sympformer COMMAND --help' shows the options of a command.",
        ]
    )


Command = Callable[..., object] | dict[str, Callable[..., object]]


def load(command: str) -> Command:
    """The function behind a subcommand, or the functions behind its own subcommands."""
    if command not in COMMANDS:
        raise unknown_name("command", command, COMMANDS)
    module, function = COMMANDS[command][0].split(":")
    return getattr(import_module(module), function)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Exit code 0: done. 2: the input was not usable, one sentence on stderr says why. 130, 143: stopped by a signal.
    """
    args = list(sys.argv[1:] if argv is None else argv)
    if not args or args[0] in ("-h", "--help"):
        print(help_text())
        return 0 if args else 2
    if args[0] == "--version":
        print(f"sympformer {__version__}")
        return 0
    try:
        with _sigterm_like_ctrl_c(), pulse(args[0]):
            _check_text(args)
            code = _run(load(args[0]), args)
            sys.stdout.flush()
            return code
    except KeyboardInterrupt as stop:
        print("sympformer: stopped", file=sys.stderr)
        return 128 + (signal.SIGTERM if isinstance(stop, Terminated) else signal.SIGINT)
    except BrokenPipeError:  # whoever read what we print has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except (SympformerError, OSError, MemoryError, ImportError, RuntimeError, ValueError) as error:
        if (sentence := _sentence(error)) is None:
            raise
        _tell(f"sympformer: error: {shortened(sentence, args)}")
        return 2


def _tell(error: str) -> None:
    """On stderr; under torchrun also into the file whose content it shows last, below all that it says itself."""
    print(error, file=sys.stderr)
    if file := os.environ.get("TORCHELASTIC_ERROR_FILE"):
        content = {"message": {"message": error, "extraInfo": {"timestamp": str(int(time.time()))}}}
        with suppress(OSError):  # it has been said above
            Path(file).write_text(json.dumps(content), encoding="utf-8")


def _sentence(error: Exception) -> str | None:
    """What a person can mend, in words: wrong input, and what the system refuses. None: a bug, for its traceback."""
    if isinstance(error, SympformerError):
        return str(error)
    if isinstance(error.__cause__, SympformerError):  # the parser has made an error of its own of it
        return str(error.__cause__)
    if isinstance(error, OSError):
        place = f" ({error.filename})" if error.filename is not None else ""
        return f"the system says: {error.strerror or error}{place}"
    if isinstance(error, MemoryError) or re.search(NO_MEMORY, str(error)):
        return "there is not enough memory: choose smaller sizes, or fewer --jobs"
    return None


def _check_text(args: Sequence[str]) -> None:
    for place, arg in enumerate(args, start=1):
        if not arg.isascii() and any("\ud800" <= character <= "\udfff" for character in arg):
            raise InputError(f"argument {place} is not UTF-8 text")
        if re.fullmatch(r"(?:--[\w.]+=)?[-+]?\d{300,}", arg):
            raise InputError(f"argument {place} is a number of {len(arg)} digits")


def shortened(sentence: str, args: Sequence[str] = ()) -> str:
    """A sentence that repeats little of a long input, on one line, with nothing in it that moves a cursor."""
    values = {value for arg in args for value in (arg, arg.partition("=")[2]) if len(value) > ECHO}
    for value in sorted(values, key=len, reverse=True):
        for spelled in (value, repr(value)[1:-1]):
            sentence = sentence.replace(spelled, f"{spelled[:ECHO]}...")
    sentence = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in " ".join(sentence.split()))
    sentence = re.sub(rf"(\S{{{ECHO}}})\S{{20,}}", r"\1...", sentence)
    return sentence if len(sentence) <= LONGEST else f"{sentence[: LONGEST - ECHO]} ... {sentence[-ECHO:]}"


class Terminated(KeyboardInterrupt):
    """SIGTERM came: everything that cleans up after Ctrl-C does so now."""


@contextmanager
def _sigterm_like_ctrl_c() -> Iterator[None]:
    """Let a command leave nothing half-written behind. A second SIGTERM ends it at once."""
    untouched = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL  # else a program around us has its own way
    if not untouched or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise Terminated

    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _run(function: Command, args: list[str]) -> int:
    import jsonargparse

    from sympformer.command_help import Parser, opened, with_whole_entries

    jsonargparse.set_parsing_settings(docstring_parse_attribute_docstrings=True)
    _read_yaml_our_way()
    command, rest = f"sympformer {args[0]}", opened(args[0], args[1:])
    _check_configs(rest)
    rest = _switched_on(_listed(with_whole_entries(rest), function), function)
    try:
        components: Any = function
        words = _has_words(function)
        result = jsonargparse.auto_cli(
            components, args=rest, prog=command, parser_class=Parser, as_positional=words, exit_on_error=False
        )
    except jsonargparse.ArgumentError as error:
        raise InputError(f"{readable(str(error), function)} (see '{command} --help')") from error
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        if isinstance(error, SympformerError) or isinstance(error.__cause__, SympformerError):
            raise
        if not _of_the_parser(error):
            raise
        why = "a group of options, such as data, must hold named ones" if "a mapping" in str(error) else error
        raise InputError(f"the options do not read: {why} (see '{command} --help')") from error
    return result if isinstance(result, int) else 0


def _read_yaml_our_way() -> None:
    """No aliases, tags or endless nesting, on the command line and in configs alike; the numbers of YAML 1.2."""
    import jsonargparse
    import yaml
    from jsonargparse import _loaders_dumpers

    from sympformer.safe_files import parse_yaml

    def load(text: str) -> Any:
        values = parse_yaml(text)
        words = isinstance(values, dict) and bool(values) and all(value is None for value in values.values())
        return text if words and "\n" not in text.strip() else values  # `hub:` on a command line is a word

    jsonargparse.set_loader("yaml", load, (yaml.YAMLError,))
    _loaders_dumpers.yaml_load = load  # numbers by themselves do not ask the loader that was set


def _check_configs(args: list[str]) -> None:
    """What the parser may open as a config is a small regular file of UTF-8 text: in arguments and inside configs."""
    pairs = [arg.partition("=")[::2] for arg in args if arg.startswith("--") and "=" in arg]
    for name, value in [*pairs, *pairwise(args)]:
        _check_opened(name.removeprefix("--"), value)


def _check_opened(name: str, value: object, depth: int = 0) -> None:
    import yaml

    from sympformer.safe_files import LARGEST_YAML, parse_yaml, read_text

    if isinstance(value, dict):
        for inner in value.items():
            _check_opened(*inner, depth)
    elif isinstance(value, str) and name in OPENED and os.path.exists(value) and not os.path.isdir(value):
        text = read_text(Path(value), LARGEST_YAML, "the config ")
        if depth > 9:
            raise InputError(f"{value} names configs that name configs without end")
        with suppress(yaml.YAMLError):  # the parser says what is wrong with it
            _check_opened("", parse_yaml(text), depth + 1)


def _of_the_parser(error: Exception) -> bool:
    """Whether an error was raised before any command of ours was called."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [Path(frame.filename) for frame in frames if Path(frame.filename).is_relative_to(ROOT)]
    return any("jsonargparse" in frame.filename for frame in frames) and all(
        path.name in ("cli.py", "reading.py") and path.parent == ROOT for path in ours
    )


def _has_words(command: Command) -> bool:
    """Whether a command needs words of its own, such as a run; what a config of it needs is no word."""
    functions = command.values() if isinstance(command, dict) else [command]
    named = [p for function in functions for p in inspect.signature(function).parameters.values()]
    return any(p.default is p.empty and p.kind is not p.VAR_KEYWORD for p in named)


def _listed(args: list[str], command: Command) -> list[str]:
    """`report A B --out C`: the names in front are one list, where the command's first parameter is a list of texts."""
    parameters = [] if isinstance(command, dict) else list(inspect.signature(command).parameters.values())
    if not parameters or parameters[0].annotation != list[str] or parameters[0].default is not inspect.Parameter.empty:
        return args
    count = next((i for i, arg in enumerate(args) if arg.startswith("-")), len(args))
    return [json.dumps(args[:count]), *args[count:]] if count else args


def _switched_on(args: list[str], command: Command) -> list[str]:
    """`--resume` alone means `--resume=true`, for every option that is true or false."""
    functions = command.values() if isinstance(command, dict) else [command]
    parameters = [p for function in functions for p in inspect.signature(function).parameters.values()]
    switches = {f"--{p.name}" for p in parameters if p.annotation is bool}
    following = [*args, "--"][1:]
    alone = [a in switches and b.startswith("--") for a, b in zip(args, following, strict=True)]
    return [f"{arg}=true" if is_alone else arg for arg, is_alone in zip(args, alone, strict=True)]


def readable(message: str, command: Command) -> str:
    """The parser's complaint in one sentence, with the nearest name where a name was meant."""
    if unknown := re.search(r"unrecognized arguments: (\S+)", message):
        option = unknown[1].split("=")[0]
        near = difflib.get_close_matches(option.lstrip("-"), _options(command), n=1)
        return f"unknown option {option!r}" + (f": did you mean '--{near[0]}'?" if near else "")
    if unknown := re.search(r"(?:Group '([\w.]+)' does not accept option|Option) '([^']+)'", message):
        option = ".".join(part for part in unknown.groups() if part)
        near = difflib.get_close_matches(option, _options(command), n=1)
        return f"unknown option {option!r} in the config" + (f": did you mean {near[0]!r}?" if near else "")
    key, value = re.search(r'Parser key "([\w.]+)"', message), re.search(r"(?:Got|Given) value: (.*)", message)
    expected = re.findall(r"Expected an? (\S.*?)(?:\. Got value.*)?$", message, re.MULTILINE)
    if not (key and value and expected):
        return " ".join(message.split())
    kinds = [kind for kind in expected if "NoneType" not in kind]
    if all("Literal[" in kind for kind in kinds):
        names = [name for kind in kinds for name in re.findall(r"'([^']*)'", kind)]
        return str(unknown_name(key[1], value[1], names))
    plain = [re.sub(r"<class '(?:\w+\.)*(\w+)'>|typing\.Literal\[(.*)\]", r"\1\2", kind) for kind in kinds]
    return f"--{key[1]} must be {' or '.join(plain)}, got {value[1]!r}"


def _options(command: Command) -> list[str]:
    """Every option of a command, nested ones with their dots."""
    import jsonargparse

    functions = command.values() if isinstance(command, dict) else [command]
    names: list[str] = []
    for function in functions:
        components: Any = function
        parser = jsonargparse.capture_parser(lambda: jsonargparse.auto_cli(components, args=[]))  # noqa: B023
        names += [action.dest for action in parser._actions]
    return names


if __name__ == "__main__":
    sys.exit(main())
