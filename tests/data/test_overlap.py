"""Test documents that share a run of words with another split: found exactly, dropped, counted."""

import json
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from sympformer.data import overlap
from sympformer.data.commands import prepare as prepare_command
from sympformer.data.corpora import Corpus, Reading, Shares
from sympformer.data.corpora.source import Item, Source
from sympformer.data.preparation import prepare
from sympformer.data.prepared import SHEET, load_prepared
from sympformer.errors import InputError
from sympformer.studies.compare.records import describe_data
from sympformer.training.choices import cache_folder, open_data
from sympformer.training.config import DataConfig


def corpus_of(splits: dict[str, list[str]]) -> Corpus:
    streams: dict[str, Callable[[], Iterator[Item]]] = {
        name: partial(iter, [Item(text, None) for text in texts]) for name, texts in splits.items()
    }
    return Corpus(Source("mine", "files", {}, streams), Shares(), 0, None, Reading())


def naive(splits: dict[str, list[str]], words: int) -> list[bool]:
    """For every test document, by the words themselves."""

    def runs(text: str) -> set[tuple[str, ...]]:
        said = text.lower().split()
        return {tuple(said[i : i + words]) for i in range(max(len(said) - words, 0) + 1)}

    known = set().union(*(runs(text) for split in ("train", "validation") for text in splits[split]))
    return [not known.isdisjoint(runs(text)) for text in splits["test"]]


@pytest.mark.parametrize("words", [1, 2, 3, 5, 20])
def test_as_the_words_themselves(words: int) -> None:
    draw = random.Random(words)

    def text() -> str:
        return " ".join(draw.choice("abcDé") + draw.choice(["", "\n"]) for _ in range(draw.randint(1, 30)))

    splits = {split: [text() for _ in range(12)] for split in ("train", "validation", "test")}
    splits["test"] += [splits["train"][0], "New. " + splits["validation"][3].upper(), "Only here " * 12]
    known = overlap.shares_a_run(corpus_of(splits), words)
    assert [known(text) for text in splits["test"]] == naive(splits, words)
    assert known(splits["test"][-3])
    assert not known(splits["test"][-1])


def test_nineteen_words_are_not_twenty() -> None:
    shared = " ".join(f"word{i}" for i in range(20))
    splits = {"train": [f"Before it {shared}, after it."], "validation": ["Other words."], "test": [f"Then {shared} !"]}
    assert [overlap.shares_a_run(corpus_of(splits), words)(splits["test"][0]) for words in (19, 20)] == [True, False]


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """A corpus with splits of its own; two of four test documents were seen, one in training, one in validation."""
    stories = {
        "train": [f"Story {i} of the {i}th day, told once more." for i in range(9)],
        "validation": ["A tale that decides on a learning rate, no more."],
        "test": [
            "Nobody knows this one, it is new.",
            "They say: story 3 of the 3th day, told once more.",
            "A TALE that decides on a learning rate, and ends.",
            "Nor does anybody know this.",
        ],
    }
    folder = tmp_path / "texts"
    folder.mkdir()
    for split, documents in stories.items():
        (folder / f"{split}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
    return folder


def test_dropped_and_counted(texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = prepare(str(texts), "byte", tmp_path / "whole")
    prepare_command(str(texts), "byte", str(tmp_path / "out"), overlap_words=6)
    printed, prepared = capsys.readouterr().out, load_prepared(tmp_path / "out", verify=True)
    before, after, dropped = whole.sheet.splits, prepared.sheet.splits, prepared.sheet.dropped
    assert prepared.tokenizer.decode(prepared.tokens("test")) == (
        "Nobody knows this one, it is new.<|endoftext|>Nor does anybody know this.<|endoftext|>"
    )
    assert {name: before[name] for name in ("train", "validation")} == {
        name: after[name] for name in ("train", "validation")
    }
    for count in ("documents", "tokens", "bytes"):
        assert getattr(before["test"], count) == getattr(after["test"], count) + getattr(dropped, count)
    said = f"dropped from test: 2 documents ({dropped.tokens:,} tokens) with a run of 6 words of another split"
    assert (dropped.words, dropped.documents) == (6, 2)
    assert said in printed
    assert said in describe_data(prepared)["split"]
    assert sorted(path.name for path in (tmp_path / "out").glob("*.bin")) == ["test.bin", "train.bin", "validation.bin"]


def test_told_apart(texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By folder, by cache and by checksum; a sheet from before there was such an option is one without it."""
    out = tmp_path / "out"
    prepare(str(texts), "byte", out)
    sheet = json.loads((out / SHEET).read_text())
    del sheet["dropped"], sheet["seal"]
    (out / SHEET).write_text(json.dumps(sheet))
    assert prepare(str(texts), "byte", out).reused
    with pytest.raises(InputError, match="prepared in another way"):
        prepare(str(texts), "byte", out, overlap_words=6)

    monkeypatch.setenv("SYMPFORMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    plain, without = (DataConfig(str(texts), "byte", overlap_words=words) for words in (0, 6))
    assert cache_folder(plain) != cache_folder(without)
    documents = [open_data(config).sheet.splits["test"].documents for config in (plain, without, plain, without)]
    assert documents == [4, 2, 4, 2]


def test_a_share_that_is_dropped_is_no_missed_share(tmp_path: Path) -> None:
    """The storybook's episodes repeat themselves: most of its test stories share some words with training."""
    prepared = prepare("storybook:150", "byte", tmp_path / "out", test=0.2, overlap_words=12)
    kept, dropped = prepared.sheet.splits["test"].documents, prepared.sheet.dropped.documents
    assert dropped > kept > 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"overlap_words": -1}, "overlap_words -1 is not a number of words from 1 to 1,000, or 0"),
        ({"overlap_words": 1001}, "overlap_words 1001 is not a number of words"),
        ({"overlap_words": 1}, "every test document of .* shares a run of words with another split"),
    ],
)
def test_refused(texts: Path, tmp_path: Path, options: dict[str, int], sentence: str) -> None:
    (texts / "validation.jsonl").write_text(json.dumps({"text": "Nobody knows a tale, nor do they."}))
    with pytest.raises(InputError, match=sentence):
        prepare(str(texts), "byte", tmp_path / "out", **options)  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()


def test_nothing_to_drop_from(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has no test split to drop documents of .* hold one out with --test"):
        prepare("storybook:30", "byte", tmp_path / "out", overlap_words=20)


def test_memory_is_bounded(texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlap, "MOST", 10)
    with pytest.raises(InputError, match=r"has more than 10 words, too many .* hold out less"):
        prepare(str(texts), "byte", tmp_path / "out", overlap_words=3)
