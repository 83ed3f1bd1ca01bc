"""The report as a page: everything is there, nothing breaks out, nothing is fetched."""

import dataclasses
import re
from pathlib import Path

import pytest

from sympformer.errors import InputError
from sympformer.studies.report import sections
from sympformer.studies.report.figures import MINUS, NONE
from sympformer.studies.report.page import SECTIONS, page, write_report
from sympformer.studies.report.ranking_table import ranking_table
from sympformer.studies.results import Results
from tests.studies.report.dom import Node, read
from tests.studies.results import made_up

MODELS = ("gpt", "exp-euler-paper", "exp-euler", "linear-yuriiformer")


@pytest.fixture(scope="module")
def results() -> Results:
    return made_up.results([made_up.leaking(), *MODELS, made_up.diverged()])


@pytest.fixture(scope="module")
def html(results: Results) -> str:
    return page(results)


@pytest.fixture(scope="module")
def tree(html: str) -> Node:
    return read(html)


def table_rows(tree: Node, table: int = 0) -> dict[str, Node]:
    found = tree.all("table", "sortable")[table]
    return {row.all("th")[0].text: row for body in found.all("tbody") for row in body.all("tr")}


def cells(tree: Node, name: str) -> dict[str, Node]:
    """A model's cells by the column's head, of the table that decides and of that with more figures."""
    found: dict[str, Node] = {}
    for i, table in enumerate(tree.all("table", "sortable")):
        heads = [th.text for th in table.all("thead")[0].all("tr")[1].all("th")]
        row = [node for node in table_rows(tree, i)[name].children if isinstance(node, Node)]
        found |= dict(zip(heads, row, strict=True))
    return found


def test_all_sections_are_there_and_linked(tree: Node) -> None:
    there = [name for name in SECTIONS if name not in ("effects", "ablation")]  # this comparison has neither
    assert [section.attributes["id"] for section in tree.all("section")] == there
    assert [link.attributes["href"] for link in tree.all("a")] == [f"#{name}" for name in there]
    assert tree.all("title")[0].text == tree.all("h1")[0].text == "Momentum in language models"


def test_ids_are_unique_and_references_meet_one(tree: Node) -> None:
    ids = [node.attributes["id"] for node in tree.walk() if "id" in node.attributes]
    assert len(ids) == len(set(ids)) > 100
    for node in tree.walk():
        for key in ("href", "clip-path"):
            if key in node.attributes:
                target = re.fullmatch(r"#(.+)|url\(#(.+)\)", node.attributes[key] or "")
                assert target is not None
                assert (target.group(1) or target.group(2)) in ids


def test_the_page_fetches_nothing(html: str, tree: Node) -> None:
    assert "http" not in html.replace("http-equiv", "")
    assert "@import" not in html
    assert not [node.tag for node in tree.walk() if node.tag in ("link", "img", "iframe", "object", "embed", "base")]
    assert not [node for node in tree.walk() if "src" in node.attributes]
    (policy,) = [node for node in tree.all("meta") if "http-equiv" in node.attributes]
    assert policy.attributes["http-equiv"] == "Content-Security-Policy"
    assert (policy.attributes["content"] or "").startswith("default-src 'none';")


def test_the_table_sorts_by_plain_numbers(results: Results, tree: Node) -> None:
    model = results.models[3]
    assert model.last is not None
    assert model.difference is not None
    shown = cells(tree, "exp-euler")
    expected = {
        "#": 1,
        "model": "exp-euler",
        "loss": model.last.mean,
        "difference [95 %]": model.difference.mean,
        "verdict": "better",
        "parameters": model.parameters,
        "passes": 1,
        "tokens/s": 17400,
        "MB": model.memory_mb,
        "tokens": model.tokens_to_baseline,
        "s": model.seconds_to_baseline,
        "cloze": model.probes["cloze"].accuracy.mean,
        "audit": "passed",
    }
    assert {head: shown[head].attributes["data-sort"] for head in expected} == {k: str(v) for k, v in expected.items()}
    assert shown["loss"].text == "2.842\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}0.005"
    assert cells(tree, "linear-yuriiformer")["s"].attributes["data-sort"] == ""


def test_heads_are_buttons_and_one_is_sorted(tree: Node) -> None:
    for table in tree.by_id("figures").all("thead"):
        groups, heads = (row.all("th") for row in table.all("tr"))
        assert all([child.tag for child in head.children if isinstance(child, Node)] == ["button"] for head in heads)
        assert [head.attributes["aria-sort"] for head in heads] == ["ascending"] + ["none"] * (len(heads) - 1)
        assert sum(int(group.attributes["colspan"] or 0) for group in groups) == len(heads)


def test_a_failed_audit_is_struck_out_at_the_end_and_not_ranked(tree: Node) -> None:
    ranked, unranked = tree.all("table", "sortable")[0].all("tbody")
    assert [row.all("td")[0].text for row in ranked.all("tr")] == ["1", "2", "3", "4"]
    assert [row.all("th")[0].text for row in unranked.all("tr")] == ["leaking", "diverged"]
    assert "unranked" in unranked.classes
    row = table_rows(tree)["leaking"]
    assert "struck" in row.classes
    assert [node.text for node in row.all("s")] == ["leaking"]
    assert row.all("td")[0].text == NONE
    assert cells(tree, "leaking")["verdict"].text == "failed audit"
    assert cells(tree, "diverged")["verdict"].text == "diverged"
    assert not table_rows(tree)["exp-euler"].all("s")


def test_the_baseline_is_marked(tree: Node) -> None:
    assert [name for name, row in table_rows(tree).items() if "baseline" in row.classes] == ["gpt"]
    assert cells(tree, "gpt")["difference [95 %]"].text == "baseline"


def test_partly_reached_is_said() -> None:
    results = made_up.results(["gpt", "exp-euler"])
    models = [results.models[0], dataclasses.replace(results.models[1], tokens_to_baseline=None, reached=2)]
    tree = read(ranking_table(dataclasses.replace(results, models=models)))
    assert cells(tree, "exp-euler")["tokens"].text == "2 of 3 seeds"


def test_rates_mark_the_chosen_one_and_say_what_diverged(tree: Node) -> None:
    table = tree.by_id("rates").all("table")[0]
    heads = [th.text for th in table.all("thead")[0].all("th")]
    assert heads == ["model", "0.002", "0.004", "0.008", "0.016", "variant", "preset"]
    rows = {row.all("th")[0].text: row.all("td") for row in table.all("tbody")[0].all("tr")}
    assert [cell.text for cell in rows["gpt"]][2:] == ["3.092", "diverged", "softmax-baseline", "tuned"]
    assert [bool(cell.all("mark")) for cell in rows["gpt"]] == [False, False, True, False, False, False]
    assert [cell.text for cell in rows["diverged"]][:4] == ["", "", "diverged", "diverged"]


def test_a_given_rate_is_told_from_a_chosen_one() -> None:
    given = made_up.model("exp-euler", rates={}, lr=0.004)
    tree = read(sections.rates(made_up.results(["gpt", given])))
    rows = {row.all("th")[0].text: row.all("td") for row in tree.all("tbody")[0].all("tr")}
    assert [cell.text for cell in rows["exp-euler"]][:4] == ["", "given", "", ""]


def test_samples_stand_side_by_side(results: Results, tree: Node) -> None:
    first, second = tree.by_id("samples").all("div", "cards")
    cards = first.all("article")
    assert [card.all("h4")[0].text for card in cards] == [*_by_rank(results), "leaking failed audit"]
    assert cards[0].all("p")[0].text == results.models[3].samples[0]["text"]
    assert cards[0].all("b")[0].text == "Once upon a time"
    assert len(second.all("article")) == len(cards)


def _by_rank(results: Results) -> list[str]:
    return [model.name for model in results.ranked() if model.rank is not None]


def test_audits_show_every_row_and_open_the_failed_one(tree: Node) -> None:
    details = tree.by_id("audits").all("details")
    assert ["open" in one.attributes for one in details] == [True, False, False, False, False]
    rows = [[cell.text for cell in row.all("td")] for row in details[0].all("tbody")[0].all("tr")]
    assert rows[0] == ["causality", "given", "0.42", f"1e{MINUS}9", "3", "failed", "random edit at 9"]
    assert rows[-1][5:] == ["not tried", "not tried: the model has no cache"]
    assert "Not audited: diverged." in tree.by_id("audits").text


def test_an_endless_deviation_is_shown() -> None:
    audit = made_up.audit(leak_at=1)
    audit["rows"][0]["deviation"] = "inf"  # as an audit writes it, JSON has no infinity
    tree = read(sections.audits(made_up.results(["gpt", made_up.model("burst", audit=audit)])))
    assert "largest deviation inf" in tree.text


def test_notes_config_and_environment_are_there(tree: Node) -> None:
    notes = [item.text for item in tree.by_id("notes").all("li")]
    assert notes == [
        "The learning rates were chosen with seed 0, which is none of the seeds reported.",
        "diverged: rate 0.016, seed 0: the loss is not a number at step 212",
    ]
    origin = tree.by_id("origin")
    assert "\nbudget:\n  tokens: 2000000\n" in origin.all("pre")[0].text
    facts = dict(zip([n.text for n in origin.all("dt")], [n.text for n in origin.all("dd")], strict=True))
    assert facts["torch"] == "2.13.0+cpu"
    assert facts["cpus"] == "2"


def test_plots_are_inline_and_follow_the_page_colours(tree: Node) -> None:
    drawings = tree.all("svg")
    assert [node.attributes["aria-label"] for node in drawings] == [
        node.all("h3")[0].text for node in tree.all("figure")
    ]
    assert len(drawings) == 5
    for drawing in drawings:
        assert not drawing.all("style")  # it would reach the whole page
        painted = " ".join(node.attributes.get("style") or "" for node in drawing.walk())
        assert "var(--softmax)" in painted
        assert re.findall(r"#[0-9a-f]{6}", painted) == []
    names = {node.text for node in drawings[1].all("text")}
    assert {*MODELS, "leaking (failed audit) ↓"} <= names
    marked = {name for drawing in drawings for node in drawing.walk() for name in node.classes if name != "model"}
    assert marked == {"m0", "m1", "m2", "m3", "m4"}


EVIL = """</title></style></script><script>alert("x")</script><img src=x onerror='alert(1)'>" onload="alert(2)"""


def test_nothing_in_the_results_becomes_markup() -> None:
    evil = dataclasses.replace(
        made_up.model(EVIL),
        variant=EVIL,
        preset=EVIL,
        samples=[{"prompt": EVIL, "text": EVIL + EVIL}],
        tokens_per_second=None,
        rates={"0.002": None, "0.008": 3.0},
        diverged=[EVIL],
    )
    audit = made_up.audit(leak_at=1)
    audit["rows"][0] |= {"check": EVIL, "weights": EVIL, "note": EVIL}
    results = made_up.results(
        ["gpt", evil, made_up.model("leaking", audit=audit)],
        title=EVIL,
        budget=EVIL,
        notes=[EVIL],
        environment={EVIL: EVIL},
        data={"corpus": EVIL, "tokenizer": EVIL, "tokens": {EVIL: 5}},
        config={},
    )
    tree = read(page(results))
    assert len(tree.all("script")) == 2  # the theme button and the tables
    assert len(tree.all("style")) == 1
    assert not tree.all("img")
    assert not [key for node in tree.walk() for key in node.attributes if key.startswith("on")]
    assert tree.all("h1")[0].text == EVIL
    assert tree.by_id("samples").all("article")[0].all("p")[0].text == EVIL + EVIL
    assert EVIL in {node.text for node in tree.all("text")}


@pytest.mark.parametrize(
    "results",
    [
        made_up.results([made_up.diverged()], baseline=None),
        made_up.results(["exp-euler"], seeds=[3], config={}),
        made_up.results([made_up.model(name, curves=[]) for name in ("exp-euler", "ab2")], metric="bits_per_byte"),
        made_up.results([made_up.leaking(), made_up.diverged("gpt")], config={}),
        made_up.results([made_up.model("exp-euler", audit=None, samples=[], layers=[], curves=[])], config={}),
    ],
    ids=["no figures", "one model, one seed", "no baseline", "nobody ranked", "not audited"],
)
def test_unusual_results_have_a_page_too(results: Results) -> None:
    tree = read(page(results))
    assert len(table_rows(tree)) == len(results.models)
    assert tree.all("p", "verdict")[0].text


def test_write_report_gives_the_same_page_from_results_json(results: Results, html: str, tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text(results.to_json(), encoding="utf-8")
    write_report(Results.load(tmp_path / "results.json"), tmp_path / "new" / "report.html")
    assert (tmp_path / "new" / "report.html").read_text(encoding="utf-8") == html
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["report.html"]


def test_write_report_says_where_it_cannot_write(results: Results, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot write the report .*report.html: "):
        write_report(results, tmp_path / "file" / "report.html")
