"""Reads the storybook's text files: word lists, lands, plots and episodes.

The files are plain text so that a story is written where it is read; their first lines say how.
"""

import re
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

Row = str | tuple[str, ...]  # a word, or a word with the further columns of its table
Part = str | tuple[str, ...]  # a piece of a sentence, or a choice of pieces
ROLES = ("friend", "other", "elder")
MARKS = ("/", "~", "~~")
BRANCHES = ("a", "b")


@dataclass(frozen=True)
class Sentence:
    """One way to say something: pieces and choices of pieces, the roles it needs, the branch it belongs to."""

    parts: tuple[Part, ...]
    roles: frozenset[str]
    branch: str


@dataclass(frozen=True)
class Beat:
    """The alternative sentences of one moment; `mark` is set where it stands for something else than a sentence."""

    sentences: tuple[Sentence, ...]
    roles: frozenset[str]
    branched: bool
    mark: str  # "/" new paragraph, "~" an episode of the hero alone, "~~" of hero and friend, "" a sentence


@dataclass(frozen=True)
class Piece:
    """A plot or an episode: beats, each with its alternative sentences, and what the end of the story recalls."""

    name: str
    facts: tuple[tuple[str, str], ...]  # (slot, list it is drawn from)
    needs: str
    beats: tuple[Beat, ...]
    tail: Beat | None
    roles: frozenset[str]
    introduces: frozenset[str]  # roles that the piece introduces itself


@dataclass(frozen=True)
class Library:
    """Everything the storybook knows."""

    words: dict[str, tuple[Row, ...]]
    columns: dict[str, tuple[str, ...]]
    lands: tuple[dict[str, tuple[Row, ...]], ...]
    plots: tuple[Piece, ...]
    frame: dict[str, Piece]  # opening, friend, other, ending
    episodes: tuple[Piece, ...] = field(repr=False)


FRAME = ("opening", "friend", "other", "ending")


@cache
def library() -> Library:
    """The storybook's library, read once."""
    words, columns = _words(_read("words.txt"))
    pieces = {piece.name: piece for piece in _pieces(_read("episodes.txt"))}
    return Library(
        words=words,
        columns=columns,
        lands=tuple(_land(block) for _, block in _blocks(_read("settings.txt"))),
        plots=tuple(_pieces(_read("plots.txt"))),
        frame={name: pieces[name] for name in FRAME},
        episodes=tuple(piece for name, piece in pieces.items() if name not in FRAME),
    )


def _read(name: str) -> str:
    text = files(__package__).joinpath(name).read_text(encoding="utf-8")
    return "\n".join(line for line in text.splitlines() if not line.startswith("#"))


def _blocks(text: str) -> list[tuple[str, str]]:
    """(name, body) of every block that "= name" opens."""
    found = re.split(r"^= (\w+)$", text, flags=re.MULTILINE)[1:]
    return list(zip(found[::2], found[1::2], strict=True))


def _words(text: str) -> tuple[dict[str, tuple[Row, ...]], dict[str, tuple[str, ...]]]:
    words: dict[str, tuple[Row, ...]] = {}
    columns: dict[str, tuple[str, ...]] = {}
    found = re.split(r"^\[([^\]]+)\]$", text, flags=re.MULTILINE)[1:]
    for head, body in zip(found[::2], found[1::2], strict=True):
        if "=" in head:  # one list made of others
            name, sources = head.split(" = ")
            words[name] = sum((words[source] for source in sources.split(" + ")), ())
            columns[name] = columns[sources.split(" + ")[0]]
        elif ":" in head:
            name, named = head.split(": ")
            words[name] = tuple(tuple(cell.strip() for cell in row.split(";")) for row in body.strip().splitlines())
            columns[name] = tuple(named.split(", "))
        else:
            words[head] = _entries(body)
            columns[head] = ()
    return words, columns


def _entries(body: str) -> tuple[str, ...]:
    return tuple(entry.strip() for entry in body.split(";"))


def _land(body: str) -> dict[str, tuple[Row, ...]]:
    """The lists of a land. A place keeps two forms: "the harbour" and "at the harbour"."""
    lists: dict[str, tuple[Row, ...]] = {}
    for line in body.strip().splitlines():
        name, entries = line.split(": ", 1)
        lists[name] = _entries(entries)
    lists["place"] = tuple(("the " + str(entry).split(" the ", 1)[1], str(entry)) for entry in lists["place"])
    lists["animal"] = lists["kind"]
    return lists


def _pieces(text: str) -> list[Piece]:
    return [_piece(name, body) for name, body in _blocks(text)]


def _piece(name: str, body: str) -> Piece:
    heads = dict(re.findall(r"^(facts|needs): (.*)$", body, flags=re.MULTILINE))
    body = re.sub(r"^(facts|needs): .*$", "", body, flags=re.MULTILINE)
    chunks = [chunk.strip().splitlines() for chunk in re.split(r"\n\s*\n", body) if chunk.strip()]
    beats = tuple(_beat(chunk) for chunk in chunks if not chunk[0].startswith("> "))
    tails = [line[2:] for chunk in chunks for line in chunk if line.startswith("> ")]
    return Piece(
        name=name,
        facts=tuple((fact.split("=")[0], fact.split("=")[-1]) for fact in heads.get("facts", "").split()),
        needs=heads.get("needs", ""),
        beats=beats,
        tail=_beat(tails) if tails else None,
        roles=frozenset().union(*(beat.roles for beat in beats)),
        introduces=frozenset(role for role in ROLES if f"{{{role} intro" in body),
    )


def _beat(lines: list[str]) -> Beat:
    sentences = tuple(map(_sentence, lines))
    return Beat(
        sentences=sentences,
        roles=frozenset().union(*(sentence.roles for sentence in sentences)),
        branched=any(sentence.branch for sentence in sentences),
        mark=lines[0] if lines[0] in MARKS else "",
    )


def _sentence(line: str) -> Sentence:
    branch = line[0] if line[1:3] == ": " else ""
    line = line.removeprefix(f"{branch}: ")
    pieces = re.split(r"\[([^\]]*)\]", line)
    parts = [piece if i % 2 == 0 else tuple(piece.split("|")) for i, piece in enumerate(pieces)]
    slots = " ".join(re.findall(r"\{([^}]*)\}", line))
    roles = frozenset(role for role in ROLES if re.search(rf"\b{role}\b|(^| ){role[0]} he", slots))
    return Sentence(tuple(part for part in parts if part), roles, branch)
