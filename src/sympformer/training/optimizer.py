"""The learning rate of a step, and optimizer groups: what decays, what is clipped, what learns faster.

| group | decayed | clipped | learning rate |
|---|---|---|---|
| matrix | yes | yes | lr (Muon if asked) |
| embedding | yes | yes | lr |
| gain | no | yes | lr |
| scalar | no | no | lr x scalar_lr_factor |
"""

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from sympformer.models import LanguageModel
from sympformer.nn import DECAYED
from sympformer.training.config import TrainConfig


def make_optimizers(model: LanguageModel, config: TrainConfig) -> list[torch.optim.Optimizer]:
    """AdamW over all groups, or Muon for the matrices and AdamW for the rest. A group keeps its name and factor."""
    groups = {name: parameters for name, parameters in model.parameter_groups().items() if parameters}
    optimizers: list[torch.optim.Optimizer] = []
    if config.optimizer == "muon" and "matrix" in groups:
        matrices = [_group("matrix", groups.pop("matrix"), config)]
        # this factor makes an update as large as AdamW's, so that one learning rate serves both
        muon = torch.optim.Muon(matrices, lr=config.lr, adjust_lr_fn="match_rms_adamw")
        optimizers.append(muon)
    fused = config.precision != "float16"  # a gradient scaler cannot unscale for the fused form
    described = [_group(name, parameters, config) for name, parameters in groups.items()]
    optimizers.append(torch.optim.AdamW(described, lr=config.lr, betas=config.betas, fused=fused))
    return optimizers


def _group(name: str, parameters: list[nn.Parameter], config: TrainConfig) -> dict[str, object]:
    return {
        "params": parameters,
        "name": name,
        "factor": config.scalar_lr_factor if name == "scalar" else 1.0,
        "weight_decay": config.weight_decay if name in DECAYED else 0.0,
    }


def learning_rate(step: int, peak: float, warm_up: int, total: int, min_ratio: float) -> float:
    """The rate of step 0 .. total-1, a pure function of the step: linear warm-up, then a cosine.

    step < warm_up:  peak (step + 1) / (warm_up + 1)
    then:            peak (r + (1 - r) (1 + cos(pi s)) / 2),  s from 0 to 1 at the last step,  r = min_ratio
    """
    if step < warm_up:
        return peak * (step + 1) / (warm_up + 1)
    s = min(1.0, (step - warm_up) / max(1, total - 1 - warm_up))
    return peak * (min_ratio + (1 - min_ratio) * (1 + math.cos(math.pi * s)) / 2)


def set_learning_rate(optimizers: Iterable[torch.optim.Optimizer], lr: float) -> None:
    """Give every group its rate."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = lr * group["factor"]


def clip_gradients(optimizers: Iterable[torch.optim.Optimizer], limit: float | None) -> tuple[Tensor, Tensor]:
    """Scale the gradient of all but the scalars down to `limit`; the norms before: the clipped part's, the scalars'."""
    body: list[nn.Parameter] = []
    scalars: list[nn.Parameter] = []
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            (scalars if group["name"] == "scalar" else body).extend(p for p in group["params"] if p.grad is not None)
    norm = _norm(body)
    if limit is not None:
        torch.nn.utils.clip_grads_with_norm_(body, limit, norm)
    return norm, _norm(scalars)


def _norm(parameters: list[nn.Parameter]) -> Tensor:
    norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    return norm.full_tensor() if hasattr(norm, "full_tensor") else norm  # split between processes under FSDP2
