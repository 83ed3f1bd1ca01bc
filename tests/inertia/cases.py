"""Small models to accelerate: one of every Hugging Face family, and a plain torch one."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sympformer as sf
from sympformer.inertia.attach import inertia_parts

pytest.importorskip("transformers", reason="needs the extra hf")

import transformers

SIZES: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 24}
TEXT: dict[str, Any] = {
    "vocab_size": 40, "num_key_value_heads": 1, "max_position_embeddings": 32, "bos_token_id": None,
    "eos_token_id": None, "pad_token_id": 0,
}  # fmt: skip
IMAGE: dict[str, Any] = {"image_size": 8, "patch_size": 4, "num_labels": 5}


def gpt2() -> Any:
    sizes: dict[str, Any] = {"n_layer": 3, "n_embd": 16, "n_head": 2, "n_positions": 32, "vocab_size": 40}
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(**sizes, bos_token_id=None, eos_token_id=None, pad_token_id=0)
    )


FAMILIES: dict[str, Callable[[], Any]] = {
    "gpt2": gpt2,
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES, **TEXT)),
    "qwen2": lambda: transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**SIZES, **TEXT)),
    "qwen3": lambda: transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**SIZES, **TEXT, head_dim=8)),
    "vit": lambda: transformers.ViTForImageClassification(transformers.ViTConfig(**SIZES, **IMAGE)),
}


def family(name: str, seed: int = 0) -> Any:
    """A model in eval mode; weights larger than a start's, so that every block matters."""
    torch.manual_seed(seed)
    model = FAMILIES[name]().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def given(name: str, T: int = 9) -> dict[str, Tensor]:
    """An input of the family."""
    generator = torch.Generator().manual_seed(1)
    if name == "vit":
        return {"pixel_values": torch.randn(2, 3, 8, 8, generator=generator)}
    return {"input_ids": torch.randint(1, 40, (2, T), generator=generator)}


@torch.no_grad()
def wake(model: nn.Module, gain: float = 0.3) -> Any:
    """Let the momentum be felt: gains away from zero, each a little other."""
    for i, part in enumerate(inertia_parts(model).values()):
        part.gain.copy_(gain * (1 + 0.1 * i + torch.arange(part.gain.numel()) / part.gain.numel()))
    return model


class Block(nn.Module):
    """x -> x + W tanh(LN x)."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(d), nn.Linear(d, d)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.linear(torch.tanh(self.norm(x)))


class Plain(nn.Module):
    """A stack of blocks in a ModuleDict, as small GPTs in plain torch keep them; anything else with `block`."""

    def __init__(self, block: Callable[[int], nn.Module] = Block, d: int = 6, depth: int = 4) -> None:
        super().__init__()
        self.body = nn.ModuleDict({"blocks": nn.ModuleList(block(d) for _ in range(depth))})

    @property
    def blocks(self) -> list[Any]:
        return [*self.body["blocks"].children()]

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def plain(seed: int = 0) -> Plain:
    torch.manual_seed(seed)
    return Plain().double()


def fast(model: Any = None, integrator: str = "plain_euler", **options: Any) -> Any:
    """A plain stack (a new one by default) with inertia, tried on positions of its width."""
    model = plain() if model is None else model
    x = torch.zeros(1, 4, 6, dtype=next(model.parameters()).dtype)
    return sf.accelerate(model, integrator, **({"blocks": "body.blocks", "example": x} | options))
