"""What any model is made of: parts, kinds of attention, steppers, stacks. Every choice is a row of a table."""

from sympformer.nn.attention import Attention
from sympformer.nn.encoder import Encoder, EncoderLayer
from sympformer.nn.layer import Layer
from sympformer.nn.memory import Memory
from sympformer.nn.options import StackConfig
from sympformer.nn.parameters import DECAYED, GROUPS, grouped_parameters, perturb_
from sympformer.nn.parts import MLP, Bound, Channels, Embedding, Matrix, Norm, Projection, RMSNorm
from sympformer.nn.positions import Positions, Rotation
from sympformer.nn.presets import PRESETS
from sympformer.nn.scalars import Scalars, ScalarSpec
from sympformer.nn.stack import Stack
from sympformer.nn.steppers import State, Stepper
from sympformer.nn.tables import ATTENTIONS, MLPS, NORMS, POSITIONS, STEPPERS, TABLES, register
from sympformer.nn.view import View, same_text

# fmt: off
__all__ = [
    "ATTENTIONS", "DECAYED", "GROUPS", "MLP", "MLPS", "NORMS", "POSITIONS", "PRESETS", "STEPPERS", "TABLES",
    "Attention", "Bound", "Channels", "Embedding", "Encoder", "EncoderLayer", "Layer", "Matrix", "Memory", "Norm",
    "Positions", "Projection", "RMSNorm", "Rotation", "ScalarSpec", "Scalars", "Stack", "StackConfig", "State",
    "Stepper", "View", "grouped_parameters", "perturb_", "register", "same_text",
]
