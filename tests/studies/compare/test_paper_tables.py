"""The paper's tables as recipes for `sympformer compare`: every row, its settings, its figures."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from sympformer import cli
from sympformer.models import VARIANTS, ModelConfig
from sympformer.studies.compare.plan import CompareConfig
from sympformer.training.choices import choose_model

CONFIGS = Path(__file__).parents[3] / "configs"
TABLES = (1, 2, 3)
EVERY = sorted((*CONFIGS.glob("paper/*.yaml"), *CONFIGS.glob("compare/*.yaml")))
LINEAR = {"linear-baseline", "linear-yuriiformer", "linear-plain-euler", "linear-presymp-euler"}
ROWS = {1: {name for name in VARIANTS if name.startswith("softmax-")}, 2: LINEAR, 3: LINEAR}
# last, best, seconds, as printed
PRINTED = {
    1: """2.4687 2.4473 2409.4  2.4041 2.3872 2835.2  2.3247 2.3234 5036.1  2.4728 2.4592 4979.0
          2.3579 2.2523 5623.4  2.6653 2.6546 5249.4  1.8386 1.8386 5798.2""",
    2: "3.0830 2.961427 486.7  2.8783 2.765975 749.6  3.0399 2.920602 809.3  2.8467 2.731363 1172.8",
    3: "3.0118 2.917168 8956.8  2.8486 2.765023 9601.3  2.7483 2.656692 10806.5  2.7862 2.690885 12620.0",
}


def recipe(name: str) -> CompareConfig:
    values: dict[str, Any] = yaml.safe_load((CONFIGS / "paper" / f"{name}.yaml").read_text(encoding="utf-8"))
    return CompareConfig.from_dict(values)


def models(config: CompareConfig) -> dict[str, ModelConfig]:
    return {name: choose_model(config.model_options(name)) for name in config.models}


@pytest.mark.parametrize("path", EVERY, ids=lambda path: path.stem)
def test_the_command_reads_every_recipe(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[CompareConfig] = []

    def compare(config: CompareConfig) -> None:
        heard.append(config)

    monkeypatch.setattr(cli, "load", lambda command: compare)
    assert cli.main(["compare", str(path)]) == 0
    written = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    assert heard[0].common.data.corpus == written["common"]["data"]["corpus"]
    assert set(heard[0].models) >= set(written.get("models", ()))


@pytest.mark.parametrize("path", sorted(CONFIGS.rglob("*.yaml")), ids=lambda path: path.stem)
def test_anyone_has_the_text(path: Path) -> None:
    """A recipe names a corpus of the hub or the one inside the package, never a folder of ours."""
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    corpus = values.get("common", values)["data"]["corpus"]
    assert corpus.startswith(("storybook", "hub:", "tinystories", "openwebtext"))


@pytest.mark.parametrize("table", TABLES)
def test_every_row_with_the_papers_settings(table: int) -> None:
    config = recipe(f"table{table}")
    assert {row["variant"] for row in config.models.values()} == ROWS[table]
    common, size = config.common, {1: (8, 8, 512, 16), 2: (4, 4, 128, 12), 3: (8, 8, 1024, 12)}[table]
    assert (common.batch_size, common.warm_up, common.min_lr_ratio, common.clip) == (6, 150, 0.4, 1.0)
    assert (common.precision, common.optimizer, common.data.tokenizer) == ("float16", "adamw", "gpt2")
    assert (config.budget.steps, config.lr) == (10_000, [3e-4])
    assert common.scalar_lr_factor == (5 if table == 1 else 100)
    for name, cfg in models(config).items():
        assert (cfg.n_layer, cfg.n_head, cfg.block_size, common.accumulate) == size
        assert cfg == cfg.replace(d_model=64)
        if cfg.architecture == "sympformer":
            assert cfg.h_x == cfg.h_y == {1: 0.1, 2: 0.25, 3: 0.3}[table]
            assert cfg.look_ahead == (table == 3 and name == "presymp-euler")
            assert (cfg.value, cfg.start_momentum) == ("tied", "zero")
        elif cfg.architecture == "yuriiformer":
            assert cfg.start_momentum == "embedded"
        else:
            assert (cfg.h_x, cfg.learn_steps) == (1.0, False)


@pytest.mark.parametrize("table", TABLES)
def test_the_papers_figures(table: int) -> None:
    for name in (f"table{table}", f"table{table}-cpu"):
        published = recipe(name).published
        printed = [float(figure) for figure in PRINTED[table].split()]
        assert [row[what] for row in published.values() for what in ("last", "best", "seconds")] == printed


@pytest.mark.parametrize("table", TABLES)
def test_two_cores_run_the_same_rows(table: int) -> None:
    full, small = recipe(f"table{table}"), recipe(f"table{table}-cpu")
    assert small.models.keys() - full.models.keys() == {f"{name}-spd" for name in full.models if name not in SHARED}
    for name, options in full.models.items():
        assert small.models[name] == options
        if name not in SHARED:  # the assumption built in, all else equal
            assert small.models[f"{name}-spd"] == options | {"preset": "paper-spd"}
    assert (small.common.precision, len(small.seeds), len(small.lr) > 1) == ("float32", 3, True)
    assert small.common.scalar_lr_factor == full.common.scalar_lr_factor


SHARED = ("baseline", "yuriiformer")  # for which paper-spd is paper


def test_wrong_figures_are_refused() -> None:
    values = yaml.safe_load((CONFIGS / "paper" / "table2.yaml").read_text(encoding="utf-8"))
    for published, message in (
        ({"baselin": {"last": 1.0}}, "did you mean 'baseline'"),
        ({"baseline": {"lost": 1.0}}, "did you mean 'last'"),
        ({"baseline": {"last": "low"}}, "must be a number"),
    ):
        with pytest.raises(ValueError, match=message):
            CompareConfig.from_dict(values | {"published": published})
