"""The physics of a model's tokens: energies of the layers' own Hamiltonians, forces, spread and clusters."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from sympformer.flows import Field
from sympformer.nn import Stepper
from sympformer.nn.attention import LinearAttention, LinearField, SoftmaxAttention, SoftmaxField


@dataclass(frozen=True)
class Physics:
    """By layer, at the normalised positions and the momenta that a layer starts from. None: there is no such thing.

        kinetic_i = <y_i, velocity_i> / 2
        potential_i = -z_i (softmax, own), -z_i / 2 (paper), -log z_i (without z and rho), -<x_i, V x_i> / 2 (linear)

    `hamiltonian` says in words whose energies these are, or why there are none.
    """

    hamiltonian: str
    kinetic: Tensor | None  # (L, B, T)
    potential: Tensor | None  # (L, B, T)
    z: Tensor | None  # (L, B, H, T) row normalisers of softmax kernels
    cosine: Tensor | None  # (L, B, T) between momentum and force; NaN where one of them is zero
    scalars: tuple[dict[str, float], ...]  # step sizes, damping, factors: whatever a layer has learned


def sighted(stepper: Stepper, y: Tensor, x: Tensor, field: Field) -> dict[str, Tensor]:
    """What can be said of a layer, by the names of `Physics`: its tokens have momenta y, and its attention answered at
    normalised positions x (B, T, d) with a field."""
    if not stepper.inertial:
        return {"cosine": cosine(y, field.first_order())} if stepper.has_momentum else {}
    velocity, force = field.both(y)
    found = {"cosine": cosine(y, force)}
    if isinstance(field, SoftmaxField):
        found["z"] = field.log_z.squeeze(-1).exp()
    if (potential := POTENTIALS.get(type(field))) is not None:
        found |= {"kinetic": (y * velocity).sum(-1) / 2, "potential": potential(field, x)}
    return found


def _softmax_potential(field: Any, x: Tensor) -> Tensor:
    log_z = field.log_z.squeeze(-1)  # (B, H, T)
    z = log_z.sum(1) if field.form == "newton" else log_z.exp().sum(1)
    return -z / 2 if field.form == "paper" else -z


POTENTIALS: dict[type, Callable[[Any, Tensor], Tensor]] = {
    SoftmaxField: _softmax_potential,
    LinearField: lambda field, x: -(x * field.potential).sum(-1) / 2,
}


def gather(sightings: list[dict[str, Tensor]], layer: Any, causal: bool, scalars: list[dict[str, float]]) -> Physics:
    """The physics of a stack from what was seen of each layer; what not every layer has is left out."""
    names = set.intersection(*map(set, sightings)) if sightings else set()
    columns = {name: torch.stack([seen[name] for seen in sightings]) for name in names}
    found = {name: columns.get(name) for name in ("kinetic", "potential", "z", "cosine")}
    return Physics(hamiltonian_of(layer, causal), **found, scalars=tuple(scalars))


def hamiltonian_of(layer: Any, causal: bool) -> str:
    """Whose energies a layer's are, in a sentence."""
    if not layer.stepper.has_momentum:
        return "No Hamiltonian: a gradient step moves its tokens without momentum."
    if not layer.stepper.inertial:
        return "No Hamiltonian: a Nesterov step has a velocity, and no energy of its own."
    part, needs = layer.attention, ""
    if isinstance(part, SoftmaxAttention):
        kind, needs = "softmax", "" if part.tied and part.mobility.kind != "free" else "A x and a symmetric B"
        if not needs and part.form in ("own", "newton"):
            return "The Hamiltonian of each token by itself, with the keys that it sees held fixed."
    elif isinstance(part, LinearAttention):
        kind, needs = "linear", "" if part.value == "spd" else "symmetric A and V"
    else:
        return "No Hamiltonian is known of layers of this kind."
    if needs:
        return (
            f"Free matrices, where a Hamiltonian needs {needs}: the force is no gradient, and these energies are what"
            " the formulas give."
        )
    rows = "row by row, as the causal mask leaves it" if causal else "with full visibility, exactly"
    return f"The Hamiltonian of the {kind} system, {rows}."


# --- measures of any set of tokens


def rms(x: Tensor) -> Tensor:
    """Root mean square over the last axis."""
    return x.square().mean(-1).sqrt()


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """Cosine over the last axis; NaN where one of the two is zero."""
    return (a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1))


def effective_rank(x: Tensor) -> Tensor:
    """exp of the entropy of the shares of the singular values of the centred tokens (..., T, d); 0 where all agree."""
    s = torch.linalg.svdvals((x - x.mean(-2, keepdim=True)).to(torch.promote_types(x.dtype, torch.float32)))
    total = s.sum(-1, keepdim=True)
    spread = (torch.special.entr(s / total.clamp_min(torch.finfo(s.dtype).tiny))).sum(-1).exp()
    return torch.where(total.squeeze(-1) > 0, spread, 0)


def clusters(x: Tensor, threshold: float) -> Tensor:
    """The number of clusters of tokens (..., T, d): chains of tokens whose positions have a cosine of `threshold`."""
    counts = [_count(one, threshold) for one in x.flatten(0, -3)] if x.ndim > 2 else [_count(x, threshold)]
    return torch.tensor(counts, device=x.device).view(x.shape[:-2])


def _count(x: Tensor, threshold: float) -> int:
    """Clusters of (T, d); one T x T matrix is held at a time."""
    u, T = F.normalize(x, dim=-1), len(x)
    alike = (u @ u.mT >= threshold) | torch.eye(T, dtype=torch.bool, device=x.device)
    label = own = torch.arange(T, device=x.device)
    while True:  # everybody takes the smallest label among its neighbours, then that label's own
        smaller = torch.where(alike, label, T).amin(-1)
        smaller = smaller[smaller]
        if torch.equal(smaller, label):
            return int((label == own).sum())
        label = smaller
