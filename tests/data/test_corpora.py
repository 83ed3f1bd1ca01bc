"""Corpora: every format, the rules of splitting, and one clear sentence for everything that can be wrong."""

import csv
import gzip
import io
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from sympformer.data.corpora import Corpus, Reading, Shares, formats, open_corpus
from sympformer.data.corpora.source import Item, assign
from sympformer.errors import InputError

TEXTS = ["One fish.\nTwo fish.", "Grüße, 世界 🙂", 'She said, "no", twice.', "The end"]


def as_txt(texts: list[str]) -> bytes:
    return "\n<|endoftext|>\n".join(texts).encode()


def as_jsonl(texts: list[str]) -> bytes:
    return "\n".join(json.dumps({"id": i, "text": text}) for i, text in enumerate(texts)).encode()


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
    "txt": as_txt,
    "jsonl": as_jsonl,
    "csv": as_csv,
    "parquet": as_parquet,
}


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def read(path: Path | str, shares: Shares | None = None, **kwargs: object) -> dict[str, list[str]]:
    corpus = open_corpus(str(path), shares=shares or Shares(0.0), reading=Reading(**kwargs))  # type: ignore[arg-type]
    return by_split(corpus)


def by_split(corpus: Corpus) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for document in corpus:
        found.setdefault(document.split, []).append(document.text)
    return found


@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize("suffix", WRITERS)
def test_every_format(tmp_path: Path, suffix: str, packed: str) -> None:
    path = write(tmp_path / f"stories.{suffix}{packed}", WRITERS[suffix](TEXTS))
    assert read(path) == {"train": TEXTS}
    shares_done = [document.done for document in open_corpus(str(path), shares=Shares(0.0))]
    assert shares_done[-1] == pytest.approx(1.0)


def test_another_column(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", b'{"story": "Hello"}\n\n{"story": "World"}\n')
    assert read(path, column="story") == {"train": ["Hello", "World"]}


@pytest.mark.parametrize(
    ("separator", "expected"),
    [
        ("auto", ["a\nb", "c", "d"]),
        ("blank", ["a\nb", "c", "d"]),
        ("file", ["a\nb\n\nc\n \n\nd"]),
        ("c", ["a\nb", "d"]),
    ],
)
def test_separators_of_one_text_file(tmp_path: Path, separator: str, expected: list[str]) -> None:
    path = write(tmp_path / "a.txt", b"\xef\xbb\xbfa\r\nb\r\n\r\nc\n \n\nd\n")
    assert read(path, separator=separator) == {"train": expected}


def test_several_text_files_are_one_document_each(tmp_path: Path) -> None:
    write(tmp_path / "b" / "two.txt", b"second\n\nstill second")
    write(tmp_path / "a.txt", b"first")
    write(tmp_path / ".hidden.txt", b"not read")
    write(tmp_path / "notes.pdf", b"not read")
    assert read(tmp_path) == {"train": ["first", "second\n\nstill second"]}


def test_long_text_is_cut_at_a_line_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "LONGEST", 100)
    text = "\n".join("word " * 7 + str(i) for i in range(40))
    path = write(tmp_path / "a.txt", text.encode())
    documents = read(path, separator="file")["train"]
    assert max(map(len, documents)) <= 100
    assert "\n".join(documents) == text


def test_text_split_over_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sympformer.data.corpora.text_stream.CHUNK", 7)
    path = write(tmp_path / "a.txt", as_txt(TEXTS).replace(b"\n", b"\r\n"))
    assert read(path, separator="<|endoftext|>") == {"train": TEXTS}


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
    corpus = open_corpus(str(tmp_path), shares=Shares(0.3))
    assert by_split(corpus) == expected
    assert corpus.rule.startswith("the corpus's own: train, validation")


def test_files_outside_a_folders_split_are_named(tmp_path: Path) -> None:
    for name in ("train.txt", "validation.txt", "readme.txt"):
        write(tmp_path / name, b"text")
    assert open_corpus(str(tmp_path)).describe()["left_out"] == ["readme.txt"]


def test_stories_about_trains_are_no_split(tmp_path: Path) -> None:
    for name in ("train-ride.txt", "test-flight.txt", "bus.txt"):
        write(tmp_path / name, name.encode())
    assert sorted(read(tmp_path)["train"]) == ["bus.txt", "test-flight.txt", "train-ride.txt"]


def items_of(lengths: Iterable[int]) -> list[Item]:
    return [Item(f"{i} ".ljust(length, "x"), None) for i, length in enumerate(lengths)]


def test_held_out_documents_are_a_seeded_share() -> None:
    items = items_of([90] * 5_000)
    first = list(assign(items, Shares(0.1, 0.05), 0, "x"))
    assert first == list(assign(iter(items), Shares(0.1, 0.05), 0, "x"))
    assert first != list(assign(items, Shares(0.1, 0.05), 1, "x"))
    counts = Counter(split for split, _ in first)
    assert counts["validation"] == pytest.approx(500, abs=80)
    assert counts["test"] == pytest.approx(250, abs=60)
    assert [item for _, item in first] == items
    longer = list(assign(items_of([90] * 6_000), Shares(0.1, 0.05), 0, "x"))
    assert longer[:5_000] == first  # a document's split does not depend on how many follow


@pytest.mark.parametrize("count", [13, 19, 150])
def test_a_small_corpus_holds_out_exactly_its_share(count: int) -> None:
    splits = Counter(split for split, _ in assign(items_of([90] * count), Shares(0.05), 3, "x"))
    assert splits["validation"] in {max(1, round(0.05 * count)), int(0.05 * count) or 1}
    assert splits.total() == count


# --- the share holds by size

HEAVY = [100_000, 30, 30, 30, 5_000, 400, 400, 20_000]
SIZES: dict[str, list[int]] = {
    "one text": [400_000],
    "one text and a scrap": [400_000, 10_000],
    "two of a size": [5_000, 5_000],
    "heavy tails": HEAVY,
    "many and heavy": [300] * 900 + [500_000] + [2_000_000],
    "larger than what is looked at": [1 << 20] * 70,
}


@pytest.mark.parametrize("case", SIZES)
@pytest.mark.parametrize("shares", [Shares(0.05), Shares(0.05, 0.1)])
def test_the_share_holds_by_size(case: str, shares: Shares) -> None:
    for seed in range(2 if sum(SIZES[case]) > 10**7 else 20):
        size: Counter[str] = Counter()
        for split, item in assign(items_of(SIZES[case]), shares, seed, "x"):
            size[split] += len(item.text)
        for split, share in shares.held():
            assert share / 1.8 < size[split] / size.total() < 1.8 * share, (seed, size)


def test_a_long_document_is_split_by_position_with_a_gap() -> None:
    text = " ".join(str(i) for i in range(100_000))
    (first, train), (second, held) = assign([Item(text, 1.0)], Shares(0.1), 0, "x")
    assert (first, second) == ("train", "validation")
    assert train.cut
    assert held.cut
    assert text.startswith(train.text)
    assert text.endswith(held.text)
    assert 500 < len(text) - len(train.text) - len(held.text) < 2_000
    assert held.text.split()[0] == str(100_000 - len(held.text.split()))  # at the beginning of a word


def test_storybook_by_number_and_seed() -> None:
    first = by_split(open_corpus("storybook:40", seed=1))
    assert sum(map(len, first.values())) == 40
    assert len(first["validation"]) == 2
    assert by_split(open_corpus("storybook:40", seed=2)) != first


def test_limit() -> None:
    corpus = open_corpus("storybook:40", shares=Shares(0.0), limit=7)
    assert by_split(corpus)["train"] == by_split(open_corpus("storybook:7", shares=Shares(0.0)))["train"]


def test_blank_documents_and_lone_surrogates(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", b'{"text": "  "}\n{"text": "a \\ud83d b"}\n{"text": "\\ud83d\\ude42\\n"}')
    assert read(path) == {"train": ["a \ufffd b", "🙂"]}


def bad_gzip(path: Path) -> None:
    path.write_bytes(gzip.compress(b'{"text": "Hello"}\n' * 1000)[:-20])


BROKEN: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "missing": ("a.txt", lambda path: None, "neither a known name nor a file or folder that exists"),
    "unknown format": ("a.doc", lambda path: path.write_bytes(b"x"), r"cannot tell the format of .*a\.doc"),
    "empty folder": ("a.d", lambda path: path.mkdir(), r"holds no \.txt, .* file"),
    "latin-1 text": ("a.txt", lambda path: path.write_bytes(b"na\xefve"), r"a\.txt is not UTF-8.*0xef at offset 2"),
    "cut off character": ("a.txt", lambda path: path.write_bytes(b"caf\xc3"), r"a\.txt is not UTF-8.*0xc3 at offset 3"),
    "latin-1 json": ("a.jsonl", lambda path: path.write_bytes(b'{"text": "x"}\n{"text": "\xef"}'), "0xef at offset 24"),
    "broken gzip": ("a.jsonl.gz", bad_gzip, r"a\.jsonl\.gz is not a whole gzip file"),
    "no gzip": ("a.txt.gz", lambda path: path.write_bytes(b"plain"), r"a\.txt\.gz is not a whole gzip file"),
    "broken json": (
        "a.jsonl",
        lambda path: path.write_bytes(b'{"text": "x"}\n{"text"'),
        r"a\.jsonl, line 2 is not JSON",
    ),
    "json list": ("a.jsonl", lambda path: path.write_bytes(b"[1]"), "line 1 is not a JSON object"),
    "json number": (
        "a.jsonl",
        lambda path: path.write_bytes(b'{"text": 3}'),
        "line 1: column 'text' holds int, not text",
    ),
    "no field": (
        "a.jsonl",
        lambda path: path.write_bytes(b'{"story": "x", "id": 1}'),
        "no column 'text': it has story, id",
    ),
    "no csv column": ("a.csv", lambda path: path.write_bytes(b"id,story\n1,x\n"), "no column 'text': it has id, story"),
    "short csv row": ("a.csv", lambda path: path.write_bytes(b"id,text\n1,x\n2\n"), r"a\.csv, line 3 has 1 columns"),
    "empty csv": ("a.csv", lambda path: path.write_bytes(b""), "no column 'text': it has none at all"),
    "no parquet": ("a.parquet", lambda path: path.write_bytes(b"PAR1 no"), "is not a whole parquet file"),
    "one document": ("a.txt", lambda path: path.write_bytes(b"only one"), "holds 1 document, too few to hold any out"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_errors_are_one_clear_sentence(tmp_path: Path, case: str) -> None:
    name, make, message = BROKEN[case]
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow", reason="parquet needs pyarrow")
    make(tmp_path / name)
    with pytest.raises(InputError, match=message) as caught:
        list(open_corpus(str(tmp_path / name)))
    assert "\n" not in str(caught.value)


def test_no_parquet_column(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", as_parquet(TEXTS))
    with pytest.raises(InputError, match=r"has no column 'story': it has id, text"):
        read(path, column="story")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("storybok", "unknown corpus 'storybok'.*did you mean 'storybook'"),
        ("storybook:many", "not storybook:N"),
        ("storybook:", "not storybook:N"),
        ("storybook:0", "not storybook:N"),
        ("storybook:" + "9" * 5000, "not storybook:N"),
        ("hub:", "not hub:OWNER/NAME"),
        ("hub:a/b/c", "not hub:OWNER/NAME"),
    ],
)
def test_bad_names(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_corpus(name)


@pytest.mark.parametrize("shares", [(-0.1, 0.0), (1.0, 0.0), (0.6, 0.4), (float("nan"), 0.0), (1e-320, 0.0)])
def test_bad_shares(shares: tuple[float, float]) -> None:
    with pytest.raises(InputError, match="of the documents"):
        Shares(*shares)


@pytest.mark.parametrize("limit", [0, 99999999999999999999])
def test_bad_limit(limit: int) -> None:
    with pytest.raises(InputError, match=f"limit {limit}"):
        open_corpus("storybook", limit=limit)


def test_an_empty_separator() -> None:
    with pytest.raises(InputError, match="the separator is empty"):
        Reading(separator="")


def test_pipes_and_lines_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "a.txt")
    with pytest.raises(InputError, match="not a regular file"):
        open_corpus(str(tmp_path / "a.txt"))
    monkeypatch.setattr("sympformer.data.corpora.text_stream.LONGEST_LINE", 1000)
    path = write(tmp_path / "a.jsonl", b'{"text": "' + b"x" * 2000)
    with pytest.raises(InputError, match=r"a\.jsonl, line 1 is longer than"):
        read(path)


def test_parquet_in_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text that stands in a file a thousand times takes its room there once; read, it is not there all at once."""
    pa = pytest.importorskip("pyarrow", reason="parquet needs pyarrow")
    import pyarrow.parquet as pq

    size, rows = 100_000, 1024
    repeated = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["x" * size]))
    pq.write_table(pa.table({"text": repeated}), tmp_path / "a.parquet")
    largest = 0
    for text, _ in formats.documents(tmp_path / "a.parquet", Reading(), alone=True):
        assert len(text) == size
        largest = max(largest, pa.total_allocated_bytes())
    assert largest < rows * size / 10
    monkeypatch.setattr(formats, "LONGEST_LINE", 10)
    with pytest.raises(InputError, match=r"a\.parquet holds texts of .* make them several documents"):
        read(tmp_path / "a.parquet")
