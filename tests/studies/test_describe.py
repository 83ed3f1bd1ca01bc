"""`sympformer describe` prints what a variant is."""

import pytest

from sympformer.cli import main


def test_describe_prints_counts_and_scalars(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["describe", "--name", "linear-etd-ab2", "--vocab_size", "2048"]) == 0
    text = capsys.readouterr().out
    assert "parameters" in text
    assert "c_log" in text
    assert main(["describe", "--name", "linear-etdab2"]) == 2
    assert "did you mean 'linear-etd-ab2'" in capsys.readouterr().err
