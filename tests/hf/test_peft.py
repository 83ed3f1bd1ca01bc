"""PEFT's LoRA: attached to the projections, it learns, saves, merges; where it would do nothing it is refused."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.hf.helpers import checkpoint, every_kind, hf, of_kind
from tests.models.cases import tokens

pytest.importorskip("peft", reason="needs peft, of the extra hf")

import peft

from sympformer.hf import lora_modules, optimizer_groups


def attach(model: Any, **options: Any) -> Any:
    fields: dict[str, Any] = {"r": 2, "task_type": "CAUSAL_LM", "target_modules": lora_modules(model.config)}
    return peft.get_peft_model(model, peft.LoraConfig(**(fields | options)))


def step(model: Any, ids: Tensor, lr: float = 1e-2) -> float:
    """One step of the adapters; the loss before."""
    optimizer = torch.optim.AdamW(optimizer_groups(model, lr, 0.0))
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    return float(loss.detach())


@every_kind
def test_adapters_learn_and_merge(kind: str, tmp_path: Path) -> None:
    base, ids = of_kind(kind, dtype=torch.float32).train(), tokens(2, 12)
    frozen = {n: p.clone() for n, p in base.named_parameters()}
    model = attach(base)
    first = step(model, ids)
    last = [step(model, ids) for _ in range(5)][-1]
    assert last < first - 0.01
    adapters = {n: p for n, p in model.named_parameters() if p.requires_grad}
    # with the momentum at zero before it, a linear first layer's queries and keys have no force to learn from
    learning = {n for n, p in adapters.items() if p.grad.abs().max() > 0}
    assert {n for n in adapters if "blocks.1." in n} <= learning
    assert len(learning) > len(adapters) / 2
    assert all("lora_" in n for n in adapters)
    model.eval()
    with torch.no_grad():
        want = model(input_ids=ids, use_cache=False).logits
        assert torch.allclose(model(input_ids=ids, use_cache=True).logits, want, atol=1e-4)
        model.save_pretrained(tmp_path)
        again = peft.PeftModel.from_pretrained(of_kind(kind, dtype=torch.float32), tmp_path)
        assert torch.equal(again(input_ids=ids, use_cache=False).logits, want)
        merged = again.merge_and_unload()
        assert torch.allclose(merged.to_language_model()(ids).logits, want, atol=1e-4)
    assert any(not torch.equal(p, frozen[n]) for n, p in merged.named_parameters())


@pytest.mark.parametrize("name", ["softmax-exp-euler", "linear-exp-euler"])
@pytest.mark.parametrize("value", ["free", "tied"])
def test_no_adapter_where_it_would_do_nothing(name: str, value: str) -> None:
    """`all-linear`, and what PEFT takes by default, is all that multiplies; a formula's matrix is refused by name."""
    for targets in ("all-linear", None) if value == "free" else ("all-linear",):
        base, ids = hf(name, dtype=torch.float32, value=value).train(), tokens(2, 12)
        model = attach(base, target_modules=targets)
        adapted = {n.rpartition(".")[2] for n, m in model.named_modules() if hasattr(m, "base_layer")}
        assert adapted == set(lora_modules(base.config))
        assert step(model, ids) != step(model, ids)
    with pytest.raises(ValueError, match="Matrix"):
        attach(hf(name, dtype=torch.float32, value=value), target_modules=["factor", "pull", "qk"])


def test_a_matrix_that_is_read_can_be_trained_whole() -> None:
    base, ids = hf("softmax-exp-euler", dtype=torch.float32).train(), tokens(2, 12)
    model = attach(base, modules_to_save=["factor"])
    before = model(input_ids=ids, logits_to_keep=0).logits
    step(model, ids)
    factors = [p for n, p in model.named_parameters() if "blocks.1." in n and "factor" in n and p.requires_grad]
    assert len(factors) == 1
    assert factors[0].grad.abs().max() > 0
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.zeros_(parameter)  # what is left of the change is that of the factors
    assert (model(input_ids=ids, logits_to_keep=0).logits - before).abs().max() > 1e-4


def test_an_adapter_on_the_head_counts_in_the_loss() -> None:
    base = hf("softmax-baseline", dtype=torch.float32, tie_head=False)
    model, ids = attach(base.train(), target_modules=["lm_head"]), tokens(2, 12)
    first = step(model, ids, 0.1)
    assert step(model, ids, 0.1) != first
    assert all(p.grad.abs().max() > 0 for p in model.parameters() if p.requires_grad)
    out = model(input_ids=ids, labels=ids, logits_to_keep=0)
    want = torch.nn.functional.cross_entropy(out.logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    assert abs(out.loss - want) < 1e-5


def test_gradient_checkpointing_with_adapters() -> None:
    ids, grads = tokens(2, 12), []
    for checkpointed in (False, True):
        torch.manual_seed(0)
        model = attach(hf("linear-etd-ab2").train())
        if checkpointed:
            checkpoint(model)
        model(input_ids=ids, labels=ids).loss.backward()
        grads.append([p.grad for p in model.parameters() if p.requires_grad])
    assert all(torch.allclose(a, b, rtol=0, atol=1e-12) for a, b in zip(*grads, strict=True))
    assert any(g.abs().max() > 0 for g in grads[1])
