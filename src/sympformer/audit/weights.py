"""The copies of a model that an audit looks at: as given, fresh, perturbed; in the best precision the model can do."""

import copy
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from sympformer.errors import InputError, unknown_name
from sympformer.loading import logits_of
from sympformer.machine import calm_onednn
from sympformer.models import LanguageModel, build_model, perturb_

Weights = Literal["given", "fresh", "perturbed"]
GAIN = 0.8  # of a perturbation, seen as a matrix on vectors of its width; 0.2 an entry at width 16
TRIES = 5  # perturbations, each half as strong, before giving up on finite logits

# tolerance, as a share of the largest logit, by the least precise numbers that a model works with
TOLERANCES: dict[torch.dtype, float] = {
    torch.float64: 1e-9,
    torch.float32: 1e-4,
    torch.bfloat16: 5e-2,
    torch.float16: 1e-2,
}


@dataclass(frozen=True)
class Specimen:
    """A model to be looked at, in eval mode, with the tolerance that its precision and its logits allow."""

    model: nn.Module
    tolerance: float
    precision: str
    note: str = ""


def specimen(model: nn.Module, weights: Weights, idx: Tensor, dtype: torch.dtype | None, seed: int) -> Specimen:
    """The copy of `model` with the weights asked for. The model itself stays as it is."""
    if weights not in ("given", "fresh", "perturbed"):
        raise unknown_name("weights", weights, ["given", "fresh", "perturbed"])
    twin = _fresh(model, seed) if weights == "fresh" else copied(model)
    twin = _precise(twin.eval(), idx, dtype)
    note = ""
    if weights == "perturbed":
        twin, note = _perturbed(twin, idx, seed)
    logits = logits_of(twin)(idx)
    if not _usable(logits):
        raise InputError(f"the logits of the model with {weights} weights are not finite: nothing can be compared")
    working = _least_precise(twin, idx)
    scale = logits[logits.isfinite()].abs().max().item()
    name, inner = (str(d).removeprefix("torch.") for d in (logits.dtype, working))
    return Specimen(
        twin, TOLERANCES[working] * (scale or 1.0), name if name == inner else f"{name}, {inner} inside", note
    )


def copied(model: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(model)
    except (RuntimeError, TypeError, NotImplementedError) as error:
        raise InputError(f"the model cannot be copied, and an audit works on a copy: {error}") from error


def _fresh(model: nn.Module, seed: int) -> nn.Module:
    if not isinstance(model, LanguageModel):
        raise InputError(f"weights 'fresh' need a sympformer model, got {type(model).__name__}: leave them out")
    return build_model(model.cfg, seed)


def _precise(model: nn.Module, idx: Tensor, dtype: torch.dtype | None) -> nn.Module:
    """The model in float64 if it works there, else in float32; or in `dtype`."""
    if dtype is not None:
        return _in(model, dtype)
    try:
        logits_of(double := _in(model, torch.float64))(idx)
    except (InputError, TypeError):  # TypeError: a device without float64
        return _in(model, torch.float32)
    return double


def _in(model: nn.Module, dtype: torch.dtype) -> nn.Module:
    """Real numbers to dtype, in place; complex ones stay what they are, where `Module.to` would cut them."""
    convert = {torch.float64: model.double, torch.float32: model.float, torch.bfloat16: model.bfloat16}
    if dtype not in convert:
        raise InputError(f"dtype must be float64, float32 or bfloat16, got {dtype}")
    if dtype == torch.bfloat16:
        calm_onednn()
    return convert[dtype]()


@torch.no_grad()
def _perturbed(model: nn.Module, idx: Tensor, seed: int) -> tuple[nn.Module, str]:
    """The model with noise on every matrix and table, so that all of its parts matter; a fresh start hides leaks."""
    starts = [parameter.clone() for parameter in model.parameters()]
    for k in range(TRIES):
        perturb_(model, GAIN / 2**k, seed, by_width=True)
        if _usable(logits_of(model)(idx)):
            return model, "" if k == 0 else f"perturbed {2**k} times less, for finite logits"
        for parameter, start in zip(model.parameters(), starts, strict=True):
            parameter.copy_(start)
    return model, "not perturbed: no perturbation gives finite logits"


def _usable(logits: Tensor) -> bool:
    """Whether there are no NaN, and some finite numbers (ids may be masked by minus infinity)."""
    return not bool(logits.isnan().any()) and bool(logits.isfinite().any())


class _SeenDtypes(TorchDispatchMode):
    """Notes the real dtypes of all tensors that are computed within the block."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[torch.dtype] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for part in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(part, Tensor) and part.numel() > 1:
                dtype = torch.float32 if part.dtype == torch.complex64 else part.dtype
                if dtype in TOLERANCES:
                    self.seen.add(dtype)
        return out


def _least_precise(model: nn.Module, idx: Tensor) -> torch.dtype:
    """The least precise numbers in a pass: some models work in float32 inside, whatever their weights are."""
    with _SeenDtypes() as dtypes:
        logits_of(model)(idx)
    return max(dtypes.seen, key=TOLERANCES.__getitem__)
