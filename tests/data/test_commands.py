"""The commands: what they print, and flags and help made from their signatures."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sympformer import cli
from sympformer.data.commands import info, prepare
from sympformer.errors import InputError


def run(*arguments: str) -> None:
    assert cli.main(["data", *arguments]) == 0


def test_prepare_then_info(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "out")
    run("prepare", "--corpus", "storybook:50", "--tokenizer", "byte", "--out", out)
    printed = capsys.readouterr().out
    assert f"{out} written" in printed
    assert "0.05 validation" in printed
    run("prepare", "--corpus", "storybook:50", "--tokenizer", "byte", "--out", out)
    assert f"{out} is up to date" in capsys.readouterr().out
    run("info", "--data", out, "--check", "true", "--preview", "20")
    printed = capsys.readouterr().out
    assert "checksums are right" in printed
    assert "train:" in printed


def test_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sympformer.data.corpora.STORIES", 100)
    prepare()
    info()
    assert "bpe:2048" in capsys.readouterr().out
    assert (tmp_path / "data" / "storybook-bpe-2048" / "train.bin").is_file()


def test_help_explains_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    run("prepare", "--help")
    printed = capsys.readouterr().out
    for flag in (
        "corpus",
        "tokenizer",
        "out",
        "seed",
        "validation",
        "test",
        "column",
        "separator",
        "encoding",
        "on_bad_file",
        "limit",
        "overlap_words",
        "overwrite",
    ):
        assert f"--{flag}" in printed
    assert "<|endoftext|>" in printed


def test_files_left_out_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("train", "validation", "readme"):
        (tmp_path / f"{name}.txt").write_text("Some text.")
    prepare(str(tmp_path), "byte", str(tmp_path / "out"))
    shown = capsys.readouterr()
    assert "left out 1 file (no split in the name): readme.txt" in shown.out
    assert "left out 1 file (no split in the name): readme.txt" in shown.err  # a warning, also where nobody asks


words = st.text(st.characters(exclude_categories=["Nd", "Cs"], exclude_characters="/\\~."), min_size=1, max_size=12)
names = st.one_of(
    words,
    st.builds("{}:{}".format, st.sampled_from(["storybook", "bpe", "byte", "gpt2", ""]), words),
    st.sampled_from(["", "~nobody/x", "x" * 5_000, "a\0b", "storybook:-1", "no/such/folder", "gpt2:\0", "hub:a/b/c"]),
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(corpus=names, tokenizer=names, out=names, validation=st.floats(), limit=st.none() | st.integers(-2, 2))
def test_bad_arguments_end_in_one_sentence_and_leave_nothing(
    tmp_path: Path, corpus: str, tokenizer: str, out: str, validation: float, limit: int | None
) -> None:
    with pytest.raises(InputError) as caught:
        prepare(corpus, tokenizer, str(tmp_path / "below" / out), validation=validation, limit=limit)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 5_000, "~nobody", "none"])
def test_bad_folders(name: str) -> None:
    with pytest.raises(InputError, match=r"holds no prepared data|does not exist"):
        info(name)


@pytest.mark.parametrize("name", ["a\0b", "x" * 300, "y" * 5_000])
def test_folders_that_cannot_be_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="cannot"):
        prepare("storybook:30", "byte", str(tmp_path / name))
    assert list(tmp_path.iterdir()) == []


def test_bad_preview() -> None:
    with pytest.raises(InputError, match="preview -1"):
        info(preview=-1)
