"""The plots of a comparison: what they show, and of whom."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgb
from matplotlib.text import Text
from numpy.typing import NDArray

from sympformer.studies.results.plots import (
    COLOURS,
    INK,
    SCALARS,
    UNRANKED,
    Against,
    layers,
    loss,
    pictures,
    ranking,
    style,
)
from sympformer.studies.results.results import Results
from tests.studies.results import made_up

FEW = ("gpt", "yuriiformer-paper", "exp-euler", "linear-plain-euler")


@pytest.fixture(scope="module")
def results() -> Results:
    return made_up.results([*FEW, made_up.leaking(), made_up.diverged()])


def lines_of(axis: Any, name: str) -> list[Any]:
    return [line for line in axis.lines if line.get_label() == name]


def words(figure: Any) -> list[str]:
    """All text that a figure shows."""
    figure.draw_without_rendering()
    return [text.get_text() for text in figure.findobj(Text) if text.get_visible() and text.get_text()]


def test_every_plot_is_there_and_kernel_passes_only_where_they_differ(results: Results) -> None:
    drawn = [picture.name for picture in pictures(made_up.results([*FEW, "exp-euler-paper"]))]
    assert drawn == ["ranking", "loss-tokens", "loss-seconds", "loss-kernel-passes", "layers"]
    assert [picture.name for picture in pictures(results)] == ["ranking", "loss-tokens", "loss-seconds", "layers"]
    assert pictures(made_up.results([made_up.diverged()], baseline=None)) == []
    assert "layers" not in [picture.name for picture in pictures(made_up.results(["gpt"]))]


@pytest.mark.parametrize(
    ("against", "place"),
    [
        ("tokens", lambda model: 2_000_000),
        ("seconds", lambda model: 2_000_000 / model.tokens_per_second),
        ("kernel passes", lambda model: 2_000_000 / (8 * 128) * 4 * model.passes_a_layer),  # 4 layers, 8 texts of 128
    ],
)
def test_curves_end_where_training_ends_with_a_band_over_the_seeds(against: Against, place: Any) -> None:
    results = made_up.results([*FEW, "exp-euler-paper"])
    axis = loss(results, against).axes[0]
    for model, band in zip(results.models, axis.collections, strict=True):
        (line,) = lines_of(axis, model.name)
        last = [curve.loss[-1] for curve in model.curves]
        assert line.get_xdata()[-1] == pytest.approx(place(model))
        assert line.get_ydata()[-1] == pytest.approx(np.mean(last))
        corners = np.asarray(band.get_paths()[0].vertices)
        at_end = corners[np.isclose(corners[:, 0], place(model))][:, 1]
        assert (at_end.min(), at_end.max()) == (pytest.approx(min(last)), pytest.approx(max(last)))


def test_training_loss_is_a_line_and_validation_markers() -> None:
    kept: dict[str, Any] = {"train_tokens": [1_000_000, 2_000_000], "train_loss": [4.0, 3.0]}
    curves = [dataclasses.replace(curve, **kept) for curve in made_up.model("gpt").curves]
    axis = loss(made_up.results([made_up.model("gpt", curves=curves), "exp-euler"])).axes[0]
    np.testing.assert_allclose(lines_of(axis, "gpt")[0].get_data(), [[1e6, 2e6], [4.0, 3.0]])
    markers = [line for line in axis.lines if line.get_linestyle() == "None"]
    np.testing.assert_allclose(np.asarray(markers[0].get_ydata()), np.mean([curve.loss for curve in curves], 0))
    alone = made_up.results(["gpt", "exp-euler"], seeds=[7])
    assert len(loss(alone).axes[0].collections) == 0  # no band over the seeds, no interval
    assert len(lines_of(ranking(alone).axes[1], "exp-euler")) == 1


def test_many_models_all_look_different_and_the_same_in_every_plot() -> None:
    names = [f"run-{k}" for k in range(25)]
    results = made_up.results(["gpt", made_up.leaking(), *names])
    looks = [(style(results, m)["color"], style(results, m)["marker"]) for m in results.models if m.rank is not None]
    assert len(set(looks)) == len(looks) == 26
    for axis in (loss(results).axes[0], ranking(results).axes[0], layers(results).axes[0]):
        for model in results.models[2:]:
            assert {to_hex(line.get_color()) for line in lines_of(axis, model.name)} == {style(results, model)["color"]}


def test_a_failed_audit_is_grey_named_and_in_no_ranking_and_a_diverged_seed_is_not_drawn(results: Results) -> None:
    half = dataclasses.replace(made_up.model("half"), last=None, best=None, bits_per_byte=None, diverged=["seed 3"])
    assert lines_of(loss(made_up.results(["gpt", half])).axes[0], "half") == []
    axis = loss(results).axes[0]
    assert to_hex(lines_of(axis, "leaking")[0].get_color()) == UNRANKED
    assert axis.get_ylim()[0] > 2.5  # it reaches 1.2, and does not stretch the axes
    assert {*FEW, "leaking (failed audit)"} <= set(words(axis.figure))
    assert not any("leaking" in text for text in words(ranking(results)))
    captions = {picture.name: picture.caption for picture in pictures(results)}
    assert "Not ranked: leaking." in captions["ranking"]
    assert all("No figures: diverged." in caption for caption in captions.values())


def test_ranking_is_sorted_with_the_baseline_as_a_line(results: Results) -> None:
    left, right = ranking(results).axes
    names = [text.get_text().split()[0] for text in left.get_yticklabels()]
    assert names == ["exp-euler", "gpt", "linear-plain-euler", "yuriiformer-paper"]
    assert left.get_ylim()[0] > left.get_ylim()[1]  # the first at the top
    assert results.models[0].last is not None
    baseline = results.models[0].last.mean
    assert any(list(np.array(line.get_xdata())) == [baseline, baseline] for line in left.lines)
    difference = results.models[2].difference
    assert difference is not None
    assert any(list(np.array(line.get_xdata())) == [difference.low, difference.high] for line in right.lines)
    alone = ranking(made_up.results(["exp-euler", "yuriiformer"], metric="bits_per_byte"))
    assert [axis.get_xlabel() for axis in alone.axes] == ["test data, bits per byte"]


def test_layers_show_what_each_model_has(results: Results) -> None:
    panels = dict(zip(SCALARS, layers(results).axes, strict=True))
    assert lines_of(panels["momentum_rms"], "gpt") == lines_of(panels["h_x"], "yuriiformer-paper") == []
    for name, axis in panels.items():
        depths, values = lines_of(axis, "exp-euler")[0].get_data()
        assert list(depths) == [1, 2, 3, 4]
        assert list(values) == [row[name] for row in results.models[2].layers]


def test_svg_keeps_text_and_names_and_is_the_same_another_day() -> None:
    drawn = {picture.name: picture for picture in pictures(made_up.results(["gpt", "a$b_c$"]))}
    svg = drawn["loss-tokens"].svg
    assert ">a$b_c$<" in svg  # no formula
    assert ">training tokens<" in svg  # no outlines
    assert "#ffffff" not in svg  # nothing is painted white
    assert svg == {picture.name: picture for picture in pictures(made_up.results(["gpt", "a$b_c$"]))}["loss-tokens"].svg


# --- the palette


def linear(colour: str) -> NDArray[Any]:
    c = np.array(to_rgb(colour))
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


@pytest.mark.parametrize("colour", [INK, UNRANKED, *COLOURS])
def test_colours_are_readable_on_white_and_on_near_black(colour: str) -> None:
    light, dark = (float(linear(one) @ [0.2126, 0.7152, 0.0722]) + 0.05 for one in (colour, "#15181c"))
    assert 1.05 / light >= 3
    assert light / dark >= 3


# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB
VISIONS = {
    "normal": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def lab(rgb: NDArray[Any]) -> NDArray[Any]:
    """CIE L*a*b* of linear RGB."""
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ rgb.clip(0, 1) / [0.9505, 1, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("vision", VISIONS)
def test_the_first_four_are_told_apart_by_every_kind_of_colour_vision(vision: str) -> None:
    seen = [lab(np.array(VISIONS[vision]) @ linear(colour)) for colour in COLOURS[:4]]
    assert min(np.linalg.norm(a - b) for i, a in enumerate(seen) for b in seen[:i]) > 25
