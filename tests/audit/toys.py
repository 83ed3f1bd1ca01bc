"""Small language models, causal but for one planted fault each, and the checks that must find it."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sympformer.audit.auditor import FUTURE

VOCAB, LENGTH, WIDTH = 40, 20, 8
LATE = 13  # where one of them leaks
Fault = Callable[[Tensor], Tensor]


class Causal(nn.Module):
    """Embeddings, running means, a tanh, the fault, a head."""

    def __init__(self, fault: Fault = lambda x: x) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCAB, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.mix, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, VOCAB)
        self.fault = fault

    def embed(self, idx: Tensor, start: int = 0) -> Tensor:
        return self.tokens(idx) + self.places(torch.arange(start, start + idx.shape[1]))

    def forward(self, idx: Tensor) -> Any:
        x = self.embed(idx)
        mean = x.cumsum(1) / torch.arange(1, idx.shape[1] + 1).unsqueeze(1)
        return self.head(self.fault(torch.tanh(self.mix(mean))))


def late_leak(x: Tensor) -> Tensor:
    """One position sees the next token, and no other does."""
    return x + (torch.arange(x.shape[1]) == LATE).unsqueeze(1) * x.roll(-1, 1)


def leak_in_training(x: Tensor) -> Tensor:
    """Training may take another way through the code: no edit shows this leak, the gradient does."""
    sees_all = (torch.arange(x.shape[1]) >= 3).unsqueeze(1) & torch.tensor(torch.is_grad_enabled())
    return x + sees_all * x.mean(1, keepdim=True)


def mean_over_time(x: Tensor) -> Tensor:
    return x + 0.1 * x.mean(1, keepdim=True)


def dropout_left_on(x: Tensor) -> Tensor:
    return F.dropout(x, 0.1, training=True)


class Memory:
    """A cache: the sum of the tokens so far, and how many."""

    total: Tensor | float = 0.0
    n = 0


class Cached(Causal):
    """The same model with a cache; place: of a chunk, by how many tokens were seen."""

    def __init__(self, place: Callable[[int], int] = lambda seen: seen) -> None:
        super().__init__()
        self.place = place

    def new_cache(self, batch_size: int) -> Memory:
        return Memory()

    def forward(self, idx: Tensor, cache: Memory | None = None) -> Any:
        cache = Memory() if cache is None else cache
        T, start = idx.shape[1], cache.n
        sums = cache.total + self.embed(idx, self.place(start)).cumsum(1)
        cache.total, cache.n = sums[:, -1:], start + T
        mean = sums / torch.arange(start + 1, start + T + 1).unsqueeze(1)
        return {"logits": self.head(torch.tanh(self.mix(mean)))}


def breaks(seen: int) -> int:
    if seen == LATE:
        raise RuntimeError("out of luck")
    return seen


# fault -> the model, and the checks that must fail, no more and no fewer
FAULTS: dict[str, tuple[Callable[[], nn.Module], set[str]]] = {
    "none": (Causal, set()),
    "none, cached": (Cached, set()),
    "mean over time": (lambda: Causal(mean_over_time), {*FUTURE}),
    "norm over time": (
        lambda: Causal(lambda x: F.layer_norm(x.mT, x.shape[1:2]).mT if x.shape[1] > 1 else x),
        {*FUTURE},
    ),
    "far below float32": (lambda: Causal(lambda x: x + 1e-7 * x.flip(1).cumsum(1).flip(1)), {*FUTURE}),
    "without gradient": (lambda: Causal(lambda x: x + x.detach().roll(-1, 1)), {*FUTURE}),
    # the adversary tries a few places only, and the late one is not among them
    "late": (lambda: Causal(late_leak), {"causality", "prefix"}),
    # no token sees another's future, but all feel how long the text is
    "mean by length": (lambda: Causal(lambda x: x / x.shape[1]), {"prefix"}),
    "batch mean": (lambda: Causal(lambda x: x + 0.1 * x.mean(0, keepdim=True)), {"batch"}),
    "divided by batch size": (lambda: Causal(lambda x: x / x.shape[0]), {"batch"}),
    "dropout left on": (lambda: Causal(dropout_left_on), {"repeat", *FUTURE, "batch"}),
    "cache forgets places": (lambda: Cached(lambda seen: 0), {"cache"}),
    "cache breaks": (lambda: Cached(breaks), {"cache"}),
}


class OneHot(nn.Module):
    """No nn.Embedding, a tuple for an answer, and no word on its vocabulary."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(VOCAB, VOCAB))

    def forward(self, idx: Tensor) -> tuple[None, Tensor]:
        return None, F.one_hot(idx, VOCAB).to(self.weight) @ self.weight


class BlowsUp(Causal):
    """Finite until its head is moved much."""

    def __init__(self) -> None:
        super().__init__()
        nn.init.zeros_(self.head.weight)

    def forward(self, idx: Tensor) -> Tensor:
        return super().forward(idx) * (1 if self.head.weight.abs().max() < 0.5 else torch.nan)


class SomeIdsMasked(Causal):
    def forward(self, idx: Tensor) -> Tensor:
        return super().forward(idx).masked_fill(torch.arange(VOCAB) > 30, -torch.inf)


class LinearInItsTokens(Causal):
    def forward(self, idx: Tensor) -> Tensor:
        return self.head(self.tokens(idx).cumsum(1).flip(1))
