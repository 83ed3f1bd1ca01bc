"""Text as people have it: pages, notes, old encodings, plays, and folders with other things in between."""

import gzip
from pathlib import Path

import pytest

from sympformer.data import load_prepared, prepare
from sympformer.data.corpora import Reading, Shares, open_corpus
from sympformer.data.corpora.markup import HTMLText
from sympformer.errors import InputError

PAGE = """<!doctype html><html><head><title>Fish &amp; co</title><style>p { color: red }</style>
<script>if (1 < 2) { alert("<p>no</p>") }</script></head>
<body><h1>One  fish</h1><p>Two <b>fi</b>sh,
red&nbsp;fish.<br>Blue fish.<p>Old<ul><li>new</li><li>fish</ul>
<pre>  a
    b</pre><table><tr><td>x</td><td>y</td></tr></table><noscript>none</noscript>end</body></html>"""


def texts(path: Path, **how: str) -> list[str]:
    reading = Reading(**how)  # type: ignore[arg-type]
    return [document.text for document in open_corpus(str(path), shares=Shares(0.0), reading=reading)]


def notes(path: Path, **how: str) -> tuple[str, ...]:
    return open_corpus(str(path), reading=Reading(**how)).source.notes  # type: ignore[arg-type]


# --- pages and notes


@pytest.mark.parametrize("piece", [1, 7, 10_000])
def test_the_text_of_a_page(piece: int) -> None:
    """However the page comes in; what nobody sees is left out, blocks stand apart, white space is one space."""
    parser = HTMLText()
    for start in range(0, len(PAGE), piece):
        parser.feed(PAGE[start : start + piece])
    parser.close()
    lines = [line.rstrip() for line in parser.taken().replace("\u00a0", " ").strip().splitlines()]
    blocks = [
        "Fish & co",
        "One fish",
        "Two fish, red fish.\nBlue fish.",
        "Old",
        "new\nfish",
        "  a\n    b",
        "x y",
        "end",
    ]
    assert "\n".join(lines) == "\n\n".join(blocks)


def test_pages_and_notes_are_a_document_each(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text("<p>One</p><p>Two</p>")
    (tmp_path / "b.HTM.gz").write_bytes(gzip.compress(b"<script>x</script>Three"))
    (tmp_path / "c.md").write_text("# Four\n\n*Five*")
    assert texts(tmp_path) == ["One\n\nTwo", "Three", "# Four\n\n*Five*"]
    assert texts(tmp_path / "c.md") == ["# Four\n\n*Five*"]
    assert texts(tmp_path / "c.md", separator="blank") == ["# Four", "*Five*"]


# --- encodings


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1", "utf-16", "utf-8", "shift_jis"])
def test_encodings(tmp_path: Path, encoding: str) -> None:
    text = "ある日" if encoding == "shift_jis" else "naïve café"
    (tmp_path / "a.txt").write_text(text, encoding=encoding)
    assert texts(tmp_path / "a.txt", encoding=encoding) == [text]


def test_another_encoding_in_tables(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"text\nna\xefve\n")
    (tmp_path / "b.jsonl").write_bytes(b'{"text": "na\xefve"}\n')
    assert texts(tmp_path, encoding="latin-1") == ["naïve", "naïve"]
    with pytest.raises(InputError, match=r"a\.csv cannot be read as utf-16: save it as UTF-8"):
        texts(tmp_path, encoding="utf-16")


def test_an_encoding_is_part_of_the_request(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("word " * 300)
    prepare(str(tmp_path / "a.txt"), "byte", tmp_path / "out")
    with pytest.raises(InputError, match="prepared in another way"):
        prepare(str(tmp_path / "a.txt"), "byte", tmp_path / "out", encoding="cp1252")


def test_wrong_encodings_say_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"x" * 10 + b"\x81")
    with pytest.raises(InputError, match=r"a\.txt is not cp1252 text: byte 0x81 at offset 10 .*--encoding") as caught:
        texts(tmp_path / "a.txt", encoding="cp1252")
    assert "--on_bad_file skip" in str(caught.value)
    for bad in ("klingon", "rot13", "", "a\0b"):
        with pytest.raises(InputError, match="unknown encoding"):
            Reading(encoding=bad)


# --- files that are left out


def mixed(folder: Path) -> Path:
    """Two files that can be read, and all kinds of others."""
    folder.mkdir()
    for name, content in {
        "a.txt": b"first",
        "b.txt": b"second",
        "bad.txt": b"na\xefve",
        "broken.jsonl": b'{"text": "whole"}\n{"text"',
        "empty.txt": b"",
        "image.txt": b"\x89PNG\0\0",
        **{f"photo{i}.jpg": b"x" for i in range(7)},
        ".hidden": b"x",
    }.items():
        (folder / name).write_bytes(content)
    return folder


def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    folder = mixed(tmp_path / "mixed")
    with pytest.raises(InputError, match=r"bad\.txt is not UTF-8 text"):
        texts(folder)
    assert texts(folder, on_bad_file="skip") == ["first", "second"]
    said = "\n".join(notes(folder, on_bad_file="skip"))
    assert "left out 2 files (cannot be read): bad.txt, broken.jsonl; " in said
    assert "byte 0xef at offset 2" in said
    assert "left out 1 file (empty): empty.txt" in said
    assert "left out 1 file (binary, or text that needs --encoding utf-16): image.txt" in said
    named = "photo0.jpg, photo1.jpg, photo2.jpg, photo3.jpg, photo4.jpg, 2 more"
    assert f"left out 7 files (unknown ending): {named}" in said
    assert ".hidden" not in said
    (folder / "a\x1b[2J\nb.jpg").touch()
    assert "(unknown ending): a\ufffd[2J\ufffdb.jpg, photo0.jpg" in "".join(notes(folder))


def test_the_warning_and_the_sheet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = mixed(tmp_path / "mixed")
    (folder / "long.txt").write_text("word " * 200)
    out = prepare(str(folder), "byte", tmp_path / "out", on_bad_file="skip").folder
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 4
    assert all(line.startswith(f"{folder}: left out ") for line in said)
    assert [f"{folder}: {note}" for note in load_prepared(out).sheet.notes] == said
    assert prepare(str(folder), "byte", tmp_path / "out", on_bad_file="skip").reused


def test_folders_and_files_without_any_text(tmp_path: Path) -> None:
    (tmp_path / "image.txt").write_bytes(b"\x89PNG\0\0")
    with pytest.raises(InputError, match=r"holds no .* file that can be read: left out 1 file \(binary"):
        texts(tmp_path)
    with pytest.raises(InputError, match=r"image\.txt has zero bytes: it is not text, or .*--encoding utf-16"):
        texts(tmp_path / "image.txt")
    with pytest.raises(InputError, match="on_bad_file must be stop or skip"):
        Reading(on_bad_file="maybe")  # type: ignore[arg-type]


# --- a play


def play(file: Path, speeches: int, words: int) -> Path:
    file.write_text("\n\n".join(f"SPEAKER {i}:\n{'word ' * words}" for i in range(speeches)))
    return file


def test_speeches_are_not_documents(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = play(tmp_path / "play.txt", 60, words=20)
    assert len(texts(file)) == 1
    assert len(texts(file, separator="blank")) == 60
    prepared = prepare(str(file), "byte", tmp_path / "out")
    said = capsys.readouterr().err
    assert "the pieces between blank lines of play.txt have 11" in said
    assert "the file is taken as one document (separator blank would take the pieces)" in said
    assert prepared.sheet.notes == [said.strip().removeprefix(f"{file}: ")]
    assert prepared.sheet.splits["train"].documents == prepared.sheet.splits["validation"].documents == 1


def test_an_older_folder_of_speeches_is_made_anew(tmp_path: Path) -> None:
    """Data from before the rule has another identity: it is not taken for the same."""
    file = play(tmp_path / "play.txt", 60, words=20)
    assert open_corpus(str(file)).describe()["identity"]["one_document"] == ["train"]
    assert "one_document" not in open_corpus(str(file), reading=Reading(separator="blank")).describe()["identity"]


@pytest.mark.parametrize(("speeches", "words"), [(60, 80), (15, 20)])
def test_longer_or_fewer_pieces_are_documents(tmp_path: Path, speeches: int, words: int) -> None:
    file = play(tmp_path / "texts.txt", speeches, words)
    assert len(texts(file)) == speeches
    assert notes(file) == ()


def test_ends_of_text_win(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("<|endoftext|>".join(["one\n\ntwo"] * 30))
    assert len(texts(tmp_path / "a.txt")) == 30
    assert notes(tmp_path / "a.txt") == ()
