"""Acceleration in ten minutes.

Tokens are particles, attention is a force between them. Here are a cloud of particles, a flow of first order, the same
flow with momentum, and the price of both in kernel evaluations. Nothing but `torch` and `sympformer.flows` is needed.
"""

import torch

from sympformer import flows

STEPS = 60


def main() -> None:
    """The whole story; every part prints what the text says."""
    cloud()
    system = valley()
    first_order(system)
    with_momentum(system)
    which_scheme(system)
    damping(system)


# ## A cloud and a force
#
# Sixty-four tokens in eight dimensions, drawn from a normal law. In float64: the mathematics is held to rounding here,
# a model works in what its user likes.
def cloud() -> torch.Tensor:
    return torch.randn(64, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


# Linear attention moves a token by \(\frac1N \sum_j V x_j \,(x_j^\top A x_i)\). That is a gradient flow: it descends
# the energy \(-\frac12 \sum_i x_i^\top V x_i\), which for a negative \(V\) is a valley. Its eigenvalues reach from
# 0.01 to 1, so one direction is a hundred times as flat as another.
def valley() -> flows.LinearAttention:
    V = -torch.diag(torch.logspace(-2, 0, 8, dtype=torch.float64))
    return flows.LinearAttention(torch.eye(8, dtype=torch.float64), V)


def report(name: str, path: flows.Path) -> None:
    first, last = path.potential[[0, -1]].tolist()
    print(f"{name}: energy {first:.2f} -> {last:.2f} in {path.oracle_calls[-1]} evaluations")


# ## The flow of first order
#
# A classical attention layer is one explicit Euler step of it. The energy falls fast, then it crawls: as the tokens
# gather, the kernel that moves them fades.
def first_order(system: flows.System) -> float:
    path = flows.simulate(system, cloud(), steps=STEPS, h=0.5, integrator="gradient_flow", progress=False)
    report("first order", path)
    return float(path.potential[-1])


# ## With momentum
#
# Every token gets a momentum \(y\), and the energy becomes the potential part of a Hamiltonian:
#
# \[ \dot x = \partial_y H(x, y), \qquad \dot y = -\partial_x H(x, y) - \alpha(t)\, y . \]
#
# The kernel depends on positions only, so one evaluation serves velocity and force: a step costs what it cost before.
def with_momentum(system: flows.System) -> float:
    path = flows.simulate(system, cloud(), steps=STEPS, h=0.5, integrator="etd_ab2", progress=False)
    report("with momentum", path)
    return float(path.potential[-1])


# ## Which scheme
#
# The integrator decides how the continuous flow becomes steps. All of them at one step here; with a step of its own
# for each, `sympformer flow` makes a fair race and a picture of it. Watch the column of evaluations: RK4 pays four a
# step.
def which_scheme(system: flows.System) -> dict[str, float]:
    left = {}
    for name in flows.INTEGRATORS:
        try:
            path = flows.simulate(system, cloud(), steps=STEPS, h=0.5, integrator=name, progress=False)
        except ArithmeticError as error:  # a DivergenceError says at which step, and what to do
            print(f"{name:<17} {error}")
            continue
        left[name] = float(path.potential[-1])
        print(f"{name:<17} {left[name]:8.3f} after {path.oracle_calls[-1]} evaluations")
    return left


# ## How much memory
#
# The damping \(\alpha(t) = r/t + m\) decides how long a momentum lasts. \(3/t\) is Nesterov's: strong at first, weak
# later. Too little and the tokens swing through the valley, too much and momentum is not worth its name.
def damping(system: flows.System) -> dict[str, float]:
    left = {}
    for name, schedule in {
        "3/t": flows.Nesterov(3.0),
        "0.1": flows.Constant(0.1, t0=1.0),
        "2": flows.Constant(2.0, t0=1.0),
        "3/t + 0.1": flows.LogLinear(r=3.0, m=0.1),
    }.items():
        path = flows.simulate(system, cloud(), steps=STEPS, h=0.5, damping=schedule, progress=False)
        left[name] = float(path.potential[-1])
        print(f"damping {name:<10} {left[name]:8.3f}")
    return left


# ## Before you hope for as much elsewhere
#
# The gain comes late: over the first dozen evaluations the first-order flow is mostly ahead, and a language model of
# eight layers makes eight. On softmax attention, whose energy has no lower end, momentum loses this race. [Where
# momentum wins](../flows.md) has the tables; in [the playground](../playground.md) you can drag the particles.
if __name__ == "__main__":
    main()
