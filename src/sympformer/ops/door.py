"""The one door for speed, and who counts or watches the kernel passes.

Whatever is fast here has a slow twin that is the formula: kernels their naive form, layers their equation, the decoder
the plain model. `with plain():` shuts the door, and all of them take the slow way.

A pass is one sweep of attention over its keys: what the paper calls an oracle call. It is counted where kernels are
called, so that a pass that someone adds is seen.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

_shut = 0  # blocks of `plain()` that are open now, in the whole process
_counts: list["PassCount"] = []
_watchers: list["Kernels"] = []


@contextmanager
def plain() -> Iterator[None]:
    """Every fast replacement off within the block."""
    global _shut
    _shut += 1
    try:
        yield
    finally:
        _shut -= 1


def fast() -> bool:
    """Whether the door is open."""
    return _shut == 0


@dataclass(eq=False)  # two that stand at the same number are still two
class PassCount:
    """Kernel passes made so far."""

    passes: int = 0


@contextmanager
def count_passes() -> Iterator[PassCount]:
    """Count the kernel passes within the block: `with count_passes() as count: model(idx)`, then `count.passes`."""
    count = PassCount()
    _counts.append(count)
    try:
        yield count
    finally:
        _counts.remove(count)


@dataclass(frozen=True, eq=False)
class Kernel:
    """What a pass was asked: its scores are scale <q_i, k_j>, its weights their softmax, or the scores over n_i."""

    q: Tensor  # (B, H, T, c)
    k: Tensor  # (B, H, T, c)
    scale: float
    causal: bool
    softmax: bool

    def rows(self, at: Tensor) -> Tensor:
        """The weights of the tokens `at` (R,) on all tokens, (B, H, R, T); zero on those that they do not see."""
        T = self.k.shape[-2]
        scores = self.scale * self.q[..., at, :] @ self.k.mT
        sees = torch.arange(T, device=at.device) <= at.unsqueeze(-1) if self.causal else torch.ones_like(scores) > 0
        if self.softmax:
            return scores.masked_fill(~sees, -torch.inf).softmax(-1)
        return scores * sees / ((at + 1).unsqueeze(-1) if self.causal else T)


@dataclass(eq=False)
class Kernels:
    """The kernels seen so far, in their order."""

    seen: list[Kernel] = field(default_factory=list)


@contextmanager
def watch_kernels() -> Iterator[Kernels]:
    """See the kernels that are asked within the block. Nothing is copied, and no weights are made until asked for."""
    watcher = Kernels()
    _watchers.append(watcher)
    try:
        yield watcher
    finally:
        _watchers.remove(watcher)


def note_pass(kernel: Kernel | None = None) -> None:
    """A kernel is about to sweep over its keys. Without a `kernel`, as under masks, watchers do not see it."""
    for count in _counts:
        count.passes += 1
    if kernel is not None:
        for watcher in _watchers:
            watcher.seen.append(kernel)
