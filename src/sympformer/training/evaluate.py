"""The loss on a fixed validation set, in nats per token, as a perplexity, and in bits per byte of text."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sympformer.data import EvaluationBlocks
from sympformer.models import LanguageModel


class LossOf(nn.Module):
    """The model as processes share it: tokens in, loss out."""

    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        loss = self.model(inputs, targets=targets).loss
        assert loss is not None  # there are targets
        return loss


@dataclass(frozen=True)
class Evaluation:
    """Figures of a validation set. Bits per byte compare models with different tokenizers."""

    loss: float  # nats per token
    perplexity: float
    bits_per_byte: float
    tokens: int
    bytes: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def evaluate_model(
    model: LanguageModel,
    blocks: EvaluationBlocks,
    byte_lengths: NDArray[np.int64],
    batch_size: int = 16,
) -> Evaluation:
    """Score every window of `blocks`. byte_lengths: bytes of text behind every token id (`Tokenizer.byte_lengths`)."""
    was_training = model.training
    model.eval()
    try:
        sums = evaluate_sums(LossOf(model), model.tokens.weight.device, blocks, byte_lengths, batch_size)
    finally:
        model.train(was_training)
    return summary(*sums)


@torch.no_grad()
def evaluate_sums(
    loss_of: Callable[[Tensor, Tensor], Tensor],
    device: torch.device,
    blocks: EvaluationBlocks,
    byte_lengths: NDArray[np.int64],
    batch_size: int,
    share: tuple[int, int] = (0, 1),
) -> tuple[float, int, int]:
    """Nats, tokens and bytes of a share (rank, world) of the windows. loss_of: inputs, targets -> mean loss."""
    nats, tokens, size = 0.0, 0, 0
    for inputs, targets in blocks.batches(batch_size, *share):
        loss = loss_of(torch.from_numpy(inputs).to(device), torch.from_numpy(targets).to(device))
        scored = targets[targets >= 0]
        nats += float(loss) * len(scored)
        tokens += len(scored)
        size += int(byte_lengths[scored].sum())
    return nats, tokens, size


def summary(nats: float, tokens: int, size: int) -> Evaluation:
    """The figures of summed nats over some tokens and bytes."""
    loss = nats / tokens
    perplexity = math.exp(loss) if loss < 700 else math.inf
    return Evaluation(loss, perplexity, nats / math.log(2) / size if size else math.nan, tokens, size)


@torch.no_grad()
def momentum_norms(model: LanguageModel, inputs: Tensor) -> list[float]:
    """Root mean square of the momentum after every layer; empty for a model without momentum."""
    if not model.cfg.has_momentum:
        return []
    norms: list[Tensor] = []
    hooks = [
        block.register_forward_hook(lambda module, args, state: norms.append(state.y.float().square().mean().sqrt()))
        for block in model.blocks
    ]
    was_training = model.training
    model.eval()
    try:
        model(inputs)
    finally:
        for hook in hooks:
            hook.remove()
        model.train(was_training)
    return torch.stack(norms).tolist()
