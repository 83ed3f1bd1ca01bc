"""From prepared text to a trained model: one run, one folder, which is a model that transformers loads.

from sympformer.training.config import TrainConfig
from sympformer.training.run import train
import sympformer as sf

result = train(TrainConfig(steps=200, out="runs/first"))
print(sf.open_model(result.folder).sample("One day", max_new_tokens=50))
"""
