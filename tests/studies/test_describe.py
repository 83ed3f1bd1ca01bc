"""`sympformer describe` prints what a model is: a variant, a run, an exported folder."""

from pathlib import Path

import pytest

import sympformer as sf
from sympformer.cli import main
from sympformer.models.describe import LEGEND


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


def test_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from sympformer.hf import SympFormerForCausalLM

    model = sf.build_model(sf.variant("softmax-ab2", n_layer=1, d_model=8, n_head=2, vocab_size=64), seed=0)
    SympFormerForCausalLM.from_language_model(model).save_pretrained(tmp_path / "hf")
    capsys.readouterr()
    assert main(["describe", str(tmp_path / "hf")]) == 0
    assert capsys.readouterr().out == model.describe() + "\n"
    assert main(["describe", str(tmp_path / "hf"), "--n_layer", "3"]) == 2
    assert "leave n_layer out" in capsys.readouterr().err


def test_models_of_others_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "theirs.py"
    file.write_text("from torch import nn\ndef build():\n    return nn.Embedding(9, 9)\n")
    assert main(["describe", f"{file}:build"]) == 2
    assert "describe knows the models of this package" in capsys.readouterr().err
