"""Continue texts token by token, with the cache, for prompts of different lengths at once."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sympformer.errors import DivergenceError, InputError

if TYPE_CHECKING:
    from sympformer.models.cache import Cache
    from sympformer.models.config import Overflow
    from sympformer.models.model import LanguageModel

Prompt = Tensor | Sequence[Tensor] | Sequence[Sequence[int]]


@torch.no_grad()
def generate(
    model: "LanguageModel",
    idx: Prompt,
    max_new_tokens: int = 100,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    stop_tokens: tuple[int, ...] = (),
    use_cache: bool = True,
    overflow: "Overflow | None" = None,
) -> Tensor | list[Tensor]:
    """Continue every prompt by up to `max_new_tokens`.

    idx: (B, T) ids, or a sequence of prompts of different lengths. The result has the same form: a (B, T + new) tensor,
    rows that stopped early filled with the stop token, or a list of 1-D tensors without filling.
    temperature: 0 takes the most likely token. top_k: only the k most likely. top_p: only the smallest set of likely
    tokens that holds the share p. seed: the same seed gives the same text. stop_tokens: a text ends after any of these.
    use_cache: False recomputes the whole context for every token (slow; the cache is tested against it).

    overflow: what happens beyond block_size, by default as cfg.overflow says: "error" is an InputError, with "slide"
    the older half of the context is dropped and the rest recomputed.
    """
    prompts = _prompts(model, idx, max_new_tokens, overflow)
    draw = _Sampler(temperature, top_k, top_p, seed, model.tokens.weight.device)
    rows, new, done = [list(prompt) for prompt in prompts], prompts, [False] * len(prompts)
    with _evaluating(model):
        context = _Context(model, len(rows), use_cache)
        for _ in range(max_new_tokens):
            drawn = draw(context.feed(new)).tolist()
            for i, row in enumerate(rows):
                if not done[i]:
                    row.append(drawn[i])
                    done[i] = drawn[i] in stop_tokens
            if all(done):
                break
            new = [row[-1:] for row in rows]  # a finished row is fed its last token; nothing reads what follows
    texts = [torch.tensor(row, device=model.tokens.weight.device) for row in rows]
    if not isinstance(idx, Tensor):
        return texts
    width, fill = max(map(len, texts)), stop_tokens[0] if stop_tokens else 0
    return torch.stack([torch.nn.functional.pad(text, (0, width - len(text)), value=fill) for text in texts])


def stream(
    model: "LanguageModel",
    ids: Sequence[int],
    max_new_tokens: int = 100,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    stop_tokens: tuple[int, ...] = (),
    overflow: "Overflow | None" = None,
) -> Iterator[int]:
    """The new tokens of one prompt, each as soon as it is drawn: those that `generate` gives, a stop token included."""
    new = _prompts(model, [ids], max_new_tokens, overflow)
    draw = _Sampler(temperature, top_k, top_p, seed, model.tokens.weight.device)
    with _evaluating(model):
        context = _Context(model, 1, use_cache=True)
        for _ in range(max_new_tokens):
            token = int(draw(context.feed(new)))
            yield token
            if token in stop_tokens:
                return
            new = [[token]]


@contextmanager
def _evaluating(model: "LanguageModel") -> Iterator[None]:
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


class _Context:
    """Feeds tokens to the model and keeps what it must remember. Shorter rows of a batch are padded in front."""

    def __init__(self, model: "LanguageModel", n_rows: int, use_cache: bool) -> None:
        self.model, self.constants = model, model.constants(numbers=True)
        self.use_cache = use_cache
        self.cache: Cache | None = None
        self.windows: list[list[int]] = [[] for _ in range(n_rows)]  # the context of every row

    @torch.inference_mode()  # a token at a time, what torch notes about views for gradients costs a tenth of the time
    def feed(self, new: list[list[int]]) -> Tensor:
        """Take in more tokens of every row; return the logits after the last ones, (B, V)."""
        room = self.model.cfg.block_size
        for window, tokens in zip(self.windows, new, strict=True):
            window += tokens
            if len(window) > room:  # only with overflow = "slide": checked before the start
                del window[: -max(room // 2, 1)]
                self.cache = None
        if self.cache is None:
            new = self.windows
            self.cache = self.model.new_cache(len(new)) if self.use_cache else None
        ids, padding = self._padded(new)
        hidden = self.model.hidden(ids, self.cache, padding, constants=self.constants)
        return torch.nn.functional.linear(hidden[:, -1], self.model.head_weight)

    def _padded(self, rows: list[list[int]]) -> tuple[Tensor, Tensor | None]:
        """Rows as token ids (B, T), and which of them are padding."""
        device, width = self.model.tokens.weight.device, max(map(len, rows))
        ids = torch.tensor([[0] * (width - len(row)) + row for row in rows], device=device)
        if all(len(row) == width for row in rows):
            return ids, None
        padding = torch.tensor([width - len(row) for row in rows], device=device)
        return ids, torch.arange(width, device=device) < padding.unsqueeze(1)


class _Sampler:
    """Draws one token a row from logits."""

    def __init__(
        self, temperature: float, top_k: int | None, top_p: float | None, seed: int | None, device: torch.device
    ) -> None:
        if temperature < 0:
            raise InputError(f"temperature must not be negative, got {temperature}")
        if top_k is not None and top_k < 1:
            raise InputError(f"top_k must be at least 1, got {top_k}")
        if top_p is not None and not 0 < top_p <= 1:
            raise InputError(f"top_p must lie in (0, 1], got {top_p}")
        self.temperature, self.top_k, self.top_p = temperature, top_k, top_p
        self.generator = None if seed is None else torch.Generator(device=device).manual_seed(seed)

    def __call__(self, logits: Tensor) -> Tensor:
        """(B, V) -> (B,)."""
        if not bool(torch.isfinite(logits).all()):  # the likeliest of them would be a token like any other
            dtype = str(logits.dtype).removeprefix("torch.")
            raise DivergenceError(
                f"the model's logits are not finite (computed in {dtype}): its weights are of no use, or too large for"
                " float16; try float32"
            )
        if self.temperature == 0:
            return logits.argmax(-1)
        logits = logits.float() / self.temperature
        if self.top_k is not None and self.top_k < logits.shape[-1]:
            least = logits.topk(self.top_k, -1).values[:, -1:]
            logits = logits.masked_fill(logits < least, -torch.inf)
        if self.top_p is not None and self.top_p < 1:
            logits = _keep_top_p(logits, self.top_p)
        return torch.multinomial(logits.softmax(-1), 1, generator=self.generator).squeeze(-1)


def _keep_top_p(logits: Tensor, p: float) -> Tensor:
    """Hide all but the smallest set of most likely tokens whose probabilities reach p."""
    ordered, order = logits.sort(-1, descending=True)
    probabilities = ordered.softmax(-1)
    before = probabilities.cumsum(-1) - probabilities  # mass of the likelier tokens
    return logits.masked_fill((before >= p).scatter(-1, order, before >= p), -torch.inf)


def _prompts(model: "LanguageModel", idx: Prompt, max_new: int, overflow: "Overflow | None") -> list[list[int]]:
    """The prompts as lists of ids, after it was found that they can be continued so far."""
    cfg = model.cfg
    if isinstance(idx, Tensor) and (idx.ndim != 2 or idx.shape[0] < 1):
        raise InputError(f"prompts must have shape (batch, tokens) or be a list of 1-D ids, got {tuple(idx.shape)}")
    rows = [torch.as_tensor(prompt, dtype=torch.long) for prompt in idx]
    if not rows or any(row.ndim != 1 for row in rows):
        raise InputError("prompts must be at least one sequence of token ids, each 1-D")
    prompts: list[list[int]] = [row.tolist() for row in rows]
    for i, prompt in enumerate(prompts):
        if not prompt:
            raise InputError(f"prompt {i} is empty; give at least one token, such as the end-of-text token")
        if wrong := [token for token in prompt if not 0 <= token < cfg.vocab_size]:
            raise InputError(f"prompt {i} holds token id {wrong[0]}; the vocabulary has {cfg.vocab_size}")
    if max_new < 0:
        raise InputError(f"max_new_tokens must not be negative, got {max_new}")
    longest = max(map(len, prompts)) + max(max_new - 1, 0)  # the last token drawn is never fed back
    if longest > cfg.block_size and (overflow or cfg.overflow) == "error":
        raise InputError(f"prompt and new tokens need {longest} places, block_size is {cfg.block_size}:"
                         " ask for fewer tokens or set overflow = 'slide'")  # fmt: skip
    return prompts
