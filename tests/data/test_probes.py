"""The frozen probes: balanced, told on their page, and about stories; `tests/test_golden.py` pins them to the byte."""

from collections import Counter
from pathlib import Path

import pytest

from sympformer.data import stories
from sympformer.data.probes import KINDS, LEAST_SHARE, probe_set, share_of_words

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_has_every_choice_equally_often_and_the_page_tells_every_form(kind: str) -> None:
    page = (ROOT / "docs" / "probes.md").read_text(encoding="utf-8")
    groups: dict[int, Counter[str]] = {}
    for probe in probe_set(kind):
        groups.setdefault(probe.group, Counter(dict.fromkeys(probe.choices, 0)))[probe.choices[probe.answer]] += 1
    assert all(len(set(right.values())) == 1 for right in groups.values())
    for (form, choices), items in Counter((p.form, len(p.choices)) for p in probe_set(kind)).items():
        assert f" | {form} | {items} | {choices} | " in page


def test_which_text_the_probes_are_about() -> None:
    """Stories have the probes' words; code, law and other languages do not."""
    assert share_of_words("\n".join(stories(200))) > LEAST_SHARE + 0.05
    assert share_of_words(Path(__file__).read_text()) < LEAST_SHARE - 0.1
    assert share_of_words((ROOT / "LICENSE").read_text()) < LEAST_SHARE - 0.05
    assert share_of_words("Es war einmal ein kleines Haus.") < LEAST_SHARE
    assert share_of_words("The Dog's dog, the DOG") == pytest.approx(0.8)  # by the word, whatever its case
    assert share_of_words("42") == 0
