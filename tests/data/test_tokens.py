"""Prepared tokens: named by their content, whole or not there, never overwritten, and damage is noticed.

That nothing half-written stays, whatever ends a preparation, is held by `tests/test_files.py` and the harness (kills,
full disks, folders that cannot be written).
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sympformer import cli, data
from sympformer.data import DataConfig, Tokens, find, open_tokens, prepare, stories, tokens
from sympformer.data.overlap import Overlap
from sympformer.errors import InputError

SPLITS = ("train", "validation", "test")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SYMPFORMER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "data"


def everything_below(folder: Path) -> dict[str, bytes | None]:
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in folder.rglob("*")}


def jsonl(path: Path, texts: list[str]) -> Path:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


# --- what is written


@pytest.mark.parametrize("tokenizer", ["byte", "bpe:500"])
def test_tokens_are_the_documents(tokenizer: str) -> None:
    found = prepare("storybook:60", tokenizer, seed=3, test=0.1)
    expected: dict[str, list[str]] = {}
    for split, text in find(DataConfig("storybook:60", seed=3, test=0.1)).documents():
        expected.setdefault(split, []).append(text)
    assert set(found.sheet.splits) == set(SPLITS)
    for split, texts in expected.items():
        ids, described = found.tokens(split), found.sheet.splits[split]
        assert found.tokenizer.decode(ids) == "".join(text + "<|endoftext|>" for text in texts)
        assert described.documents == len(texts) == int((ids == found.tokenizer.end_of_text).sum())
        assert described.tokens == len(ids)
        assert described.bytes == sum(len(t.encode()) for t in texts) == found.tokenizer.byte_lengths()[ids].sum()


def test_large_vocabularies_take_four_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "_dtype", lambda tokenizer: "uint32")
    found = prepare("storybook:30", "byte", tmp_path / "out")
    assert found.tokens("train").dtype == np.dtype("<u4")
    assert (tmp_path / "out" / "train.bin").stat().st_size == 4 * found.sheet.splits["train"].tokens


@pytest.mark.parametrize("tokenizer", ["byte", "bpe:400"])
def test_neither_batches_nor_pieces_of_a_long_text_matter(
    tokenizer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long document is encoded in pieces that end between words: no token is another one for that."""
    text = "\n\n\n".join(stories(60)) + "  two  spaces\r\n\t tab <|endoftext|> 世界 " + "x" * 300
    jsonl(tmp_path / "a.jsonl", [text, *stories(20)])
    whole = prepare(str(tmp_path / "a.jsonl"), tokenizer, tmp_path / "whole", validation=0.0)
    monkeypatch.setattr(tokens, "BATCH", 50)
    assert len(list(tokens._pieces(text))) > 500
    cut = prepare(str(tmp_path / "a.jsonl"), tokenizer, tmp_path / "cut", validation=0.0)
    assert cut.sheet.splits == whole.sheet.splits


def test_a_saved_tokenizer_serves_another_corpus(tmp_path: Path) -> None:
    first = prepare("storybook:30", "bpe:300", tmp_path / "first")
    second = prepare("storybook:25", str(tmp_path / "first"))
    assert second.tokenizer.fingerprint == first.tokenizer.fingerprint
    assert prepare("storybook:25", str(tmp_path / "first")).reused


# --- where, and how often


def test_the_cache_is_by_content(tmp_path: Path, cache: Path) -> None:
    """A touch changes nothing; a text that grows is another corpus, and the tokens of the first one stay."""
    source = jsonl(tmp_path / "My texts.jsonl", list(stories(30)))
    first = prepare(str(source), "byte")
    assert (first.reused, first.folder.parent) == (False, cache)
    assert first.folder.name.startswith("my-texts-byte-")
    before = everything_below(first.folder)
    os.utime(source, ns=(0, 0))
    assert prepare(str(source), "byte").reused
    renamed = jsonl(tmp_path / "other.jsonl", list(stories(30)))  # neither a name nor a time is part of a corpus
    assert find(DataConfig(str(renamed))).identity == find(DataConfig(str(source))).identity
    jsonl(source, list(stories(31)))
    second = prepare(str(source), "byte")
    assert (second.reused, second.sheet.splits == first.sheet.splits) == (False, False)
    assert everything_below(first.folder) == before
    recorded = second.sheet.sources[0]
    assert (recorded["file"], recorded["bytes"]) == (str(source), source.stat().st_size)


@pytest.mark.parametrize(
    "options", [{"seed": 1}, {"test": 0.1}, {"limit": 20}, {"encoding": "cp1252"}, {"column": "x"}]
)
def test_every_option_is_part_of_the_name(options: dict[str, Any]) -> None:
    plain, other = (open_tokens(DataConfig("storybook:60", "byte", **given)) for given in ({}, options))
    assert plain.folder != other.folder
    assert open_tokens(DataConfig(folder=str(other.folder))).sheet == other.sheet


def test_a_folder_of_ones_own_is_never_overwritten(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert not prepare("storybook:30", "byte", out).reused
    before = everything_below(tmp_path)
    assert prepare("storybook:30", "byte", out).reused
    for corpus, options in (("storybook:31", {}), ("storybook:30", {"seed": 1})):
        with pytest.raises(InputError, match=r"out holds other tokens, .*: choose another --out"):
            prepare(corpus, "byte", out, **options)
    assert everything_below(tmp_path) == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("precious")
    with pytest.raises(InputError, match="mine exists and is left alone"):
        prepare("storybook:30", "byte", tmp_path / "mine")


PROGRAM = """
import sys, time
from sympformer.data import Corpus, prepare, tokens
documents, slow = Corpus.documents, len(sys.argv) > 1
def delayed(self):
    for number, pair in enumerate(documents(self)):
        if number == 5:
            print("writing", flush=True)
        time.sleep(60 if slow and number == 5 else 0)
        yield pair
Corpus.documents = delayed
print(prepare("storybook:400", "byte").reused, flush=True)
"""


def test_of_several_processes_one_prepares_though_another_is_killed(cache: Path) -> None:
    command = [sys.executable, "-c", PROGRAM]
    killed = subprocess.Popen([*command, "slow"], stdout=subprocess.PIPE, text=True)
    assert killed.stdout is not None
    killed.stdout.readline()  # it holds the lock, and has begun to write
    others = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    time.sleep(0.3)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    said = [other.communicate(timeout=60)[0].split() for other in others]
    assert sorted(said) == [["True"], ["writing", "False"]]
    (folder,) = (path for path in cache.iterdir() if not path.name.startswith("."))
    Tokens.open(folder, check=True)
    assert [path.name for path in cache.iterdir() if path.is_dir()] == [folder.name]


# --- opened


def test_the_first_process_reads_everything_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare("storybook:30", "byte", tmp_path / "out")
    read: list[bool] = []
    monkeypatch.setattr(tokens, "checked", lambda folder, manifest, hashes: read.append(hashes))
    for rank in ("1", "0", "0"):
        monkeypatch.setenv("RANK", rank)
        Tokens.open(tmp_path / "out")
    assert read == [False, True, False]


def test_what_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="does not exist: make it with 'sympformer data prepare"):
        Tokens.open(tmp_path / "none")
    with pytest.raises(InputError, match="holds no prepared data"):
        Tokens.open(tmp_path)
    with pytest.raises(InputError, match="has no split 'test': it has train, validation"):
        prepare("storybook:30", "byte").tokens("test")
    (tmp_path / "a.txt").write_text("  \n\n ")
    with pytest.raises(InputError, match="holds no text"):
        prepare(str(tmp_path / "a.txt"), "byte")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "train.txt").write_text("text")
    (tmp_path / "own" / "validation.txt").write_text("  ")
    with pytest.raises(InputError, match="holds no text for validation"):
        prepare(str(tmp_path / "own"), "byte")
    monkeypatch.setattr(tokens, "OFF", 1.0001)
    with pytest.raises(InputError, match=r"validation would hold .* instead of 0\.05: .* data\.separator"):
        prepare("storybook:31", "byte")


# --- runs of words that stand in two splits


def naive(splits: dict[str, list[str]], words: int) -> list[bool]:
    """For every test document, by the words themselves."""

    def runs(text: str) -> set[tuple[str, ...]]:
        said = text.lower().split()
        return {tuple(said[i : i + words]) for i in range(max(len(said) - words, 0) + 1)}

    known = set().union(*(runs(text) for split in SPLITS[:2] for text in splits[split]))
    return [not known.isdisjoint(runs(text)) for text in splits["test"]]


@pytest.mark.parametrize("words", [1, 2, 3, 5, 19, 20])
def test_as_the_words_themselves(words: int) -> None:
    draw = random.Random(words)
    shared = " ".join(f"word{i}" for i in range(20))  # with what follows at once, nineteen words are not twenty

    def drawn() -> str:
        return " ".join(draw.choice("abcDé") + draw.choice(["", "\n"]) for _ in range(draw.randint(1, 30)))

    splits = {split: [drawn() for _ in range(12)] for split in SPLITS}
    splits["train"] += [f"Before it {shared}, after it."]
    splits["test"] += [
        splits["train"][0],
        "New. " + splits["validation"][3].upper(),
        f"Then {shared} !",
        "Only here " * 12,
    ]
    overlap = Overlap(splits["test"], words)
    for text in (*splits["train"], *splits["validation"]):
        overlap.compare(text)
    found = [overlap.shared(text) for text in splits["test"]]
    assert found == naive(splits, words)
    assert (found[-4], found[-2], found[-1]) == (True, words < 20, False)


@pytest.fixture
def repeating(tmp_path: Path) -> Path:
    """A corpus with splits of its own; two of four test documents were seen, one in training, one in validation."""
    folder = tmp_path / "texts"
    folder.mkdir()
    jsonl(folder / "train.jsonl", [f"Story {i} of the {i}th day, told once more." for i in range(9)])
    jsonl(folder / "validation.jsonl", ["A tale that decides on a learning rate, no more."])
    seen = ["They say: story 3 of the 3th day, told once more.", "A TALE that decides on a learning rate, and ends."]
    jsonl(folder / "test.jsonl", ["Nobody knows this one, it is new.", *seen, "Nor does anybody know this."])
    return folder


def test_dropped_and_counted(repeating: Path) -> None:
    whole, found = (prepare(str(repeating), "byte", overlap_words=words) for words in (0, 6))
    before, after, dropped = whole.sheet.splits, found.sheet.splits, found.sheet.dropped
    kept = "Nobody knows this one, it is new.<|endoftext|>Nor does anybody know this.<|endoftext|>"
    assert found.tokenizer.decode(found.tokens("test")) == kept
    assert [before[name] for name in SPLITS[:2]] == [after[name] for name in SPLITS[:2]]
    for count in ("documents", "tokens", "bytes"):
        assert getattr(before["test"], count) == getattr(after["test"], count) + getattr(dropped, count)
    said = f"dropped from test: 2 documents ({dropped.tokens:,} tokens) with a run of 6 words of another split"
    assert found.sheet.split == f"the corpus's own: train, validation, test; {said}"

    # the storybook's episodes repeat themselves; a share that is dropped is no missed share
    sheet = prepare("storybook:150", "bpe:300", test=0.2, overlap_words=12).sheet
    assert sheet.dropped.documents > sheet.splits["test"].documents > 0


def test_overlaps_that_are_refused(repeating: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jsonl(repeating / "validation.jsonl", ["Nobody knows a tale, nor do they."])
    with pytest.raises(InputError, match=r"every test document of .* shares a run of words with another split"):
        prepare(str(repeating), "byte", overlap_words=1)
    with pytest.raises(InputError, match=r"has no test split to drop documents of .* hold one out with data\.test"):
        prepare("storybook:30", "byte", overlap_words=20)
    monkeypatch.setattr("sympformer.data.overlap.MOST", 10)
    with pytest.raises(InputError, match=r"has more than 10 words, too many .* hold out less"):
        prepare(str(repeating), "byte", overlap_words=3)


# --- commands


def test_prepare_then_info(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*words: object) -> str:
        assert cli.main(["data", *map(str, words)]) == 0
        return capsys.readouterr().out

    folder, out = tmp_path / "texts", tmp_path / "out"
    folder.mkdir()
    jsonl(folder / "a.jsonl", list(stories(30)))
    (folder / "photo.jpg").touch()
    line, note = ["prepare", folder, "--tokenizer", "byte", "--out", out], "left out 1 file: photo.jpg (unknown ending)"
    assert cli.main(["data", *map(str, line)]) == 0
    shown = capsys.readouterr()
    assert f"{folder}: {note}\n" in shown.err  # a warning, also where nobody asks
    assert all(part in shown.out for part in (f"{out} written", "0.05 validation", f"note       {note}"))
    assert f"{out} is up to date" in run(*line)
    printed = run("info", out, "--check", "true", "--preview", 20)
    assert "checksums are right" in printed
    assert "train:" in printed


words = st.text(st.characters(exclude_categories=["Nd", "Cs"], exclude_characters="/\\~."), min_size=1, max_size=12)
odd = ["", "~nobody/x", "x" * 300, "x" * 5_000, "a\0b", "storybook:-1", "no/such/folder", "gpt2:\0", "hub:a/b/c"]
kinds = st.sampled_from(["storybook", "bpe", "byte", "gpt2", ""])
names = st.one_of(words, st.builds("{}:{}".format, kinds, words), st.sampled_from(odd))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(corpus=names, tokenizer=names, out=names, validation=st.floats(), limit=st.none() | st.integers(-2, 2))
def test_bad_arguments_end_in_one_sentence_and_leave_nothing(
    tmp_path: Path, corpus: str, tokenizer: str, out: str, validation: float, limit: int | None
) -> None:
    with pytest.raises(InputError) as caught:
        prepare(corpus, tokenizer, tmp_path / "below" / out, validation=validation, limit=limit)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_preparing_and_sampling_need_no_torch() -> None:
    code = (
        "import sys; from sympformer import data; tokens = data.prepare('storybook:50', 'bpe:300');"
        "sampler = data.BlockSampler(tokens.tokens('train'), block_size=128, batch_size=16, seed=0);"
        "print(sampler.batch(step=7, rank=1, world=4)[0].shape, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "(4, 128) False"
    assert set(data.__all__) <= set(dir(data))
