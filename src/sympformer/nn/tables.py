"""The tables that every choice is a row of, and the one way to add a row: `register`.

| kind | a row is | called as |
|---|---|---|
| integrator | a subclass of `flows.FrozenIntegrator` (others integrate particles, not layers) | `Scheme()` |
| attention | a subclass of `nn.Attention` | `Attention(cfg)` |
| stepper | a subclass of `nn.Stepper` | `Stepper(cfg)` |
| norm | a module class | `Norm(d, gain)`, gain: the start of its scale |
| mlp | a module class | `MLP(cfg)`, takes (B, T, d) as it is and normalises it itself |
| positions | a subclass of `nn.Positions` | `Positions(cfg)` |

Validation, the command line, descriptions and the property tests read these tables.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from torch import nn

from sympformer.errors import InputError, unknown_name
from sympformer.flows import INTEGRATORS, Integrator

Row = TypeVar("Row")
NO_MLP = "none"  # the row of layers without a second half

ATTENTIONS: dict[str, Any] = {}
STEPPERS: dict[str, Any] = {}
NORMS: dict[str, Callable[[int, float], nn.Module]] = {}
MLPS: dict[str, Callable[[Any], nn.Module | None]] = {}
POSITIONS: dict[str, Any] = {}

TABLES: dict[str, dict[str, Any]] = {
    "integrator": INTEGRATORS,
    "attention": ATTENTIONS,
    "stepper": STEPPERS,
    "norm": NORMS,
    "mlp": MLPS,
    "positions": POSITIONS,
}
# what rows must be subclasses of; who defines such a class writes it here
BASES: dict[str, type[Any]] = {"integrator": Integrator}


def register(kind: str, name: str, row: Row) -> Row:
    """Add a choice, for example `register("norm", "rms", RMSNorm)`; configs may then say `norm: rms`."""
    if kind not in TABLES:
        raise unknown_name("kind of part", kind, TABLES)
    table, a = TABLES[kind], kind if kind == "positions" else f"{'an' if kind[0] in 'ai' else 'a'} {kind}"
    if not isinstance(name, str) or not name.isidentifier():
        raise InputError(f"the name of {a} must be a word of letters, digits and underscores, got {name!r}")
    if name in table:
        raise InputError(f"there is {a} named {name!r} already; choose another name")
    base = BASES.get(kind)
    if base is not None and not (isinstance(row, type) and issubclass(row, base)):
        where = "flows" if kind == "integrator" else "nn"
        raise InputError(f"the {kind} {name!r} must be a subclass of sympformer.{where}.{base.__name__}")
    if not callable(row):
        raise InputError(f"{a} must be a class or a function, got {type(row).__name__}")
    table[name] = row
    return row


def check_choice(kind: str, name: object) -> None:
    """Refuse a name that is not in its table, with the nearest that is."""
    if name not in TABLES[kind]:
        raise unknown_name(kind, name, TABLES[kind])
