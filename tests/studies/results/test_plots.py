"""The plots of a comparison: what they show, of whom, and how they are written."""

import dataclasses
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_hex, to_rgb
from numpy.typing import NDArray

from sympformer.errors import InputError
from sympformer.studies.results import Results, plots
from sympformer.studies.results.loss_plots import Against, loss_curves
from sympformer.studies.results.plot_style import FAMILIES, INK, TWIN_COLOURS, UNRANKED, spread_out
from sympformer.studies.results.plots import Picture, layers, pictures, ranking, svg_text, write_plots
from sympformer.training import TrainConfig
from tests.studies.results import made_up

FEW = ("gpt", "yuriiformer-paper", "exp-euler", "linear-plain-euler")


@pytest.fixture(scope="module")
def results() -> Results:
    return made_up.results([*FEW, made_up.leaking(), made_up.diverged()])


@pytest.fixture(scope="module")
def drawn(results: Results) -> dict[str, Picture]:
    return {picture.name: picture for picture in pictures(results)}


def line_of(figure: Any, results: Results, name: str, part: str = "line") -> Any:
    gid = f"model-{[model.name for model in results.models].index(name)}-{part}"
    found = [artist for axis in figure.axes for artist in axis.get_children() if artist.get_gid() == gid]
    assert len(found) <= 1
    return found[0] if found else None


def words(figure: Any) -> list[str]:
    """All text that a figure shows."""
    from matplotlib.text import Text

    figure.draw_without_rendering()
    return [text.get_text() for text in figure.findobj(Text) if text.get_visible() and text.get_text()]


def test_every_plot_is_there() -> None:
    drawn = [picture.name for picture in pictures(made_up.results([*FEW, "exp-euler-paper"]))]
    assert drawn == ["ranking", "loss-tokens", "loss-seconds", "loss-kernel-passes", "layers"]


def test_kernel_passes_are_no_plot_of_their_own_where_all_models_make_the_same(drawn: dict[str, Picture]) -> None:
    assert list(drawn) == ["ranking", "loss-tokens", "loss-seconds", "layers"]


@pytest.mark.parametrize(
    ("against", "label", "place"),
    [
        ("tokens", "training tokens", lambda model: 2_000_000),
        ("seconds", "measured tokens/s", lambda model: 2_000_000 / model.tokens_per_second),
        # 8 texts of 128 tokens a pass, 4 layers
        ("kernel passes", "passes a layer", lambda model: 2_000_000 / (8 * 128) * 4 * model.passes_a_layer),
    ],
)
def test_curves_end_where_training_ends(results: Results, against: Against, label: str, place: Any) -> None:
    figure = loss_curves(results, against)
    assert label in figure.axes[0].get_xlabel()
    for model in results.models[:4]:
        xs, ys = line_of(figure, results, model.name).get_data()
        assert xs[-1] == pytest.approx(place(model))
        assert ys[-1] == pytest.approx(np.mean([curve.loss[-1] for curve in model.curves]))


@pytest.mark.parametrize("against", ["tokens", "seconds"])
def test_training_loss_is_a_line_and_validation_circles(against: Against) -> None:
    gpt = made_up.model("gpt")
    curves = [
        replace(c, train_tokens=[1_000_000, 2_000_000], train_loss=[4.0 + k, 3.0]) for k, c in enumerate(gpt.curves)
    ]
    results = made_up.results([made_up.model("gpt", curves=curves), "exp-euler"])
    figure = loss_curves(results, against)
    line, circles = line_of(figure, results, "gpt"), line_of(figure, results, "gpt", "circles")
    scale = 1.0 if against == "tokens" else 1 / results.models[0].tokens_per_second  # type: ignore[operator]
    np.testing.assert_allclose(line.get_data(), [[1e6 * scale, 2e6 * scale], [5.0, 3.0]])
    assert (circles.get_linestyle(), circles.get_marker()) == ("None", "o")
    np.testing.assert_allclose(circles.get_ydata(), np.mean([curve.loss for curve in curves], 0))
    assert line_of(figure, results, "exp-euler", "circles") is None  # its training loss was not kept
    assert "validation (circles)" in figure.axes[0].get_ylabel()


def test_kernel_passes_tell_a_model_with_two_kernels_apart() -> None:
    results = made_up.results(["gpt", "exp-euler-paper"])
    figure = loss_curves(results, "kernel passes")
    ends = [line_of(figure, results, name).get_xdata()[-1] for name in ("gpt", "exp-euler-paper")]
    assert ends[1] == pytest.approx(2 * ends[0])


def test_kernel_passes_of_single_runs_come_from_their_own_configs() -> None:
    size = {"variant": "softmax-baseline", "n_layer": 3, "n_head": 2, "d_model": 16, "block_size": 64}
    config = TrainConfig(model=size, batch_size=4, accumulate=2).to_dict()
    shallow = TrainConfig(model=size | {"n_layer": 2}, batch_size=4, accumulate=2).to_dict()
    results = made_up.results(
        ["gpt", "gpt-1-head", "exp-euler"], seeds=[5], config={"gpt": config, "gpt-1-head": shallow}
    )
    figure = loss_curves(results, "kernel passes")
    assert line_of(figure, results, "gpt").get_xdata()[-1] == pytest.approx(2_000_000 / (4 * 64) * 3)
    assert line_of(figure, results, "exp-euler") is None
    caption = {picture.name: picture.caption for picture in pictures(results)}
    assert caption["loss-kernel-passes"] == "Not drawn, as their kernel passes are not known: exp-euler."
    assert "not known" not in caption["loss-tokens"]


def test_the_band_reaches_from_the_best_seed_to_the_worst(results: Results) -> None:
    band = line_of(loss_curves(results), results, "exp-euler", "band").get_paths()[0].vertices
    last = [curve.loss[-1] for curve in results.models[2].curves]
    at_end = band[band[:, 0] == 2_000_000][:, 1]
    assert (at_end.min(), at_end.max()) == (pytest.approx(min(last)), pytest.approx(max(last)))


def test_one_seed_has_no_band_and_no_interval() -> None:
    results = made_up.results(["gpt", "exp-euler"], seeds=[7])
    assert line_of(loss_curves(results), results, "exp-euler", "band") is None
    figure = ranking(results)
    assert line_of(figure, results, "exp-euler", "interval") is None
    assert line_of(figure, results, "exp-euler", "difference") is not None
    assert figure.axes[1].get_xlabel() == "minus gpt"
    assert all("band" not in picture.caption for picture in pictures(results))


def test_runs_of_one_variant_differ_in_colour_and_marker() -> None:
    names = ["exp-euler", *(f"run-{k}" for k in range(7))]  # all are softmax-exp-euler, tuned
    results = made_up.results(["gpt", made_up.leaking(), *names])
    curves, places, depths = loss_curves(results), ranking(results), layers(results)
    parts = [(curves, "line"), (places, "mean"), (places, "difference"), (depths, "h_x")]
    for figure, part in parts:
        looks = [line_of(figure, results, name, part) for name in names]
        drawn = [(to_hex(line.get_markeredgecolor()), line.get_marker()) for line in looks]
        assert drawn[0][0] == FAMILIES["softmax"].colour
        assert len(set(drawn)) == len(names)
        assert len({colour for colour, _ in drawn[:6]}) == len({marker for _, marker in drawn[:6]}) == 6


def test_twins_of_different_variants_and_presets_differ_too() -> None:
    full = made_up.model("full", preset="full")
    names = ["gpt", "gpt-1-head", "exp-euler", "full", "again"]  # two of one variant, three of another
    results = made_up.results([*names[:3], full, names[4]])
    places = ranking(results)
    lines = [line_of(places, results, name, "mean") for name in names]
    drawn = [(to_hex(line.get_markeredgecolor()), line.get_marker()) for line in lines]
    assert len(set(drawn)) == len(names)
    assert [look[0] for look in (drawn[0], drawn[2])] == [FAMILIES["gpt"].colour, FAMILIES["softmax"].colour]


def test_colour_is_the_family_and_dashes_are_the_paper_preset(results: Results) -> None:
    figure = loss_curves(results)
    families = {
        "gpt": "gpt",
        "yuriiformer-paper": "yuriiformer",
        "exp-euler": "softmax",
        "linear-plain-euler": "linear",
    }
    for name, family in families.items():
        line = line_of(figure, results, name)
        assert to_hex(line.get_color()) == FAMILIES[family].colour
        assert line.get_linestyle() == ("--" if name.endswith("paper") else "-")


def test_curves_are_labelled_at_their_ends_and_in_the_legend(results: Results) -> None:
    shown = words(loss_curves(results))
    assert {*FEW, "leaking (failed audit) ↓"} <= set(shown)
    assert {"GPT", "YuriiFormer", "SympFormer, softmax", "linear attention", "preset “paper”", "not ranked"} <= set(
        shown
    )
    assert "diverged" not in " ".join(shown)


def test_a_failed_audit_is_grey_and_in_no_ranking(results: Results, drawn: dict[str, Picture]) -> None:
    assert to_hex(line_of(loss_curves(results), results, "leaking").get_color()) == UNRANKED
    assert not any("leaking" in text for text in words(ranking(results)))
    assert "Not ranked: leaking (failed audit)." in drawn["ranking"].caption


def test_a_failed_audit_does_not_stretch_the_axes(results: Results) -> None:
    low, _ = loss_curves(results).axes[0].get_ylim()
    assert low > 2.5  # it reaches 1.2


def test_models_without_figures_are_named_in_every_caption(drawn: dict[str, Picture]) -> None:
    for picture in drawn.values():
        assert "Not drawn, as there are no figures: diverged." in picture.caption


def test_a_model_with_a_diverged_seed_is_not_drawn_from_the_others() -> None:
    half = dataclasses.replace(made_up.model("half"), last=None, best=None, bits_per_byte=None, diverged=["seed 3"])
    results = made_up.results(["gpt", half])
    assert line_of(loss_curves(results), results, "half") is None


def test_ranking_is_sorted_with_the_baseline_as_a_line(results: Results) -> None:
    figure = ranking(results)
    left, right = figure.axes
    names = [text.get_text().split()[0] for text in left.get_yticklabels()]
    assert names == ["exp-euler", "gpt", "linear-plain-euler", "yuriiformer-paper"]
    assert left.get_ylim()[0] > left.get_ylim()[1]  # the first at the top
    assert results.models[0].last is not None
    baseline = results.models[0].last.mean
    assert any(list(np.array(line.get_xdata())) == [baseline, baseline] for line in left.lines)
    difference = results.models[2].difference
    assert difference is not None
    assert list(line_of(figure, results, "exp-euler", "interval").get_xdata()) == [difference.low, difference.high]
    assert right.get_xlabel() == "minus gpt, 95 % interval"


def test_ranking_follows_the_metric_and_does_without_a_baseline() -> None:
    figure = ranking(made_up.results(["exp-euler", "yuriiformer"], metric="bits_per_byte"))
    assert [axis.get_xlabel() for axis in figure.axes] == ["test data, bits per byte"]


def test_layers_show_what_each_model_has(results: Results) -> None:
    figure = layers(results)
    assert [axis.get_title(loc="left") for axis in figure.axes] == list(plots.SCALARS.values())
    assert line_of(figure, results, "gpt", "momentum_rms") is None
    assert line_of(figure, results, "yuriiformer-paper", "h_x") is None
    assert line_of(figure, results, "linear-plain-euler", "alpha") is None
    for name in plots.SCALARS:
        depths, values = line_of(figure, results, "exp-euler", name).get_data()
        assert list(depths) == [1, 2, 3, 4]
        assert list(values) == [row[name] for row in results.models[2].layers]


def test_models_without_scalars_have_no_plot_of_layers() -> None:
    assert "layers" not in [picture.name for picture in pictures(made_up.results(["gpt", "gpt-1-head"]))]


def test_nothing_to_draw_gives_no_plots() -> None:
    assert pictures(made_up.results([made_up.diverged()], baseline=None)) == []


def test_dollar_signs_in_a_name_are_no_formula() -> None:
    results = made_up.results(["gpt", "a$b_c$"])
    assert ">a$b_c$<" in svg_text(loss_curves(results))


def test_write_plots_writes_svg_and_png(results: Results, tmp_path: Path) -> None:
    two = dataclasses.replace(results, models=[dataclasses.replace(model, layers=[]) for model in results.models[:2]])
    written = write_plots(pictures(two), tmp_path / "plots")
    assert sorted(written) == sorted((tmp_path / "plots").iterdir())
    assert {file.suffix for file in written} == {".svg", ".png"}
    assert len(written) == 6
    for file in written:
        content = file.read_bytes()
        assert content.startswith(b"\x89PNG" if file.suffix == ".png" else b"<?xml")
    svg = (tmp_path / "plots" / "loss-tokens.svg").read_text(encoding="utf-8")
    assert ">training tokens<" in svg  # text, not outlines
    assert "#ffffff" not in svg  # nothing is painted white
    assert svg == svg_text(loss_curves(two))  # the same on another day


def test_write_plots_writes_all_or_nothing(results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(figure: Any) -> str:
        raise OSError("No space left on device")

    monkeypatch.setattr(plots, "svg_text", full)
    with pytest.raises(InputError, match="No space left"):
        write_plots(pictures(results), tmp_path / "plots")
    assert list(tmp_path.iterdir()) == []


@given(st.lists(st.floats(-2, 3), min_size=1, max_size=25), st.floats(0.001, 0.2))
def test_labels_keep_order_distance_and_range(wanted: list[float], gap: float) -> None:
    places = spread_out(wanted, gap, 0.0, 1.0)
    assert all(-1e-9 <= place <= 1 + 1e-9 for place in places)
    pairs = sorted(zip(wanted, places, strict=True))
    room = min(gap, 1 / max(len(wanted) - 1, 1))
    assert all(b - a >= room - 1e-9 for (_, a), (_, b) in pairwise(sorted(pairs, key=lambda pair: pair[1])))
    assert all(a <= b for (w, a), (v, b) in pairwise(pairs) if w < v)


def test_labels_with_room_stay_where_they_are() -> None:
    assert spread_out([0.9, 0.1, 0.5], 0.1, 0.0, 1.0) == [0.9, 0.1, 0.5]


# --- the palette


def luminance(colour: str) -> float:
    return float(linear(colour) @ [0.2126, 0.7152, 0.0722])


def linear(colour: str) -> NDArray[Any]:
    c = np.array(to_rgb(colour))
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


@pytest.mark.parametrize(
    "colour", [INK, UNRANKED, *(family.colour for family in FAMILIES.values()), *TWIN_COLOURS.values()]
)
def test_colours_are_readable_on_white_and_on_near_black(colour: str) -> None:
    assert 1.05 / (luminance(colour) + 0.05) >= 3
    assert (luminance(colour) + 0.05) / (luminance("#15181c") + 0.05) >= 3


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
def test_families_are_told_apart_by_every_kind_of_colour_vision(vision: str) -> None:
    seen = [lab(np.array(VISIONS[vision]) @ linear(family.colour)) for family in FAMILIES.values()]
    nearest = min(np.linalg.norm(a - b) for i, a in enumerate(seen) for b in seen[:i])
    assert nearest > 25
