"""Texts from a trained model: in pieces as they are drawn, on the terminal, and in a loop that asks for prompts."""

import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from sympformer.data import Tokenizer
from sympformer.errors import InputError
from sympformer.models import LanguageModel
from sympformer.models.generate import stream

SMALLEST = 1e-5  # temperature, and share of probability


def sample_text(model: LanguageModel, tokenizer: Tokenizer, prompt: str, *drawing: Any, **named: Any) -> str:
    """A prompt and how it goes on; see `stream_text`."""
    return "".join(stream_text(model, tokenizer, prompt, *drawing, **named))


def stream_text(
    model: LanguageModel,
    tokenizer: Tokenizer,
    prompt: str,
    max_new_tokens: int = 100,
    temperature: float = 0.8,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = 0,
) -> Iterator[str]:
    """A prompt and how it goes on, in pieces: until the end of the text, or for so many tokens.

    Beyond what the model sees at once, the older half of the context is dropped (overflow = "slide").
    """
    _check_drawing(temperature, top_p, seed)
    ids, end = tokenizer.encode(prompt), tokenizer.end_of_text
    drawn = stream(model, ids or [end], max_new_tokens, temperature, top_k, top_p, seed, (end,), "slide")
    yield from tokenizer.decode_stream(i for i in chain(ids, drawn) if i < end)  # the end and padding have no text


def _check_drawing(temperature: float, top_p: float | None, seed: int | None) -> None:
    """Refuse what single precision cannot tell from zero, and what no generator takes."""
    if temperature != 0 and not SMALLEST <= temperature <= 1 / SMALLEST:
        raise InputError(f"temperature must be 0 or lie between {SMALLEST:g} and {1 / SMALLEST:g}, got {temperature}")
    if top_p is not None and not SMALLEST <= top_p <= 1:
        raise InputError(f"top_p must lie between {SMALLEST:g} and 1, got {top_p}")
    if seed is not None and not 0 <= seed < 2**63:
        raise InputError(f"seed must lie between 0 and 2^63 - 1, got {seed}")


def write_texts(
    model: LanguageModel,
    tokenizer: Tokenizer,
    prompts: Iterable[str],
    n: int,
    seed: int,
    max_new_tokens: int,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
) -> None:
    """Texts on stdout while they are drawn, `n` for every prompt, a blank line between them. No seed comes twice.

    Once it is said when a text may outgrow what the model sees at once.
    """
    _check_drawing(temperature, top_p, seed)
    sees, told = model.cfg.block_size, False
    for prompt in prompts:
        places = len(tokenizer.encode(prompt) or [0]) + max_new_tokens - 1  # the last one is not read again
        if places > sees and not told:
            told = True
            print(
                f"the model sees {sees} tokens at once, this may become {places}: from there on the older half of what "
                "it saw is dropped (overflow = slide)",
                file=sys.stderr,
            )
        for i in range(n):
            for piece in stream_text(model, tokenizer, prompt, max_new_tokens, temperature, top_k, top_p, seed + i):
                print(piece, end="", flush=True)
            print("" if i == n - 1 else "\n", flush=True)
        seed += n


def asked_for() -> Iterator[str]:
    """The lines of stdin, asked for where somebody sits there, up to an empty one or the end."""
    if sys.stdin.isatty():
        print("the beginning of a text, then Enter; an empty line or Ctrl-D ends this", file=sys.stderr)
    while True:
        try:
            line = input("> " if sys.stdin.isatty() and sys.stdout.isatty() else "")
        except EOFError:
            return
        except UnicodeDecodeError:
            raise InputError("the prompt is not UTF-8 text") from None
        if not line.strip():
            return
        yield line
