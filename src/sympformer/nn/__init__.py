"""What any model is made of: parts, kinds of attention, dynamics, stacks. Every choice is a row of a table."""

from sympformer.nn.attention import AttentionKind, FixedRows, GrowingRows, Memory, View, fixed, same_text
from sympformer.nn.config import StackConfig
from sympformer.nn.dynamics import Classical, Hamiltonian, Layer, Nesterov, State, Streams
from sympformer.nn.encoder import Encoder, EncoderLayer
from sympformer.nn.parameters import DECAYED, GROUPS, grouped_parameters, perturb_
from sympformer.nn.parts import MLP, Embedding, Matrix, Norm, Projection, RMSNorm
from sympformer.nn.positions import Positions, Rotation
from sympformer.nn.presets import PRESETS
from sympformer.nn.rows import ATTENTIONS, DYNAMICS, MLPS, NORMS, POSITIONS, TABLES, register
from sympformer.nn.scalars import LearnedScalars, ScalarSpec
from sympformer.nn.stack import Stack

__all__ = [
    "ATTENTIONS",
    "DECAYED",
    "DYNAMICS",
    "GROUPS",
    "MLP",
    "MLPS",
    "NORMS",
    "POSITIONS",
    "PRESETS",
    "TABLES",
    "AttentionKind",
    "Classical",
    "Embedding",
    "Encoder",
    "EncoderLayer",
    "FixedRows",
    "GrowingRows",
    "Hamiltonian",
    "Layer",
    "LearnedScalars",
    "Matrix",
    "Memory",
    "Nesterov",
    "Norm",
    "Positions",
    "Projection",
    "RMSNorm",
    "Rotation",
    "ScalarSpec",
    "Stack",
    "StackConfig",
    "State",
    "Streams",
    "View",
    "fixed",
    "grouped_parameters",
    "perturb_",
    "register",
    "same_text",
]
