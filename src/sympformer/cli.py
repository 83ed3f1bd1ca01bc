"""The command line: one table from subcommand to typed function; flags and help come from the signatures.

Only the chosen command's module is imported, so `sympformer --help` needs no torch.
"""

import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from sympformer import __version__
from sympformer.errors import SympformerError, unknown_name

# subcommand -> (module:function, one line of help)
COMMANDS: dict[str, tuple[str, str]] = {
    "flow": ("sympformer.experiments.flow:flow", "run particle flows and draw tokens, energies and oracle calls"),
}

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


def load(command: str) -> Callable[..., object]:
    """The function behind a subcommand."""
    if command not in COMMANDS:
        raise unknown_name("command", command, COMMANDS)
    module, function = COMMANDS[command][0].split(":")
    return getattr(import_module(module), function)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command. Exit code 0: done. 2: the input was not usable, and one sentence on stderr says why."""
    args = list(sys.argv[1:] if argv is None else argv)
    if not args or args[0] in ("-h", "--help"):
        print(help_text())
        return 0 if args else 2
    if args[0] == "--version":
        print(f"sympformer {__version__}")
        return 0
    try:
        return _run(load(args[0]), args)
    except SympformerError as error:
        print(f"sympformer: error: {error}", file=sys.stderr)
        return 2


def _run(function: Callable[..., object], args: list[str]) -> int:
    import jsonargparse

    jsonargparse.set_parsing_settings(docstring_parse_attribute_docstrings=True)
    result = jsonargparse.auto_cli(function, args=args[1:], prog=f"sympformer {args[0]}", as_positional=False)
    return result if isinstance(result, int) else 0


if __name__ == "__main__":
    sys.exit(main())
