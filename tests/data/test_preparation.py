"""Preparing data: counts and checksums that hold, whole folders or none, and damage that is noticed."""

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from sympformer.data import corpora
from sympformer.data.corpora.source import Item, Source
from sympformer.data.preparation import default_folder, prepare
from sympformer.data.prepared import SHEET, load_prepared
from sympformer.data.tokenizers import load_tokenizer
from sympformer.errors import InputError
from tests.data.places import MERGES, TINYSTORIES, needs_merges, needs_tinystories


def everything_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize("tokenizer", ["byte", "bpe:500"])
def test_tokens_are_the_documents(tmp_path: Path, tokenizer: str) -> None:
    prepared = prepare("storybook:60", tokenizer, tmp_path / "out", seed=3, test=0.1)
    assert set(prepared.sheet.splits) == {"train", "validation", "test"}
    own = load_tokenizer(tmp_path / "out")
    expected: dict[str, list[str]] = {}
    for split, text, *_ in corpora.open_corpus("storybook:60", seed=3, shares=corpora.Shares(0.05, 0.1)):
        expected.setdefault(split, []).append(text)
    for split, texts in expected.items():
        tokens = prepared.tokens(split)
        described = prepared.sheet.splits[split]
        assert own.decode(tokens) == "".join(text + "<|endoftext|>" for text in texts)
        assert described.documents == len(texts) == int((tokens == own.end_of_text).sum())
        assert described.tokens == len(tokens)
        assert described.bytes == sum(len(text.encode()) for text in texts) == own.byte_lengths()[tokens].sum()
    prepared.verify()


def test_large_vocabularies_take_four_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sympformer.data.preparation._dtype", lambda tokenizer: "uint32")
    prepared = prepare("storybook:30", "byte", tmp_path / "out")
    assert prepared.tokens("train").dtype == np.dtype("<u4")
    assert (tmp_path / "out" / "train.bin").stat().st_size == 4 * prepared.sheet.splits["train"].tokens


def test_batches_do_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = prepare("storybook:40", "byte", tmp_path / "whole").sheet.splits
    monkeypatch.setattr("sympformer.data.preparation.BATCH", 1)
    assert prepare("storybook:40", "byte", tmp_path / "single").sheet.splits == whole


def test_progress_shows_megabytes_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sympformer.progress.PATIENCE", 0.0)
    prepare("storybook:30", "byte", tmp_path / "quiet")
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("FORCE_COLOR", "1")  # let rich take the captured stderr for a terminal
    prepare("storybook:30", "byte", tmp_path / "watched", progress=True)
    assert "MB/s" in capsys.readouterr().err


def test_the_same_request_is_up_to_date(tmp_path: Path) -> None:
    first = prepare("storybook:30", "bpe:300", tmp_path / "out")
    stamp = (tmp_path / "out" / "train.bin").stat().st_mtime_ns
    second = prepare("storybook:30", "bpe:300", tmp_path / "out")
    assert (first.reused, second.reused) == (False, True)
    assert (tmp_path / "out" / "train.bin").stat().st_mtime_ns == stamp


def test_another_request_is_refused_or_replaces(tmp_path: Path) -> None:
    out = tmp_path / "out"
    prepare("storybook:30", "byte", out)
    before = everything_below(tmp_path)
    with pytest.raises(InputError, match="prepared in another way: choose another --out, or replace it"):
        prepare("storybook:31", "byte", out)
    with pytest.raises(InputError, match="prepared in another way"):
        prepare("storybook:30", "byte", out, seed=1)
    assert prepare("storybook:31", "byte", out, overwrite=True).sheet.corpus["identity"]["stories"] == 31
    assert everything_below(tmp_path) == before


def test_a_changed_file_is_not_up_to_date(tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    source.write_text("".join(json.dumps({"text": f"{word} " * 100}) + "\n" for word in ("one", "two", "six")))
    prepare(str(source), "byte", tmp_path / "out")
    assert prepare(str(source), "byte", tmp_path / "out").reused
    os.utime(source, ns=(0, 0))
    with pytest.raises(InputError, match="prepared in another way"):
        prepare(str(source), "byte", tmp_path / "out")


def test_folders_of_other_things_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    for overwrite in (False, True):
        with pytest.raises(InputError, match="holds no prepared data, so it is left alone"):
            prepare("storybook:30", "byte", tmp_path, overwrite=overwrite)
    assert everything_below(tmp_path) == ["thesis.tex"]


def break_after(monkeypatch: pytest.MonkeyPatch, count: int, error: BaseException) -> None:
    """Make the storybook fail after some stories."""

    def tell() -> Iterator[Item]:
        for i in range(count):
            yield Item(f"Story number {i}. " * 200, None)
        raise error

    source = Source("storybook", "storybook", {}, {"train": tell})
    monkeypatch.setattr(corpora, "_open_storybook", lambda *arguments: source)


@pytest.mark.parametrize("tokenizer", ["byte", "bpe:300"])
@pytest.mark.parametrize("error", [InputError("the source broke"), KeyboardInterrupt("stop"), RuntimeError("a bug")])
@pytest.mark.parametrize("existing", [False, True])
def test_an_interrupted_run_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tokenizer: str, error: BaseException, existing: bool
) -> None:
    out = tmp_path / "deep" / "er" / "out"
    if existing:
        prepare("storybook:30", "byte", out)
    before = everything_below(tmp_path)
    break_after(monkeypatch, 300, error)
    with pytest.raises(type(error), match=str(error)):
        prepare("storybook", tokenizer, out, overwrite=True)
    assert everything_below(tmp_path) == before
    if existing:
        load_prepared(out, verify=True)


def test_leftovers_of_a_killed_run_are_removed(tmp_path: Path) -> None:
    from sympformer.locks import Lock

    dead, alive, file = (tmp_path / f".sympformer-{name}" for name in ("dead", "alive", "file"))
    for folder in (dead, alive):
        folder.mkdir()
        (folder / "train.bin").write_bytes(b"half")
    file.write_bytes(b"half")
    with Lock(alive):
        prepare("storybook:30", "byte", tmp_path / "out")
        assert not dead.exists()
        assert not file.exists()
        assert alive.exists()


def test_a_full_disk_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sympformer.data.preparation.TokenWriter._flush", full)
    with pytest.raises(InputError, match=r"cannot write .*out: No space left on device"):
        prepare("storybook:30", "byte", tmp_path / "out")
    assert everything_below(tmp_path) == []


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="cannot write"):
        prepare("storybook:30", "byte", tmp_path / "file" / "out")


def test_damage_is_noticed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    prepare("storybook:30", "bpe:300", out)
    train, sheet = out / "train.bin", out / SHEET
    whole, described = train.read_bytes(), sheet.read_text()

    train.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
    for verify in (False, True):
        with pytest.raises(InputError, match=r"train\.bin is damaged"):
            load_prepared(out, verify=verify)
    train.write_bytes(whole[:-2])
    with pytest.raises(InputError, match=r"train\.bin has \d+ bytes where its sheet says"):
        load_prepared(out)
    train.unlink()
    with pytest.raises(InputError, match=r"train\.bin is missing"):
        load_prepared(out)
    train.write_bytes(whole)

    for broken in (described[:200], "[]", '{"format": 1}', '{"format": 1, "splits": 3}'):
        sheet.write_text(broken)
        with pytest.raises(InputError, match=r"sheet\.json is damaged"):
            load_prepared(out)
    sheet.write_text(described.replace('"format": 1', '"format": 99'))
    with pytest.raises(InputError, match="another format"):
        load_prepared(out)
    sheet.write_text(described.replace('"documents": 28', '"documents": 29'))
    with pytest.raises(InputError, match=r"sheet\.json has changed since it was written"):
        load_prepared(out)
    changed = json.loads(described)
    del changed["seal"]
    changed["tokenizer"]["sha256"] = "0" * 64
    sheet.write_text(json.dumps(changed))
    with pytest.raises(InputError, match="is not the one that made its tokens"):
        load_prepared(out, verify=True)


def test_missing_folders_and_splits(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist: make it with 'sympformer data prepare"):
        load_prepared(tmp_path / "none")
    with pytest.raises(InputError, match="holds no prepared data"):
        load_prepared(tmp_path)
    prepared = prepare("storybook:30", "byte", tmp_path / "out")
    with pytest.raises(InputError, match="has no split 'test': it has train, validation"):
        prepared.tokens("test")


def test_empty_corpora(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("  \n\n ")
    with pytest.raises(InputError, match="holds no text"):
        prepare(str(tmp_path / "a.txt"), "byte", tmp_path / "out")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "train.txt").write_text("text")
    (tmp_path / "own" / "validation.txt").write_text("")
    with pytest.raises(InputError, match="holds no text for validation"):
        prepare(str(tmp_path / "own"), "byte", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_saved_tokenizer_serves_another_corpus(tmp_path: Path) -> None:
    first = prepare("storybook:30", "bpe:300", tmp_path / "first")
    second = prepare("storybook:10", str(tmp_path / "first"), tmp_path / "second")
    assert second.tokenizer.fingerprint == first.tokenizer.fingerprint
    assert prepare("storybook:10", str(tmp_path / "first"), tmp_path / "second").reused


@pytest.mark.parametrize(
    ("corpus", "tokenizer", "expected"),
    [
        ("storybook", "bpe:2048", "storybook-bpe-2048"),
        ("storybook:100", "byte", "storybook-100-byte"),
        ("texts/My Stories.jsonl.gz", "gpt2:x/merges.txt", "my-stories-gpt2"),
        ("hub:owner/name", "gpt2", "name-gpt2"),
    ],
)
def test_default_folder(corpus: str, tokenizer: str, expected: str) -> None:
    assert default_folder(corpus, tokenizer) == Path("data") / expected


@needs_tinystories
@needs_merges
def test_tinystories_with_gpt2(tmp_path: Path) -> None:
    prepared = prepare(str(TINYSTORIES), f"gpt2:{MERGES}", tmp_path / "out", limit=300)
    assert prepared.sheet.dtype == "uint16"
    assert prepared.sheet.splits["train"].documents == prepared.sheet.splits["validation"].documents == 300
    assert prepared.tokenizer.padded_vocab_size == 50_304
    per_token = prepared.sheet.splits["train"].bytes / prepared.sheet.splits["train"].tokens
    assert math.isclose(per_token, 4.0, abs_tol=0.3)


@pytest.mark.parametrize("separator", ["file", "auto"])
def test_one_long_text_is_not_held_out(tmp_path: Path, separator: str) -> None:
    """A file of more than a megabyte without a blank line; its last piece is short."""
    (tmp_path / "a.txt").write_text("word " * 214_000)
    prepared = prepare(str(tmp_path / "a.txt"), "byte", tmp_path / "out", separator=separator)
    tokens = {name: split.tokens for name, split in prepared.sheet.splits.items()}
    assert 0.04 < tokens["validation"] / sum(tokens.values()) < 0.06
    assert prepared.sheet.cut == 1


def test_a_share_that_is_missed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sympformer.data.preparation.OFF", 1.0001)
    with pytest.raises(InputError, match=r"validation would hold .* instead of 0\.05"):
        prepare("storybook:30", "byte", tmp_path / "out")
    assert everything_below(tmp_path) == []


def test_tokens_that_the_tokenizer_does_not_have(tmp_path: Path) -> None:
    """With a checksum that fits: somebody else's folder."""
    import hashlib

    prepare("storybook:30", "byte", tmp_path)
    tokens = np.fromfile(tmp_path / "train.bin", dtype="<u2")
    tokens[5] = 60_000
    tokens.tofile(tmp_path / "train.bin")
    sheet = json.loads((tmp_path / SHEET).read_text())
    del sheet["seal"]
    sheet["splits"]["train"]["sha256"] = hashlib.sha256(tokens.tobytes()).hexdigest()
    (tmp_path / SHEET).write_text(json.dumps(sheet))
    with pytest.raises(InputError, match="holds the token 60000, which its tokenizer does not have"):
        load_prepared(tmp_path)


def test_verified_once_in_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sympformer.data.prepared import Prepared

    prepare("storybook:30", "byte", tmp_path)
    read: list[Path] = []
    monkeypatch.setattr(Prepared, "_verify", lambda self, file, described: read.append(file))
    load_prepared(tmp_path)
    assert read == []
    os.utime(tmp_path / "train.bin", ns=(0, 0))
    load_prepared(tmp_path)
    assert [file.name for file in read] == ["train.bin"]


def test_a_change_that_hides_its_time_is_found(tmp_path: Path) -> None:
    prepare("storybook:30", "byte", tmp_path)
    load_prepared(tmp_path)
    file = tmp_path / "train.bin"
    before, content = file.stat(), bytearray(file.read_bytes())
    content[10] ^= 1
    with file.open("r+b") as tokens:
        tokens.write(content)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(InputError, match="is damaged"):
        load_prepared(tmp_path)
