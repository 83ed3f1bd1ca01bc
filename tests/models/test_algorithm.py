"""Every layer against its equation written out (`by_hand`), with scalars and gains moved off their starts."""

from contextlib import nullcontext
from typing import Any

import pytest
import torch

from sympformer import ops
from sympformer.models import PRESETS, LanguageModel
from tests.models import by_hand
from tests.models.cases import PARTS, make, tokens

SCHEMES = ("plain-euler", "presymp-euler", "exp-euler", "ab2", "etd-ab2")


def moved(name: str, preset: str, **overrides: Any) -> LanguageModel:
    """A model whose scalars and gains are all different, and away from where they start."""
    model = make(name, preset, **overrides)
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in (*model.parameter_groups()["scalar"], *model.parameter_groups()["gain"]):
            parameter.add_(0.4 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
    return model


def check(model: LanguageModel) -> None:
    """The logits, every one of them, to 1e-9 of the largest: of the layers as they stand and of their fused twins."""
    want = by_hand.logits(model, tokens())
    scale = want.abs().max().item()
    assert scale > 0.1, "logits this small prove nothing"
    for door in (ops.plain(), nullcontext()):
        with door:
            torch.testing.assert_close(model(tokens()).logits.detach(), want, rtol=0, atol=1e-9 * scale)


@pytest.mark.parametrize("mu", [0.0, 0.3])
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("attention", ["softmax", "linear"])
def test_sympformer_is_algorithm_1(attention: str, scheme: str, preset: str, mu: float) -> None:
    check(moved(f"{attention}-{scheme}", preset, mu=mu))


@pytest.mark.parametrize("preset", PRESETS)
def test_symplectic_euler_drifts_before_the_norm(preset: str) -> None:
    """x takes the new momentum as the kick left it; LN_y comes after, as in Algorithm 1."""
    check(moved("softmax-exp-euler", preset, integrator="symplectic_euler"))


@pytest.mark.parametrize("start", ["zero", "embedded"])
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("attention", ["softmax", "linear"])
def test_yuriiformer_is_lie_trotter_nesterov(attention: str, preset: str, start: str) -> None:
    check(moved(f"{attention}-yuriiformer", preset, start_momentum=start))


@pytest.mark.parametrize("attention", ["softmax", "linear"])
def test_the_baseline_is_the_classical_block(attention: str) -> None:
    check(moved(f"{attention}-baseline", "paper"))
    check(moved(f"{attention}-baseline", "paper", h_x=0.3))


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("velocity", ["momentum", "attention", "own"])
def test_three_mlp_halves(velocity: str, preset: str) -> None:
    check(moved("softmax-exp-euler", preset, mlp_velocity=velocity, start_momentum="embedded"))
    check(moved("softmax-ab2", preset, mlp_velocity=velocity))
    check(moved("linear-plain-euler", preset, mlp_velocity=velocity))


@pytest.mark.parametrize("name", ["softmax-exp-euler", "linear-exp-euler"])
def test_keys_narrower_than_tokens(name: str) -> None:
    """Q and K in R^{m x d}. With "derived" A has to have an inverse, so 2 m = d at least."""
    check(moved(name, "paper", d_key=8))
    check(moved(name, "paper-spd", d_key=4))


@pytest.mark.parametrize("part", PARTS)
def test_newer_parts(part: str) -> None:
    name, overrides = PARTS[part]
    check(moved(name, "full", **overrides))
