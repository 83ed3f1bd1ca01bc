"""The commands `sympformer train`, `sympformer eval` and `sympformer sample`."""

from pathlib import Path
from typing import Any, Literal

from sympformer.errors import InputError
from sympformer.training.config import TrainConfig

Which = Literal["best", "last"]


def train(resume: bool = False, **options: Any) -> int:
    """Train a language model: with no options a small one on the stories that ship with the package.

    Args:
        resume: Continue the run in `out` from its newest good checkpoint, with its own config.
    """
    config = TrainConfig(**options)
    from sympformer.training.loop import run_training

    result = run_training(config, resume)
    if result.stopped_by is not None:
        print(f"continue with: sympformer train --resume true --out {result.folder}")
        return 128 + result.stopped_by
    if result.validation_loss is not None and result.best_loss is not None:
        print(f"validation loss {result.validation_loss:.4f} nats per token, best {result.best_loss:.4f}")
    if result.sample is not None:
        print(f"\n{result.sample}\n")
    print(f"the model is in {result.folder}; more text: sympformer sample {result.folder} --prompt 'One day'")
    return 0


def evaluate(
    run: str,
    data: str | None = None,
    split: str = "validation",
    which: Which = "best",
    tokens: int | None = None,
    batch_size: int = 16,
) -> int:
    """Score a trained model: nats per token, perplexity, bits per byte.

    Args:
        run: Run folder.
        data: Folder of prepared tokens, made with the model's tokenizer; by default the run's own data.
        split: validation, test or train.
        which: The best weights by validation loss, or the last.
        tokens: Score only so many tokens, spread over the text; all by default.
        batch_size: Texts in one forward pass.
    """
    import sys

    from sympformer.data import load_prepared, validation_blocks
    from sympformer.training.corpus import open_data
    from sympformer.training.evaluate import evaluate_model
    from sympformer.training.run import load_run

    if tokens is not None and tokens < 1:
        raise InputError(f"tokens must be at least 1, got {tokens}")
    trained = load_run(run, which, say=lambda text: print(text, file=sys.stderr))
    prepared = open_data(trained.config.data) if data is None else load_prepared(data)
    if prepared.tokenizer.fingerprint != trained.tokenizer.fingerprint:
        raise InputError(
            f"the tokens in {prepared.folder} were made by another tokenizer than the model's: "
            f"prepare them with --tokenizer {Path(run) / 'tokenizer'}"
        )
    blocks = validation_blocks(prepared.tokens(split), trained.model.cfg.block_size, tokens)
    result = evaluate_model(trained.model, blocks, trained.tokenizer.byte_lengths(), batch_size)
    print(f"{run}, step {trained.checkpoint.progress.step}, {split} of {prepared.sheet.corpus['name']}")
    print(f"{result.loss:.4f} nats per token ({result.tokens:,} tokens)")
    print(f"{result.perplexity:.3f} perplexity")
    print(f"{result.bits_per_byte:.4f} bits per byte ({result.bytes:,} bytes)")
    return 0


def sample(
    run: str,
    prompt: str = "One day",
    n: int = 1,
    max_new_tokens: int = 200,
    temperature: float = 0.8,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
    which: Which = "best",
) -> int:
    """Continue a text with a trained model.

    Args:
        run: Run folder; it holds all that is needed.
        prompt: How the text begins.
        n: Number of texts.
        max_new_tokens: Longest continuation; it ends earlier with the story, or when the model's context is full.
        temperature: 0 takes the most likely token every time; 1 draws as the model says.
        top_k: Draw among the k most likely tokens only.
        top_p: Draw among the most likely tokens that together have this probability.
        seed: The same seed gives the same texts.
        which: The best weights by validation loss, or the last.
    """
    import sys

    from sympformer.training.run import load_run

    if n < 1:
        raise InputError(f"n must be at least 1, got {n}")
    trained = load_run(run, which, say=lambda text: print(text, file=sys.stderr))
    for i in range(n):
        text = trained.sample(prompt, max_new_tokens, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed + i)
        print(text if i == n - 1 else f"{text}\n")
    return 0
