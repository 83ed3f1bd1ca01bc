"""Questions about short stories that a language model answers by likelihood; 724 of them, frozen in `probes.jsonl.gz`.

    >>> probe = probe_set("agreement")[0]
    >>> len(probe.choices), 0 <= probe.answer < 2
    (2, True)

docs/probes.md says what each kind and form asks. Every choice of a group is right equally often in it, so that a model
which does not read the context scores exactly at chance. The code at commit f10bd74 wrote the file (version 1, seed 0).
"""

import gzip
import json
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from sympformer.errors import unknown_name

KINDS = ("cloze", "agreement", "pronoun")
# of a text's words that are words of the probes too: 72 % in TinyStories, 60 % in the storybook, 31 to 40 % in manuals
LEAST_SHARE = 0.5
WORDS = re.compile(r"[a-z]+(?:'[a-z]+)?")


@dataclass(frozen=True)
class Probe:
    """A text and several ways to go on, one of them right. Each choice runs to the end of its sentence.

    form: what exactly the probe asks for, within its kind. group: the number of its group in the set; a group has one
    list of choices, and each of them is right equally often in it.
    """

    kind: str
    context: str
    choices: tuple[str, ...]
    answer: int
    form: str
    group: int

    @property
    def texts(self) -> tuple[str, ...]:
        """The whole text with every choice."""
        return tuple(self.context + choice for choice in self.choices)


def probe_set(kind: str) -> tuple[Probe, ...]:
    """The probes of a kind, the same on every machine."""
    if kind not in KINDS:
        raise unknown_name("kind of probe", kind, KINDS)
    return tuple(probe for probe in _all() if probe.kind == kind)


def share_of_words(text: str) -> float:
    """The share of a text's words, each as often as it stands there, that are among the words of the probes."""
    words = WORDS.findall(text.lower())
    return sum(word in _words() for word in words) / max(1, len(words))


@cache
def _all() -> tuple[Probe, ...]:
    packed = files("sympformer.data").joinpath("probes.jsonl.gz").read_bytes()
    rows = map(json.loads, gzip.decompress(packed).splitlines())
    return tuple(Probe(**row | {"choices": tuple(row["choices"])}) for row in rows)


@cache
def _words() -> frozenset[str]:
    return frozenset(word for probe in _all() for text in probe.texts for word in WORDS.findall(text.lower()))
