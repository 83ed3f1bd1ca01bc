"""Texts from a trained model: in pieces as they are drawn, on the terminal, and in a loop that asks for prompts."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain

from sympformer.data import Tokenizer
from sympformer.errors import InputError
from sympformer.models import LanguageModel
from sympformer.models.generate import stream

SMALLEST = 1e-5  # temperature, and share of probability


def sample_text(
    model: LanguageModel,
    tokenizer: Tokenizer,
    prompt: str,
    max_new_tokens: int = 100,
    temperature: float = 0.8,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = 0,
) -> str:
    """A prompt and how it goes on; see `stream_text`."""
    return "".join(stream_text(model, tokenizer, prompt, max_new_tokens, temperature, top_k, top_p, seed))


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


@dataclass
class Writer:
    """Writes texts of a model to stdout while they are drawn."""

    model: LanguageModel
    tokenizer: Tokenizer
    max_new_tokens: int
    temperature: float
    top_k: int | None
    top_p: float | None
    _told: bool = field(default=False, init=False)

    def write(self, prompt: str, n: int, seed: int) -> None:
        """`n` texts, a blank line between them."""
        _check_drawing(self.temperature, self.top_p, seed)
        self._tell(prompt)
        drawing = (self.max_new_tokens, self.temperature, self.top_k, self.top_p)
        for i in range(n):
            for piece in stream_text(self.model, self.tokenizer, prompt, *drawing, seed + i):
                sys.stdout.write(piece)
                sys.stdout.flush()
            print("" if i == n - 1 else "\n", flush=True)

    def answer(self, n: int, seed: int) -> None:
        """Texts for one prompt after the other, each a text of its own, until there is none. No seed comes twice."""
        if sys.stdin.isatty():
            print("the beginning of a text, then Enter; an empty line or Ctrl-D ends this", file=sys.stderr)
        for prompt in prompts():
            self.write(prompt, n, seed)
            seed += n

    def _tell(self, prompt: str) -> None:
        """Say once when a text may outgrow what the model sees at once."""
        sees = self.model.cfg.block_size
        places = max(1, len(self.tokenizer.encode(prompt))) + self.max_new_tokens - 1  # the last is never read
        if places > sees and not self._told:
            self._told = True
            print(
                f"the model sees {sees} tokens at once, this may become {places}: from there on the older half of what "
                "it saw is dropped (overflow = slide)",
                file=sys.stderr,
            )


def prompts() -> Iterator[str]:
    """The lines of stdin, asked for where somebody sits there, up to an empty one or the end."""
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
