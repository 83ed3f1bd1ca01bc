"""The Trainer of transformers: it learns, resumes as if never stopped, checkpoints gradients, runs in bfloat16.

And adapters of PEFT.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from sympformer.errors import InputError
from tests.hf.helpers import CHECKPOINTING, checkpoint, every_kind, hf, of_kind
from tests.models.cases import tokens

pytest.importorskip("transformers", reason="needs the extra hf")
pytest.importorskip("accelerate", reason="the Trainer needs accelerate, of the extra hf")
pytest.importorskip("peft", reason="needs peft, of the extra hf")

import peft
import transformers

from sympformer.hf import lora_modules, optimizer_groups

Run = tuple[Any, list[float]]  # a model, and its losses


def lines(n: int = 48, T: int = 12) -> list[dict[str, Any]]:
    """Texts that count upwards, each from a start and with a step of its own, padded at the end."""
    generator = torch.Generator().manual_seed(0)
    rows = []
    for _ in range(n):
        start, step, length = (int(torch.randint(*r, (), generator=generator)) for r in ((1, 50), (1, 4), (8, T + 1)))
        ids = (start + step * torch.arange(T)) % 50
        mask = (torch.arange(T) < length).long()
        rows.append({"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)})
    return rows


def train(folder: Path, model: Any, steps: int = 8, resume: bool = False, **options: Any) -> Any:
    fields: dict[str, Any] = {
        "output_dir": str(folder), "max_steps": steps, "per_device_train_batch_size": 8, "learning_rate": 3e-2,
        "use_cpu": True, "report_to": "none", "disable_tqdm": True, "logging_steps": 1, "save_steps": 4, "seed": 3,
        "lr_scheduler_type": "constant", "dataloader_pin_memory": False,
    }  # fmt: skip
    arguments = transformers.TrainingArguments(**(fields | options))
    groups = optimizer_groups(model, lr=3e-2)
    optimizer = torch.optim.AdamW(groups)
    trainer = transformers.Trainer(model, arguments, train_dataset=lines(), optimizers=(optimizer, None))
    trainer.train(resume_from_checkpoint=resume or None)
    return trainer


def losses(trainer: Any) -> list[float]:
    return [row["loss"] for row in trainer.state.log_history if "loss" in row]


def fresh(**overrides: Any) -> Any:
    return hf("softmax-exp-euler", dtype=torch.float32, **overrides).train()


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Run:
    model = fresh()
    return model, losses(train(tmp_path_factory.mktemp("whole"), model))


def test_a_resumed_run_is_the_same_run(uninterrupted: Run, tmp_path: Path) -> None:
    whole, _ = uninterrupted
    train(tmp_path, fresh(), steps=4)
    again = fresh()
    trainer = train(tmp_path, again, resume=True)
    assert trainer.state.global_step == 8
    for (name, a), b in zip(whole.named_parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b), name


def test_accumulation_and_gradient_checkpointing_change_nothing(tmp_path: Path) -> None:
    """In float64: AdamW divides rounding errors by small moments, and float32's would hide a real difference."""
    whole, model = fresh().double(), fresh().double()
    options: dict[str, Any] = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4, CHECKPOINTING: True}
    train(tmp_path / "whole", whole)
    train(tmp_path / "parts", model, **options)
    assert getattr(model, f"is_{CHECKPOINTING}")
    for (name, a), b in zip(whole.named_parameters(), model.parameters(), strict=True):
        assert torch.allclose(a, b, rtol=0, atol=1e-9), name


@every_kind
def test_every_kind_learns_in_bfloat16(kind: str, tmp_path: Path) -> None:
    model = of_kind(kind, dtype=torch.float32).train()
    seen = losses(train(tmp_path, model, bf16=True, save_strategy="no", steps=6))
    assert all(p.dtype == torch.float32 and p.isfinite().all() for p in model.parameters())
    assert min(seen[-2:]) < seen[0]


def test_it_learns_and_is_evaluated(uninterrupted: Run, tmp_path: Path) -> None:
    model, seen = uninterrupted
    assert len(seen) == 8
    assert seen[-1] < seen[0] - 0.3
    fields: dict[str, Any] = {"output_dir": str(tmp_path), "use_cpu": True, "report_to": "none", "disable_tqdm": True}
    arguments = transformers.TrainingArguments(**fields, dataloader_pin_memory=False)
    shapes = []

    def metrics(given: Any) -> dict[str, float]:
        shapes.append(given.predictions.shape)
        return {}

    trainer = transformers.Trainer(model, arguments, eval_dataset=lines(6), compute_metrics=metrics)
    assert trainer.evaluate()["eval_loss"] < seen[0]
    assert shapes == [(6, 12, 50)]  # logits, and no cache among them


def test_optimizer_groups() -> None:
    model = fresh(tie_head=False)
    groups = {str(group["name"]): group for group in optimizer_groups(model, 1e-2, 0.1, 5.0)}
    every = [p for group in groups.values() for p in group["params"]]  # type: ignore[attr-defined]
    assert sorted(map(id, every)) == sorted(map(id, model.parameters()))
    assert groups["scalar"]["lr"] == pytest.approx(5e-2)
    assert {name: group["weight_decay"] for name, group in groups.items()} == {
        "matrix": 0.1, "embedding": 0.1, "gain": 0.0, "scalar": 0.0,
    }  # fmt: skip
    native = model.to_language_model().parameter_groups()
    assert {n: len(g["params"]) for n, g in groups.items()} == {n: len(p) for n, p in native.items()}  # type: ignore[arg-type]
    model.lm_head.requires_grad_(False)
    assert sum(len(g["params"]) for g in optimizer_groups(model, 1e-2)) == len(every) - 1  # type: ignore[arg-type, misc]
    with pytest.raises(InputError, match="lr must not be negative"):
        optimizer_groups(model, -1.0)


# --- PEFT's LoRA: attached to the projections, it learns, saves, merges; where it would do nothing it is refused


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
