"""The errors a user can cause. Each message is one sentence: what is wrong, where, what to do.

The command line prints them without a traceback and exits with 2; everything else is a bug and keeps its traceback.
"""

import difflib
from collections.abc import Iterable


class SympformerError(Exception):
    """Base of every error that a user can cause and mend."""


class InputError(SympformerError, ValueError):
    """An argument, a file or a config is not usable as given."""


class DivergenceError(SympformerError, ArithmeticError):
    """A computation left the finite numbers."""


class MissingPackage(InputError, ImportError):
    """A package that only some parts need is not installed."""


def missing_extra(what: str, package: str, extra: str) -> MissingPackage:
    """The error for a package that only some commands need, with the command that installs it."""
    return MissingPackage(f"{what} needs {package}: in a clone of sympformer, pip install '.[{extra}]' installs it")


def unknown_name(kind: str, name: object, known: Iterable[str]) -> InputError:
    """The error for a name that is not in a table, with the nearest one that is."""
    known = list(known)
    near = difflib.get_close_matches(str(name), known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return InputError(f"unknown {kind} {name!r}: choose one of {', '.join(known)}{hint}")
