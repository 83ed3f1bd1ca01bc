"""The package's own names: found lazily, and what the guide shows works."""

import subprocess
import sys
from pathlib import Path

import pytest

from sympformer import data


def test_every_public_name_is_there() -> None:
    for name in data.__all__:
        assert callable(getattr(data, name)), name
        assert name in dir(data)
    with pytest.raises(AttributeError, match="no attribute 'prepair'"):
        data.prepair  # type: ignore[attr-defined]  # noqa: B018


def test_importing_it_stays_light() -> None:
    heavy = "('torch', 'numpy', 'rich', 'tiktoken', 'tokenizers', 'datasets', 'pyarrow')"
    code = f"import sys, sympformer.data, sympformer.data.commands; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_preparing_and_sampling_need_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys; from sympformer import data;"
        f"prepared = data.prepare('storybook:50', 'bpe:300', {str(tmp_path / 'out')!r});"
        "sampler = data.BlockSampler(prepared.tokens('train'), block_size=128, batch_size=16, seed=0);"
        "print(sampler.batch(step=7, rank=1, world=4)[0].shape, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "(4, 128) False"


def test_names_stay_functions_after_use(tmp_path: Path) -> None:
    prepared = data.prepare("storybook:40", "byte", tmp_path / "out")
    assert data.prepare("storybook:40", "byte", tmp_path / "out").reused
    blocks = data.validation_blocks(prepared.tokens("validation"), block_size=64, max_tokens=200)
    assert blocks.scored == 192
