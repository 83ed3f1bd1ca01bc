"""The parameters of a model: which optimizer group each is in, and noise on them."""

import math
from collections.abc import Iterator

import torch
from torch import nn

GROUPS = ("matrix", "embedding", "gain", "scalar")
DECAYED = ("matrix", "embedding")


def grouped_parameters(model: nn.Module) -> dict[str, list[nn.Parameter]]:
    """Every parameter once, under the group its module declares.

    A module from elsewhere (an adapter, a registered part) may declare none: its matrices are then in "matrix", its
    vectors in "gain".
    """
    groups: dict[str, list[nn.Parameter]] = {group: [] for group in GROUPS}
    seen: set[int] = set()
    for module, parameter in _own_parameters(model):
        if id(parameter) not in seen:
            seen.add(id(parameter))
            groups[str(getattr(module, "group", "matrix" if parameter.ndim >= 2 else "gain"))].append(parameter)
    return groups


def _own_parameters(model: nn.Module) -> Iterator[tuple[nn.Module, nn.Parameter]]:
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            yield module, parameter


@torch.no_grad()
def perturb_(model: nn.Module, std: float = 0.2, seed: int = 0, by_width: bool = False) -> nn.Module:
    """Add N(0, std^2) to every matrix and table, so that attention and momentum matter. For tests and audits.

    So too to scalars, some of which stand at zero: what they switch off would not be looked at. by_width: std
    is that of a whole row's sum, not of an entry, so that a wide model does not saturate.
    """
    generator = torch.Generator().manual_seed(seed)
    scalars = {id(p): p for m, p in _own_parameters(model) if getattr(m, "group", "") == "scalar"}
    off = {key for key, p in scalars.items() if not p.all()}
    for parameter in model.parameters():
        hides = (parameter.ndim >= 2 and id(parameter) not in scalars) or id(parameter) in off
        if hides and parameter.is_floating_point() and parameter.numel() > 0:
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            scale = std / math.sqrt(parameter[0].numel()) if by_width else std
            parameter.add_((scale * noise).to(parameter))
    return model
