"""The four tables say the same, strike out what failed, and survive awkward names."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from sympformer.errors import InputError
from sympformer.studies.results import Results
from sympformer.studies.results.plots import pictures
from sympformer.studies.results.tables import (
    csv_table,
    latex_table,
    markdown_table,
    rows,
    terminal_table,
    with_spread,
)
from tests.studies.results import made_up


@pytest.fixture
def results() -> Results:
    return made_up.results(["gpt", "exp-euler", made_up.leaking(), made_up.diverged()])


def test_order_and_cells(results: Results) -> None:
    found = rows(results)
    assert [model.name for model, _ in found] == ["exp-euler", "gpt", "leaking", "diverged"]
    cells = {model.name: cells for model, cells in found}
    exp = results.models[1]
    assert with_spread(exp.last) in cells["exp-euler"]
    assert exp.difference is not None
    assert exp.difference.verdict in cells["exp-euler"]
    assert "baseline" in cells["gpt"]
    assert cells["leaking"][0] == "-"  # no rank, whatever its loss
    assert "FAILED" in cells["leaking"]
    assert "diverged" in cells["diverged"]


def test_markdown_is_a_table_with_the_failed_row_struck_out(results: Results) -> None:
    lines = markdown_table(results).splitlines()
    assert len({line.count("|") for line in lines}) == 1
    assert sum("~~leaking~~" in line for line in lines) == 1
    assert not any("~~exp-euler~~" in line for line in lines)


def test_latex_escapes(results: Results) -> None:
    text = latex_table(made_up.results(["gpt", made_up.model("a_b"), made_up.leaking()]))
    assert r"a\_b" in text
    assert "a_b" not in text.replace(r"a\_b", "")
    assert r"\sout{leaking}" in text
    body = text.split(r"\midrule")[1].split(r"\bottomrule")[0].strip().splitlines()
    assert len({line.count("&") for line in body}) == 1
    assert "%]" not in text.replace(r"\%]", "")  # an unescaped per cent sign would swallow the line


def test_csv_has_full_figures(results: Results) -> None:
    found = {row["model"]: row for row in csv.DictReader(io.StringIO(csv_table(results)))}
    exp = results.models[1]
    assert exp.last is not None
    assert float(found["exp-euler"]["loss"]) == exp.last.mean
    assert found["leaking"]["rank"] == ""
    assert found["leaking"]["audit"] == "failed"
    assert found["diverged"]["loss"] == ""
    assert float(found["exp-euler"]["probe_cloze"]) == exp.probes["cloze"].accuracy.mean


def test_published_figures_stand_beside_ours(results: Results) -> None:
    """The columns last, best and wall clock of a paper, ours and theirs; other comparisons have none of them."""
    published = {"gpt": {"last": 2.4687, "best": 2.4473, "seconds": 2409.4}, "exp-euler": {"last": 2.3579}}
    found = replace(results, config=results.config | {"published": published})
    heads, _, *lines = [[c.strip() for c in line.split("|")[1:-1]] for line in markdown_table(found).splitlines()]
    row = {cells[1]: dict(zip(heads, cells, strict=True)) for cells in lines}
    gpt = results.models[0]
    want = f"{sum(curve.loss[-1] for curve in gpt.curves) / len(gpt.curves):.3f}"
    assert (row["gpt"]["last, validation"], row["gpt"]["last, published"]) == (want, "2.469")
    assert float(row["gpt"]["best, validation"]) <= float(want)
    assert (row["gpt"]["best, published"], row["gpt"]["s, published"]) == ("2.447", "2,409.4")
    assert (row["exp-euler"]["last, published"], row["exp-euler"]["s, published"]) == ("2.358", "-")
    assert row["diverged"]["last, validation"] == "-"
    full = {line["model"]: line for line in csv.DictReader(io.StringIO(csv_table(found)))}
    assert (full["gpt"]["published_last"], full["gpt"]["published_seconds"]) == ("2.4687", "2409.4")
    assert f"{float(full['gpt']['validation_last']):.3f}" == want
    assert "published" not in markdown_table(results) + csv_table(results)


def test_terminal(results: Results) -> None:
    from rich.console import Console

    console = Console(width=300, record=True, file=io.StringIO())
    console.print(terminal_table(results))
    text = console.export_text()
    assert "exp-euler" in text
    assert "2,000,000" in text
    with_one = Console(width=300, record=True, file=io.StringIO())
    with_one.print(terminal_table(made_up.results(["exp-euler"], baseline=None)))
    assert "verdict" not in with_one.export_text()


def test_results_round_trip(results: Results, tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    file.write_text(results.to_json())
    assert Results.load(file) == results


def test_old_results_read_and_their_uncounted_passes_are_not_repeated(results: Results, tmp_path: Path) -> None:
    """Files written before passes were counted say `oracle_calls`: 1 for every model, also for form "paper"."""
    values = json.loads(results.to_json())
    for model in values["models"]:
        del model["passes_a_layer"]
        model["oracle_calls"] = 1
    file = tmp_path / "results.json"
    file.write_text(json.dumps(values))
    old = Results.load(file)
    assert [model.passes_a_layer for model in old.models] == [None] * len(results.models)
    assert [replace(model, passes_a_layer=1) for model in old.models] == [
        replace(model, passes_a_layer=1) for model in results.models
    ]
    assert "loss-kernel-passes" not in [picture.name for picture in pictures(old)]
    assert "| passes a layer |" in markdown_table(old)


@pytest.mark.parametrize("content", ["", "[]", '{"format": 99}', '{"format": 1, "models": [{}]}'])
def test_damaged_results(content: str, tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    file.write_text(content)
    with pytest.raises(InputError, match=r"results\.json"):
        Results.load(file)


def test_the_head_names_the_split_that_was_scored() -> None:
    results = made_up.results(["gpt", "exp-euler"])
    on_validation = replace(results, data=results.data | {"scored": "validation"})
    for text in (markdown_table(on_validation), latex_table(on_validation)):
        assert "validation loss" in text
        assert "test loss" not in text
    assert "test loss" in markdown_table(results)
