"""From prepared text to a trained model: configs, optimizer groups, schedule, checkpoints, the loop, evaluation.

    from sympformer import training

    config = training.TrainConfig(steps=200, out="runs/first")
    result = training.run_training(config)
    run = training.load_run(result.folder)
    print(run.sample("One day", max_new_tokens=50))

Names are loaded when first used, so that importing this package stays light.
"""

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
__getattr__, __dir__ = lazy_names(__name__, _LAZY)
