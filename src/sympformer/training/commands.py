"""The commands `sympformer train` and `sympformer sample`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from sympformer.errors import InputError
from sympformer.training.config import TrainConfig

Which = Literal["best", "last"]


def train(config: TrainConfig, given: Mapping[str, Any], resume: bool = False) -> int:
    """Train a language model: with no options a small one on the stories that ship with the package.

    Args:
        resume: Continue the run in `out` from its newest good checkpoint, with its own config.
    """
    from sympformer.training import run

    result = run.train(config, resume, given)
    if result.rank == 0 and result.stopped_by is not None:
        print(f"continue with: sympformer train --resume --out {result.folder}")
    elif result.rank == 0:
        if result.validation_loss is not None and result.best_loss is not None:
            print(f"validation loss {result.validation_loss:.4f} nats per token, best {result.best_loss:.4f}")
        if result.sample is not None:
            print(f"\n{result.sample}\n")
        print(f"the model is in {result.folder}; more text: sympformer sample {result.folder} --prompt 'One day'")
    return 128 + result.stopped_by if result.stopped_by is not None else 0


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
    chat: bool = False,
) -> int:
    """Continue a text with a trained model, token by token as it is written.

    Args:
        run: Run folder, or folder that 'sympformer export' wrote; it holds all that is needed.
        prompt: How the text begins.
        n: Number of texts.
        max_new_tokens: Longest continuation; it ends earlier with the text. Beyond what the model sees at once, the
            older half of what it saw is dropped.
        temperature: 0 takes the most likely token every time; 1 draws as the model says.
        top_k: Draw among the k most likely tokens only.
        top_p: Draw among the most likely tokens that together have this probability.
        seed: The same seed gives the same texts.
        which: The best weights of a run by validation loss, or the last.
        chat: Ask for one prompt after the other, until an empty line or the end of the input (Ctrl-D).
    """
    from sympformer.training.folder import stored_model
    from sympformer.training.sampling import asked_for, write_texts

    if n < 1:
        raise InputError(f"n must be at least 1, got {n}")
    if not 0 <= seed < 2**63 - n:
        raise InputError(f"seed must lie between 0 and 2^63 - 1, got {seed}")
    ours = stored_model(Path(run), which).ours()
    write_texts(*ours, asked_for() if chat else [prompt], n, seed, max_new_tokens, temperature, top_k, top_p)
    return 0
