"""From prepared text to a trained model: configs, optimizer groups, schedule, checkpoints, the loop, evaluation.

    from sympformer import training

    config = training.TrainConfig(steps=200, out="runs/first")
    result = training.run_training(config)
    run = training.load_run(result.folder)
    print(run.sample("One day", max_new_tokens=50))

Names are loaded when first used, so that importing this package stays light.
"""

from typing import TYPE_CHECKING

from sympformer.lazy import lazy_names

# public name -> module that defines it
_LAZY: dict[str, str] = {
    "DataConfig": "sympformer.training.config",
    "Evaluation": "sympformer.training.evaluate",
    "TrainConfig": "sympformer.training.config",
    "TrainResult": "sympformer.training.launch",
    "TrainedRun": "sympformer.training.run",
    "evaluate_model": "sympformer.training.evaluate",
    "learning_rate": "sympformer.training.optimizer",
    "load_config": "sympformer.training.config",
    "load_run": "sympformer.training.run",
    "make_optimizers": "sympformer.training.optimizer",
    "run_training": "sympformer.training.launch",
}

__all__ = sorted(_LAZY)
if TYPE_CHECKING:  # type checkers see what the names are
    from sympformer.training.config import DataConfig as DataConfig
    from sympformer.training.config import TrainConfig as TrainConfig
    from sympformer.training.config import load_config as load_config
    from sympformer.training.evaluate import Evaluation as Evaluation
    from sympformer.training.evaluate import evaluate_model as evaluate_model
    from sympformer.training.launch import TrainResult as TrainResult
    from sympformer.training.launch import run_training as run_training
    from sympformer.training.optimizer import learning_rate as learning_rate
    from sympformer.training.optimizer import make_optimizers as make_optimizers
    from sympformer.training.run import TrainedRun as TrainedRun
    from sympformer.training.run import load_run as load_run
else:
    __getattr__, __dir__ = lazy_names(__name__, _LAZY)
