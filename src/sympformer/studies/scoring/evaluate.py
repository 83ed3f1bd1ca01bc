"""`sympformer eval`: score a trained model on text and on probes, from a run or a Hugging Face folder."""

import math
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sympformer.errors import DivergenceError, InputError

if TYPE_CHECKING:
    from torch import Tensor

    from sympformer.data import Tokens as Prepared
    from sympformer.opening import Opened, TextTokenizer
    from sympformer.training.config import DataConfig
    from sympformer.training.evaluate import Evaluation

    LossOf = Callable[[Tensor, Tensor], Tensor]  # inputs, targets -> mean loss

LONGEST_WINDOW = 1024  # of a Hugging Face model: its config may tell no limit, or one that no memory holds
COMPARED, PIECE = 20_000, 256  # tokens that two tokenizers are compared on, and the longest text among them


@dataclass(frozen=True)
class Trained:
    """A trained model, how its loss is computed, and the data it came from, if that is known."""

    target: "Opened"
    title: str
    window: int  # tokens that the loss is computed over at once
    loss_of: "LossOf"
    own_data: "DataConfig | None"


def evaluate(
    target: str,
    data: str | None = None,
    text: str | None = None,
    split: str = "validation",
    which: Literal["best", "last"] = "best",
    tokens: int | None = None,
    batch_size: int = 16,
    probes: bool = False,
    column: str = "text",
    separator: str = "file",
    encoding: str = "utf-8",
    trust_remote_code: bool = False,
) -> int:
    """Score a trained model: nats per token, perplexity, bits per byte, and probes of what it can do.

    Args:
        target: Run folder, or folder of a Hugging Face model.
        data: Folder of prepared tokens, made with the model's tokenizer; by default the run's own data.
        text: Any corpus instead, as 'sympformer data prepare' takes it: a file, a folder, a name. It is cut into tokens
            with the model's own tokenizer, and scored as a whole, unless it has a split of its own.
        split: validation, test or train.
        which: The best weights of a run by validation loss, or the last.
        tokens: Score only so many tokens, spread over the text; all by default.
        batch_size: Texts in one forward pass.
        probes: Also ask for recalled words, agreement and pronouns (see docs/probes.md), where the text is of the kind.
        column: Of --text: field or column that holds the text.
        separator: Of --text: what stands between the documents of a .txt file.
        encoding: Of --text: how its files are written, such as cp1252.
        trust_remote_code: Run code that lies in a Hugging Face folder.
    """
    for name, number in (("tokens", tokens), ("batch_size", batch_size)):
        if number is not None and number < 1:
            raise InputError(f"{name} must be at least 1, got {number}")
    if data is not None and text is not None:
        raise InputError("give --text (any corpus) or --data (prepared tokens), not both")
    trained_kind(target)
    trained = open_trained(target, which, trust_remote_code)
    if probes and trained.target.tokenizer is None:
        raise InputError(f"{target} has no tokenizer, and the probes are text: save the model's tokenizer beside it")
    if data is None and text is None and trained.own_data is None and not probes:
        raise InputError(
            f"{target} brings no data of its own: give --text FILE, --data FOLDER (prepared tokens), or --probes"
        )
    with tempfile.TemporaryDirectory(prefix="sympformer-") as work:
        if text is None:
            prepared = open_text(trained, data, split)
        else:
            prepared, split = prepare_text(trained, text, split, Path(work), column, separator, encoding)
        print(trained.title)
        if prepared is not None:
            _print_losses(trained, prepared, split, tokens, batch_size, whole=text is not None)
        if probes and (prepared is None or _of_the_kind(prepared, split)):
            _print_probes(trained, batch_size)
    return 0


# --- what to score


def trained_kind(text: str) -> Literal["run", "hf"]:
    """What kind of trained model a text names; raises where it names none."""
    from sympformer.models import VARIANTS
    from sympformer.training.folder import is_run

    folder = Path(text)
    if is_run(folder):
        return "run"
    if (folder / "config.json").is_file():
        return "hf"
    if text in VARIANTS or (not folder.exists() and (":" in text or folder.suffix == ".py")):
        raise InputError(f"eval scores trained models, and {text} has no trained weights: name a run's folder")
    what = "holds no run and no Hugging Face model" if folder.is_dir() else "is not the folder of a trained model"
    raise InputError(f"{text} {what}: make one with 'sympformer train --out {text}'")


def open_trained(text: str, which: Literal["best", "last"] = "best", trust_remote_code: bool = False) -> Trained:
    """The trained model in a folder."""
    if trained_kind(text) == "run":
        return _open_run(text, which)
    if which != "best":
        raise InputError(f"{text} is a Hugging Face folder with one set of weights: leave out --which")
    return _open_hugging_face(text, trust_remote_code)


def _open_run(text: str, which: Literal["best", "last"]) -> Trained:
    from sympformer.opening import open_model
    from sympformer.training.engine import LossOf
    from sympformer.training.folder import RunFolder

    target = open_model(text, which)
    model, _ = target.ours()
    data = RunFolder.open(text).data()
    return Trained(target, f"{text}, step {target.step}", model.cfg.block_size, LossOf(model), data)


def _open_hugging_face(text: str, trust_remote_code: bool) -> Trained:
    from sympformer.opening import open_model

    target = open_model(text, trust_remote_code=trust_remote_code)

    def loss_of(inputs: "Tensor", targets: "Tensor") -> "Tensor":
        from torch.nn.functional import cross_entropy

        return cross_entropy(target.logits(inputs).float().flatten(0, 1), targets.flatten())

    return Trained(target, text, min(target.block_size or LONGEST_WINDOW, LONGEST_WINDOW), loss_of, None)


# --- on what text


def open_text(trained: Trained, data: str | None, split: str) -> "Prepared | None":
    """The tokens to score: those asked for, else the run's own. Their ids must mean the same to the model."""
    from sympformer.data import Tokens, open_tokens

    if data is not None:
        prepared = Tokens.open(data)
    elif trained.own_data is not None:
        prepared = open_tokens(trained.own_data)
    else:
        return None
    prepared.tokens(split)  # says at once if there is no such split
    difference = tokenizer_difference(trained.target, prepared, split)
    if difference is not None:
        raise InputError(
            f"the tokens in {prepared.folder} were made by another tokenizer than the model's ({difference}):"
            " prepare the text with the model's own"
        )
    return prepared


def prepare_text(
    trained: Trained, corpus: str, split: str, work: Path, column: str, separator: str, encoding: str
) -> "tuple[Prepared, str]":
    """A corpus in the model's own tokens, nothing held out, in a folder below `work`; and its split to score: the one
    asked for where it has splits of its own, else all of it.
    """
    from sympformer.data import Tokenizer, load_tokenizer, prepare

    own, saved = trained.target.tokenizer, work / "tokenizer"
    tokenizer = own if isinstance(own, Tokenizer) else load_tokenizer(trained.target.name)
    saved.mkdir()
    tokenizer.save(saved)
    reading = {"column": column, "separator": separator, "encoding": encoding}
    prepared = prepare(corpus, str(saved), work / "tokens", validation=0.0, **reading)
    if split == "validation" and prepared.sheet.splits.keys() == {"train"}:
        split = "train"
    prepared.tokens(split)  # says at once if there is no such split
    difference = tokenizer_difference(trained.target, prepared, split)
    if difference is not None:
        raise InputError(f"{corpus} cannot be cut into tokens as {trained.target.name} wants it: {difference}")
    return prepared, split


def tokenizer_difference(target: "Opened", prepared: "Prepared", split: str) -> str | None:
    """In what the tokenizer of some tokens differs from a model's, None where they agree.

    Saved tokenizers of ours have a checksum; others are compared by what they make of the text itself.
    """
    from sympformer.data import Tokenizer

    ours, theirs = prepared.tokenizer, target.tokenizer
    if isinstance(theirs, Tokenizer):
        return None if theirs.fingerprint == ours.fingerprint else f"{ours.name}, not {theirs.name}"
    if theirs is None:
        return "the model comes without one"
    if ours.vocab_size > target.vocab_size:
        return f"{ours.vocab_size} ids, where the model knows {target.vocab_size}"
    if theirs.end_of_text != ours.end_of_text:
        return f"a text ends with id {ours.end_of_text}, not {theirs.end_of_text}"
    return _encoding_difference(theirs, prepared, split)


def _encoding_difference(theirs: "TextTokenizer", prepared: "Prepared", split: str) -> str | None:
    ours = prepared.tokenizer
    for piece in _pieces(prepared, split):
        text = ours.decode(piece)
        if theirs.encode(text) != ours.encode(text):
            return f"it gives other ids for {text[:40]!r}"
    return None


def _pieces(prepared: "Prepared", split: str) -> Iterator[list[int]]:
    """The first texts of a split, cut short: no tokenizer complains of their length."""
    piece: list[int] = []
    for i in prepared.tokens(split)[:COMPARED].tolist():
        if i == prepared.tokenizer.end_of_text or len(piece) == PIECE:
            yield piece
            piece = []
        if i != prepared.tokenizer.end_of_text:
            piece.append(i)
    yield piece


# --- the figures


def text_losses(
    trained: Trained, prepared: "Prepared", split: str, tokens: int | None = None, batch_size: int = 16
) -> "Evaluation":
    """Nats per token, perplexity and bits per byte of a split, or of so many tokens of it."""
    import torch

    from sympformer.data import validation_blocks
    from sympformer.progress import steps_with_progress
    from sympformer.training.evaluate import evaluate_sums, summary

    blocks = validation_blocks(prepared.tokens(split), trained.window, tokens)
    ticks = steps_with_progress(-(-len(blocks) // batch_size), "text")

    def loss_of(inputs: "Tensor", targets: "Tensor") -> "Tensor":
        next(ticks)
        return trained.loss_of(inputs, targets)

    device = next((p.device for p in trained.target.model.parameters()), torch.device("cpu"))
    sums = evaluate_sums(loss_of, device, blocks, prepared.tokenizer.byte_lengths(), batch_size)
    next(ticks, None)  # takes the bar away
    result = summary(*sums)
    if not math.isfinite(result.loss):
        raise DivergenceError(f"the loss of {trained.title} is not finite: its weights are of no use")
    return result


def _print_losses(
    trained: Trained, prepared: "Prepared", split: str, tokens: int | None, batch_size: int, whole: bool
) -> None:
    """whole: nothing was held out of the text but what it holds out itself."""
    result = text_losses(trained, prepared, split, tokens, batch_size)
    part = "all" if whole and len(prepared.sheet.splits) == 1 else split
    print(f"{part} of {prepared.sheet.corpus}, {trained.window} tokens at once")
    print(f"{result.loss:.4f} nats per token ({result.tokens:,} tokens)")
    print(f"{result.perplexity:.3f} perplexity")
    print(f"{result.bits_per_byte:.4f} bits per byte ({result.bytes:,} bytes)")


def _of_the_kind(prepared: "Prepared", split: str) -> bool:
    """Whether the probes' words are the text's words; says so where they are not."""
    from sympformer.data.probes import LEAST_SHARE, share_of_words

    share = share_of_words(prepared.tokenizer.decode(prepared.tokens(split)[:COMPARED]))
    if share < LEAST_SHARE:
        print(
            f"the probes do not apply: they are about children's stories, and {share:.0%} of the words of this text "
            f"are words of theirs (of such stories, more than {LEAST_SHARE:.0%})"
        )
    return share >= LEAST_SHARE


def _print_probes(trained: Trained, batch_size: int) -> None:
    from rich.console import Console

    from sympformer.studies.scoring.probes import cut_note, probe_table, score_probes

    target = trained.target
    assert target.tokenizer is not None  # checked before anything was printed
    scores = score_probes(target.logits, target.tokenizer, target.block_size, batch_size=batch_size)
    Console().print(probe_table(scores))
    note = cut_note(scores, target.block_size)
    if note is not None:
        print(note)
