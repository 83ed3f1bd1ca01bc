"""The Trainer of transformers: it learns, resumes as if never stopped, checkpoints gradients, runs in bfloat16."""

from pathlib import Path
from typing import Any

import pytest
import torch

from sympformer.errors import InputError
from tests.hf.helpers import CHECKPOINTING, every_kind, hf, of_kind

pytest.importorskip("transformers", reason="needs the extra hf")
pytest.importorskip("accelerate", reason="the Trainer needs accelerate, of the extra hf")

import transformers

from sympformer.hf import optimizer_groups


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
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, list[float]]:
    folder, model = tmp_path_factory.mktemp("whole"), fresh()
    return folder, model, losses(train(folder, model))


def test_it_learns(uninterrupted: tuple[Path, Any, list[float]]) -> None:
    _, _, seen = uninterrupted
    assert len(seen) == 8
    assert seen[-1] < seen[0] - 0.3


def test_a_resumed_run_is_the_same_run(uninterrupted: tuple[Path, Any, list[float]], tmp_path: Path) -> None:
    _, whole, _ = uninterrupted
    train(tmp_path, fresh(), steps=4)
    again = fresh()
    trainer = train(tmp_path, again, resume=True)
    assert trainer.state.global_step == 8
    for (name, a), b in zip(whole.named_parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b), name


def test_accumulation_and_gradient_checkpointing_change_nothing(tmp_path: Path) -> None:
    """In float64: AdamW divides rounding errors by small moments, and float32's would hide a real difference."""
    whole, model = fresh().double(), fresh().double()
    options: dict[str, Any] = {
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 4,
        CHECKPOINTING: True,
    }
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


def test_evaluation(uninterrupted: tuple[Path, Any, list[float]], tmp_path: Path) -> None:
    _, model, seen = uninterrupted
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
