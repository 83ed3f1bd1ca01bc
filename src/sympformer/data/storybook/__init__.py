"""Simple children's stories, made to order: any number, the same for the same seed, no network needed.

A story has named characters, a goal, dialogue, and facts that are told early and needed again later (who owns the red
kite, where it was hidden, what was promised), so that a model gains by looking far back.

    >>> story(seed=0, index=0) == story(seed=0, index=0)
    True
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from sympformer.data.seeding import digest
from sympformer.data.storybook.cast import invite, keep_company
from sympformer.data.storybook.library import Beat, Piece, library
from sympformer.data.storybook.teller import CLOSE, OPEN, Teller

VERSION = 1  # goes up whenever a (seed, index) gives another story than before
EPISODE_SHARE = 0.45  # of the places where a plot leaves room for an episode
ENDING_SHARE = 0.85
MARKED = re.compile(f"{OPEN}([^{CLOSE}]*){CLOSE}")


@dataclass(frozen=True)
class Cloze:
    """A story cut before a fact that it told earlier: `context + answer` is how it goes on."""

    context: str
    answer: str
    options: tuple[str, ...]  # the answer and others of its kind, sorted


def story(seed: int, index: int) -> str:
    """The story of that number. A pure function: the same on every machine."""
    return _tell(seed, index).text().replace(OPEN, "").replace(CLOSE, "")


def stories(n: int, seed: int = 0) -> Iterator[str]:
    """The first n stories of a seed."""
    for index in range(n):
        yield story(seed, index)


def cloze(seed: int, index: int, choices: int = 4) -> Cloze | None:
    """A question about an earlier fact of `story(seed, index)`: the last recalled fact that comes from a list.

    None where a story recalls no such fact.
    """
    teller = _tell(seed, index)
    facts = {teller.slots[slot]: source for slot, source in teller.sources.items()}
    text = teller.text()
    for mark in reversed(list(MARKED.finditer(text))):
        answer = mark.group(1)
        known = answer if answer in facts else answer[:1].lower() + answer[1:]
        if known not in facts:
            continue
        pool = [row if isinstance(row, str) else row[0] for row in teller.pool(facts[known])]
        others = sorted({word for word in pool if word != known})
        drawn = [others.pop(int(teller.random() * len(others))) for _ in range(min(choices - 1, len(others)))]
        if answer != known:
            drawn = [word[:1].upper() + word[1:] for word in drawn]
        return Cloze(MARKED.sub(r"\1", text[: mark.start()]), answer, tuple(sorted([answer, *drawn])))
    return None


def _tell(seed: int, index: int) -> Teller:
    # Only random() is used, the one method whose numbers Python promises to keep.
    teller = Teller(library(), Random(digest(seed, "story", index)).random)
    plot = teller.pick(teller.library.plots)
    invite(teller, plot.roles)
    teller.slots["land"] = teller.fresh("land")
    for slot, source in plot.facts:
        teller.learn(slot, source)
    keep_company(teller, None)
    _open(teller, plot)
    for beat in _beats(teller, plot):
        teller.say(beat)
    if teller.chance(ENDING_SHARE):
        teller.say(teller.library.frame["ending"].beats[0])
    return teller


def _open(teller: Teller, plot: Piece) -> None:
    frame = teller.library.frame
    teller.say(frame["opening"].beats[0])
    for role in ("friend", "other"):
        if role in teller.cast and role not in plot.introduces:
            teller.say(frame[role].beats[0])
    if teller.slots.get("elder line"):
        teller.paragraphs[-1].append(teller.slots["elder line"].format_map(teller.slots))
    teller.break_paragraph()


def _beats(teller: Teller, plot: Piece) -> list[Beat]:
    """Tell the plot with episodes in between; returns what the end has to recall."""
    tails: list[Beat] = []
    told: set[str] = set()
    for beat in plot.beats:
        if not beat.mark:
            teller.say(beat)
        elif beat.mark == "/":
            teller.break_paragraph()
        elif teller.chance(EPISODE_SHARE):
            keep_company(teller, "friend" if beat.mark == "~~" else None)
            _episode(teller, told, tails, company=beat.mark == "~~")
    return tails


def _episode(teller: Teller, told: set[str], tails: list[Beat], company: bool) -> None:
    while True:
        episode = teller.pick(teller.library.episodes)
        if episode.name not in told and (company or not episode.needs):
            break
    told.add(episode.name)
    teller.say_all(episode)
    if episode.tail and teller.chance(0.7):
        tails.append(episode.tail)
