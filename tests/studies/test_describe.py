"""`sympformer describe` prints what a model is: a variant, a run, an exported folder."""

from pathlib import Path

import pytest

import sympformer as sf
from sympformer.cli import main
from sympformer.models.describe import LEGEND

OLD_RUN = Path(__file__).parents[1] / "training" / "old_run"


def test_describe_prints_counts_and_scalars(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["describe", "linear-etd-ab2", "--vocab_size", "2048"]) == 0
    text = capsys.readouterr().out
    assert "parameters" in text
    assert "c_log" in text
    assert main(["describe", "--name", "linear-etd-ab2", "--vocab_size", "2048"]) == 0
    assert capsys.readouterr().out == text


@pytest.mark.parametrize("preset", sf.models.PRESETS)
@pytest.mark.parametrize("name", sf.VARIANTS)
def test_every_column_has_its_line(name: str, preset: str) -> None:
    model = sf.build_model(sf.variant(name, preset, n_layer=1, d_model=8, n_head=2, vocab_size=64))
    lines = model.describe().splitlines()
    for column in model.layer_scalars()[0]:
        assert any(line.split(maxsplit=1) == [column, LEGEND[column]] for line in lines)


def test_a_run_and_an_exported_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from sympformer.hf import SympFormerForCausalLM
    from sympformer.training import load_run

    assert main(["describe", str(OLD_RUN)]) == 0
    of_run = capsys.readouterr().out
    SympFormerForCausalLM.from_language_model(load_run(OLD_RUN).model).save_pretrained(tmp_path / "hf")
    capsys.readouterr()
    assert main(["describe", str(tmp_path / "hf")]) == 0
    assert capsys.readouterr().out == of_run
    assert "width 8" in of_run
    assert main(["describe", str(OLD_RUN), "--n_layer", "3"]) == 2
    assert "leave n_layer out" in capsys.readouterr().err


def test_models_of_others_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "theirs.py"
    file.write_text("from torch import nn\ndef build():\n    return nn.Embedding(9, 9)\n")
    assert main(["describe", f"{file}:build"]) == 2
    assert "describe knows the models of this package" in capsys.readouterr().err
