"""Batches of tokens as a pure function of seed and step.

An epoch goes once over the tokens in non-overlapping blocks, in a shuffled order; every epoch starts at another offset,
so that block borders move. Batches follow each other without a gap across epochs. Nothing depends on earlier calls:
a resumed run asks for its step and gets it, and the global batch is the same for any number of processes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sympformer.data.splits import digest
from sympformer.errors import InputError

Batch = tuple[NDArray[np.int64], NDArray[np.int64]]
IGNORE = -100  # a target that is not scored, as torch's cross entropy has it
EPOCHS_KEPT = 2  # a batch may span the end of one epoch and the beginning of the next


class BlockSampler:
    """Training batches from a row of tokens.

    tokens: (N,), usually memory-mapped. batch_size: blocks in the global batch of one step, over all processes.
    """

    def __init__(self, tokens: NDArray[Any], block_size: int, batch_size: int, seed: int = 0) -> None:
        _check_sizes(block_size=block_size, batch_size=batch_size)
        if len(tokens) < block_size + 1:
            raise InputError(
                f"the training text has {len(tokens)} tokens, too few for a block of {block_size} and the next token: "
                "use more text or a smaller block size"
            )
        self.tokens = tokens
        self.block_size = block_size
        self.batch_size = batch_size
        self.seed = seed
        # the same number of blocks at every offset
        self.blocks_per_epoch = max(1, (len(tokens) - block_size) // block_size)
        self._offsets = min(block_size, len(tokens) - self.blocks_per_epoch * block_size)
        self._order = lru_cache(EPOCHS_KEPT)(self._shuffled)

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Batch:
        """Inputs and targets (b, T) of a step: rank's contiguous share of the global batch.

        Gradient accumulation over k parts is `batch(step, rank * k + part, world * k)`.
        """
        if not 0 <= rank < world <= self.batch_size:
            raise InputError(
                f"rank {rank} of {world} has no share of a batch of {self.batch_size}: "
                "the batch size must be at least the number of processes times accumulation steps"
            )
        low, high = (self.batch_size * part // world for part in (rank, rank + 1))
        starts = self.starts(step)[low:high]  # (b,)
        return _blocks(self.tokens, starts, self.block_size)

    def starts(self, step: int) -> NDArray[np.int64]:
        """First positions (B,) of the blocks of a step's global batch."""
        if step < 0:
            raise InputError(f"step {step} is negative")
        places = step * self.batch_size + np.arange(self.batch_size)
        epochs, within = np.divmod(places, self.blocks_per_epoch)
        starts = np.empty(self.batch_size, dtype=np.int64)
        for epoch in np.unique(epochs):
            here = epochs == epoch
            starts[here] = self.offset(int(epoch)) + self._order(int(epoch))[within[here]] * self.block_size
        return starts

    def offset(self, epoch: int) -> int:
        """Where the first block of an epoch begins, in [0, block_size)."""
        return digest(self.seed, "offset", epoch) % self._offsets

    def epoch(self, step: int) -> float:
        """How many times the text has been read before a step."""
        return step * self.batch_size / self.blocks_per_epoch

    def _shuffled(self, epoch: int) -> NDArray[np.int64]:
        """The order of an epoch's blocks. Raw bits and a stable sort: the same in every numpy."""
        keys = np.random.Philox(key=digest(self.seed, "order", epoch)).random_raw(self.blocks_per_epoch)
        return np.argsort(keys, kind="stable")


@dataclass(frozen=True)
class EvaluationBlocks:
    """A fixed set of windows, the same every time. No token is scored twice."""

    tokens: NDArray[Any]
    starts: NDArray[np.int64]  # (W,)
    block_size: int
    repeated: int  # targets at the front of the last window that the window before it scores already

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def scored(self) -> int:
        """Number of targets that count."""
        return len(self.starts) * self.block_size - self.repeated

    def batches(self, batch_size: int, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        """Inputs and targets (b, T) of rank's share of the windows, in order; targets not to be scored are -100."""
        _check_sizes(batch_size=batch_size)
        low, high = (len(self) * part // world for part in (rank, rank + 1))
        for first in range(low, high, batch_size):
            starts = self.starts[first : min(first + batch_size, high)]
            inputs, targets = _blocks(self.tokens, starts, self.block_size)
            if first + len(starts) == len(self):
                targets[-1, : self.repeated] = IGNORE
            yield inputs, targets


def validation_blocks(tokens: NDArray[Any], block_size: int, max_tokens: int | None = None) -> EvaluationBlocks:
    """Windows that score every token (but the first, which nothing predicts) exactly once.

    Where block_size does not divide them, the last window reaches back and scores only what is new. With `max_tokens`
    a smaller set of whole windows, spread evenly over the text. A text shorter than a block is one short window.
    """
    _check_sizes(block_size=block_size)
    if len(tokens) < 2:
        raise InputError(
            f"the validation text has {len(tokens)} tokens, too few to predict anything: hold out more text"
        )
    targets = len(tokens) - 1
    block_size = min(block_size, targets)
    windows = -(-targets // block_size)
    starts = np.arange(windows, dtype=np.int64) * block_size
    starts[-1] = targets - block_size
    repeated = windows * block_size - targets
    if max_tokens is not None and max_tokens < targets:
        wanted = max(1, max_tokens // block_size)
        whole = targets // block_size
        starts, repeated = np.arange(wanted, dtype=np.int64) * whole // wanted * block_size, 0
    return EvaluationBlocks(tokens, starts, block_size, repeated)


def _blocks(tokens: NDArray[Any], starts: NDArray[np.int64], block_size: int) -> Batch:
    """Inputs and targets (b, T) of the blocks that begin at starts (b,)."""
    rows = np.asarray(tokens[starts[:, None] + np.arange(block_size + 1)]).astype(np.int64)  # (b, T + 1)
    return rows[:, :-1].copy(), rows[:, 1:].copy()


def _check_sizes(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise InputError(f"{name.replace('_', ' ')} {size} is not a positive number")
