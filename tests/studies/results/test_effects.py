"""Effects and interactions by hand: balanced, with a hole, with one seed; and as tables, in the page, in the file."""

import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest

from sympformer.studies.report.page import page
from sympformer.studies.results import Difference, Results
from sympformer.studies.results.effects import Levels, interactions, main_effects
from sympformer.studies.results.sheets import sheets
from sympformer.studies.results.statistics import corrected, mean_difference
from tests.studies.report.dom import read
from tests.studies.results import made_up

FACTORS = {"dynamics": ["gpt", "symp"], "head": ["tied", "untied"]}
FIGURES: dict[Levels, list[float]] = {  # two seeds
    ("gpt", "tied"): [4.0, 4.2],
    ("gpt", "untied"): [3.9, 4.0],
    ("symp", "tied"): [3.5, 3.9],
    ("symp", "untied"): [3.2, 3.6],
}


def test_two_by_two_by_hand() -> None:
    """symp - gpt: (-0.5 - 0.7) / 2 and (-0.3 - 0.4) / 2; untied - tied: (-0.1 - 0.3) / 2 and (-0.2 - 0.3) / 2."""
    dynamics, head = main_effects(FACTORS, FIGURES)
    assert (dynamics.factors, dynamics.levels, dynamics.against) == (["dynamics"], ["symp"], ["gpt"])
    assert (dynamics.pairs, dynamics.possible) == (2, 2)
    family = corrected({"a": mean_difference([-0.6, -0.35]), "b": mean_difference([-0.2, -0.25])})
    for found, expected in ((dynamics, family["a"]), (head, family["b"])):
        assert found.difference is not None
        assert found.difference.mean == pytest.approx(expected.mean)
        assert [found.difference.low, found.difference.p, found.difference.p_holm] == pytest.approx(
            [expected.low, expected.p, expected.p_holm]
        )


def test_an_interaction_by_hand() -> None:
    """[symp - gpt at untied] - [symp - gpt at tied]: seed 1 -0.7 + 0.5, seed 2 -0.4 + 0.3."""
    (found,) = interactions(FACTORS, FIGURES)
    assert (found.factors, found.levels, found.against) == (["dynamics", "head"], ["symp", "untied"], ["gpt", "tied"])
    assert (found.pairs, found.possible) == (1, 1)
    assert found.difference is not None
    expected = mean_difference([-0.2, -0.1])
    assert [found.difference.mean, found.difference.high] == pytest.approx([expected.mean, expected.high])


def test_what_is_missing_takes_its_pairs_with_it() -> None:
    """Three levels by two by two, one cell missing: its pairs are left out, those of other levels stay."""
    factors = {"dynamics": ["a", "b", "c"], "head": ["x", "y"], "table": ["0", "1"]}
    effect = {"a": 0.0, "b": -1.0, "c": -3.0, "x": 0.0, "y": 0.5, "0": 0.0, "1": 0.25}
    figures: dict[Levels, list[float]] = {
        (d, h, t): [10 + effect[d] + effect[h] + effect[t] + (0.1 if (d, t) == ("b", "1") else 0) + s for s in (0, 0.3)]
        for d in "abc" for h in "xy" for t in "01"
    }  # fmt: skip
    del figures["a", "x", "1"]
    found = {tuple(one.levels): one for one in [*main_effects(factors, figures), *interactions(factors, figures)]}
    counts = {levels: (one.pairs, one.possible) for levels, one in found.items()}
    assert counts[("b",)] == counts[("c",)] == (3, 4)
    assert counts[("y",)] == counts[("1",)] == (5, 6)
    assert counts[("b", "y")] == counts[("b", "1")] == (1, 2)
    means = {levels: one.difference.mean for levels, one in found.items() if one.difference is not None}
    assert means[("b",)] == pytest.approx(-1.0 + 0.1 / 3)  # the addition is in one of its three pairs
    assert means[("c",)] == pytest.approx(-3.0)
    assert means[("y",)] == pytest.approx(0.5)
    assert means[("b", "1")] == pytest.approx(0.1)
    assert means[("c", "y")] == pytest.approx(0.0)


def test_a_level_without_a_pair_is_listed_without_a_figure() -> None:
    figures = {levels: values for levels, values in FIGURES.items() if levels != ("gpt", "untied")}
    (found,) = interactions(FACTORS, figures)
    assert (found.pairs, found.possible, found.difference) == (0, 1, None)
    assert main_effects(FACTORS, {})[0].pairs == 0


def test_one_seed_has_no_interval() -> None:
    found = main_effects(FACTORS, {levels: values[:1] for levels, values in FIGURES.items()})[0].difference
    assert found is not None
    assert (found.low, found.p, found.settled) == (None, None, "no difference shown")
    assert found.mean == pytest.approx(-0.6)


# --- as tables


@pytest.fixture
def results() -> Results:
    made = made_up.results(["gpt", "exp-euler", "linear-gpt"])
    child = replace(
        made.models[1],
        parent="gpt",
        changes=["variant softmax-baseline → softmax-exp-euler"],
        to_parent=Difference(-0.2, -0.3, -0.1, "better", 0.01, 0.06, "no difference shown"),
    )
    return replace(
        made,
        models=[made.models[0], child, made.models[2]],
        factors=FACTORS,
        effects=main_effects(FACTORS, FIGURES),
        interactions=interactions(FACTORS, FIGURES),
        refused={"gpt-start": "start_momentum belongs to others"},
    )


def test_the_tables_beside_the_ranking(results: Results) -> None:
    found = {sheet.name: sheet for sheet in sheets(results)}
    assert list(found) == ["effects", "interactions", "ablation"]
    for sheet in found.values():
        assert len({line.count("|") for line in sheet.markdown().splitlines()}) == 1
    assert "| dynamics | symp | gpt | 2 of 2 | -0.475 [" in found["effects"].markdown()
    assert "| dynamics x head | symp, untied | gpt, tied | 1 of 1 |" in found["interactions"].markdown()
    row = "| exp-euler | gpt | variant softmax-baseline → softmax-exp-euler | "
    assert row in found["ablation"].markdown()
    assert "| -0.200 [-0.300, -0.100] | better | 0.060 | no difference shown |" in found["ablation"].markdown()
    (line, _) = csv.DictReader(io.StringIO(found["effects"].csv()))
    assert float(line["difference"]) == pytest.approx(-0.475)
    assert results.effects[0].difference is not None
    assert (line["pairs"], float(line["p_holm"])) == ("2", results.effects[0].difference.p_holm)
    assert sheets(made_up.results(["gpt", "exp-euler"])) == []


def test_the_page_has_them_and_links_to_them(results: Results) -> None:
    tree = read(page(results, drawn=[]))
    assert {"#effects", "#ablation"} <= {link.attributes["href"] for link in tree.all("a")}
    effects, ablation = tree.by_id("effects"), tree.by_id("ablation")
    assert [table.all("tbody")[0].all("tr")[0].all("td")[0].text for table in effects.all("table")] == [
        "dynamics",
        "dynamics x head",
    ]
    assert "\N{MINUS SIGN}0.475" in effects.text
    verdicts = [span.text for span in ablation.all("span")]
    assert verdicts == ["better", "no difference shown"]


def test_the_file_keeps_them(results: Results, tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text(results.to_json())
    assert Results.load(tmp_path / "results.json") == results
