"""What a probe is, and how groups of probes are drawn so that no word is right more often than another."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from sympformer.data.seeding import digest

T = TypeVar("T")
TRIES = 1000  # draws in a row that give nothing new before a form counts as used up


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


@dataclass(frozen=True)
class Group:
    """Probes that belong together: contexts with their right choice, and the choices they share."""

    choices: tuple[str, ...]
    items: tuple[tuple[str, str], ...]


class Draw:
    """Choices that depend on a seed and a name only."""

    def __init__(self, seed: int, name: str) -> None:
        # Only random() is used, the one method whose numbers Python promises to keep.
        self._random = Random(digest(seed, "probes", name)).random

    def pick(self, options: Sequence[T]) -> T:
        """One of the options, uniformly."""
        return options[int(self._random() * len(options))]

    def some(self, options: Sequence[T], n: int) -> list[T]:
        """n different options in a drawn order."""
        left = list(options)
        return [left.pop(int(self._random() * len(left))) for _ in range(n)]


Maker = Callable[[Draw], Group]


def collect(kind: str, forms: dict[str, tuple[int, Maker]], seed: int) -> tuple[Probe, ...]:
    """The probes of a kind. forms: name -> number of groups, and what draws one."""
    probes: list[Probe] = []
    seen: set[str] = set()
    number = 0
    for form, (count, make) in forms.items():
        draw = Draw(seed, f"{kind} {form}")
        for _ in range(count):
            group = _new_group(f"{kind} {form}", draw, make, seen)
            choices = tuple(draw.some(group.choices, len(group.choices)))
            probes += [
                Probe(kind, context, choices, choices.index(right), form, number) for context, right in group.items
            ]
            number += 1
    return tuple(probes)


def _new_group(name: str, draw: Draw, make: Maker, seen: set[str]) -> Group:
    """A group whose contexts have not been used yet."""
    for _ in range(TRIES):
        group = make(draw)
        contexts = {context for context, _ in group.items}
        if len(contexts) == len(group.items) and not contexts & seen:
            seen |= contexts
            return group
    raise RuntimeError(f"{name} finds nothing new after {len(seen)} texts: write more frames")


def cut(story: str) -> tuple[str, str]:
    """Context and choice of a story that ends with its answer in angle brackets: `... picked up the <ball>.`

    The choice takes the space before it along, as tokenizers do.
    """
    context, _, rest = story.rpartition(" <")
    return context, f" {rest.replace('>', '')}"
