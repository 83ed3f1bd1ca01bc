"""The paper's conditions on g, decided by quadrature: i) g is normalised, ii) the mean and iii) the variance exist."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from sympformer.errors import InputError

LogG = Callable[[Tensor], Tensor]  # s >= 0 -> log g(s), both of one shape

REACH = 600.0  # s runs over exp(-REACH) .. exp(REACH)
SCAN = 4801  # places where the integrand is looked at first
DROP = 50.0  # exp(-DROP) is below the rounding of float64 relative to the peak
TOLERANCE = 1e-12  # of the quadrature: two steps that agree so far leave an error far below


@dataclass(frozen=True)
class Conditions:
    """What makes rho(x) = det(Sigma)^(-1/2) g((x - m)' Sigma^-1 (x - m)) a member of the class E(m, Sigma, g).

    mass      i)   integral_0^inf s^(d/2 - 1) g(s) ds, divided by Gamma(d/2)/pi^(d/2): must be 1
    mean      ii)  integral_0^inf s^((d-1)/2) g(s) ds: must be finite
    variance  iii) integral_0^inf s^(d/2) g(s) ds: must be finite
    """

    mass: float
    mean: float
    variance: float

    def broken(self) -> list[str]:
        """What does not hold, in words; empty for a member of the class."""
        found = {
            f"i) normalisation: the density integrates to {self.mass:.10g}, not to 1": abs(self.mass - 1) < 1e-9,
            "ii) finite expectation: the integral of s^((d-1)/2) g(s) diverges": math.isfinite(self.mean),
            "iii) finite variance: the integral of s^(d/2) g(s) diverges": math.isfinite(self.variance),
        }
        return [words for words, holds in found.items() if not holds]

    def require(self) -> None:
        """Raise InputError unless all three hold."""
        if found := self.broken():
            raise InputError(f"g breaks the conditions of an elliptic law: {'; '.join(found)}")


def log_sphere(d: int) -> float:
    """log of Gamma(d/2)/pi^(d/2), the right-hand side of condition i)."""
    return math.lgamma(d / 2) - d / 2 * math.log(math.pi)


def conditions(log_g: LogG, d: int) -> Conditions:
    """The three integrals for a g given by its logarithm, in d dimensions."""
    if d < 1:
        raise InputError(f"d must be at least 1, got {d}")
    logs = [log_integral(log_g, power) for power in (d / 2, (d + 1) / 2, d / 2 + 1)]
    logs[0] -= log_sphere(d)
    return Conditions(*torch.tensor(logs, dtype=torch.float64).exp().tolist())


def log_integral(log_g: LogG, power: float) -> float:
    """log integral_0^inf s^(power - 1) g(s) ds; inf where it diverges.

    With s = e^u the integrand e^(power u) g(e^u) falls exponentially at least at both ends, so that the trapezoidal
    rule converges exponentially. A power tail of g that outlasts float64 is summed in closed form.
    """

    def f(u: Tensor) -> Tensor:
        return power * u + log_g(u.exp())

    u = torch.linspace(-REACH, REACH, SCAN, dtype=torch.float64)
    values = f(u)
    if bool(values.isnan().any()) or bool((values == math.inf).any()) or bool((values == -math.inf).all()):
        raise InputError("log g must be a number below infinity for every s > 0, and not minus infinity everywhere")
    left, right = _slope(f, values, -1), _slope(f, values, 1)
    if left <= 0 or right >= 0:
        return math.inf
    inside = (values > values.max() - DROP).nonzero().squeeze(-1)
    first, last = max(int(inside[0]) - 1, 0), min(int(inside[-1]) + 1, SCAN - 1)
    return _trapezoid(f, float(u[first]), float(u[last]), left, -right)


def _slope(f: LogG, values: Tensor, side: int) -> float:
    """The slope in u of f's tail: infinite where f has fallen for good, constant for a power of s.

    Whether an integral converges cannot be read off finitely many values in general; it can for these two kinds of
    tail. Anything between them (logarithms, say) is refused rather than guessed.
    """
    end = values[-1 if side > 0 else 0]
    if end < values.max() - 2 * DROP:
        return -side * math.inf
    at = side * REACH * torch.tensor([0.5, 0.52, 0.98, 1.0], dtype=torch.float64)
    inner, outer = (f(at).diff()[::2] / at.diff()[::2]).tolist()
    if abs(outer - inner) > 1e-6 * max(1.0, abs(outer)):
        raise InputError(
            "g falls too slowly to tell whether its moments are finite; it must fall like a power or faster"
        )
    return 0.0 if abs(outer) < 1e-9 else outer


def _trapezoid(f: LogG, a: float, b: float, rise: float, fall: float) -> float:
    """log integral e^f over the whole line, the step halved until the value stands.

    Beyond a and b f is taken to be straight, with the slopes rise and -fall; the sums there are geometric series.
    """
    before = math.inf
    for level in range(7, 18):
        n = 2**level
        h = (b - a) / n
        values = f(torch.linspace(a, b, n + 1, dtype=torch.float64))
        rate = h * torch.tensor([rise, fall], dtype=torch.float64)
        tails = values[[0, -1]] - rate - torch.log(-torch.expm1(-rate))  # minus infinity where the rate is infinite
        value = torch.logsumexp(torch.cat((values, tails)), 0).item() + math.log(h)
        if abs(value - before) < TOLERANCE:
            return value
        before = value
    raise InputError("the integral of g does not settle; g must be smooth")
