"""Corpora: every format, what is left out and said, the splits, and one clear sentence for all that can be wrong."""

import csv
import gzip
import io
import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sympformer.data import DataConfig, find, readers, splits
from sympformer.errors import InputError

TEXTS = ["One fish.\nTwo fish.", "Grüße, 世界 🙂", 'She said, "no", twice.', "The end"]
END = "<|endoftext|>"


def as_csv(texts: list[str]) -> bytes:
    out = io.StringIO(newline="")
    csv.writer(out).writerows([("id", "text"), *enumerate(texts)])
    return out.getvalue().encode()


def as_parquet(texts: list[str]) -> bytes:
    pa = pytest.importorskip("pyarrow", reason="parquet needs pyarrow")
    import pyarrow.parquet as pq

    out = io.BytesIO()
    pq.write_table(pa.table({"id": list(range(len(texts))), "text": texts}), out)
    return out.getvalue()


WRITERS: dict[str, Callable[[list[str]], bytes]] = {
    "txt": lambda texts: f"\n{END}\n".join(texts).encode(),
    "jsonl": lambda texts: "\n".join(json.dumps({"id": i, "text": text}) for i, text in enumerate(texts)).encode(),
    "csv": as_csv,
    "parquet": as_parquet,
}


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def by_split(name: Path | str, **options: Any) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for split, text in find(DataConfig(str(name), **options)).documents():
        found.setdefault(split, []).append(text)
    return found


def texts(name: Path | str, **options: Any) -> list[str]:
    return by_split(name, validation=0.0, **options)["train"]


def notes(name: Path | str, **options: Any) -> list[str]:
    return find(DataConfig(str(name), **options)).notes


# --- formats


@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize("ending", WRITERS)
def test_every_format(tmp_path: Path, ending: str, packed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / f"stories.{ending}{packed}", WRITERS[ending](TEXTS))
    corpus = find(DataConfig(str(path), validation=0.0, separator=END))
    assert [text for _, text in corpus.documents()] == TEXTS
    assert corpus.done == pytest.approx(1.0)
    monkeypatch.setattr(readers, "CHUNK", 7)  # bytes: characters and separators over the borders
    assert texts(path, separator=END) == TEXTS


def test_another_column_and_blank_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", b'{"story": "Hello"}\n\n{"story": " "}\n{"story": "a \\ud83d b"}\n')
    assert texts(path, column="story") == ["Hello", "a \ufffd b"]


def test_a_csv_reader_leaves_no_trace(tmp_path: Path) -> None:
    """The limit on a field's length belongs to the whole process."""
    before = csv.field_size_limit()
    rows = find(DataConfig(str(write(tmp_path / "a.csv", as_csv(["x" * 200_000, "y"]))), validation=0.0)).documents()
    assert len(next(rows)[1]) == 200_000
    assert csv.field_size_limit() == before


@pytest.mark.parametrize(
    ("separator", "expected"),
    [("file", ["a\nb\n\nc\n \n\nd"]), ("blank", ["a\nb", "c", "d"]), ("c", ["a\nb", "d"])],
)
def test_separators_of_a_text_file(tmp_path: Path, separator: str, expected: list[str]) -> None:
    path = write(tmp_path / "a.txt", b"\xef\xbb\xbfa\r\nb\r\n\r\nc\n \n\nd\n")
    assert texts(path, separator=separator) == expected


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("\n\n".join(["A story."] * 30), "--data.separator blank (data prepare: --separator blank)"),
        (END.join(["one\n\ntwo"] * 30), f"--data.separator '{END}'"),
        ("\n\n".join(["A story."] * 15), None),
    ],
)
def test_one_file_is_one_document_and_a_line_says_so(tmp_path: Path, content: str, said: str | None) -> None:
    path = write(tmp_path / "a.txt", content.encode())
    assert texts(path) == [content]
    found = notes(path)
    assert (said in found[0] and "a.txt is one document, though" in found[0]) if said else found == []
    assert notes(path, separator="blank") == []


@pytest.mark.parametrize(
    ("encoding", "text"),
    [*((name, "naïve café") for name in ("cp1252", "latin-1", "utf-16", "utf-8")), ("shift_jis", "ある日")],
)
def test_encodings(tmp_path: Path, encoding: str, text: str) -> None:
    for ending, content in {"txt": text, "csv": f"text\n{text}\n", "jsonl": f'{{"text": "{text}"}}\n'}.items():
        (tmp_path / f"a.{ending}").write_text(content, encoding=encoding)
        assert texts(tmp_path / f"a.{ending}", encoding=encoding) == [text]


def test_parquet_in_bounded_memory(tmp_path: Path) -> None:
    """A text that stands in a file a thousand times takes its room there once; read, it is not there all at once."""
    pa = pytest.importorskip("pyarrow", reason="parquet needs pyarrow")
    import pyarrow.parquet as pq

    size, rows = 100_000, 1024
    repeated = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["x" * size]))
    pq.write_table(pa.table({"text": repeated}), tmp_path / "a.parquet")
    largest = max(pa.total_allocated_bytes() for _ in readers.documents(tmp_path / "a.parquet", DataConfig()))
    assert largest < rows * size / 10


# --- folders


def test_a_folder_of_all_kinds(tmp_path: Path) -> None:
    """What is read, in order; what is left out is said, with the first names; hidden files are passed over."""
    write(tmp_path / "b" / "two.txt", b"second\n\nstill second")
    write(tmp_path / "a.md", b"# first")
    for name, content in {"empty.txt": b"", "image.txt": b"\x89PNG\0\0", ".hidden.txt": b"x"}.items():
        write(tmp_path / name, content)
    for name in ("a\x1b[2J\nb.jpg", *(f"photo{i}.jpg" for i in range(6))):
        write(tmp_path / name, b"x")
    assert texts(tmp_path) == ["# first", "second\n\nstill second"]
    assert notes(tmp_path) == [
        "left out 7 files: a\ufffd[2J\ufffdb.jpg, photo0.jpg, photo1.jpg, photo2.jpg, photo3.jpg, 2 more "
        "(unknown ending)",
        "left out 1 file: image.txt (binary, or text that needs data.encoding utf-16)",
        "left out 1 file: empty.txt (empty)",
    ]


@pytest.mark.parametrize(
    "names",
    [
        ("train.csv", "validation.csv", None),
        ("train.csv", "valid.csv", "test.csv"),
        ("stories-train.csv", "stories-val.csv", None),
        ("train-00000-of-00001.csv", "dev-00000-of-00001.csv", None),
        ("train/part1.csv", "validation/part1.csv", "test/part1.csv"),
        ("stories.csv", "validation.csv", None),
    ],
)
def test_a_folder_keeps_its_own_split(tmp_path: Path, names: tuple[str | None, ...]) -> None:
    expected = {}
    for split, name in zip(("train", "validation", "test"), names, strict=True):
        if name:
            expected[split] = [f"{split} {i}" for i in range(3)]
            write(tmp_path / name, as_csv(expected[split]))
    assert by_split(tmp_path, validation=0.3) == expected
    corpus = find(DataConfig(str(tmp_path)))
    list(corpus.documents())
    assert corpus.rule() == f"the corpus's own: {', '.join(expected)}"


def test_files_and_names_that_are_no_split(tmp_path: Path) -> None:
    for name in ("train-ride.txt", "test-flight.txt", "bus.txt"):
        write(tmp_path / "trips" / name, name.encode())
    assert texts(tmp_path / "trips") == ["bus.txt", "test-flight.txt", "train-ride.txt"]
    for name in ("train.txt", "validation.txt", "readme.txt"):
        write(tmp_path / "own" / name, b"text")
    assert notes(tmp_path / "own") == ["left out 1 file: readme.txt (no split in the name)"]


def test_storybook_seed_and_limit() -> None:
    assert {split: len(drawn) for split, drawn in by_split("storybook:40").items()} == {"train": 38, "validation": 2}
    assert by_split("storybook:40", seed=2) != by_split("storybook:40", seed=1)
    assert texts("storybook:40", limit=7) == texts("storybook:7")


# --- splits


@pytest.mark.parametrize(("kinds", "look"), [(60, splits.LOOK), (1500, 1000)], ids=["by size", "each by itself"])
def test_equal_documents_are_on_one_side(kinds: int, look: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """And where each is drawn by itself, no document's side depends on how many follow."""
    monkeypatch.setattr(splits, "LOOK", look)
    documents, shares = (
        [f"text {i % kinds} ".ljust(90, "x") for i in range(20 * kinds)],
        {"validation": 0.1, "test": 0.05},
    )
    drawn = [list(splits.split(documents, shares, seed)) for seed in range(3)]
    for pairs in drawn:
        assert len(set(pairs)) == kinds
        for split, share in shares.items():
            assert [name for name, _ in pairs].count(split) / len(pairs) == pytest.approx(share, rel=0.5)
    assert drawn[0] != drawn[1]
    if kinds > 1000:
        assert list(splits.split(documents[:25_000], shares, 0)) == drawn[0][:25_000]


SIZES: dict[str, list[int]] = {
    "one text": [400_000],
    "one text and a scrap": [400_000, 10_000],
    "two of a size": [5_000, 5_000],
    "heavy tails": [100_000, 30, 30, 30, 5_000, 400, 400, 20_000],
    "many and heavy": [300] * 900 + [500_000, 2_000_000],
    "few": [90] * 19,
    "larger than what is looked at": [1 << 20] * 40,
}


@pytest.mark.parametrize("case", SIZES)
@pytest.mark.parametrize("shares", [{"validation": 0.05}, {"validation": 0.05, "test": 0.1}], ids=len)
def test_the_share_holds_by_size(case: str, shares: splits.Shares) -> None:
    documents = [f"{i} ".ljust(length, "x") for i, length in enumerate(SIZES[case])]
    for seed in range(1 if sum(SIZES[case]) > 10**7 else 10):
        size: Counter[str] = Counter()
        for split, text in splits.split(documents, shares, seed):
            size[split] += len(text)
        for split, share in shares.items():
            assert share / 1.8 < size[split] / size.total() < 1.8 * share, (seed, size)


def test_a_single_document_is_cut_by_place_with_a_gap() -> None:
    text = " ".join(str(i) for i in range(100_000))
    (first, train), (second, held) = splits.split([text], {"validation": 0.1}, 0)
    assert (first, second) == ("train", "validation")
    assert text.startswith(train)
    assert text.endswith(held)
    assert 500 < len(text) - len(train) - len(held) < 2_000
    assert held.split()[0] == str(100_000 - len(held.split()))  # at the beginning of a word


# --- refused


BROKEN: list[tuple[str, Any, str]] = [  # a file's name, its content or what makes it, and the sentence
    ("a.txt", None, "neither a known name nor a file or folder that exists"),
    ("a.doc", b"x", r"a\.doc holds nothing that can be read \(\.txt, .*: 1 file: a\.doc \(unknown ending\)"),
    ("a.d", Path.mkdir, r"a\.d holds nothing that can be read \(\.txt, .*\.parquet, plain or with \.gz\)$"),
    ("b.d", lambda path: write(path / "a.jpg", b"x"), r"holds nothing .*: 1 file: a\.jpg \(unknown ending\)"),
    ("a.txt", os.mkfifo, "not a regular file"),
    ("a.txt", b"\x89PNG\0\0", r"1 file: a\.txt \(binary, or text that needs data\.encoding utf-16\)"),
    ("a.txt", b"na\xefve", r"a\.txt is not UTF-8.*0xef at offset 2 .*data\.encoding, such as cp1252"),
    ("a.txt", b"caf\xc3", r"a\.txt is not UTF-8.*0xc3 at offset 3"),
    ("a.jsonl", b'{"text": "x"}\n{"text": "\xef"}', "0xef at offset 24"),
    ("a.jsonl.gz", gzip.compress(b'{"text": "Hello"}\n' * 1000)[:-20], r"a\.jsonl\.gz is not a whole gzip file"),
    ("a.txt.gz", b"plain", r"a\.txt\.gz is not a whole gzip file"),
    ("a.jsonl", b'{"text": "x"}\n{"text"', r"a\.jsonl, line 2 is not JSON"),
    ("a.jsonl", b"[1]", "line 1 is not a JSON object"),
    ("a.jsonl", b'{"text": 3}', "line 1: column 'text' holds int, not text"),
    ("a.jsonl", b'{"story": "x", "id": 1}', r"no column 'text': it has story, id; .* data\.column"),
    ("a.csv", b"id,story\n1,x\n", "no column 'text': it has id, story"),
    ("a.csv", b"id,text\n1,x\n2\n", r"a\.csv, line 3: column 'text' holds nothing, not text"),
    ("a.csv", b"text\n\xef", r"a\.csv is not UTF-8"),
    ("a.csv", b"id\n", "no column 'text'"),
    ("a.parquet", b"PAR1 no", "is not a whole parquet file"),
    (
        "b.parquet",
        lambda path: path.write_bytes(as_parquet([]).replace(b"text", b"tale")),
        "no column 'text'|not a whole",
    ),
    ("a.txt", b"only one", r"too few to hold any out: .* data\.separator"),
]


@pytest.mark.parametrize(("name", "made", "message"), BROKEN, ids=[message[:30] for _, _, message in BROKEN])
def test_files_that_cannot_be_read(tmp_path: Path, name: str, made: Any, message: str) -> None:
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow", reason="parquet needs pyarrow")
    if made is not None:
        _ = made(tmp_path / name) if callable(made) else (tmp_path / name).write_bytes(made)
    with pytest.raises(InputError, match=message) as caught:
        by_split(tmp_path / name)
    assert "\n" not in str(caught.value)


SHARES = "are shares of the text: each 0, to hold nothing out, or at least 1e-06, and together below 1"
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"corpus": "storybok"}, "unknown corpus 'storybok'.*did you mean 'storybook'"),
    *[({"corpus": f"storybook:{n}"}, "is not storybook:N") for n in ("", "many", "0", "20001", "9" * 5000)],
    *[({"corpus": name}, "is not hub:OWNER/NAME") for name in ("hub:", "hub:a/b/c", "hub:a:b:c")],
    *[({"validation": share}, SHARES) for share in (-0.1, 1.0, float("nan"), 1e-320)],
    ({"validation": 0.6, "test": 0.4}, SHARES),
    ({"limit": 0}, "data.limit 0 is not"),
    ({"limit": 99999999999999999999}, "limit is a number of more than 63 bits"),
    ({"separator": ""}, "data.separator is empty"),
    *[({"encoding": name}, "unknown encoding") for name in ("klingon", "rot13", "")],
    *[({"overlap_words": n}, f"data.overlap_words {n} is not a number of words") for n in (-1, 1001)],
    ({"folder": "x", "corpus": "y", "seed": 1}, "holds tokens already: leave it out, or data.corpus, data.seed"),
]


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_options_that_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        find(DataConfig(**options))
