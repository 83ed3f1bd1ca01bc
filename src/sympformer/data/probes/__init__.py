"""Questions about short stories that a language model answers by likelihood; made here, no network needed.

    >>> probe = probe_set("agreement")[0]
    >>> len(probe.choices), 0 <= probe.answer < 2
    (2, True)

Kinds and forms: see `cloze`, `agreement` and `pronoun`. Every choice of a group is right equally often in it, so that
a model which does not read the context scores exactly at chance.
"""

from collections.abc import Callable
from functools import cache

from sympformer.data.probes.agreement import agreement
from sympformer.data.probes.cloze import cloze
from sympformer.data.probes.probe import Probe
from sympformer.data.probes.pronoun import pronoun
from sympformer.errors import unknown_name

__all__ = ["KINDS", "VERSION", "Probe", "probe_set"]

VERSION = 1  # goes up whenever a (kind, seed) gives other probes than before: scores of versions do not compare
KINDS: dict[str, Callable[[int], tuple[Probe, ...]]] = {
    "cloze": cloze,
    "agreement": agreement,
    "pronoun": pronoun,
}


@cache
def probe_set(kind: str, seed: int = 0) -> tuple[Probe, ...]:
    """The probes of a kind. A pure function: the same on every machine."""
    if kind not in KINDS:
        raise unknown_name("kind of probe", kind, KINDS)
    return KINDS[kind](seed)
