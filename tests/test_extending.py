"""A choice from outside the package is one call, and brings everything with it. Its parts are those of the docs."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import sympformer as sf
from sympformer import flows
from sympformer.cli import main
from sympformer.errors import InputError
from sympformer.models import VARIANTS, LanguageModel, perturb_
from sympformer.nn import TABLES
from sympformer.opening import open_model
from tests.models.cases import SIZE, tokens
from tests.surfaces.surfaces import check_model

PAGE = (Path(__file__).parent.parent / "docs" / "extending.md").read_text()
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)

# what is asked for -> the options that ask for it
ASKED: dict[str, dict[str, Any]] = {
    "integrator": {"variant": "softmax-implicit-damping"},
    "integrator-linear": {"variant": "linear-implicit-damping"},
    "attention": {"variant": "mean-etd-ab2"},
    "attention-gpt": {"variant": "mean-baseline"},
    "attention-yurii": {"variant": "mean-yuriiformer"},
    "norm": {"variant": "softmax-exp-euler", "norm": "rms"},
    "norm-gpt": {"variant": "softmax-baseline", "norm": "rms"},
    "mlp": {"variant": "softmax-exp-euler", "mlp": "silu"},
    "mlp-yurii": {"variant": "linear-yuriiformer", "mlp": "silu"},
    "positions": {"variant": "softmax-exp-euler", "positions": "waves"},
}
every_part = pytest.mark.parametrize("part", ASKED)


class TwoForces(flows.FrozenIntegrator):
    """Heun's step in the momentum: the field is asked at two momenta."""

    order = 1
    momenta = 2

    def factors(self, step: flows.Step) -> Any:
        return step.h_x, step.h_y

    def advance(self, field: flows.Field, x: Tensor, y: Tensor, factors: Any, history: Any) -> Any:
        h_x, h_y = factors
        first = field.force(y)
        second = field.force(y + h_y * first)
        return x + h_x * field.velocity(y), y + h_y * (first + second) / 2, None


@pytest.fixture(autouse=True, scope="module")
def registered() -> Iterator[None]:
    """Every block of the page, run; the rows it adds are taken out again."""
    before = {kind: dict(table) for kind, table in TABLES.items()}
    for code in SNIPPETS:
        exec(compile(code, "docs/extending.md", "exec"), {"__name__": "extending"})
    sf.register("integrator", "two_forces", TwoForces)
    yield
    for kind, table in TABLES.items():
        for name in set(table) - set(before[kind]):
            del table[name]


def config(part: str, **overrides: Any) -> sf.ModelConfig:
    options = ASKED[part] | overrides
    return sf.variant(options.pop("variant"), "full", **(SIZE | options))


def make(cfg: sf.ModelConfig) -> LanguageModel:
    return perturb_(sf.build_model(cfg, seed=1)).double().eval()  # type: ignore[return-value]


def test_the_page_shows_the_five() -> None:
    assert len(SNIPPETS) == 5
    kinds = [re.findall(r'sf\.register\("(\w+)"', code) for code in SNIPPETS]
    assert kinds == [["integrator"], ["attention"], ["norm"], ["mlp"], ["positions"]]


@every_part
def test_properties(part: str) -> None:
    """Causality, prefix, batch, cache: as for every model of our own; the fast ways agree with the equations."""
    model = make(config(part))
    check_model(model, padded=not part.startswith("attention"))  # the page's own is kept short
    cached, slow = (model.generate(tokens(2, 5), 8, temperature=0.0, use_cache=flag) for flag in (True, False))
    assert torch.equal(cached, slow)  # type: ignore[arg-type]


@pytest.mark.parametrize("form", ["own", "paper"])
def test_an_integrator_may_ask_for_several_forces(form: str) -> None:
    """The cache keeps what the others' momenta were at each question."""
    check_model(make(sf.variant("softmax-two-forces", "full", **SIZE, form=form)))
    with pytest.raises(InputError, match="second scan with linear attention"):
        sf.variant("linear-two-forces", **SIZE)


def test_validation_and_variants() -> None:
    assert {"softmax-implicit-damping", "linear-implicit-damping", "mean-baseline", "mean-ab2"} <= set(VARIANTS)
    assert config("integrator").integrator == "implicit_damping"
    with pytest.raises(InputError, match="did you mean 'implicit_damping'"):
        sf.ModelConfig(integrator="implicit_dampin")
    with pytest.raises(InputError, match=r"unknown norm 'rmss': .*did you mean 'rms'"):
        config("norm", norm="rmss")
    with pytest.raises(InputError, match="belongs to attention softmax and linear, not to mean"):
        config("attention", heads="multi")
    with pytest.raises(InputError, match="mean attention does not have; choose learned or none"):
        config("attention", positions="rotary")
    with pytest.raises(InputError, match="qk_norm = True belongs to attention softmax and linear, not to mean"):
        config("attention-gpt", qk_norm=True)
    assert "damping" in config("integrator").to_dict()  # a damped scheme has its options


@every_part
def test_description(part: str) -> None:
    cfg = config(part)
    text = sf.build_model(cfg).describe()
    assert f"{cfg.attention} attention" in text
    idle = part == "integrator-linear"  # the first layer of a linear flow at rest
    assert f"{SIZE['n_layer'] - idle} a forward pass" in text
    groups = sf.build_model(cfg).parameter_groups()
    assert all(p.ndim == 2 for p in groups["matrix"])
    assert all(p.ndim == 1 for p in groups["gain"])


@pytest.mark.slow
@every_part
def test_from_the_command_line_to_hugging_face(part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers", reason="needs the hf extra")
    from transformers import AutoModelForCausalLM

    run, out = tmp_path / "run", tmp_path / "out"
    options = {f"model.{name}": value for name, value in ASKED[part].items()}
    options |= {"data.corpus": "storybook:60", "data.tokenizer": "byte", "data.validation": 0.2, "steps": 4}
    options |= {"model.n_layer": 2, "model.n_head": 2, "model.d_model": 16, "model.block_size": 32, "batch_size": 2}
    options |= {"eval_tokens": 256, "warm_up": 1, "sample_tokens": 4, "out": str(run)}
    assert main(["train", *(f"--{name}={value}" for name, value in options.items())]) == 0
    assert main(["audit", str(run), "--length", "24"]) == 0
    assert main(["export", str(run), str(out)]) == 0
    capsys.readouterr()
    ours, theirs = open_model(run).model, AutoModelForCausalLM.from_pretrained(out).eval()
    ids = torch.arange(1, 21).view(2, 10)
    with torch.no_grad():
        torch.testing.assert_close(theirs(ids, use_cache=False).logits, ours(ids).logits, rtol=0, atol=0)
        greedy = theirs.generate(ids, max_new_tokens=6, do_sample=False, eos_token_id=None)
    assert torch.equal(greedy, ours.generate(ids, 6, temperature=0.0))


def test_parts_named_in_the_environment_reach_other_processes(tmp_path: Path) -> None:
    (tmp_path / "my_parts.py").write_text(SNIPPETS[0].rpartition("model =")[0])
    place = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    words = "-m sympformer describe --name softmax-implicit-damping --vocab_size 64"
    command = [sys.executable, *words.split()]
    environment = os.environ | {"PYTHONPATH": place, "SYMPFORMER_PARTS": "my_parts"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert "implicit_damping" in done.stdout
    missing = subprocess.run(command, capture_output=True, text=True, env=environment | {"SYMPFORMER_PARTS": "nobodys"})
    assert missing.returncode == 2
    assert "SYMPFORMER_PARTS names 'nobodys'" in missing.stderr
    assert "Traceback" not in missing.stderr


def test_what_cannot_be_registered() -> None:
    bad: list[tuple[str, str, object, str]] = [
        ("norms", "x", torch.nn.LayerNorm, "unknown kind of part 'norms': .*did you mean 'norm'"),
        ("norm", "rms", torch.nn.LayerNorm, "there is a norm named 'rms' already"),
        ("norm", "a b", torch.nn.LayerNorm, "must be a word of letters"),
        ("mlp", "x", 3, "must be a class or a function, got int"),
        ("integrator", "x", torch.nn.LayerNorm, "must be a subclass of sympformer.flows.Integrator"),
        ("attention", "x", torch.nn.LayerNorm, "must be a subclass of sympformer.nn.Attention"),
        ("positions", "x", torch.nn.LayerNorm, "must be a subclass of sympformer.nn.Positions"),
        ("stepper", "x", torch.nn.LayerNorm, "must be a subclass of sympformer.nn.Stepper"),
    ]
    for kind, name, part, message in bad:
        with pytest.raises(InputError, match=message):
            sf.register(kind, name, part)
