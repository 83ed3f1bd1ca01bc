"""The command line: one table from subcommand to typed function; options and help come from the signatures.

Only the chosen command's module is imported, so that no page of help needs torch.
"""

import inspect
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import get_origin

from sympformer import __version__, options
from sympformer.configs import SUFFIXES, config_file, shipped
from sympformer.errors import InputError, SympformerError, unknown_name
from sympformer.files import read_yaml
from sympformer.machine import calm_onednn
from sympformer.progress import pulse

# subcommand -> (module:function or module:table of functions, one line of help)
COMMANDS: dict[str, tuple[str, str]] = {
    "audit": ("sympformer.audit.command:audit", "test any language model for leaks of future tokens"),
    "bench": ("sympformer.studies.bench.bench:bench", "measure what layers, memory and generation cost, as ratios"),
    "compare": ("sympformer.studies.compare.command:compare", "train and compare several models under one budget"),
    "configs": ("sympformer.configs:configs", "list the configs that ship with the package, or copy one"),
    "data": ("sympformer.data.commands:COMMANDS", "turn text into token files (prepare), show them (info)"),
    "describe": ("sympformer.studies.describe:describe", "show a model's parameters, kernel passes and scalars"),
    "eval": ("sympformer.studies.scoring.eval:evaluate", "score a trained model on text and on probes"),
    "export": ("sympformer.export.command:export", "make a Hugging Face folder of a trained run, push it to a hub"),
    "flow": ("sympformer.studies.flow.command:flow", "run particle flows and draw tokens, energies and oracle calls"),
    "play": ("sympformer.studies.play.page:play", "write a page in which a flow of particles runs live in the browser"),
    "report": ("sympformer.studies.compare.command:report", "write a comparison, or runs side by side, as one page"),
    "sample": ("sympformer.training.commands:sample", "continue a text with a trained model"),
    "train": ("sympformer.training.commands:train", "train a language model, or continue a run"),
    "watch": ("sympformer.watching.command:watch", "show every token's way through models, as one HTML page"),
}

ECHO, LONGEST = 150, 700  # characters of an input that a sentence repeats, and of a sentence
NO_MEMORY = r"can't allocate memory|[Cc]annot allocate memory|failed to map segment|not enough memory|out of memory"
HELP = ("-h", "--help")
CONFIG = "A .yaml file, or the name of a config that ships with the package ('sympformer configs' lists them): {}."
HEAD = """usage: sympformer [-h] [--version] COMMAND ...

Accelerated transformers: attention layers as steps of a damped Hamiltonian flow.

commands:"""


def help_text() -> str:
    """The page that `sympformer --help` prints."""
    width = max(map(len, COMMANDS))
    rows = [f"  {name:<{width}}  {summary}" for name, (_, summary) in COMMANDS.items()]
    return "\n".join([HEAD, *rows, "\n'sympformer COMMAND --help' shows the options of a command."])


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
    if not args or args[0] in HELP:
        print(help_text())
        return 0 if args else 2
    if args[0] == "--version":
        print(f"sympformer {__version__}")
        return 0
    try:
        with _sigterm_like_ctrl_c(), pulse(args[0]):
            if not set(HELP) & set(args):
                calm_onednn()
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
    if isinstance(error, OSError):
        place = f" ({error.filename})" if error.filename is not None else ""
        return f"the system says: {error.strerror or error}{place}"
    if isinstance(error, MemoryError) or re.search(NO_MEMORY, str(error)):
        return "there is not enough memory: choose smaller sizes, or fewer --jobs"
    return None


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


def _run(command: Command, args: list[str]) -> int:
    """Call a command with what its words say, and the config among them."""
    name, words = args[0], args[1:]
    if isinstance(command, dict):
        if not words or words[0] in HELP:
            print(_table_page(name, command))
            return 0 if words else 2
        if words[0] not in command:
            raise unknown_name(f"{name} command", words[0], command)
        name, command, words = f"{name} {words[0]}", command[words[0]], words[1:]
    known = options.options_of(command)
    places = options.places(command, known, has_configs=any(one.command == name for one in shipped().values()))
    usage = f"sympformer {name} {_words(known, places)} [--OPTION VALUE ...]"
    if set(HELP) & set(words):
        print(options.page(usage, command, known, "" if places else _about_configs(name)))
        return 0
    if mapping := next((word[2:-5] for word in words if word.endswith(".help") and word[2:-5] in known), None):
        print(options.group_page(known, mapping))
        return 0
    words, file = _config_in(name, words, takes_config=not places)
    given = options.read(known, words, None if file is None else read_yaml(Path(file)), places)
    if missing := next((place for place in places if place not in given and known[place].required), None):
        raise InputError(f"{missing} is missing: {usage}")
    result = options.build(command, given)
    return result if isinstance(result, int) else 0


def _config_in(command: str, words: list[str], takes_config: bool) -> tuple[list[str], str | None]:
    """The other words, and the config that they name: behind --config, or as the first word."""
    file, rest = None, list[str]()
    if words and not words[0].startswith("-") and (takes_config or words[0].endswith(SUFFIXES)):
        file, words = config_file(words[0], command), words[1:]
    while words:
        option, has, value = words[0].partition("=")
        if option != "--config":
            rest.append(words[0])
        elif not (has or words[1:]):
            raise InputError("--config needs a value")
        else:
            file = value if has else words.pop(1)
        words = words[1:]
    return rest, file


def _words(known: dict[str, options.Option], places: list[str]) -> str:
    """What may stand without a name, as a usage says it."""
    if not places:
        return "[CONFIG]"
    plural = get_origin(known[places[-1]].kind) is list
    words = " ".join(place.upper() for place in places)
    words = f"{words.removesuffix('S')} [{places[-1].upper().removesuffix('S')} ...]" if plural else words
    return words if known[places[0]].required else f"[{words}]"


def _about_configs(command: str) -> str:
    names = ", ".join(name for name, one in shipped().items() if one.command == command)
    return options.row("CONFIG", CONFIG.format(names))


def _table_page(name: str, commands: Mapping[str, Callable[..., object]]) -> str:
    heads = [f"  {word:<10} {(inspect.getdoc(function) or '').splitlines()[0]}" for word, function in commands.items()]
    return "\n".join([f"usage: sympformer {name} COMMAND ...", "", *heads])
