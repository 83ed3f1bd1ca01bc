"""A model shared by two processes gives what one gives."""

import socket
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from sympformer.models import variant
from tests.hf.helpers import hf
from tests.models.cases import tokens

pytest.importorskip("transformers", reason="needs the extra hf")

from sympformer.hf import SympFormerConfig, SympFormerForCausalLM

NAMES = ("softmax-exp-euler", "linear-baseline")


def compare(rank: int, port: int, folder: str) -> None:
    """Logits, loss and gradients of the shared model beside those of the whole one; a text where matrices are split."""
    from transformers.distributed import DistributedConfig

    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    for name in NAMES:
        for how in ("tp_size", "fsdp_size"):
            whole = SympFormerForCausalLM.from_pretrained(f"{folder}/{name}")
            split = DistributedConfig(**{how: 2})  # type: ignore[arg-type]
            shared = SympFormerForCausalLM.from_pretrained(f"{folder}/{name}", distributed_config=split)
            up = shared.model.body.blocks[0].mlp.up.weight
            assert up.to_local().shape[0] * 2 == whole.model.body.blocks[0].mlp.up.weight.shape[0]
            check(shared, whole, generates=how == "tp_size")
    dist.destroy_process_group()


def check(shared: Any, whole: Any, generates: bool) -> None:
    ids = tokens(2, 8)
    with torch.no_grad():
        assert (shared(ids).logits - whole(ids).logits).abs().max() < 1e-5
    if generates:
        assert torch.equal(*(m.generate(ids, max_new_tokens=6, do_sample=False) for m in (shared, whole)))
    losses = [m(ids, labels=ids).loss for m in (shared, whole)]
    assert (losses[0] - losses[1]).abs() < 1e-6
    for loss in losses:
        loss.backward()
    for (n, a), b in zip(shared.named_parameters(), whole.parameters(), strict=True):
        got = a.grad.full_tensor() if hasattr(a.grad, "full_tensor") else a.grad
        assert (got - b.grad).abs().max() < 1e-5, n


def test_a_plan_for_several_devices(tmp_path: Path) -> None:
    for name in NAMES:
        hf(name, dtype=torch.float32).save_pretrained(tmp_path / name)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(compare, (port, str(tmp_path)), nprocs=2)


def test_what_is_not_split_has_no_plan() -> None:
    """A gated MLP keeps two halves in one matrix, and would be cut across them."""
    for mlp, planned in {"gelu": True, "relu2": True, "swiglu": False, "none": False}.items():
        config = SympFormerConfig.from_model_config(variant("softmax-exp-euler", mlp=mlp))
        assert (config.base_model_tp_plan is not None) == planned
        assert "base_model_tp_plan" not in config.to_dict()
