"""Tells one story: holds its words and facts, picks sentences, and fills their slots."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from sympformer.data.storybook.library import BRANCHES, Beat, Library, Piece, Row, Sentence

T = TypeVar("T")

# A recalled fact stands between these two characters until the story is finished.
OPEN, CLOSE = "\x02", "\x03"
SOUNDED_VOWEL = ("hour", "honest")
SOUNDED_CONSONANT = ("unicorn", "use", "one ")


def with_article(phrase: str) -> str:
    """`a` or `an` before a phrase: a kite, an orange kite, an hour, a unicorn.

    >>> with_article("orange kite"), with_article("unicorn")
    ('an orange kite', 'a unicorn')
    """
    bare = phrase.lstrip(OPEN).lower()
    vowel = bare[0] in "aeiou" and not bare.startswith(SOUNDED_CONSONANT)
    return ("an " if vowel or bare.startswith(SOUNDED_VOWEL) else "a ") + phrase


def capitalised(phrase: str) -> str:
    """The phrase with a capital first letter, also inside the marks of a recalled fact."""
    at = 1 if phrase[:1] == OPEN else 0
    return phrase[:at] + phrase[at : at + 1].upper() + phrase[at + 1 :]


class Slots(dict[str, str]):
    """What a story knows. A slot that is not known yet is derived from its name.

    {thing cap} with a capital, {a thing} with an article, {=thing} marked as recalled, {any bird} drawn afresh,
    {some bird} drawn afresh with an article, {any saying low} with a small first letter, {Elder} as {elder cap}.
    """

    def __init__(self, draw: Callable[[str], str]) -> None:
        super().__init__()
        self._draw = draw

    def __missing__(self, key: str) -> str:
        if key.endswith(" cap"):
            return capitalised(self[key[:-4]])
        if key.endswith(" low"):
            value = self[key[:-4]]
            return value[0].lower() + value[1:]
        if key[0] == "=":
            return OPEN + self[key[1:]] + CLOSE
        first, _, rest = key.partition(" ")
        if first == "a":
            return with_article(self[rest])
        if first == "any":
            return self._draw(rest.rstrip(" 23"))
        if first == "some":
            return with_article(self._draw(rest))
        if key[0].isupper():
            return capitalised(self[key[0].lower() + key[1:]])
        return self._draw(key)


class Teller:
    """One story in the making."""

    def __init__(self, library: Library, random: Callable[[], float]) -> None:
        self.library = library
        self.random = random
        self.land = self.pick(library.lands)
        self.branch = self.pick(BRANCHES)
        self.slots = Slots(self.fresh)
        self.sources: dict[str, str] = {}  # slot -> list it was drawn from
        self.cast: set[str] = set()
        self.paragraphs: list[list[str]] = [[]]
        self._used: set[str] = set()

    def pick(self, options: Sequence[T]) -> T:
        """One of the options, uniformly."""
        return options[int(self.random() * len(options))]

    def chance(self, share: float) -> bool:
        """True in the given share of cases."""
        return self.random() < share

    def pool(self, name: str) -> Sequence[Row]:
        """The list of that name, the land's own first."""
        return self.land.get(name) or self.library.words[name]

    def row(self, name: str) -> Row:
        """An entry of a list that this story has not used, where there is one."""
        pool = self.pool(name)
        for _ in range(20):
            row = self.pick(pool)
            word = row if isinstance(row, str) else row[0]
            if word not in self._used:
                break
        self._used.add(word)
        return row

    def fresh(self, name: str) -> str:
        """A word of a list, without keeping it."""
        row = self.row(name)
        return row if isinstance(row, str) else row[0]

    def learn(self, slot: str, source: str) -> None:
        """Draw a fact and keep it: {slot}, and {slot column} for the columns of its table."""
        row = self.row(source)
        self.sources[slot] = source
        if isinstance(row, str):
            self.slots[slot] = row
            return
        self.slots[slot] = row[0]
        for column, value in zip(self._columns(source), row[1:], strict=True):
            self.slots[f"{slot} {column}"] = value

    def _columns(self, source: str) -> tuple[str, ...]:
        return ("at",) if source == "place" else self.library.columns[source]

    def say(self, beat: Beat) -> None:
        """Say one of the sentences that fit the story, in the current paragraph."""
        sentences: Sequence[Sentence] = beat.sentences
        if beat.branched or not beat.roles <= self.cast:
            sentences = [s for s in sentences if s.roles <= self.cast and s.branch in ("", self.branch)]
        random = self.random
        text = "".join([p if type(p) is str else p[int(random() * len(p))] for p in self.pick(sentences).parts])
        if text != "-":
            self.paragraphs[-1].append(capitalised(text.format_map(self.slots)))

    def say_all(self, piece: Piece) -> None:
        """Learn the facts of an episode and say its beats."""
        for slot, source in piece.facts:
            self.learn(slot, source)
        for beat in piece.beats:
            self.say(beat)

    def break_paragraph(self) -> None:
        """Start a new paragraph, unless one has just started."""
        if self.paragraphs[-1]:
            self.paragraphs.append([])

    def text(self) -> str:
        """The story so far, recalled facts still marked."""
        return "\n\n".join(" ".join(sentences) for sentences in self.paragraphs if sentences)
