"""Every figure of every committed comparison is where it was, in every form; and what failed its audit says so."""

import csv
import gzip
import io
import json
import math
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from scipy import stats

from sympformer.errors import InputError
from sympformer.studies.results import tables
from sympformer.studies.results.page import page
from sympformer.studies.results.results import Difference, Results
from sympformer.studies.results.statistics import (
    Levels,
    corrected,
    effects,
    first_reach,
    holm,
    mean_difference,
    paired_difference,
    spread,
)
from sympformer.studies.results.tables import Table, tables_of
from tests.browser import read
from tests.studies.results import made_up

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = json.loads(gzip.decompress((ROOT / "tests" / "golden" / "tables.json.gz").read_bytes()))  # of f10bd74
COMMITTED = sorted(GOLDEN)
Rows = list[dict[str, str]]


@cache
def committed(name: str) -> Results:
    return Results.load(ROOT / "docs" / "results" / name / "results.json")


def from_markdown(table: Table) -> Rows:
    lines = [line.replace("\\|", "¦").split("|")[1:-1] for line in tables.markdown(table).splitlines()]
    heads, _, *rows = [[cell.strip() for cell in line] for line in lines]
    return [dict(zip(heads, row, strict=True)) for row in rows]


def from_csv(table: Table) -> Rows:
    return list(csv.DictReader(io.StringIO(tables.as_csv(table))))


def rows_of(stored: dict[str, Any]) -> Rows:
    return [dict(zip(stored["heads"], row, strict=True)) for row in stored["rows"]]


@pytest.mark.parametrize("name", COMMITTED)
def test_committed_tables_say_what_they_said(name: str) -> None:
    """Cell by cell the same words, and in the CSV the same figures, but for names: others' figures have their heads."""
    found = {{"table": "models"}.get(table.name, table.name): table for table in tables_of(committed(name))}
    assert {*GOLDEN[name]} <= {*found} <= {*GOLDEN[name], "rates"}
    heads = {"published_last": "last, published", "published_best": "best, published"}
    heads["published_seconds"] = "s, published"
    for kind, stored in GOLDEN[name].items():
        for was, now in zip(rows_of(stored["text"]), from_markdown(found[kind]), strict=True):
            for head, text in was.items():
                partly = text == "-" and now[head].endswith("seeds")  # now it says how many seeds arrived
                assert now[head] == text or partly, (head, was)
        for was, now in zip(rows_of(stored["figures"]), from_csv(found[kind]), strict=True):
            assert {head: now.get(heads.get(head, head), "") for head in was} == was


@pytest.mark.parametrize("name", COMMITTED)
def test_statistics_of_committed_results(name: str) -> None:
    """From the seeds' figures: differences, intervals, p and Holm's p as they were, to 1e-12."""
    results = committed(name)
    by_name: dict[str, Any] = {model.name: results.metric_of(model) for model in results.models}
    family_of = {m: key for key, names in (results.config.get("families") or {}).items() for m in names}

    def minus(mine: str, other: str | None) -> Difference:
        a, b = by_name[mine], by_name[other or ""]
        return paired_difference(a.values, b.values)

    for kind in ("difference", "to_parent"):
        pairs = {m.name: getattr(m, kind) for m in results.models if getattr(m, kind) is not None}
        others = {m.name: results.against if kind == "difference" else m.parent for m in results.models}
        for family in {family_of.get(m) if kind == "difference" else None for m in pairs}:
            members = [m for m in pairs if kind == "to_parent" or family_of.get(m) == family]
            for m, made in corrected({m: minus(m, others[m]) for m in members}).items():
                same(made, pairs[m])
    names = {"-".join(cell): cell for cell in product(*results.factors.values())}
    cells = {names[m]: figure.values for m, figure in by_name.items() if m in names and figure is not None}
    for made_effect, effect in zip(effects(results.factors, cells), results.effects, strict=True):
        assert replace(made_effect, difference=None) == replace(effect, difference=None)
        same(made_effect.difference, effect.difference)


def same(made: Difference | None, was: Difference | None) -> None:
    for name, value in vars(was).items() if was is not None else ():
        if value is not None:  # the first tables had no p
            assert getattr(made, name) == pytest.approx(value, rel=1e-12, abs=1e-12), name
    assert (made is None) == (was is None)


# --- a comparison of every kind of model


@pytest.fixture
def results() -> Results:
    return made_up.results(["gpt", "exp-euler", made_up.leaking(), made_up.diverged()])


def test_a_failed_audit_is_no_better_in_any_form() -> None:
    """Nor where a correction was made for a family that the model, of the best loss, is not in."""
    plain = made_up.results(["gpt", "exp-euler", made_up.leaking()])
    tested = [
        replace(m, difference=corrected({0: m.difference})[0]) if m.difference and m.passed else m for m in plain.models
    ]
    for results in (plain, replace(plain, models=tested)):
        first = tables_of(results)[0]
        console = Console(width=300, record=True, file=io.StringIO())
        console.print(tables.terminal(first))
        texts = (console.export_text(), tables.markdown(first), tables.latex(first), tables.as_csv(first))
        lines = [*(text.splitlines() for text in texts)]
        lines.append([row.text for row in read(page(results, [])).by_id("figures").all("tr")])
        for form in lines:
            said = [line for line in form if "leaking" in line]
            assert "failed audit" in said[0]
            assert not any("better" in line for line in said)


def test_order_cells_and_figures(results: Results) -> None:
    table = tables_of(results)[0]
    rows = {row["model"].strip("~"): row for row in from_markdown(table)}
    assert list(rows) == ["exp-euler", "gpt", "leaking", "diverged"]
    assert (rows["exp-euler"]["verdict"], rows["gpt"]["minus gpt [95 %]"]) == ("better", "baseline")
    assert (rows["leaking"]["#"], rows["leaking"]["audit"]) == ("~~-~~", "~~FAILED~~")
    assert rows["diverged"]["verdict"] == "diverged"
    full = {row["model"]: row for row in from_csv(table)}
    exp: Any = results.models[1]
    assert float(full["exp-euler"]["loss"]) == exp.last.mean
    assert float(full["exp-euler"]["probe_cloze"]) == exp.probes["cloze"].accuracy.mean
    assert (full["leaking"]["rank"], full["leaking"]["audit"], full["diverged"]["loss"]) == ("", "failed", "")


def test_a_reference_that_failed_is_no_measure() -> None:
    broken = replace(made_up.model("gpt"), audit=made_up.audit(leak_at=1))
    results = made_up.results([broken, "exp-euler"])
    assert from_markdown(tables_of(results)[0])[0]["verdict"] == "gpt: failed audit"
    assert "gpt is no measure for the others (failed audit)" in read(page(results, [])).text


def test_names_and_signs_do_not_break_a_form() -> None:
    results = made_up.results(["gpt", made_up.model("a_b|c$~"), made_up.leaking()])
    first = tables_of(results)[0]
    assert len({line.replace("\\|", "").count("|") for line in tables.markdown(first).splitlines()}) == 1
    latex = tables.latex(first)
    assert r"a\_b|c\$\textasciitilde{}" in latex
    assert r"\sout{leaking}" in latex
    body = latex.split(r"\midrule")[1].split(r"\bottomrule")[0].strip().splitlines()
    assert len({line.count("&") for line in body}) == 1
    assert "%]" not in latex.replace(r"\%]", "")  # an unescaped per cent sign would swallow the line


def test_others_figures_stand_beside_ours(results: Results) -> None:
    found = replace(
        results, beside={"last, theirs": {"gpt": 2.4687, "exp-euler": 2.3579}, "s, theirs": {"gpt": 2409.44}}
    )
    rows = {row["model"].strip("~"): row for row in from_markdown(tables_of(found)[0])}
    gpt = results.models[0]
    assert rows["gpt"]["last, validation"] == f"{sum(curve.loss[-1] for curve in gpt.curves) / len(gpt.curves):.3f}"
    assert (rows["gpt"]["last, theirs"], rows["gpt"]["s, theirs"]) == ("2.469", "2,409.4")
    assert (rows["exp-euler"]["s, theirs"], rows["diverged"]["last, validation"]) == ("-", "-")
    assert "validation" not in tables.markdown(tables_of(results)[0])


def test_a_verdict_that_its_family_takes_away() -> None:
    """Among thousands of differences the same one is nothing to speak of: the interval stays, the verdict goes."""
    results = made_up.results(["gpt", "exp-euler"])
    gpt, model = results.models
    assert model.difference is not None
    after = replace(model, difference=corrected(dict.fromkeys(range(4000), model.difference))[0])
    found = replace(results, models=[gpt, after])
    assert "| better | 1.000 | no difference shown |" in tables.markdown(tables_of(found)[0])
    shown = read(page(found, [])).all("p", "verdict")[0].text
    assert "0 are better than gpt, 0 worse; 1 show no difference, after Holm's correction" in shown
    small = replace(model, difference=replace(model.difference, p_holm=1e-5))
    assert "& $<$ 0.001 &" in tables.latex(tables_of(replace(results, models=[gpt, small]))[0])


def test_another_reference_and_another_split(results: Results) -> None:
    found = replace(results, reference="exp-euler", scored="validation")
    first = tables_of(found)[0]
    heads = [column.head for column in first.heads()]
    assert {"minus exp-euler [95 %]", "tokens to gpt's loss", "validation loss"} <= set(heads)
    assert "test loss" not in tables.markdown(first)
    no_baseline = tables_of(made_up.results(["exp-euler"], baseline=None))[0]
    assert "verdict" not in tables.markdown(no_baseline)


# --- the file


def test_results_round_trip(results: Results, tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    file.write_text(results.to_json())
    assert Results.load(file) == results
    whole = committed("ladder-cpu")
    assert (ROOT / "docs" / "results" / "ladder-cpu" / "results.json").read_text() == whole.to_json()


@pytest.mark.parametrize("content", ["", "[]", '{"format": 99}', '{"models": [{}]}', '{"title": "one"}'])
def test_damaged_results(content: str, tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    file.write_text(content)
    with pytest.raises(InputError, match=r"results\.json"):
        Results.load(file)


# --- intervals, corrections, effects of a factorial and crossings, by hand and against scipy's own tests


def test_interval_and_p_are_those_of_the_paired_t_test() -> None:
    mine, baseline = [3.31, 3.35, 3.38, 3.29], [3.52, 3.50, 3.61, 3.49]
    found, tested = paired_difference(mine, baseline), stats.ttest_rel(mine, baseline)
    assert [found.low, found.high] == pytest.approx(list(tested.confidence_interval(0.95)))
    assert found.p == pytest.approx(tested.pvalue)
    assert found.mean == pytest.approx(sum(mine) / 4 - sum(baseline) / 4)
    assert (found.verdict, paired_difference(baseline, mine).verdict) == ("better", "worse")


def test_holm_by_hand() -> None:
    """Of four: 0.005 x 4, 0.01 x 3, 0.03 x 2, and 0.04 x 1 which may not be below the one before it."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


def test_a_family_is_corrected_together() -> None:
    sure: Any = mean_difference([1.9, 2.0, 2.1])
    unsure = mean_difference([1.0, 2.0, 3.0])
    assert corrected({"a": sure})["a"].p_holm == sure.p
    family = corrected({"a": sure, "b": unsure, "one seed": mean_difference([2.0])})
    assert {one.verdict for one in corrected(dict.fromkeys(range(99), sure)).values()} == {"no difference shown"}
    assert [one.p_holm for one in family.values()] == [pytest.approx(2 * sure.p), pytest.approx(unsure.p), None]
    assert [one.verdict for one in family.values()] == ["worse", "no difference shown", "no difference shown"]


def test_differences_without_any_spread() -> None:
    assert mean_difference([0.5, 0.5]) == Difference(0.5, 0.5, 0.5, 0.0)
    assert mean_difference([0.0, 0.0]).p == 1.0


def test_pairing_removes_what_a_seed_does_to_both() -> None:
    seeds = [0.0, 0.5, -0.4]  # far larger than the difference
    mine = [3.0 + s + e for s, e in zip(seeds, (0.0, 0.001, -0.001), strict=True)]
    assert paired_difference(mine, [3.1 + s for s in seeds]).verdict == "better"
    assert paired_difference([3.4, 3.6], [3.5, 3.45]).verdict == "no difference shown"


def test_spread() -> None:
    found = spread([1.0, 2.0, 4.0])
    assert found.mean == pytest.approx(7 / 3)
    assert found.sd == pytest.approx(math.sqrt(((4 / 3) ** 2 + (1 / 3) ** 2 + (5 / 3) ** 2) / 2))
    assert spread([2.0]).sd is None


@pytest.mark.parametrize(
    ("level", "expected"), [(4.0, 100.0), (3.5, 150.0), (3.0, 200.0), (2.9, 220.0), (2.0, None), (9.0, 100.0)]
)
def test_first_reach(level: float, expected: float | None) -> None:
    found = first_reach([100, 200, 300, 400], [4.0, 3.0, 2.5, 2.7], level)
    assert found == (None if expected is None else pytest.approx(expected))


# --- effects of a factorial

FACTORS = {"dynamics": ["gpt", "symp"], "head": ["tied", "untied"]}
FIGURES: dict[Levels, list[float]] = {  # two seeds
    ("gpt", "tied"): [4.0, 4.2],
    ("gpt", "untied"): [3.9, 4.0],
    ("symp", "tied"): [3.5, 3.9],
    ("symp", "untied"): [3.2, 3.6],
}


def test_two_by_two_by_hand() -> None:
    """symp - gpt: (-0.5 - 0.7) / 2 and (-0.3 - 0.4) / 2; untied - tied: (-0.1 - 0.3) / 2 and (-0.2 - 0.3) / 2.

    Their interaction, [symp - gpt at untied] - [symp - gpt at tied]: -0.7 + 0.5 and -0.4 + 0.3; a family of its own.
    """
    dynamics, head, both = effects(FACTORS, FIGURES)
    assert (dynamics.factors, dynamics.levels, dynamics.against) == (["dynamics"], ["symp"], ["gpt"])
    assert (both.factors, both.levels, both.against) == (["dynamics", "head"], ["symp", "untied"], ["gpt", "tied"])
    assert [(e.pairs, e.possible) for e in (dynamics, head, both)] == [(2, 2), (2, 2), (1, 1)]
    mains = corrected({0: mean_difference([-0.6, -0.35]), 1: mean_difference([-0.2, -0.25])})
    wanted = [mains[0], mains[1], corrected({0: mean_difference([-0.2, -0.1])})[0]]
    for effect, want in zip((dynamics, head, both), wanted, strict=True):
        assert effect.difference is not None
        assert list(vars(effect.difference).values()) == pytest.approx(list(vars(want).values()))


def test_what_is_missing_takes_its_pairs_with_it() -> None:
    """Three levels by two by two, one cell missing: its pairs are left out, those of other levels stay."""
    factors = {"dynamics": ["a", "b", "c"], "head": ["x", "y"], "table": ["0", "1"]}
    effect = {"a": 0.0, "b": -1.0, "c": -3.0, "x": 0.0, "y": 0.5, "0": 0.0, "1": 0.25}
    figures: dict[Levels, list[float]] = {
        (d, h, t): [10 + effect[d] + effect[h] + effect[t] + (0.1 if (d, t) == ("b", "1") else 0) + s for s in (0, 0.3)]
        for d in "abc" for h in "xy" for t in "01"
    }  # fmt: skip
    del figures["a", "x", "1"]
    found = {tuple(one.levels): one for one in effects(factors, figures)}
    counts = {levels: (one.pairs, one.possible) for levels, one in found.items()}
    assert counts[("b",)] == counts[("c",)] == (3, 4)
    assert counts[("y",)] == counts[("1",)] == (5, 6)
    assert counts[("b", "y")] == counts[("b", "1")] == (1, 2)
    means = {levels: one.difference.mean for levels, one in found.items() if one.difference is not None}
    wanted = {("b",): -1.0 + 0.1 / 3, ("c",): -3.0, ("y",): 0.5, ("b", "1"): 0.1, ("c", "y"): 0.0}
    assert {levels: means[levels] for levels in wanted} == pytest.approx(wanted)


def test_a_level_without_a_pair_and_a_single_seed() -> None:
    figures = {levels: values for levels, values in FIGURES.items() if levels != ("gpt", "untied")}
    both = effects(FACTORS, figures)[-1]
    assert (both.pairs, both.possible, both.difference) == (0, 1, None)
    assert effects(FACTORS, {})[0].pairs == 0
    alone = effects(FACTORS, {levels: values[:1] for levels, values in FIGURES.items()})[0].difference
    assert alone is not None
    assert (alone.low, alone.p, alone.verdict) == (None, None, "no difference shown")
    assert alone.mean == pytest.approx(-0.6)
