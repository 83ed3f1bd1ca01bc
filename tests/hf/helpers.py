"""Small Hugging Face models of every variant, on perturbed weights. (Any: transformers types `generate` narrowly.)"""

from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("transformers", reason="needs the extra hf")

from sympformer.hf import SympFormerForCausalLM
from sympformer.models import VARIANTS, perturb_
from tests.models.cases import make

every_variant = pytest.mark.parametrize("name", VARIANTS)
# one variant of each kind of cache: keys and values; with rho, or more; a state; both again in the classical blocks
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "softmax-own": ("softmax-exp-euler", {}),
    "softmax-paper": ("softmax-ab2", {"preset": "paper"}),
    "linear": ("linear-etd-ab2", {}),
    "gpt": ("softmax-baseline", {}),
    "yurii": ("softmax-yuriiformer", {"preset": "paper"}),
    "gpt-linear": ("linear-baseline", {}),
    "turned-keys": ("softmax-exp-euler", {"preset": "modern", "n_kv_head": 1}),
}
every_kind = pytest.mark.parametrize("kind", KINDS)
NEW = 8  # tokens of a continuation
# transformers 5.23 calls it activation checkpointing, and warns of the names that earlier ones know
RENAMED = hasattr(SympFormerForCausalLM, "activation_checkpointing_enable")
CHECKPOINTING = "activation_checkpointing" if RENAMED else "gradient_checkpointing"


def checkpoint(model: Any, **options: Any) -> None:
    """Switch gradient checkpointing on."""
    getattr(model, f"{CHECKPOINTING}_enable")(*((options,) if options else ()))


def hf(name: str, dtype: torch.dtype = torch.float64, seed: int | None = None, **overrides: Any) -> Any:
    """A small model of a variant; float64, so that equal means equal. `seed`: weights of its own."""
    fields = {"n_layer": 2, "block_size": 40} | overrides
    native = make(name, dtype=dtype, **fields)
    model = SympFormerForCausalLM.from_language_model(native)
    if seed is not None:
        perturb_(model, 0.1, seed)
        model.tie_weights()
    return model


def of_kind(kind: str, **overrides: Any) -> Any:
    name, fields = KINDS[kind]
    return hf(name, **(fields | overrides))


def left_padded(texts: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Token ids and mask of texts with padding in front."""
    T = max(map(len, texts))
    ids = torch.stack([torch.cat([torch.full((T - len(t),), 0), t]) for t in texts])
    mask = torch.stack([torch.cat([torch.zeros(T - len(t)), torch.ones(len(t))]) for t in texts]).long()
    return ids, mask


def right_padded(texts: list[Tensor]) -> tuple[Tensor, Tensor]:
    """The same with padding behind."""
    ids, mask = left_padded([t.flip(0) for t in texts])
    return ids.flip(1), mask.flip(1)


def texts(*lengths: int, seed: int = 5, vocab: int = 50) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(1, vocab, (length,), generator=generator) for length in lengths]


def alike(got: Tensor, want: Tensor, tolerance: float = 1e-9) -> bool:
    return got.shape == want.shape and bool((got - want).abs().max() < tolerance)


def greedy(model: Any, ids: Tensor, **options: Any) -> Any:
    return model.generate(ids, max_new_tokens=NEW, do_sample=False, **options)
