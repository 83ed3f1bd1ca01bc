"""Questions about short stories that a language model answers by likelihood; made here, no network needed.

    >>> probe = probe_set("agreement")[0]
    >>> len(probe.choices), 0 <= probe.answer < 2
    (2, True)

Kinds and forms: see `cloze`, `agreement` and `pronoun`. Every choice of a group is right equally often in it, so that
a model which does not read the context scores exactly at chance.
"""

import re
from collections.abc import Callable
from functools import cache

from sympformer.data.probes.agreement import agreement
from sympformer.data.probes.cloze import cloze
from sympformer.data.probes.probe import Probe
from sympformer.data.probes.pronoun import pronoun
from sympformer.errors import unknown_name

__all__ = ["KINDS", "LEAST_SHARE", "VERSION", "Probe", "probe_set", "share_of_words"]

VERSION = 1  # goes up whenever a (kind, seed) gives other probes than before: scores of versions do not compare
KINDS: dict[str, Callable[[int], tuple[Probe, ...]]] = {
    "cloze": cloze,
    "agreement": agreement,
    "pronoun": pronoun,
}

# of a text's words that are words of the probes too: 72 % in TinyStories, 60 % in the storybook, 31 to 40 % in manuals
LEAST_SHARE = 0.5
WORDS = re.compile(r"[a-z]+(?:'[a-z]+)?")


@cache
def probe_set(kind: str, seed: int = 0) -> tuple[Probe, ...]:
    """The probes of a kind. A pure function: the same on every machine."""
    if kind not in KINDS:
        raise unknown_name("kind of probe", kind, KINDS)
    return KINDS[kind](seed)


def share_of_words(text: str) -> float:
    """The share of a text's words, each as often as it stands there, that are among the words of the probes."""
    words = WORDS.findall(text.lower())
    return sum(word in _probe_words() for word in words) / max(1, len(words))


@cache
def _probe_words() -> frozenset[str]:
    texts = (text for kind in KINDS for probe in probe_set(kind) for text in probe.texts)
    return frozenset(word for text in texts for word in WORDS.findall(text.lower()))
