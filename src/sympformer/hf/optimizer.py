"""The optimizer groups of sympformer's own trainer, for those who train with another one."""

from torch import nn

from sympformer.errors import InputError
from sympformer.nn import DECAYED, grouped_parameters


def optimizer_groups(
    model: nn.Module, lr: float, weight_decay: float = 0.1, scalar_lr_factor: float = 5.0
) -> list[dict[str, object]]:
    """Parameter groups for torch.optim: matrices and embeddings decay, gains and scalars do not, scalars learn faster.

    Every parameter that learns comes once; an adapter's count as matrices. A scheduler that scales each group's
    own rate, as those of transformers do, keeps the factor.
    """
    for name, value in (("lr", lr), ("weight_decay", weight_decay), ("scalar_lr_factor", scalar_lr_factor)):
        if not value >= 0:
            raise InputError(f"{name} must not be negative, got {value}")
    learning = {n: [p for p in ps if p.requires_grad] for n, ps in grouped_parameters(model).items()}
    return [
        {
            "name": name,
            "params": parameters,
            "lr": lr * scalar_lr_factor if name == "scalar" else lr,
            "weight_decay": weight_decay if name in DECAYED else 0.0,
        }
        for name, parameters in learning.items()
        if parameters
    ]
