"""`sympformer eval`: score a trained model on text and on probes, from a run or any Hugging Face folder."""

import math
from typing import Literal

import torch
from rich.console import Console
from torch import Tensor
from torch.nn.functional import cross_entropy

from sympformer.data import DataConfig, Tokenizer, Tokens, open_tokens, validation_blocks
from sympformer.data.probes import LEAST_SHARE, share_of_words
from sympformer.errors import DivergenceError, InputError
from sympformer.models import LanguageModel
from sympformer.opening import Opened, open_model
from sympformer.progress import steps_with_progress
from sympformer.studies.scoring.probes import cut_note, probe_table, score_probes
from sympformer.training.evaluate import Evaluation, LossOf, evaluate_sums, summary
from sympformer.training.folder import RunFolder

LONGEST_WINDOW = 1024  # of a model of others: its config may tell no limit, or one that no memory holds
LOOKED_AT = 20_000  # tokens of a text that say whether the probes' words are its words


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
    opened = open_model(target, which, trust_remote_code)
    if opened.folder is None:
        raise InputError(f"eval scores trained models, and {target} has no trained weights: name a run's folder")
    if which != "best" and opened.kind != "run":
        raise InputError(f"{target} is a Hugging Face folder with one set of weights: leave out --which")
    if probes and opened.tokenizer is None:
        raise InputError(f"{target} has no tokenizer, and the probes are text: save the model's tokenizer beside it")
    if data is None and text is None and opened.kind != "run" and not probes:
        raise InputError(
            f"{target} brings no data of its own: give --text FILE, --data FOLDER (prepared tokens), or --probes"
        )
    found = stored_tokens(opened, data) if text is None else text_tokens(opened, text, column, separator, encoding)
    if text is not None and found is not None and split == "validation" and found.sheet.splits.keys() == {"train"}:
        split = "train"
    losses = None if found is None else text_losses(opened, found, split, tokens, batch_size)
    print(f"{target}, step {opened.step}" if opened.kind == "run" else target)
    if found is not None and losses is not None:
        whole = text is not None and len(found.sheet.splits) == 1
        print(f"{'all' if whole else split} of {text or found.sheet.corpus}, {window(opened)} tokens at once")
        print(f"{losses.loss:.4f} nats per token ({losses.tokens:,} tokens)")
        print(f"{losses.perplexity:.3f} perplexity")
        print(f"{losses.bits_per_byte:.4f} bits per byte ({losses.bytes:,} bytes)")
    if probes and (found is None or _of_the_kind(found, split)):
        scores = score_probes(opened.logits, opened.tokenizer.encode, opened.block_size, batch_size=batch_size)
        Console().print(probe_table(scores))
        if (note := cut_note(scores, opened.block_size)) is not None:
            print(note)
    return 0


def text_tokens(opened: Opened, corpus: str, column: str, separator: str, encoding: str) -> Tokens:
    """A corpus in the model's own tokens, with nothing held out that it does not hold out itself."""
    own, theirs = Tokenizer.load(str(opened.folder)), opened.tokenizer
    if theirs is not None and theirs.end_of_text != own.end_of_text:
        raise InputError(
            f"{corpus} cannot be cut into tokens as {opened.name} wants it: a text ends with id {own.end_of_text}, not "
            f"{theirs.end_of_text}"
        )
    config = DataConfig(corpus, str(opened.folder), column=column, separator=separator, encoding=encoding, validation=0)
    return open_tokens(config)


def stored_tokens(opened: Opened, data: str | None) -> Tokens | None:
    """Prepared tokens: those asked for, else a run's own. Their ids must mean the same to the model."""
    if data is None:
        return RunFolder.open(str(opened.folder)).tokens() if opened.kind == "run" else None
    found = Tokens.open(data)
    if Tokenizer.load(str(opened.folder)).fingerprint != found.tokenizer.fingerprint:
        raise InputError(
            f"the tokens in {data} were made by another tokenizer than the model's ({found.tokenizer.name}): "
            "give the text itself, with --text"
        )
    return found


def window(opened: Opened) -> int:
    """Tokens that the loss is computed over at once."""
    known = opened.block_size or LONGEST_WINDOW
    return known if opened.kind == "run" else min(known, LONGEST_WINDOW)


def text_losses(
    opened: Opened, found: Tokens, split: str, tokens: int | None = None, batch_size: int = 16
) -> Evaluation:
    """Nats per token, perplexity and bits per byte of a split, or of so many tokens of it."""
    blocks = validation_blocks(found.tokens(split), window(opened), tokens)
    model, ticks = opened.model, steps_with_progress(-(-len(blocks) // batch_size), "text")
    ours = LossOf(model) if isinstance(model, LanguageModel) else None

    def mean_loss(inputs: Tensor, targets: Tensor) -> Tensor:
        next(ticks)
        if ours is not None:
            return ours(inputs, targets)
        return cross_entropy(opened.logits(inputs).float().flatten(0, 1), targets.flatten())

    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    result = summary(*evaluate_sums(mean_loss, device, blocks, found.tokenizer.byte_lengths(), batch_size))
    next(ticks, None)  # takes the bar away
    if not math.isfinite(result.loss):
        raise DivergenceError(f"the loss of {opened.name} is not finite: its weights are of no use")
    return result


def _of_the_kind(found: Tokens, split: str) -> bool:
    """Whether the probes' words are the text's words; says so where they are not."""
    share = share_of_words(found.tokenizer.decode(found.tokens(split)[:LOOKED_AT]))
    if share < LEAST_SHARE:
        print(
            f"the probes do not apply: they are about children's stories, and {share:.0%} of the words of this text "
            f"are words of theirs (of such stories, more than {LEAST_SHARE:.0%})"
        )
    return share >= LEAST_SHARE
