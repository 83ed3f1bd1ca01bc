"""`sympformer watch`: one page that shows models at work on a text."""

from pathlib import Path
from typing import Any

import torch

from sympformer.errors import InputError
from sympformer.opening import Opened, open_model
from sympformer.pages import write_page
from sympformer.watching import tape
from sympformer.watching.page import page
from sympformer.watching.record import Record
from sympformer.watching.scene import GUESSES, MOST_TOKENS, Subject, shown

TEXT = "Once upon a time there was a little girl who lived near a forest. One day she met a dog."


def watch(targets: list[str], text: str = TEXT, out: str = "runs/watch.html", trust_remote_code: bool = False) -> int:
    """Write one self-contained HTML page: every token's way through the layers of one model, or of several.

    Args:
        targets: Run folders, Hugging Face folders, or variants (untrained); several stand side by side.
        text: What the models read.
        out: The page to write.
        trust_remote_code: Run the code that lies in a Hugging Face folder.
    """
    if not targets:
        raise InputError("say what to watch: run folders, Hugging Face folders or variants")
    write(Path(out), [open_model(target, trust_remote_code=trust_remote_code) for target in targets], text)
    print(f"open {out} in a browser")
    return 0


def write(file: Path, targets: list[Opened], text: str) -> None:
    if not text.strip():
        raise InputError("the text is empty: give some with --text")
    names = _names([target.name for target in targets])
    subjects, said = zip(*(look_at(*pair, text) for pair in zip(names, targets, strict=True)), strict=True)
    notes = [note for notes in said for note in notes]
    if max(subject.record.idx.shape[1] for subject in subjects) > MOST_TOKENS:
        notes.append(f"The page shows the last {MOST_TOKENS} tokens that were read; the figures by depth are of all.")
    write_page(file, lambda: page(subjects, text, notes), "the page")


def look_at(name: str, target: Opened, text: str) -> tuple[Subject, list[str]]:
    """A model on a text, ready for the page, and what was left out."""
    if target.tokenizer is None and target.vocab_size < 256:
        raise InputError(f"{target.name} has no tokenizer, and too few token ids to read bytes")
    ids = list(text.encode()) if target.tokenizer is None else target.tokenizer.encode(text)
    if not ids:
        raise InputError(f"the text has no tokens for {target.name}: give more with --text")
    most, notes = target.block_size or len(ids), []
    if len(ids) > most:
        notes.append(f"{name} reads the first {most:,} of {len(ids):,} tokens: its context holds no more.")
        ids = ids[:most]
    idx = torch.tensor([ids], device=next(target.model.parameters()).device)
    record, missing = _record(target.model, idx)
    notes += [f"{name} is shown without {what}" for what in missing]
    guessed = [] if record.lens is None else record.lens.ids.flatten().tolist()
    words = {token: shown(_decoded(target, token)) for token in {*ids, *guessed}}
    note = "" if target.tokenizer is not None else "it reads bytes, as it has no tokenizer."
    note = "not trained, as it starts; it reads bytes." if target.kind == "variant" else note
    return Subject(name, _family(target.model), record, words, note), notes


def _record(model: Any, idx: torch.Tensor) -> tuple[Record, list[str]]:
    """All that a model shows, and what it does not: one that hides its rows or its head still has states."""
    T, missing = idx.shape[1], []
    asked: dict[str, Any] = {"attention": range(max(0, T - MOST_TOKENS), T), "lens": GUESSES}
    trials: dict[str, tuple[str, Any]] = {"attention": ("attention rows", [0]), "lens": ("lens", 1)}
    for name, (words, little) in trials.items():
        try:
            tape.watch(model, idx[:, :1], **{name: little})
        except InputError as error:
            missing.append(f"{words}: {error}.")
            del asked[name]
    return tape.watch(model, idx, **asked), missing


def _decoded(target: Opened, token: int) -> str:
    """The text of a token; of a byte, for a model that has no tokenizer."""
    if target.tokenizer is not None:
        return str(target.tokenizer.decode([token]))
    return bytes([token]).decode(errors="replace") if token < 256 else ""


def _family(model: Any) -> str:
    """The colour of a model, as in every plot of a comparison."""
    cfg: Any = getattr(tape.native(model), "cfg", None)
    if cfg is None:
        return "other"
    if cfg.attention == "linear":
        return "linear"
    return {"gradient": "gpt", "nesterov": "yuriiformer"}.get(cfg.stepper, "softmax")


def _names(targets: list[str]) -> list[str]:
    """The last part of each path, or all of it where those are alike; twice the same gets a number."""
    short = [Path(target).name or target for target in targets]
    names = short if len(set(short)) == len(short) else targets
    visible = [" ".join(shown(part) for part in name.split(" ")) for name in names]
    return [name if names.count(old) == 1 else f"{name} ({n})"
            for n, (name, old) in enumerate(zip(visible, names, strict=True), start=1)]  # fmt: skip
