"""The dynamics of a layer, one file each: classical, Nesterov's, Hamiltonian."""

from sympformer.nn.dynamics.base import Layer, State
from sympformer.nn.dynamics.classical import Classical
from sympformer.nn.dynamics.hamiltonian import Hamiltonian
from sympformer.nn.dynamics.nesterov import Nesterov

__all__ = ["Classical", "Hamiltonian", "Layer", "Nesterov", "State"]
