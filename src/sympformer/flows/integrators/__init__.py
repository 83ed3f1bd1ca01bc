"""Time integrators and their table. A new one is a class and a line here, or `sympformer.register` from outside."""

from sympformer.errors import unknown_name
from sympformer.flows.integrators.ab2 import AB2
from sympformer.flows.integrators.base import FrozenIntegrator, Integrator, Oracle, Step
from sympformer.flows.integrators.etd_ab2 import EtdAB2
from sympformer.flows.integrators.euler import Euler, ExpEuler, PlainEuler, PresympEuler
from sympformer.flows.integrators.gradient_flow import GradientFlow
from sympformer.flows.integrators.nesterov import Nesterov
from sympformer.flows.integrators.rk4 import RK4
from sympformer.flows.integrators.symplectic_euler import SymplecticEuler

INTEGRATORS: dict[str, type[Integrator]] = {
    "plain_euler": PlainEuler,
    "presymp_euler": PresympEuler,
    "symplectic_euler": SymplecticEuler,
    "exp_euler": ExpEuler,
    "ab2": AB2,
    "etd_ab2": EtdAB2,
    # for reference
    "rk4": RK4,
    "gradient_flow": GradientFlow,
    "nesterov": Nesterov,
}

# those that accelerate with one kernel evaluation a step
ACCELERATED = ("plain_euler", "presymp_euler", "symplectic_euler", "exp_euler", "ab2", "etd_ab2")


def get_integrator(name: str) -> Integrator:
    """The integrator of that name."""
    if name not in INTEGRATORS:
        raise unknown_name("integrator", name, INTEGRATORS)
    return INTEGRATORS[name]()


__all__ = [
    "ACCELERATED",
    "INTEGRATORS",
    "Euler",
    "FrozenIntegrator",
    "Integrator",
    "Oracle",
    "Step",
    "get_integrator",
]
