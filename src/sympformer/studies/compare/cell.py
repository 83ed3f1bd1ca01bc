"""One run of a comparison, in a process of its own: trained, or gone on with, and scored where it is to be reported.

python -m sympformer.studies.compare.cell '{"out": "runs/x/runs/gpt/final-seed1", ...}' [score]
"""

import json
from collections.abc import Sequence
from pathlib import Path
from time import monotonic

from sympformer.errors import DivergenceError, InputError
from sympformer.files import write
from sympformer.studies.compare.children import PATIENCE, be_child
from sympformer.studies.compare.records import DIVERGED, Run
from sympformer.studies.scoring.score import score_run
from sympformer.training.checkpoint import read_checkpoint
from sympformer.training.config import TrainConfig, choose_model
from sympformer.training.folder import RunFolder, is_run
from sympformer.training.run import train


def command(config: TrainConfig, scored: bool) -> list[str]:
    return [__name__, json.dumps(config.to_dict()), *(["score"] if scored else [])]


def main(words: Sequence[str]) -> str:
    """Train and score; a run that diverges says so in its folder."""
    config = TrainConfig.from_dict(json.loads(words[0]))
    folder, started = Path(str(config.out)), monotonic()
    try:
        if finished(config) is None:
            # Ctrl-C reaches a child twice: by itself, and from the parent
            result = train(config, resume=is_run(folder), bar=False, echo=PATIENCE)
            if result.stopped_by is not None:
                raise KeyboardInterrupt
        if "score" in words and Run(folder).diverged is None:
            score_run(folder)
    except DivergenceError as error:
        write(folder / DIVERGED, json.dumps({"why": str(error), "seconds": monotonic() - started}))
    return ""


def finished(config: TrainConfig, scored: bool = False) -> Run | None:
    """The run that a config asks for, once it is trained (and scored); None while it is not. Refuses another's folder.

    It is trained when its last checkpoint is there: the last line of metrics is written before it.
    """
    run = Run(Path(str(config.out)))
    if not is_run(run.path):
        return None
    check_same(config, run.path)
    if (run.path / DIVERGED).is_file():
        return run
    total = config.total_steps(choose_model(config.model).block_size)
    try:
        read_checkpoint(run.checkpoints.path(total))
    except InputError:
        return None  # not there, or damaged: trained again from the one before
    Run.open(run.path)
    return run if not scored or run.diverged is not None or run.score is not None else None


def check_same(config: TrainConfig, folder: Path) -> None:
    if changed := config.differences(RunFolder(folder).config):
        raise InputError(
            f"{folder} holds a run with other settings ({', '.join(changed)}): "
            "choose another --out for a changed comparison"
        )


if __name__ == "__main__":
    be_child(main)
