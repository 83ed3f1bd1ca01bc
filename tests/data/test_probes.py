"""The probes: pure, balanced, unique, well written, and not to be found in the corpora."""

import gzip
import hashlib
import json
import re
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import pytest

from sympformer.data.probes import KINDS, LEAST_SHARE, VERSION, Probe, probe_set, share_of_words
from sympformer.data.probes.lexicon import BOYS, GIRLS
from sympformer.data.probes.probe import Draw, Group, collect, cut
from sympformer.data.storybook import stories
from sympformer.errors import InputError
from tests.data.places import TINYSTORIES, needs_tinystories

SEEDS = (0, 1, 2)
# sha256 of all probes of seed 0 by version: a change of any probe needs a new version
GOLDEN = {1: "1e0dc78c599d25ac0c8d624c76a6d06af082b3fa1bae3e400f3abe34a2c4f6fd"}
every_kind = pytest.mark.parametrize("kind", KINDS)


def groups(probes: tuple[Probe, ...]) -> dict[int, list[Probe]]:
    found: dict[int, list[Probe]] = defaultdict(list)
    for probe in probes:
        found[probe.group].append(probe)
    return found


def last_mentioned(probe: Probe) -> int:
    """The choice whose word stands nearest to the end of the context."""
    words = [re.findall(r"\w+", choice)[0] for choice in probe.choices]
    return max(range(len(words)), key=lambda i: probe.context.rfind(words[i]))


def test_probes_never_change_without_a_new_version() -> None:
    text = "\n".join(repr(probe) for kind in KINDS for probe in probe_set(kind))
    assert hashlib.sha256(text.encode()).hexdigest() == GOLDEN[VERSION]


@every_kind
def test_the_seed_decides(kind: str) -> None:
    assert KINDS[kind](3) == KINDS[kind](3)
    assert KINDS[kind](3) != KINDS[kind](4)


@every_kind
@pytest.mark.parametrize("seed", SEEDS)
def test_enough_and_no_two_alike(kind: str, seed: int) -> None:
    probes = probe_set(kind, seed)
    assert len(probes) >= 200
    assert len({probe.context for probe in probes}) == len(probes)
    assert {probe.kind for probe in probes} == {kind}


@every_kind
@pytest.mark.parametrize("seed", SEEDS)
def test_every_choice_is_right_equally_often_in_its_group(kind: str, seed: int) -> None:
    for group in groups(probe_set(kind, seed)).values():
        assert len({probe.choices for probe in group}) == 1
        assert len(set(group[0].choices)) == len(group[0].choices)
        answers = Counter(probe.answer for probe in group)
        assert set(answers) == set(range(len(group[0].choices)))
        assert len(set(answers.values())) == 1


@every_kind
def test_answer_positions_are_balanced(kind: str) -> None:
    for size, probes in by_size(probe_set(kind)).items():
        assert Counter(probe.answer for probe in probes) == dict.fromkeys(range(size), len(probes) // size)


@pytest.mark.parametrize(("kind", "first"), [("agreement", " was"), ("agreement", " is"), ("pronoun", " he")])
def test_a_word_is_not_always_at_the_same_place(kind: str, first: str) -> None:
    places = Counter(
        i for probe in probe_set(kind) for i, choice in enumerate(probe.choices) if choice.startswith(first + " ")
    )
    assert min(places[0], places[1]) > sum(places.values()) / 5


def by_size(probes: tuple[Probe, ...]) -> dict[int, list[Probe]]:
    found: dict[int, list[Probe]] = defaultdict(list)
    for probe in probes:
        found[len(probe.choices)].append(probe)
    return found


def test_singular_and_plural_are_balanced() -> None:
    right = Counter((p.form, p.choices[p.answer].split()[0]) for p in probe_set("agreement"))
    for form in ("plain", "same", "attractor"):
        for singular, plural in (("was", "were"), ("is", "are"), ("has", "have")):
            assert right[form, singular] == right[form, plural] > 0


def test_between_subject_and_verb() -> None:
    """The nearest noun says nothing where there is none, the truth in "same", and the opposite in "attractor"."""
    for probe in probe_set("agreement"):
        sentence = probe.context.split("The ")[-1]
        subject, _, between = sentence.partition(" ")
        numbers = [is_plural(subject), is_plural(sentence.split()[-1])]
        assert (between == "") == (probe.form == "plain")
        assert (numbers[0] == numbers[1]) == (probe.form != "attractor")
        assert numbers[0] == (probe.choices[probe.answer].split()[0] in ("were", "are", "have"))


def is_plural(noun: str) -> bool:
    return noun == "children" or noun.endswith("s")


def test_pronouns_are_balanced() -> None:
    asked = Counter(p.choices[p.answer].split()[0] for p in probe_set("pronoun") if p.form == "gender")
    assert asked["he"] == asked["she"] == asked["they"] > 20
    resolved = Counter(re.findall(r"\. (He|She) ", p.context)[-1] for p in probe_set("pronoun") if p.form == "resolve")
    assert resolved["He"] == resolved["She"] == 40


def test_who_is_meant() -> None:
    """Read from the text alone: who acts, who gives, who is a boy."""
    for probe in probe_set("pronoun"):
        right = re.findall(r"\w+", probe.choices[probe.answer])[0]
        names = re.findall("|".join((*BOYS, *GIRLS)), probe.context)
        if probe.form == "gender":
            many = re.match(r"(The )?\w+ and ", probe.context) is not None
            male = re.match("|".join((*BOYS, "Dad", "The boy")), probe.context) is not None
            assert right == ("they" if many else "he" if male else "she"), probe
        elif probe.form == "resolve":
            actor = re.findall(r"\. (He|She) ", probe.context)[-1]
            assert {right} == set(names) & set(GIRLS if actor == "He" else BOYS), probe
        else:
            assert right == names[1 if "belonged" in probe.context else 0], probe


@pytest.mark.parametrize(
    ("kind", "form", "share"), [("cloze", "binding", 1 / 4), ("pronoun", "resolve", 1 / 2), ("pronoun", "who", 1 / 2)]
)
def test_the_last_word_mentioned_is_right_no_more_often_than_by_chance(kind: str, form: str, share: float) -> None:
    probes = [probe for probe in probe_set(kind) if probe.form == form]
    assert sum(last_mentioned(probe) == probe.answer for probe in probes) == share * len(probes)


def test_what_a_cloze_tells() -> None:
    for probe in probe_set("cloze"):
        words = [re.findall(r"\w+", choice)[0] for choice in probe.choices]
        told = [re.search(rf"\b{word}\b", probe.context) is not None for word in words]
        assert told == ([True] * 4 if probe.form == "binding" else [i == probe.answer for i in range(4)]), probe


@every_kind
def test_texts_are_well_formed(kind: str) -> None:
    for seed in SEEDS:
        for probe in probe_set(kind, seed):
            for choice, text in zip(probe.choices, probe.texts, strict=True):
                assert re.fullmatch(r" [A-Za-z][a-z ]*[.!?]\"?", choice)
                assert len(choice) <= 16  # bytes: also a model that sees few of them can be asked
                assert not re.search(r"[{}<>]|  |\b[Aa] [aeiou]|\b(\w+) \1\b|[.!?] [a-z](?!\w* \w* ?said)", text), text
                assert text.count('"') % 2 == 0, text
            assert not re.search(r"\s$", probe.context)


@cache
def storybook() -> str:
    return "\n".join(stories(3000, seed=0))


@every_kind
def test_the_storybook_holds_no_probe(kind: str) -> None:
    for probe in probe_set(kind):
        assert not any(text in storybook() for text in probe.texts)


@needs_tinystories
def test_tinystories_know_every_word_and_hold_no_probe() -> None:
    with gzip.open(TINYSTORIES / "train.jsonl.gz", "rt", encoding="utf-8") as file:
        book = "\n".join(json.loads(line)["text"] for line in file)
    known = Counter(re.findall(r"\w+", book))
    texts = [text for kind in KINDS for probe in probe_set(kind) for text in probe.texts]
    assert [word for word in set(re.findall(r"\w+", " ".join(texts))) if known[word] < 5] == []
    assert [text for text in texts if text in book[:2_000_000]] == []


def test_the_page_tells_every_form() -> None:
    page = (Path(__file__).parents[2] / "docs" / "probes.md").read_text(encoding="utf-8")
    for kind in KINDS:
        for (form, choices), items in Counter((p.form, len(p.choices)) for p in probe_set(kind)).items():
            assert f" | {form} | {items} | {choices} | " in page


def test_an_unknown_kind() -> None:
    with pytest.raises(InputError, match="did you mean 'cloze'"):
        probe_set("cloz")


def test_a_form_that_has_too_few_texts_says_so() -> None:
    with pytest.raises(RuntimeError, match="x y finds nothing new after 2 texts"):
        collect("x", {"y": (2, lambda draw: Group((" a", " b"), (("one", " a"), ("two", " b"))))}, seed=0)


def test_drawing() -> None:
    draw = Draw(0, "x")
    assert sorted(draw.some("abcd", 4)) == list("abcd")
    assert {draw.pick("ab") for _ in range(50)} == {"a", "b"}
    assert cut('He said, "It is a <big ball>!"') == ('He said, "It is a', ' big ball!"')


def test_which_text_the_probes_are_about() -> None:
    """Stories have the probes' words; code, law and other languages do not."""
    assert share_of_words("\n".join(stories(200))) > LEAST_SHARE + 0.05
    assert share_of_words(Path(__file__).read_text()) < LEAST_SHARE - 0.1
    assert share_of_words((Path(__file__).parents[2] / "LICENSE").read_text()) < LEAST_SHARE - 0.05
    assert share_of_words("Es war einmal ein kleines Haus.") < LEAST_SHARE
    assert share_of_words("The Dog's dog, the DOG") == pytest.approx(0.8)  # by the word, whatever its case
    assert share_of_words("42") == 0
