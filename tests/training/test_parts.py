"""Schedule, optimizer groups, clipping, the window of figures, records, evaluation, devices, signals, configs."""

import dataclasses
import math
import os
import signal
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import sympformer as sf
from sympformer import cli
from sympformer.data import validation_blocks
from sympformer.errors import DivergenceError, InputError
from sympformer.models import LanguageModel
from sympformer.training.config import DataConfig, TrainConfig, choose_model, load_config
from sympformer.training.engine import MOST_STEPS, SharedStop, StopSignal, pick_device
from sympformer.training.evaluate import evaluate_model, momentum_norms
from sympformer.training.folder import RunFolder
from sympformer.training.optimizer import clip_gradients, learning_rate, make_optimizers, set_learning_rate
from sympformer.training.report import Reporter
from sympformer.training.trainer import Window


def small_model(name: str = "softmax-exp-euler", **options: Any) -> LanguageModel:
    size: dict[str, Any] = {"n_layer": 2, "n_head": 2, "d_model": 16, "block_size": 16, "vocab_size": 64}
    return sf.build_model(sf.variant(name, **(size | options)), seed=0)


# --- schedule and optimizer


def test_the_schedule_warms_up_and_ends_at_its_minimum() -> None:
    rates = [learning_rate(step, 1.0, 10, 100, 0.4) for step in range(100)]
    assert rates[:10] == pytest.approx([(step + 1) / 11 for step in range(10)])
    assert rates[10] == 1.0 == max(rates)
    assert rates[99] == pytest.approx(0.4)
    assert all(a > b for a, b in pairwise(rates[10:]))
    assert rates[10 + 89 // 2] == pytest.approx(0.7, abs=0.02)
    for warm_up, total in ((0, 1), (5, 1), (5, 5), (0, 2), (1, 2)):  # short runs
        assert all(0 < learning_rate(step, 1.0, warm_up, total, 0.1) <= 1 for step in range(total))


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_every_parameter_is_in_one_group_with_its_settings(optimizer: Any) -> None:
    model = small_model()
    optimizers = make_optimizers(model, TrainConfig(optimizer=optimizer, weight_decay=0.2, scalar_lr_factor=7.0))
    set_learning_rate(optimizers, 0.5)
    groups = {group["name"]: group for made in optimizers for group in made.param_groups}
    settings = {"matrix": (0.2, 0.5), "embedding": (0.2, 0.5), "gain": (0.0, 0.5), "scalar": (0.0, 3.5)}
    assert {name: (group["weight_decay"], group["lr"]) for name, group in groups.items()} == settings
    held = [id(p) for group in groups.values() for p in group["params"]]
    assert sorted(held) == sorted(id(p) for p in model.parameters())
    assert isinstance(optimizers[0], torch.optim.Muon) == (optimizer == "muon")


def test_all_but_the_scalars_are_clipped() -> None:
    model = small_model()
    optimizers = make_optimizers(model, TrainConfig())
    groups = model.parameter_groups()
    for value, limit in ((1e-6, 1.0), (3.0, None), (3.0, 1.0)):  # the first two are left alone
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, value)
        norm, scalar_norm = clip_gradients(optimizers, limit)
        for name, group in groups.items():
            kept = all((p.grad == torch.tensor(value)).all() for p in group if p.grad is not None)
            assert kept == (name == "scalar" or (value, limit) != (3.0, 1.0))
    body = [p for name, group in groups.items() if name != "scalar" for p in group]
    assert norm == pytest.approx(3 * math.sqrt(sum(p.numel() for p in body)), rel=1e-5)
    assert scalar_norm == pytest.approx(3 * math.sqrt(sum(p.numel() for p in groups["scalar"])), rel=1e-5)
    clipped = math.sqrt(sum(float(p.grad.square().sum()) for p in body if p.grad is not None))
    assert clipped == pytest.approx(1.0, rel=1e-4)


# --- the window of figures

ENGINE: Any = SimpleNamespace(mean=lambda figures: figures)


def test_the_window_averages_since_the_last_time() -> None:
    window = Window([[5.0, 1.0, 1.0]], scaled=False)
    window.add(torch.tensor(3.0), torch.tensor(2.0), torch.tensor(0.0))
    window.read(7, ENGINE, str)
    assert window.mean_and_clear() == {"loss": 4.0, "gradient_norm": 1.5, "scalar_gradient_norm": 0.5}
    assert window.rows == []


@pytest.mark.parametrize(("row", "what"), [((math.nan, 1, 1), "loss"), ((1, math.inf, 1), "gradient")])
def test_the_window_names_the_first_bad_step(row: tuple[float, ...], what: str) -> None:
    window = Window([], scaled=False)
    for figures in ((1.0, 1.0, 1.0), row, row):
        window.add(*map(torch.tensor, map(float, figures)))
    with pytest.raises(DivergenceError, match=f"the {what} is not finite at step 9; do this"):
        window.read(10, ENGINE, lambda: "do this")


def test_float16_may_overflow_for_a_while_only() -> None:
    window = Window([], scaled=True)
    for step in range(1, 22):
        window.add(torch.tensor(1.0), torch.tensor(math.inf), torch.tensor(0.0))
        if step <= 20:
            window.read(step, ENGINE, str)
    with pytest.raises(DivergenceError, match="step 21"):
        window.read(21, ENGINE, str)


def test_records_drop_what_comes_again(tmp_path: Path) -> None:
    lines = [{"step": step, "loss": step / 3, "layers": [{"h_x": 0.5}]} for step in (1, 2, 3)]
    for begin, records in ((0, lines), (2, [])):
        reporter = Reporter(tmp_path, 4, bar=False)
        reporter.start(begin, tensorboard=False)
        for record in records:
            reporter.metrics(record)
        reporter.sample(2, "a", "ab")  # once: a finished run may be taken up again
        reporter.close()
        with (tmp_path / "metrics.jsonl").open("a") as file:
            file.write('{"step": 4, "lo')  # cut short
    assert RunFolder(tmp_path).metrics() == lines[:2]
    assert len((tmp_path / "samples.jsonl").read_text().splitlines()) == 1
    Reporter(tmp_path, 4, silent=True).say("nothing")
    assert "nothing" not in (tmp_path / "log.txt").read_text()


# --- evaluation, devices


def test_a_uniform_model_scores_log_of_the_vocabulary() -> None:
    model = small_model("softmax-baseline")
    with torch.no_grad():
        model.tokens.weight.zero_()
    blocks = validation_blocks(np.arange(50, dtype=np.uint16), 16)
    result = evaluate_model(model.train(), blocks, np.full(64, 2), batch_size=2)
    assert model.training
    assert (result.tokens, result.bytes) == (49, 98)
    assert (result.loss, result.perplexity, result.bits_per_byte) == pytest.approx((math.log(64), 64, 3))


def test_momentum_norms_name_every_layer() -> None:
    ids = torch.zeros(1, 4, dtype=torch.long)
    for share in (False, True):
        norms = momentum_norms(small_model(n_layer=3, share_layers=share), ids)
        assert len(norms) == 3
        assert all(norm > 0 for norm in norms)
    assert momentum_norms(small_model("softmax-baseline"), ids) == []


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert pick_device(TrainConfig(device="mps")) == "mps"
    for device in ("mps", "cpu"):
        with pytest.raises(InputError, match="float16' needs a CUDA device; elsewhere choose bfloat16 or float32"):
            pick_device(TrainConfig(device=device, precision="float16"))
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(InputError, match="device = 'mps' asks for a GPU and there is none"):
        pick_device(TrainConfig(device="mps"))


# --- signals among processes


class Twins:
    """Stands for the engine of one of two processes; `other` is what the other one says."""

    world = 2

    def __init__(self, rank: int, other: tuple[float, float] = (0.0, 0.0)) -> None:
        self.first, self.other, self.asked = rank == 0, other, 0

    def over_all(self, values: tuple[float, float], greatest: bool) -> list[float]:
        self.asked += 1
        return list(map(max, values, self.other))


@pytest.mark.parametrize(("seconds", "steps", "asked"), [(5.0, 6, 6), (0.5, 8, 4), (0.0001, 3 * MOST_STEPS + 1, 4)])
def test_processes_ask_each_other_once_a_second(seconds: float, steps: int, asked: int, monkeypatch: Any) -> None:
    now = [100.0]
    monkeypatch.setattr("sympformer.training.engine.time.monotonic", lambda: now[0])
    twins: Any = Twins(0)
    shared = SharedStop(twins, StopSignal(), 0)
    for step in range(1, steps + 1):
        now[0] += seconds
        assert shared.received(step) is None
    assert twins.asked == asked


def test_a_process_that_was_not_told_stops_too() -> None:
    twins: Any = Twins(1, (float(signal.SIGINT), 0.1))
    assert SharedStop(twins, StopSignal(), 3).received(4) == signal.SIGINT


def test_a_second_signal_stops_at_once_but_an_echo_does_not() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a program in the background may ignore it
    with StopSignal(echo=60.0) as stop:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGINT)
    assert stop.received == signal.SIGINT
    with StopSignal() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.signal(signal.SIGINT, before) is signal.default_int_handler


# --- configs: files, names, ranges, and the one sentence that a wrong one gets; more in tests/test_refusals.py
CONFIGS = Path(__file__).parents[2] / "configs"
FILES = sorted(CONFIGS.glob("*.yaml"))  # the folders below hold the recipes of `sympformer compare`


def test_the_default_is_the_small_accelerated_model() -> None:
    config = TrainConfig()
    cfg = choose_model(config.model)
    assert (cfg.stepper, cfg.attention, cfg.integrator) == ("hamiltonian", "softmax", "exp_euler")
    assert config.data == DataConfig("storybook", "bpe:2048")
    assert (config.steps, config.tokens) == (None, None)
    assert config.total_steps(128) == TrainConfig(tokens=800_000).total_steps(128) == 391


def test_configs_go_through_files(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    config = TrainConfig(lr=3e-4, betas=(0.9, 0.99), data=DataConfig(limit=5), clip=None, model={"n_layer": 3})
    file.write_text(config.to_yaml())
    assert load_config(file) == config
    file.write_text("lr: 3e-4\nsteps: 10\nmodel: {h_x: 1e-1}\ndata: {corpus: '12'}\n")  # numbers without a point
    config = load_config(file)
    assert (config.lr, config.steps, config.model["h_x"], config.data.corpus) == (3e-4, 10, 0.1, "12")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"data": 3}, "data must hold named options, got int"),
        ({"steps": True}, "steps must be int, got True"),
        ({"lr": float("nan")}, "lr must be positive and finite, got nan"),
        ({"betas": [0.9]}, "betas must be 2 numbers"),
        ({"betas": [0.9, 1.0]}, r"betas must lie in \[0, 1\)"),
        ({"min_lr_ratio": 2}, "min_lr_ratio must lie between 0 and 1"),
        ({"warm_up": -1}, "warm_up must not be negative"),
        ({"weight_decay": -1}, "weight_decay must be finite"),
        ({"data": {"validation": 1.0}}, "are shares of the text"),
        ({"data": {"overlap_words": -1}}, "data.overlap_words -1 is not a number of words"),
        ({"sample_prompt": "a\udcff"}, "sample_prompt is not UTF-8 text"),
        ({"seed": -1}, "seed must lie between"),
        ({"optimizer": "muon", "precision": "float16"}, "'muon' does not go with precision = 'float16'; choose bfloat"),
        ({"strategy": "fsdp2", "precision": "float16"}, "'fsdp2' does not go with precision = 'float16'; choose bfl"),
        ({"steps": 3, "tokens": 100}, "steps = 3 and tokens = 100 are two budgets: give one of them"),
        ({"model": {"variant": "softmax-exp-eulr"}}, "did you mean 'softmax-exp-euler'"),
        ({"model": {"preset": "tunde"}}, "did you mean 'tuned'"),
        ({"model": {"n_layer": "three"}}, "n_layer must be int"),
        ({"model": {"causal": False}}, "sees the next token"),
    ],
)
def test_bad_values_get_one_sentence(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        choose_model(TrainConfig.from_dict(values).model)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_shipped_configs_name_a_model_and_the_command_line_reads_them_alike(path: Path, monkeypatch: Any) -> None:
    heard: list[TrainConfig] = []

    def train(config: TrainConfig, resume: bool = False) -> None:
        heard.append(config)

    config = load_config(path)
    assert config.total_steps(choose_model(config.model).block_size) > 1
    monkeypatch.setattr(cli, "load", lambda command: train)
    assert cli.main(["train", str(path), "--lr", "1e-3"]) == 0
    assert heard == [dataclasses.replace(config, lr=1e-3)]
