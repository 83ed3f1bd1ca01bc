"""The tables that every choice is a row of, and the one way to add a row: `register`.

| kind | a row is | called as |
|---|---|---|
| integrator | a subclass of `flows.FrozenIntegrator` (others integrate particles, not layers) | `Scheme()` |
| attention | an `nn.AttentionKind` | see there |
| norm | a module class | `Norm(d, gain)`, gain: the start of its scale |
| mlp | a module class | `MLP(cfg)`, takes (B, T, d) as it is and normalises it itself |
| positions | a subclass of `nn.Positions` | `Positions(cfg)` |
| dynamics | a subclass of `nn.Layer` | `Dynamics(cfg)` |

Validation, the command line, descriptions and the property tests read these tables.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from torch import nn

from sympformer.errors import InputError, unknown_name
from sympformer.flows import INTEGRATORS

Row = TypeVar("Row")
NO_MLP = "none"  # the row of layers without a second half

# rows know this file, so their types cannot be named here: AttentionKind, subclasses of Positions and of Layer
ATTENTIONS: dict[str, Any] = {}
NORMS: dict[str, Callable[[int, float], nn.Module]] = {}
MLPS: dict[str, Callable[[Any], nn.Module | None]] = {}
POSITIONS: dict[str, Any] = {}
DYNAMICS: dict[str, Any] = {}

TABLES: dict[str, dict[str, Any]] = {
    "integrator": INTEGRATORS,
    "attention": ATTENTIONS,
    "norm": NORMS,
    "mlp": MLPS,
    "positions": POSITIONS,
    "dynamics": DYNAMICS,
}


def register(kind: str, name: str, row: Row) -> Row:
    """Add a choice, for example `register("norm", "rms", RMSNorm)`; configs may then say `norm: rms`."""
    table = _table(kind)
    if not isinstance(name, str) or not name.isidentifier():
        raise InputError(f"the name of {_a(kind)} must be a word of letters, digits and underscores, got {name!r}")
    if name in table:
        raise InputError(f"there is {_a(kind)} named {name!r} already; choose another name")
    if not callable(row) and kind != "attention":
        raise InputError(f"{_a(kind)} must be a class or a function, got {type(row).__name__}")
    _check_row(kind, name, row)
    table[name] = row
    return row


def _check_row(kind: str, name: str, row: object) -> None:
    """Refuse what cannot be a row of its table. By the names of the classes, which this file cannot import."""
    classes = {
        "integrator": "sympformer.flows.Integrator",
        "positions": "sympformer.nn.Positions",
        "dynamics": "sympformer.nn.Layer",
    }
    if kind in classes:
        wanted = classes[kind]
        ancestors = [base.__name__ for base in row.__mro__] if isinstance(row, type) else []
        if wanted.rpartition(".")[2] not in ancestors:
            raise InputError(f"the {kind} {name!r} must be a subclass of {wanted}")
    if kind == "attention" and type(row).__name__ != "AttentionKind":
        raise InputError(f"the attention {name!r} must be an AttentionKind, got {type(row).__name__}")


def check_choice(kind: str, name: object, option: str | None = None) -> None:
    """Refuse a name that is not in its table, with the nearest that is."""
    table = _table(kind)
    if name not in table:
        raise unknown_name(option or kind, name, table)


def _table(kind: str) -> dict[str, Any]:
    if kind not in TABLES:
        raise unknown_name("kind of part", kind, TABLES)
    return TABLES[kind]


def _a(kind: str) -> str:
    return kind if kind == "positions" else f"{'an' if kind[0] in 'ai' else 'a'} {kind}"
