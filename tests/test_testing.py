"""The helper for other people's tests."""

import subprocess
import sys

import pytest
import torch

import sympformer as sf
from sympformer.testing import assert_causal
from tests.audit import toys


def test_a_causal_model_passes() -> None:
    assert_causal(sf.build_model(sf.variant("softmax-etd-ab2", n_layer=2, d_model=16, block_size=8, vocab_size=50)))


def test_a_leak_is_named_with_check_position_and_deviation() -> None:
    torch.manual_seed(0)
    with pytest.raises(AssertionError) as caught:
        assert_causal(toys.LateLeak(), length=toys.LENGTH, weights=("given",))
    first, *lines = str(caught.value).splitlines()
    assert first == "LateLeak fails 2 of 6 checks:"
    assert [line.split()[0] for line in lines] == ["causality", "prefix"]
    for line in lines:
        assert f"first at position {toys.LATE}" in line
        assert "by up to 0." in line


def test_options_reach_the_audit() -> None:
    torch.manual_seed(0)
    assert_causal(toys.LateLeak(), length=toys.LATE + 1)  # ends before the leak


def test_it_needs_no_pytest() -> None:
    code = "import sys; sys.modules['pytest'] = None; from sympformer.testing import assert_causal; print('fine')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "fine\n"
