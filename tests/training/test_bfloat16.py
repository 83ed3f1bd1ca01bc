"""bfloat16 in two processes, DDP and FSDP2: near float32, and resumed runs are the same runs."""

import math
import shutil
from pathlib import Path

import pytest

from sympformer.errors import InputError
from sympformer.models import VARIANTS
from sympformer.training import TrainConfig, load_run, run_training
from sympformer.training.checkpoint import CheckpointFolder
from tests.training.conftest import ConfigMaker
from tests.training.test_processes import HERE, figures, run, two_processes
from tests.training.test_runs import assert_same_run


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
def test_two_processes_in_bfloat16(strategy: str, make_config: ConfigMaker, tmp_path: Path) -> None:
    exact = make_config(log_every=1, checkpoint_every=3, accumulate=2)
    rough = exact.replace(precision="bfloat16", strategy=strategy, out=str(tmp_path / "rough"))
    (tmp_path / "rough.yaml").write_text(rough.to_yaml())
    launch = ("-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone")
    run(*launch, str(HERE / "variants.py"), str(tmp_path / "rough.yaml"))
    for name in VARIANTS:
        own = exact.replace(model=exact.model | {"variant": name}, out=str(tmp_path / "exact" / name))
        run_training(own)
        for what in ("loss", "validation_loss"):
            ours, theirs = figures(tmp_path / "rough" / name, what), figures(own.out, what)
            assert all(map(math.isfinite, ours)), name
            assert ours != theirs, f"{name}: this was float32"
            assert ours == pytest.approx(theirs, abs=0.1), name
        first = figures(tmp_path / "rough" / name, "loss")[0], figures(own.out, "loss")[0]
        assert first[0] == pytest.approx(first[1], abs=0.01), name  # the same weights still
        stored = load_run(tmp_path / "rough" / name).model.state_dict()
        assert {str(tensor.dtype) for tensor in stored.values()} == {"torch.float32"}
    resumes(rough.replace(out=str(tmp_path / "rough" / "softmax-exp-euler")), tmp_path)


def resumes(config: TrainConfig, folder: Path) -> None:
    """Take a copy of a run back to an earlier checkpoint, let two processes go on, and compare."""
    copy = folder / "copy"
    shutil.copytree(str(config.out), copy)
    earlier, last = CheckpointFolder(copy / "checkpoints").steps("step")
    assert earlier < last
    shutil.rmtree(copy / "checkpoints" / f"step-{last:08d}")
    two_processes(TrainConfig(out=str(copy), strategy=config.strategy), folder, "resume")
    assert_same_run(Path(str(config.out)), copy)


def test_float16_is_not_split_between_processes(make_config: ConfigMaker) -> None:
    with pytest.raises(InputError, match=r"strategy = 'fsdp2' does not go with precision = 'float16'; choose bfloat16"):
        make_config(strategy="fsdp2", precision="float16")
