"""The dynamics of a layer, one file each: classical, Nesterov's, Hamiltonian, two streams."""

from sympformer.nn.dynamics.base import Layer, State
from sympformer.nn.dynamics.classical import Classical
from sympformer.nn.dynamics.hamiltonian import Hamiltonian
from sympformer.nn.dynamics.nesterov import Nesterov
from sympformer.nn.dynamics.streams import Streams

__all__ = ["Classical", "Hamiltonian", "Layer", "Nesterov", "State", "Streams"]
