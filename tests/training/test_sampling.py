"""Texts in pieces, beyond the context, from exported folders, and in a loop of prompts."""

import io
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE

import pytest
import torch

import sympformer as sf
from sympformer import cli
from sympformer.data import make_tokenizer
from sympformer.models import perturb_
from sympformer.models.generate import stream
from sympformer.training.sampling import sample_text, stream_text

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def model() -> sf.LanguageModel:
    made = sf.build_model(sf.variant("softmax-ab2", n_layer=2, n_head=2, d_model=16, block_size=8, vocab_size=320))
    torch.manual_seed(0)
    perturb_(made)
    return made.eval()


@pytest.fixture(scope="module")
def run(finished: Path) -> str:
    """A run of 16 tokens of context."""
    return str(finished)


def sampled(capsys: Capture, *args: str) -> tuple[str, str]:
    capsys.readouterr()
    assert cli.main(["sample", *args]) == 0
    said = capsys.readouterr()
    return said.out, said.err


# --- in pieces


@pytest.mark.parametrize("options", [{"temperature": 0.0}, {"seed": 3, "top_k": 9}, {"seed": 3, "top_p": 0.7}])
def test_a_stream_is_what_generate_gives(model: sf.LanguageModel, options: dict[str, float]) -> None:
    prompt = [5, 7, 9]
    for overflow in ("error", "slide"):
        new = 6 if overflow == "error" else 20
        whole = model.generate([prompt], new, overflow=overflow, **options)  # type: ignore[arg-type]
        assert [*prompt, *stream(model, prompt, new, overflow=overflow, **options)] == whole[0].tolist()  # type: ignore[arg-type]
    stop = whole[0].tolist()[6]
    stopped = list(stream(model, prompt, 20, stop_tokens=(stop,), overflow="slide", **options))  # type: ignore[arg-type]
    assert stopped[-1] == stop
    assert stop not in stopped[:-1]
    model.train()
    pieces = stream(model, [1], 5)
    next(pieces)
    pieces.close()  # type: ignore[attr-defined]
    assert model.training  # as it was
    model.eval()


@pytest.mark.parametrize("text", ["Grüße 🙂!", "世界"])
def test_characters_come_whole(text: str) -> None:
    tokenizer = make_tokenizer("byte")
    ids = tokenizer.encode(text)
    assert list(tokenizer.decode_stream(ids)) == list(text)
    for broken in (ids[:-2], ids[1:], [*ids, 0xE4, 0xB8], [0xFF, *ids, 300]):
        assert "".join(tokenizer.decode_stream(broken)) == tokenizer.decode(broken)


def test_longer_than_the_context(model: sf.LanguageModel) -> None:
    tokenizer = make_tokenizer("byte")
    text = "".join(stream_text(model, tokenizer, "abc", 40, seed=2))
    ids = model.generate([tokenizer.encode("abc")], 40, 0.8, seed=2, stop_tokens=(256,), overflow="slide")[0].tolist()
    assert text == sample_text(model, tokenizer, "abc", 40, seed=2) == tokenizer.decode(i for i in ids if i < 256)
    assert len(ids) > 8
    assert sample_text(model, tokenizer, "a prompt that is longer than the context", 3).startswith("a prompt that")


# --- the command


def test_the_command_says_when_it_slides(run: str, capsys: Capture) -> None:
    out, err = sampled(capsys, run, "--max_new_tokens", "40", "--n", "2", "--seed", "1")
    assert out.count("One day") == 2
    assert len(out.encode()) > 60
    assert err.splitlines() == [
        "the model sees 16 tokens at once, this may become 46: from there on the older half of what it saw is dropped "
        "(overflow = slide)"
    ]
    assert sampled(capsys, run, "--max_new_tokens", "10")[1] == ""  # 7 tokens and 10, of which the last is not read


def test_pieces_are_shown_as_they_come(run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Watched(io.StringIO):
        flushed: list[str]

        def flush(self) -> None:
            self.flushed.append(self.getvalue())

    watched = Watched()
    watched.flushed = []
    monkeypatch.setattr(sys, "stdout", watched)
    assert cli.main(["sample", run, "--max_new_tokens", "6"]) == 0
    assert watched.flushed[0] == "O"
    assert len(set(watched.flushed)) > 5
    assert watched.getvalue().endswith("\n")


def test_a_loop_of_prompts(run: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("Mia\nMia\n\nnever read\n"))
    out, err = sampled(capsys, run, "--chat", "--max_new_tokens", "8")
    first, second = (part for part in out.split("Mia") if part)
    assert first != second  # another seed
    assert "never" not in out
    assert err == ""
    monkeypatch.setattr(sys, "stdin", io.StringIO("Mia"))  # and the end of the input
    assert sampled(capsys, run, "--chat", "--max_new_tokens", "8")[0].startswith(f"Mia{first.rstrip()}"[:5])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff\n"), encoding="utf-8"))
    assert cli.main(["sample", run, "--chat"]) == 2
    assert "the prompt is not UTF-8 text" in capsys.readouterr().err


def test_ctrl_c_at_a_terminal(run: str) -> None:
    """It ends with 130 and without a traceback."""
    code = (  # a terminal for it, and a Ctrl-C that is heard also where the tests themselves run in the background
        "import os, pty, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); "
        "sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"
    )
    command = [sys.executable, "-m", "sympformer", "sample", run, "--chat"]
    with subprocess.Popen([sys.executable, "-c", code, *command], stdin=PIPE, stdout=PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        shown = b""
        while not shown.endswith(b"> "):
            piece = os.read(process.stdout.fileno(), 4096)
            assert piece, shown
            shown += piece
        while process.poll() is None:  # one that falls between prompt and reading is heard with the next
            process.stdin.write(b"\x03")
            process.stdin.flush()
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
        shown += process.stdout.read()
    assert process.returncode == 128 + signal.SIGINT
    assert b"an empty line or Ctrl-D ends this" in shown
    assert b"sympformer: stopped" in shown
    assert b"Traceback" not in shown


def test_a_folder_is_enough(copied: Path, capsys: Capture) -> None:
    moved = copied.rename(copied.parent / "elsewhere")
    assert sampled(capsys, str(moved), "--prompt", "Mia", "--n", "2", "--which", "last")[0].count("Mia") >= 2
    model = sf.open_model(moved)
    assert model.sample("", 6, seed=1) == model.sample("", 6, seed=1)
