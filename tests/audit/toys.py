"""Small language models, causal but for one planted fault each, and the checks that must find it."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sympformer.audit.auditor import FUTURE

VOCAB, LENGTH, WIDTH = 40, 20, 8
LATE = 13  # where one of them leaks


class Causal(nn.Module):
    """Embeddings, running means, a tanh, a head. The faults are planted in `fault`."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCAB, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.mix, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, VOCAB)

    def embed(self, idx: Tensor, start: int = 0) -> Tensor:
        return self.tokens(idx) + self.places(torch.arange(start, start + idx.shape[1]))

    def forward(self, idx: Tensor) -> Any:
        x = self.embed(idx)
        mean = x.cumsum(1) / torch.arange(1, idx.shape[1] + 1).unsqueeze(1)
        return self.head(self.fault(torch.tanh(self.mix(mean))))

    def fault(self, x: Tensor) -> Tensor:
        return x


class MeanOverTime(Causal):
    def fault(self, x: Tensor) -> Tensor:
        return x + 0.1 * x.mean(1, keepdim=True)


class NormOverTime(Causal):
    def fault(self, x: Tensor) -> Tensor:
        return F.layer_norm(x.mT, x.shape[1:2]).mT if x.shape[1] > 1 else x


class TinyLeak(Causal):
    """Far below what float32 would show."""

    def fault(self, x: Tensor) -> Tensor:
        return x + 1e-7 * x.flip(1).cumsum(1).flip(1)


class LeakWithoutGradient(Causal):
    def fault(self, x: Tensor) -> Tensor:
        return x + x.detach().roll(-1, 1)


class LateLeak(Causal):
    """One position sees the next token, and no other does."""

    def fault(self, x: Tensor) -> Tensor:
        at = torch.arange(x.shape[1]) == LATE
        return x + at.unsqueeze(1) * x.roll(-1, 1)


class MeanByLength(Causal):
    """No token sees another's future, but all feel how long the text is."""

    def fault(self, x: Tensor) -> Tensor:
        return x / x.shape[1]


class BatchMean(Causal):
    def fault(self, x: Tensor) -> Tensor:
        return x + 0.1 * x.mean(0, keepdim=True)


class DividedByBatchSize(Causal):
    def fault(self, x: Tensor) -> Tensor:
        return x / x.shape[0]


class DropoutLeftOn(Causal):
    def fault(self, x: Tensor) -> Tensor:
        return F.dropout(x, 0.1, training=True)


class Memory:
    """A cache: the sum of the tokens so far, and how many."""

    total: Tensor | float = 0.0
    n = 0


class Cached(Causal):
    """The same model with a cache."""

    def new_cache(self, batch_size: int) -> Memory:
        return Memory()

    def forward(self, idx: Tensor, cache: Memory | None = None) -> Any:
        cache = Memory() if cache is None else cache
        T, start = idx.shape[1], cache.n
        sums = cache.total + self.embed(idx, self.start(start)).cumsum(1)
        cache.total, cache.n = sums[:, -1:], start + T
        mean = sums / torch.arange(start + 1, start + T + 1).unsqueeze(1)
        return {"logits": self.head(torch.tanh(self.mix(mean)))}

    def start(self, seen: int) -> int:
        return seen


class CacheForgetsPlaces(Cached):
    def start(self, seen: int) -> int:
        return 0


class CacheBreaks(Cached):
    def start(self, seen: int) -> int:
        if seen == LATE:
            raise RuntimeError("out of luck")
        return seen


# model -> the checks that must fail, no more and no fewer
FAULTS: dict[type[Causal], set[str]] = {
    Causal: set(),
    Cached: set(),
    MeanOverTime: {*FUTURE},
    NormOverTime: {*FUTURE},
    TinyLeak: {*FUTURE},
    LeakWithoutGradient: {*FUTURE},
    LateLeak: {"causality", "prefix"},  # the adversary tries a few places only, and the late one is not among them
    MeanByLength: {"prefix"},
    BatchMean: {"batch"},
    DividedByBatchSize: {"batch"},
    DropoutLeftOn: {"repeat", *FUTURE, "batch"},
    CacheForgetsPlaces: {"cache"},
    CacheBreaks: {"cache"},
}


class OneHot(nn.Module):
    """No nn.Embedding, a tuple for an answer, and no word on its vocabulary."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(VOCAB, VOCAB))

    def forward(self, idx: Tensor) -> tuple[None, Tensor]:
        return None, F.one_hot(idx, VOCAB).to(self.weight) @ self.weight


class FloatInside(Causal):
    """Works in float32 whatever its weights are."""

    def fault(self, x: Tensor) -> Tensor:
        return x.float().sin().to(x)


class FloatOnly(Causal):
    """Cannot be converted: it adds a float32 constant by a matrix product."""

    def fault(self, x: Tensor) -> Tensor:
        return x @ torch.eye(WIDTH, dtype=torch.float32)


class NotFinite(Causal):
    def fault(self, x: Tensor) -> Tensor:
        return x / 0


class BlowsUp(Causal):
    """Finite until its head is moved much."""

    def __init__(self) -> None:
        super().__init__()
        nn.init.zeros_(self.head.weight)

    def fault(self, x: Tensor) -> Tensor:
        return x if self.head.weight.abs().max() < 0.5 else x * torch.nan


class SomeIdsMasked(Causal):
    def forward(self, idx: Tensor) -> Tensor:
        return super().forward(idx).masked_fill(torch.arange(VOCAB) > 30, -torch.inf)


class LinearInItsTokens(Causal):
    def forward(self, idx: Tensor) -> Tensor:
        return self.head(self.tokens(idx).cumsum(1).flip(1))


class LeaksInTraining(Causal):
    """Training may take another way through the code: no edit shows this leak, the gradient does."""

    def fault(self, x: Tensor) -> Tensor:
        sees_all = (torch.arange(x.shape[1]) >= 3).unsqueeze(1) & torch.tensor(torch.is_grad_enabled())
        return x + sees_all * x.mean(1, keepdim=True)
