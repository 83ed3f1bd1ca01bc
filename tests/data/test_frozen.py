"""The stories and probes that come with the package are, to the byte, those that commit f10bd74 wrote."""

import hashlib
from collections import Counter
from pathlib import Path

import pytest

from sympformer.data import stories
from sympformer.data.probes import KINDS, LEAST_SHARE, probe_set, share_of_words
from sympformer.errors import InputError

ROOT = Path(__file__).parents[2]
FIRST_200 = "24b66f6aab856d2df2a8f7ba7f6a332356e2ced4a9eb495b699c0e30ad02111e"
ALL = "c0115088aa6df2cf2f924b05543c9f3d8816b7788a44cc622bba0735e6eb3cb2"
PROBES = "1e0dc78c599d25ac0c8d624c76a6d06af082b3fa1bae3e400f3abe34a2c4f6fd"


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_stories_never_change() -> None:
    told = list(stories())
    assert len(told) == 20_000
    assert sha256("\n".join(told)) == ALL
    assert sha256("\n".join(stories(200))) == FIRST_200


def test_probes_never_change() -> None:
    assert sha256("\n".join(repr(probe) for kind in KINDS for probe in probe_set(kind))) == PROBES


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_that_reads_no_context_is_at_chance(kind: str) -> None:
    groups: dict[int, Counter[str]] = {}
    for probe in probe_set(kind):
        groups.setdefault(probe.group, Counter(dict.fromkeys(probe.choices, 0)))[probe.choices[probe.answer]] += 1
    assert all(len(set(right.values())) == 1 for right in groups.values())


def test_the_page_tells_every_form() -> None:
    page = (ROOT / "docs" / "probes.md").read_text(encoding="utf-8")
    for kind in KINDS:
        for (form, choices), items in Counter((p.form, len(p.choices)) for p in probe_set(kind)).items():
            assert f" | {form} | {items} | {choices} | " in page


def test_an_unknown_kind() -> None:
    with pytest.raises(InputError, match="did you mean 'cloze'"):
        probe_set("cloz")


def test_which_text_the_probes_are_about() -> None:
    """Stories have the probes' words; code, law and other languages do not."""
    assert share_of_words("\n".join(stories(200))) > LEAST_SHARE + 0.05
    assert share_of_words(Path(__file__).read_text()) < LEAST_SHARE - 0.1
    assert share_of_words((ROOT / "LICENSE").read_text()) < LEAST_SHARE - 0.05
    assert share_of_words("Es war einmal ein kleines Haus.") < LEAST_SHARE
    assert share_of_words("The Dog's dog, the DOG") == pytest.approx(0.8)  # by the word, whatever its case
    assert share_of_words("42") == 0
