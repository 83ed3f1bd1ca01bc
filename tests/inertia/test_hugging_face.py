"""Accelerated models at work in transformers: caches, beams, saving, adapters, the Trainer, the audit; their page."""

import json
import re
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers

import sympformer as sf
from sympformer import cli
from sympformer.errors import InputError
from sympformer.flows import ACCELERATED
from sympformer.hf import optimizer_groups
from sympformer.inertia import DAMPINGS, KEY, inertia_scalars
from sympformer.nn import perturb_
from sympformer.opening import open_model
from tests.inertia.cases import family, given, wake
from tests.test_cli import error_of

PAGE = (Path(__file__).parents[2] / "docs" / "accelerate.md").read_text()


@pytest.mark.parametrize("name", ["gpt2", "qwen3"])
@torch.no_grad()
def test_the_cache_and_beams_with_momentum(name: str) -> None:
    """A token's momentum runs over the layers: one at a time, or all together, with left padding, it is the same."""
    model, ids = wake(sf.accelerate(family(name), "etd_ab2")).double(), given(name)["input_ids"]
    mask = torch.ones_like(ids)
    mask[1, :3] = 0
    for options in ({}, {"num_beams": 3}):
        texts = [
            model.generate(ids, attention_mask=mask, max_new_tokens=6, do_sample=False, use_cache=cache, **options)
            for cache in (True, False)
        ]
        assert torch.equal(*texts)


@pytest.mark.parametrize("name", ["gpt2", "llama", "vit"])
@torch.no_grad()
def test_saving_and_loading(name: str, tmp_path: Path) -> None:
    model, x = wake(sf.accelerate(family(name), "ab2", damping="log-linear", per_channel=True)), given(name)
    model.save_pretrained(tmp_path)
    again = sf.load_accelerated(tmp_path)
    assert type(again) is type(model)
    assert torch.equal(again.eval()(**x).logits, model(**x).logits)
    assert inertia_scalars(again) == inertia_scalars(model)
    assert {p.dtype for n, p in again.named_parameters() if "inertia" in n} == {torch.float32}
    half = sf.load_accelerated(tmp_path, dtype=torch.bfloat16)
    assert {p.dtype for n, p in half.named_parameters() if "inertia" not in n} == {torch.bfloat16}
    assert {p.dtype for n, p in half.named_parameters() if "inertia" in n} == {torch.float32}
    again.save_pretrained(tmp_path / "more")
    assert torch.equal(sf.load_accelerated(tmp_path / "more").eval()(**x).logits, model(**x).logits)


def test_blocks_by_function_are_saved_and_another_head_is_loaded(tmp_path: Path) -> None:
    def blocks(model: Any) -> Any:
        return model.transformer.h

    model = wake(sf.accelerate(family("gpt2"), blocks=blocks))
    model.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())[KEY]["blocks"] == "transformer.h"
    ids = given("gpt2")["input_ids"]
    assert torch.equal(sf.load_accelerated(tmp_path).eval()(ids).logits, model(ids).logits)
    sf.accelerate(family("gpt2")).save_pretrained(tmp_path / "other")
    base = sf.load_accelerated(tmp_path / "other", transformers.GPT2Model).eval()
    assert torch.equal(base(ids).last_hidden_state, family("gpt2").transformer(ids).last_hidden_state)


def test_the_auto_classes_do_not_drop_the_scalars_silently(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wake(sf.accelerate(family("gpt2"))).save_pretrained(tmp_path)
    said: list[str] = []
    logger = transformers.utils.logging.get_logger("transformers.modeling_utils")
    monkeypatch.setattr(type(logger), "warning", lambda self, text, *args, **kw: said.append(str(text)))
    auto: Any = transformers.AutoModelForCausalLM
    model, info = auto.from_pretrained(tmp_path, output_loading_info=True)
    assert "transformer.h.0.inertia.gain" in info["unexpected_keys"]
    assert any("inertia.gain" in text and "UNEXPECTED" in text for text in said)
    with pytest.raises(InputError, match=r"without its scalars: load it with sympformer\.load_accelerated"):
        sf.accelerate(model)


def test_what_does_not_load_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="none holds no Hugging Face model"):
        sf.load_accelerated(tmp_path / "none")
    family("gpt2").save_pretrained(tmp_path / "plain")
    with pytest.raises(InputError, match="was not saved accelerated"):
        sf.load_accelerated(tmp_path / "plain")
    config = tmp_path / "plain" / "config.json"
    values = json.loads(config.read_text()) | {KEY: {"integrator": "ab2", "width": 16}}
    config.write_text(json.dumps(values))
    with pytest.raises(InputError, match=r"lack transformer\.h\.0\.inertia\.gain"):
        sf.load_accelerated(tmp_path / "plain")
    config.write_text(json.dumps(values | {"architectures": ["Mine"]}))
    with pytest.raises(InputError, match="of class Mine, which transformers does not have: give model_class="):
        sf.load_accelerated(tmp_path / "plain")
    with pytest.raises(InputError, match=r"must be a model of transformers, as GPT2Model \(no Auto class\)"):
        sf.load_accelerated(tmp_path / "plain", transformers.AutoModel)


def test_adapters_and_scalars_learn_save_and_merge(tmp_path: Path) -> None:
    base, ids = sf.accelerate(family("llama")), given("llama")["input_ids"]
    with torch.no_grad():
        before = base(ids).logits
    options: dict[str, Any] = {"r": 2, "task_type": "CAUSAL_LM", "target_modules": ["q_proj", "v_proj"]}
    model = peft.get_peft_model(base, peft.LoraConfig(**options, modules_to_save=["inertia"]))
    with torch.no_grad():
        assert torch.equal(model(ids).logits, before)
    learning = {n for n, p in model.named_parameters() if p.requires_grad}
    assert all("lora_" in n or "inertia" in n for n in learning)
    assert any("inertia" in n and n.endswith("gain") for n in learning)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-2)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    model.eval().save_pretrained(str(tmp_path))
    with torch.no_grad():
        want = model(ids).logits
        again = peft.PeftModel.from_pretrained(sf.accelerate(family("llama")), tmp_path).eval()
        assert torch.equal(again(ids).logits, want)
        with pytest.raises(InputError, match="merge it first"):
            sf.decelerate(again.get_base_model())
        merged = again.merge_and_unload()
        assert torch.allclose(merged(ids).logits, want, atol=1e-5)
    assert all(values["gain"] != 0 for values in list(inertia_scalars(merged).values())[1:])
    with pytest.raises(InputError, match="the model has adapters: accelerate it first"):
        sf.accelerate(peft.get_peft_model(family("llama"), peft.LoraConfig(**options)))


def test_the_trainer(tmp_path: Path) -> None:
    """It learns, and a resumed run is the uninterrupted one."""
    row = {"input_ids": torch.arange(1, 13), "labels": torch.arange(1, 13)}

    def run(folder: Path, steps: int, resume: bool = False) -> Any:
        model = sf.accelerate(family("gpt2"), "exp_euler").train()
        arguments = transformers.TrainingArguments(
            str(folder), max_steps=steps, save_steps=3, logging_steps=1, report_to="none", use_cpu=True, seed=1,
            disable_tqdm=True, dataloader_pin_memory=False, lr_scheduler_type="constant",
        )  # fmt: skip
        groups = optimizer_groups(model, lr=1e-2)
        apart = {id(p) for group in groups if group["name"] == "scalar" for p in group["params"]}  # type: ignore[attr-defined]
        assert apart == {id(p) for name, p in model.named_parameters() if ".inertia." in name}
        optimizer = torch.optim.AdamW(groups)
        trainer = transformers.Trainer(model, arguments, train_dataset=[row] * 16, optimizers=(optimizer, None))
        trainer.train(resume_from_checkpoint=resume or None)
        return trainer

    whole = run(tmp_path / "whole", 6)
    losses = [entry["loss"] for entry in whole.state.log_history if "loss" in entry]
    assert losses[-1] < losses[0] - 0.1
    assert all(abs(values["gain"]) > 1e-3 for values in list(inertia_scalars(whole.model).values())[1:])
    run(tmp_path / "parts", 3)
    parts = run(tmp_path / "parts", 6, resume=True)
    for (name, a), b in zip(whole.model.named_parameters(), parts.model.parameters(), strict=True):
        assert torch.equal(a, b), name
    saved = sf.load_accelerated(tmp_path / "whole" / "checkpoint-6")
    assert inertia_scalars(saved) == inertia_scalars(whole.model)


def build() -> Any:
    """A factory for the audit, as a user would write it."""
    return wake(sf.accelerate(family("gpt2"), "ab2"))


def test_the_audit_takes_accelerated_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = build()
    model.save_pretrained(tmp_path / "fast")
    assert cli.main(["audit", "tests.inertia.test_hugging_face:build", "--length", "6"]) == 0
    assert cli.main(["audit", str(tmp_path / "fast"), "--length", "6"]) == 0
    assert "fast passes" in capsys.readouterr().out.replace("\n", "")
    opened, ids = open_model(str(tmp_path / "fast")), given("gpt2")["input_ids"]
    assert torch.equal(opened.logits(ids), model(ids).logits)
    values = json.loads((tmp_path / "fast" / "config.json").read_text())
    (tmp_path / "fast" / "config.json").write_text(json.dumps(values | {KEY: {"integrator": "ab3", "width": 16}}))
    capsys.readouterr()  # loading bars
    assert "did you mean 'ab2'?" in error_of(capsys, "audit", str(tmp_path / "fast"))
    assert all(values["gain"] != 0 for values in inertia_scalars(perturb_(model, 0.8)).values())


def test_the_page_runs_and_names_every_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    names: dict[str, Any] = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 7
    for block in blocks:
        exec(compile(block, "docs/accelerate.md", "exec"), names)
    assert (tmp_path / "fast" / "model.safetensors").exists()
    assert names["text"].shape == (1, 13)
    assert any("inertia" in name and p.requires_grad for name, p in names["adapted"].named_parameters())
    assert names["net"](torch.randn(2, 3, 8)).shape == (2, 3, 8)
    schemes = PAGE.split("| integrator | drift |")[1].split("\n\n")[0]
    assert re.findall(r"^\| (\w+) \|", schemes, re.MULTILINE) == list(ACCELERATED)
    assert all(f"`{damping}`" in PAGE for damping in DAMPINGS)
