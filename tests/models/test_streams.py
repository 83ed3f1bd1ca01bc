"""Two streams without dynamics: a classical block at the start, from which every weight can learn."""

from typing import Any

import pytest
import torch

import sympformer as sf
from sympformer.models import LanguageModel
from sympformer.models.describe import kernel_passes, parameter_counts
from sympformer.nn import LearnedScalars, ScalarSpec
from sympformer.nn.dynamics.streams import Mixing
from sympformer.training.choices import choose_model
from tests.models.cases import SIZE, make, tokens


def two_streams(**options: object) -> LanguageModel:
    return sf.build_model(sf.variant("softmax-baseline", architecture="streams", **(SIZE | options)), seed=1).double()


@pytest.mark.parametrize("update_norm", [False, True])
def test_it_starts_as_a_classical_block(update_norm: bool) -> None:
    """The same logits from the same weights, whatever the second stream starts from, at the same number of passes."""
    gpt = make("softmax-baseline", update_norm=update_norm)
    for start in ("zero", "embedded"):
        streams = two_streams(update_norm=update_norm, start_momentum=start)
        missing, unexpected = streams.load_state_dict(gpt.state_dict(), strict=False)
        assert not unexpected
        assert all("scalars" in name or "momenta" in name for name in missing)
        torch.testing.assert_close(streams(tokens()).logits, gpt(tokens()).logits, rtol=1e-12, atol=1e-12)
        assert kernel_passes(streams) == kernel_passes(gpt)


@torch.no_grad()
def test_yuriiformer_without_its_norm_is_a_case_of_it() -> None:
    yurii = make("softmax-yuriiformer", momentum_bound="none", start_momentum="embedded")
    streams = two_streams(start_momentum="embedded")
    streams.load_state_dict({n: p for n, p in yurii.state_dict().items() if "scalars" not in n}, strict=False)
    for ours, theirs in zip(streams.layers(), yurii.layers(), strict=True):
        s = theirs.scalars.report()
        mixings: list[Any] = []
        for half in ("attention", "mlp"):
            mu, beta, gamma = (s[f"{name}_{half}"] for name in ("mu", "beta", "gamma"))
            mixings += Mixing(1.0, mu, 1.0, beta, 0.0, beta, gamma, gamma)
        ours.scalars.real.copy_(torch.tensor(mixings, dtype=torch.float64))
    torch.testing.assert_close(streams(tokens()).logits, yurii(tokens()).logits, rtol=1e-11, atol=1e-11)


def standing_still(model: LanguageModel) -> set[tuple[int, str]]:
    """The scalars without a gradient, by layer and name, at the first or the next step of a training."""
    model.zero_grad()
    model(tokens(), targets=tokens(seed=9)).loss.backward()
    rows = [zip(layer.scalars.specs, layer.scalars.real.grad.tolist(), strict=True) for layer in model.layers()]
    return {(k, name) for k, row in enumerate(rows) for name, slope in row if slope == 0}


def test_every_weight_that_can_matter_learns() -> None:
    """At once those that read y; then all but what reads a y of zeros, and what the last half writes into y."""
    model = two_streams()
    zeros = {(0, f"{name}_attention") for name in ("read_y", "xy", "yy")}
    unread = {(SIZE["n_layer"] - 1, f"{name}_mlp") for name in ("yx", "yy", "write_y")}
    reading = {"read_y_attention", "xy_attention", "read_y_mlp", "xy_mlp"}
    assert {(k, name) for k, name in standing_still(model) if name in reading} < zeros
    with torch.no_grad():
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.sub_(0.1 * parameter.grad)
    assert standing_still(model) == zeros | unread


def test_it_is_chosen_by_its_architecture() -> None:
    cfg = choose_model({"architecture": "streams", **SIZE, "update_norm": True})
    assert (cfg.architecture, cfg.attention) == ("streams", "softmax")
    model = sf.build_model(cfg)
    assert parameter_counts(model)["scalars"] == 16 * SIZE["n_layer"]
    text = model.describe()
    for word in ("streams, softmax attention", "read_y_attention", "mlp half: how much of y goes into x"):
        assert word in text
    assert sf.nn.Encoder(16, 2, 2, dynamics="streams", update_norm=True).cfg.momentum_gain == 0.03


def test_real_scalars_take_any_number() -> None:
    scalars: LearnedScalars[dict[str, object]] = LearnedScalars(
        dict, {"a": ScalarSpec(-2.5, "real"), "b": ScalarSpec(0.0, "real", learn=False)}
    )
    assert scalars() == {"a": torch.tensor(-2.5), "b": 0.0}
    assert [p.shape for p in scalars.parameters()] == [(1,)]
    assert list(scalars.state_dict()) == ["real"]
