"""Elliptically contoured laws E(m, Sigma, g), and what the accelerated linear flow does to them.

    rho(x) = det(Sigma)^(-1/2) g((x - m)' Sigma^-1 (x - m))        mean m, covariance kappa Sigma

law.py: densities, push-forward, samples, the flow. radial.py: the conditions on g. families.py: which g.
"""

from sympformer.flows.elliptic.families import (
    FAMILIES,
    Family,
    Gaussian,
    GeneralisedHyperbolic,
    Logistic,
    PowerExponential,
    StudentT,
    get_family,
    log_bessel_k,
)
from sympformer.flows.elliptic.law import (
    Elliptic,
    MomentPath,
    Moments,
    centered_slopes,
    moment_slopes,
    solve_moments,
)
from sympformer.flows.elliptic.radial import Conditions, conditions

# fmt: off
__all__ = [
    "FAMILIES", "Conditions", "Elliptic", "Family", "Gaussian", "GeneralisedHyperbolic", "Logistic", "MomentPath",
    "Moments", "PowerExponential", "StudentT", "centered_slopes", "conditions", "get_family", "log_bessel_k",
    "moment_slopes", "solve_moments",
]
