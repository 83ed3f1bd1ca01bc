"""The sampler: pure in (seed, step), whole epochs, one global batch for any number of processes; windows that score.

`tests/test_golden.py` pins batches, shares and windows to the bit.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sympformer.data.sampler import IGNORE, BlockSampler, validation_blocks
from sympformer.errors import InputError

TOKENS = np.arange(1_000, dtype=np.uint16)


def test_batches_are_pure_functions_of_seed_and_step() -> None:
    forward = BlockSampler(TOKENS, 16, 8, seed=5)
    first = {step: forward.batch(step)[0] for step in range(41)}
    for step in (40, 0, 3, 39, 3):
        assert np.array_equal(BlockSampler(TOKENS, 16, 8, seed=5).batch(step)[0], first[step])
    assert not np.array_equal(BlockSampler(TOKENS, 16, 8, seed=6).batch(3)[0], first[3])
    assert forward._order.cache_info().currsize <= 2  # epochs kept in memory are few


@given(length=st.integers(9, 400), block=st.integers(1, 8), batch=st.integers(1, 9), seed=st.integers(-3, 3))
def test_an_epoch_covers_every_block_once(length: int, block: int, batch: int, seed: int) -> None:
    sampler = BlockSampler(np.arange(length), block, batch, seed)
    blocks = sampler.blocks_per_epoch
    starts = np.concatenate([sampler.starts(step) for step in range(-(-3 * blocks // batch))])
    for epoch in range(3):
        own, offset = np.sort(starts[epoch * blocks : (epoch + 1) * blocks]), sampler.offset(epoch)
        assert 0 <= offset < block
        assert np.array_equal(own, offset + np.arange(blocks) * block)
        assert own[-1] + block + 1 <= length
    assert length - blocks * block <= 2 * block  # less than two blocks are left out


def test_epochs_are_shifted_and_reshuffled() -> None:
    sampler = BlockSampler(TOKENS, 50, 19, seed=1)
    assert sampler.blocks_per_epoch == 19
    offsets = [sampler.offset(epoch) for epoch in range(50)]
    assert len(set(offsets)) > 20
    assert len({tuple((sampler.starts(epoch) - offsets[epoch]).tolist()) for epoch in range(20)}) == 20
    assert sampler.epoch(3) == 3.0
    assert np.array_equal(BlockSampler(np.arange(17), 16, 3).batch(7)[0], np.tile(np.arange(16), (3, 1)))  # one block


@pytest.mark.parametrize("world", [1, 2, 3, 4, 8])
def test_ranks_share_the_global_batch(world: int) -> None:
    whole = BlockSampler(TOKENS, 16, 8, seed=2).batch(9)
    assert whole[0].dtype == np.int64
    assert np.array_equal(whole[1], whole[0] + 1)  # the next tokens
    parts = [BlockSampler(TOKENS, 16, 8, seed=2).batch(9, rank, world) for rank in range(world)]
    for side in (0, 1):
        assert np.array_equal(np.concatenate([part[side] for part in parts]), whole[side])


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: BlockSampler(np.arange(16), 16, 1), "has 16 tokens, too few for a block of 16"),
        (lambda: BlockSampler(TOKENS, 0, 1), "block size 0"),
        (lambda: BlockSampler(TOKENS, 16, 0), "batch size 0"),
        (lambda: BlockSampler(TOKENS, 16, 2).batch(0, 0, 3), "rank 0 of 3"),
        (lambda: BlockSampler(TOKENS, 16, 2).batch(-1), "step -1"),
        (lambda: validation_blocks(TOKENS[:1], 8), "has 1 tokens"),
    ],
)
def test_refusals(ask: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ask()


@given(length=st.integers(2, 300), block=st.integers(1, 40), batch=st.integers(1, 5), world=st.integers(1, 4))
def test_validation_scores_every_token_once(length: int, block: int, batch: int, world: int) -> None:
    blocks = validation_blocks(np.arange(length, dtype=np.uint16), block)
    scored = []
    for rank in range(world):
        for inputs, targets in blocks.batches(batch, rank, world):
            counted = targets != IGNORE
            assert np.array_equal(targets[counted], (inputs + 1)[counted])
            scored.append(targets[counted])
    assert np.array_equal(np.sort(np.concatenate(scored)), np.arange(1, length))
    assert blocks.scored == length - 1


def test_validation_on_fewer_tokens_is_spread_over_the_text() -> None:
    blocks = validation_blocks(TOKENS, 10, max_tokens=100)
    assert (len(blocks), blocks.scored, blocks.starts[0]) == (10, 100, 0)
    assert blocks.starts[-1] > 800
    assert np.unique(np.diff(blocks.starts)).min() >= 10
    assert len(validation_blocks(TOKENS, 10, max_tokens=10**9)) == len(validation_blocks(TOKENS, 10))
