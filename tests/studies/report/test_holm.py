"""Corrected verdicts and another reference than the baseline, in the tables, in the page and in its sentences."""

from dataclasses import replace

from sympformer.studies.report.page import page
from sympformer.studies.report.sentences import verdict
from sympformer.studies.results import Results
from sympformer.studies.results.statistics import corrected, paired_difference
from sympformer.studies.results.tables import latex_table, markdown_table
from tests.studies.report.dom import read
from tests.studies.results import made_up


def against(name: str, family: int = 1) -> Results:
    """Differences to a model, corrected as if there were so many times as many."""
    results = made_up.results(["gpt", "exp-euler", "linear-gpt"])
    other = next(model for model in results.models if model.name == name)
    assert other.last is not None
    found = {m.name: paired_difference(m.last.values, other.last.values) for m in results.models if m.last is not None}
    del found[name]
    rest = {f"{k} {n}": d for n, d in found.items() for k in range(family - 1)}
    after = corrected(found | rest)
    models = [replace(model, difference=after.get(model.name)) for model in results.models]
    return replace(results, models=models, reference=None if name == "gpt" else name)


def said(results: Results) -> str:
    return read(f"<p>{verdict(results)}</p>").text


def test_differences_are_to_the_reference() -> None:
    results = against("exp-euler")
    heads, _, *rows = [[c.strip() for c in line.split("|")[1:-1]] for line in markdown_table(results).splitlines()]
    assert "minus exp-euler [95 %]" in heads
    assert "tokens to gpt's loss" in heads
    cells = {row[1]: dict(zip(heads, row, strict=True)) for row in rows}
    assert cells["exp-euler"]["minus exp-euler [95 %]"] == "reference"
    assert cells["gpt"]["minus exp-euler [95 %]"].startswith("+0.1")
    assert cells["gpt"]["verdict (Holm)"] == cells["gpt"]["verdict"] == "worse"
    words = said(results)
    assert "nats per token, the reference itself." in words
    assert (
        "Of 2 other models, 0 are better than exp-euler, 2 are worse, and 0 show no difference, after Holm's" in words
    )
    assert "minus exp-euler" in read(page(results, drawn=[])).by_id("figures").text


def test_a_verdict_that_the_correction_takes_away() -> None:
    """Among hundreds of differences, the same one is nothing to speak of: the interval stays, the verdict goes."""
    results = against("gpt", family=2000)
    best = results.models[1].difference
    assert best is not None
    assert (best.verdict, best.settled) == ("better", "no difference shown")
    table = markdown_table(results)
    assert "| better | 1.000 | no difference shown |" in table
    small = [replace(results.models[1], difference=replace(best, p_holm=1e-5)), *results.models]
    assert "& $<$ 0.001 &" in latex_table(replace(results, models=small))
    assert "after Holm's correction no difference is shown" in said(results)
    assert "0 are better than gpt" in said(results)
    tree = read(page(results, drawn=[]))
    figures = tree.all("table", "sortable")
    assert "verdict (Holm)" in figures[0].text
    assert "better" not in [span.text for span in figures[0].all("span")]
    assert "1.000" in figures[1].text  # the adjusted p, among the further figures
