"""Tables for people: one set of heads and rows, on a terminal and as Markdown."""

import io

from rich.console import Console

from sympformer.tables import Head, markdown_table, terminal_table

HEADS = [Head("model", left=True), Head("loss")]


def test_markdown_keeps_its_columns_whatever_stands_in_a_cell() -> None:
    assert markdown_table(HEADS, [("a|b", "1.5"), ("two\nlines", "10")]) == (
        "| model | loss |\n| --- | --: |\n| a\\|b | 1.5 |\n| two lines | 10 |\n"
    )


def test_terminal_puts_words_left_and_figures_right() -> None:
    console = Console(width=60, record=True, file=io.StringIO())
    console.print(terminal_table("title", HEADS, [("gpt", "1.5"), ("yuriiformer", "10")], ["strike", None]))
    lines = console.export_text().splitlines()
    assert lines[0].strip() == "title"
    assert "│ gpt         │  1.5 │" in lines
    assert "│ yuriiformer │   10 │" in lines
