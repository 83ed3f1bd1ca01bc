"""Every choice that comes with the package, a row each; `register` adds others. The tables as they are when filled."""

from sympformer.nn.attention.linear import LINEAR
from sympformer.nn.attention.softmax import SOFTMAX
from sympformer.nn.dynamics.classical import Classical
from sympformer.nn.dynamics.hamiltonian import Hamiltonian
from sympformer.nn.dynamics.nesterov import Nesterov
from sympformer.nn.dynamics.streams import Streams
from sympformer.nn.parts import MLP, Norm, RMSNorm, no_mlp, relu2_mlp, swiglu_mlp
from sympformer.nn.positions import LearnedPositions, Positions, Rotary
from sympformer.nn.tables import ATTENTIONS, DYNAMICS, MLPS, NO_MLP, NORMS, POSITIONS, TABLES, register

register("norm", "layernorm", Norm)
register("norm", "rmsnorm", RMSNorm)
register("mlp", "gelu", MLP)
register("mlp", "relu2", relu2_mlp)
register("mlp", "swiglu", swiglu_mlp)
register("mlp", NO_MLP, no_mlp)
register("positions", "learned", LearnedPositions)
register("positions", "rotary", Rotary)
register("positions", "none", Positions)
register("attention", "softmax", SOFTMAX)
register("attention", "linear", LINEAR)
register("dynamics", "gpt", Classical)
register("dynamics", "yuriiformer", Nesterov)
register("dynamics", "sympformer", Hamiltonian)
register("dynamics", "streams", Streams)

__all__ = ["ATTENTIONS", "DYNAMICS", "MLPS", "NORMS", "POSITIONS", "TABLES", "register"]
