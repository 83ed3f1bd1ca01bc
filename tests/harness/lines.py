"""Command lines and configs out of good words and bad ones: whatever they are, no traceback, no hang, one sentence."""

import os
import random
from pathlib import Path
from typing import Any

import yaml

from tests.harness.artefacts import MODEL
from tests.harness.guard import Tally, inside, run

BAD = [
    "", " ", "0", "-1", "08", "1e-320", "1e400", "nan", "-inf", "99999999999999999999", "9" * 400, "x" * 300, "[]",
    "{}", "[[[[", "null", "true", "~", "\x1b[2J", "a\udcff", "&a [*a, *a]", "!!python/name:os.system", "data/..",
    "zero", "null", "fifo", "fifo.yaml", "bomb.yaml", "latin.yaml", "data", "run",
    "export", "data/sheet.json", "run/train.yaml", "small.yaml", "1.5", "é", "[/]", "$x^{", "a\nb", "a\tb",
    "{a: 1}", "2001-99-99", "12:30:45", "<script>", "softmax-exp-euler", "bpe:257", "bpe:x", "storybook:1",
    "storybook:0", "hub:", "gpt2:zero", "auto",
]  # fmt: skip
SMALL = [*MODEL, "--steps=1", "--batch_size=2", "--eval_tokens=32", "--sample_tokens=2"]
TRAINING = ["steps", "tokens", "batch_size", "accumulate", "lr", "min_lr_ratio", "warm_up", "optimizer", "weight_decay"]
TRAINING += ["betas", "clip", "precision", "log_every", "eval_every", "eval_tokens", "sample_every", "sample_prompt"]
TRAINING += ["checkpoint_every", "keep_last", "seed", "device", "strategy", "tensorboard", "resume", "config", "model"]
TRAINING += ["data", "data.corpus", "data.tokenizer", "data.folder", "data.validation", "data.test", "data.separator"]
TRAINING += ["data.limit", "data.column", "data.overlap_words", "out"]
TRAINING += [f"model.{name}" for name in ("variant", "preset", "stepper", "n_layer", "n_head", "d_model", "dropout")]
TRAINING += [
    f"model.{name}" for name in ("block_size", "h_x", "mu", "form", "heads", "causal", "mlp_ratio", "integrator")
]
PREPARING = ["corpus", "tokenizer", "out", "seed", "validation", "test", "column", "separator", "limit"]
PREPARING += ["overlap_words"]
FLOW = ["system", "dim", "particles", "integrators", "r", "m", "t0", "step", "max_passes", "form", "condition"]
FLOW += ["causal", "seed", "out", "format"]
# command -> (words that are fine by themselves, options to spoil)
COMMANDS: dict[str, tuple[list[str], list[str]]] = {
    "train": ([*SMALL, "--data.folder=data"], TRAINING),
    "sample": (["run", "--max_new_tokens=2"], ["prompt", "n", "temperature", "top_k", "top_p", "seed", "which"]),
    "eval": (
        ["run", "--tokens=32"],
        ["data", "split", "which", "tokens", "batch_size", "trust_remote_code"],
    ),
    "audit": (["linear-ab2", "--length=4"], ["vocab_size", "length", "seed", "json", "trust_remote_code"]),
    "describe": (["softmax-ab2"], ["preset", "n_layer", "d_model"]),
    "export": (["run", "new"], ["which", "push", "private"]),
    "report": (["run", "--out=page.html"], ["out", "baseline", "metric"]),
    "data prepare": (
        ["--corpus=storybook:40", "--tokenizer=byte", "--out=new"],
        PREPARING,
    ),
    "data info": (["data"], ["data", "check", "preview"]),
    "flow": (["--out=new", "--max_passes=4", "--dim=2", "--particles=2", "--integrators=ab2"], FLOW),
    "watch": (["run", "--out=page.html"], ["text", "out", "trust_remote_code"]),
    "configs": (["cpu-small"], ["name", "out"]),
    "play": (["--out=page.html"], ["out"]),
    "compare": (
        ["small.yaml", "--out=new"],
        ["out", "jobs", "lr", "budget.steps", "choose.steps", "seeds", "baseline"],
    ),
}
# where every valid line is dear, spoil at least one thing
ALWAYS_SPOILT = {"export", "report", "compare", "audit", "flow"}
NOT_SPOILT_BY_LARGE = {"n", "jobs"}


def line(draw: random.Random) -> list[str]:
    """A command line, spoilt in up to three places."""
    command = draw.choice([*COMMANDS, "train", "train", "train"])
    words, options = COMMANDS[command]
    words = list(words)
    for _ in range(draw.randint(command in ALWAYS_SPOILT, 3)):
        kind, value = draw.random(), draw.choice(BAD)
        if kind < 0.7:
            words.append(f"--{draw.choice(options)}={value}")
        elif kind < 0.8:
            words[draw.randrange(len(words))] = value
        elif kind < 0.9:
            words += [f"--{draw.choice(options)}", value]
        else:
            words.append(draw.choice(["--nothing", "--", "-x", f"--{value}", value, "--config"]))
    return [*command.split(), *words]


def config(draw: random.Random) -> bytes:
    """A config of `train`, spoilt as text or as values."""
    values: dict[str, Any] = {"model": {"n_layer": 1}, "data": {"folder": "data"}, "steps": 1, "tokens": 32}
    for _ in range(draw.randint(1, 3)):
        name, value = (
            draw.choice(TRAINING),
            draw.choice([*BAD, 0, -1, 1.5, None, True, [], {}, [1, [2]], {"a": {"b": 1}}]),
        )
        place = values
        *path, last = name.split(".")
        for part in path:
            place = place.setdefault(part, {}) if isinstance(place.get(part, {}), dict) else {}
        place[last] = value
    text = yaml.safe_dump(values, allow_unicode=True).encode("utf-8", "surrogateescape")
    if draw.random() < 0.4:
        place_ = draw.randrange(len(text))
        text = (
            text[:place_]
            + draw.choice([b"\xff", b"\0", b"&a ", b"*a", b"!!int ", b"[" * 60, b"\t", b": ", b"%", b"-"])
            + text[place_ + draw.randint(0, 3) :]
        )
    return text


def attack(folder: Path, count: int, seed: int = 0) -> Tally:
    """So many of them, in a folder with one of everything."""
    draw, tally = random.Random(seed), Tally()
    with inside(folder):
        if not os.path.exists("fifo"):
            os.mkfifo("fifo")
            os.mkfifo("fifo.yaml")
            for name in ("zero", "null"):  # links: what takes their place by mistake does no harm outside
                os.symlink(f"/dev/{name}", name)
        Path("latin.yaml").write_bytes(b"sample_prompt: na\xefve\n")
        Path("bomb.yaml").write_text("a: &a [x, x]\nb: [*a, *a]\n")
        before = {path.name for path in Path().iterdir()}
        for i in range(count):
            if i % 4 == 3:
                Path("random.yaml").write_bytes(config(draw))
                words = ["train", "random.yaml", f"--out=new{i}"]
            else:
                words = line(draw)
                if words[0] == "train" and not any(word.startswith("--out") for word in words):
                    words.append(f"--out=new{i}")
            ending = run(*words)
            tally.cases += 1
            if ending.broken:
                tally.note(ending.broken, f"{words} {ending.err.strip().splitlines()[-1:]}")
            clean(before)
    return tally


def clean(before: set[str]) -> None:
    """Remove what a command that was right after all has left."""
    import shutil

    for path in Path().iterdir():
        if path.name not in before:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
