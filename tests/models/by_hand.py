"""The models' equations written afresh from the paper: dense kernels, plain sums, no oracle, scheme or damping of ours.

Only weights are read from a model. `logits(model, idx)` is the whole forward pass.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

Scalars = dict[str, float]
Pair = tuple[Tensor, Tensor]


def norm(cfg: Any, gain: Tensor, u: Tensor) -> Tensor:
    centred = u - u.mean(-1, keepdim=True) if cfg.norm == "layernorm" else u
    return gain * centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()


def turns(T: int, c: int) -> Tensor:
    """e^{i place rate_j} for every place and every pair of a head's c columns."""
    rates = torch.tensor([10_000 ** (-2 * j / c) for j in range(c // 2)], dtype=torch.float64)
    return torch.exp(1j * torch.arange(T, dtype=torch.float64)[:, None] * rates)


def as_complex(u: Tensor) -> Tensor:
    """Columns j and j + c/2 as one number."""
    return torch.complex(*u.chunk(2, -1))


def as_real(u: Tensor) -> Tensor:
    return torch.cat((u.real, u.imag), -1)


def mean_over_visible(weights: Tensor, values: Tensor) -> Tensor:
    """1/n_i sum_{j <= i} weights_ij values_j."""
    n = torch.arange(1, weights.shape[-1] + 1, dtype=weights.dtype)[:, None]
    return torch.tril(weights) @ values / n


def mean_score_matrix(W_Q: Tensor, W_K: Tensor, n_head: int) -> Tensor:
    """A with x_j' A x_i the mean over heads of k_j.q_i / sqrt(width of a head)."""
    heads = [K.mT @ Q / math.sqrt(len(Q)) for Q, K in zip(W_Q.chunk(n_head), W_K.chunk(n_head), strict=True)]
    return torch.stack(heads).mean(0)


# --- queries and keys, head by head


def queries_and_keys(part: Any, cfg: Any, x: Tensor, W_Q: Tensor, W_K: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Of every head, with the keys of its group: normalised, then turned, where the config says so."""
    c = len(W_Q) // cfg.n_head
    q, k = ([x @ W.mT for W in weight.split(c)] for weight in (W_Q, W_K))
    if cfg.qk_norm:
        q = [norm(cfg, part.query_keys.norm_q.weight, u) for u in q]
        k = [norm(cfg, part.query_keys.norm_k.weight, u) for u in k]
    if cfg.positions == "rotary":
        R = turns(x.shape[-2], c)
        q, k = ([as_real(as_complex(u) * R) for u in us] for us in (q, k))
    return q, [k[h * len(k) // len(q)] for h in range(len(q))]


def scores_of(part: Any, cfg: Any, x: Tensor, W_Q: Tensor, W_K: Tensor) -> list[Tensor]:
    """Scaled scores, one matrix for each kernel: of each head, or their mean."""
    q, k = queries_and_keys(part, cfg, x, W_Q, W_K)
    scores = [a @ b.mT / math.sqrt(a.shape[-1]) for a, b in zip(q, k, strict=True)]
    return [torch.stack(scores).mean(0)] if cfg.heads == "averaged" else scores


def grouped(t: Tensor, c: int, n: int) -> list[Tensor]:
    """The columns of n heads, c each, of which several may share theirs."""
    parts = t.split(c, -1)
    return [parts[h * len(parts) // n] for h in range(n)]


# --- oracles: (x, y) -> (F, G)


def softmax_oracle(block: Any, cfg: Any) -> Callable[[Tensor, Tensor], Pair]:
    part = block.attention
    weight = part.qkv.weight
    eye = torch.eye(cfg.d_model, dtype=weight.dtype)
    W = eye if cfg.mobility == "identity" else part.mobility.factor.weight
    m, rest = cfg.d_key or cfg.d_model, len(weight) - (cfg.d_key or cfg.d_model)
    W_Q, W_K, W_V = weight.split((m, m, 0) if cfg.value == "tied" else (m, rest // 2, rest // 2))
    A = None
    if cfg.value == "tied":
        A = mean_score_matrix(W_Q, W_K, cfg.n_head)
        A = (A + A.mT) / 2
    B = {
        "free": lambda: W,
        "identity": lambda: W,
        "spd": lambda: W @ W.mT + 1e-4 * eye,
        "derived": lambda: W @ torch.linalg.inv(A),
    }[cfg.mobility]()
    B = B if cfg.mobility == "free" else (B + B.mT) / 2

    def oracle(x: Tensor, y: Tensor) -> Pair:
        # M_ij = exp(x_j' A x_i); the force points along A x, or along values of its own
        scores = [x @ A.mT @ x.mT] if A is not None else scores_of(part, cfg, x, W_Q, W_K)
        n, By = len(scores), y @ B.mT
        along = grouped(x @ (W_V if A is None else A).mT, cfg.d_model // n, n)
        velocities, forces = [], []
        for S, v, yh, Byh in zip(scores, along, y.chunk(n, -1), By.chunk(n, -1), strict=True):
            M = S.exp()
            z = mean_over_visible(M, torch.ones_like(x[..., :1]))
            rho = (yh * Byh).sum(-1, keepdim=True) / z**2
            if cfg.form == "newton":
                M, z, rho = M / z, torch.ones_like(z), torch.zeros_like(z)
            others = rho.mT if cfg.form == "paper" else 0.0
            velocities.append(Byh / z)
            forces.append(mean_over_visible(M * (rho / 2 + others / 2 + 1), v))
        force = torch.cat(forces, -1)
        return torch.cat(velocities, -1), force @ part.out.weight.mT if cfg.heads == "projected" else force

    return oracle


def linear_oracle(block: Any, cfg: Any) -> Callable[[Tensor, Tensor], Pair]:
    part = block.attention
    weight, V = part.qk.weight, part.potential.weight
    m = cfg.d_key or cfg.d_model
    if cfg.value == "spd":
        A = mean_score_matrix(weight, weight, cfg.n_head) + 1e-6 * torch.eye(len(V), dtype=V.dtype)
        V = (V + V.mT) / 2

        def spd(x: Tensor, y: Tensor) -> Pair:
            return mean_over_visible(x @ A.mT @ x.mT, y), x @ V.mT - mean_over_visible(y @ y.mT, x @ A.mT)

        return spd
    W_Q, W_K = weight.split((m, len(weight) - m))

    def oracle(x: Tensor, y: Tensor) -> Pair:
        scores, (_, keys) = scores_of(part, cfg, x, W_Q, W_K), queries_and_keys(part, cfg, x, W_Q, W_K)
        ys = y.chunk(len(scores), -1)
        velocity = torch.cat([mean_over_visible(S, yh) for S, yh in zip(scores, ys, strict=True)], -1)
        pulls = []
        for h, k in enumerate(keys):  # 1/n_i sum_j <y_i, y_j> R_i' R_j k_j
            yh = ys[h * len(ys) // len(keys)]
            pulled = mean_over_visible(yh @ yh.mT, k)
            if cfg.positions == "rotary":
                pulled = as_real(as_complex(pulled) * turns(x.shape[-2], k.shape[-1]).conj())
            pulls.append(pulled)
        scale = 1 / math.sqrt(m // cfg.n_head) / (cfg.n_head if cfg.heads == "averaged" else 1)
        back = part.pull.weight if cfg.value == "free" else scale * W_Q.mT
        return velocity, x @ V.mT - torch.cat(pulls, -1) @ back.mT

    return oracle


# --- damping alpha = c_log/t + c_lin, and one step of each scheme: (F, G, x, y, t, s, history) -> x, y, history


def damped(s: Scalars, t: float, h: float) -> float:
    """exp(-integral of alpha from t to t + h)."""
    return math.exp(-(s["c_log"] * math.log((t + h) / t) + s["c_lin"] * h))


def weight(s: Scalars, t: float, h: float) -> float:
    """The integral over a in [t, t + h] of exp(-integral of alpha from a to t + h), by quadrature."""
    nodes, weights = np.polynomial.legendre.leggauss(60)
    values = (w * h / 2 * damped(s, t + h * (1 + a) / 2, h * (1 - a) / 2) for a, w in zip(nodes, weights, strict=True))
    return float(sum(values))


def step(scheme: str, oracle: Any, bar: Tensor, x: Tensor, y: Tensor, t: float, s: Scalars, old: Any) -> Any:
    """One step. bar: the positions at which the oracle is asked. old: of the step before, None at the first."""
    h, k = s["h_x"], s["h_y"]
    velocity, force = oracle(bar, y)
    if scheme == "symplectic_euler":
        y = damped(s, t, k) * (y + k * force)
        return x + h * oracle(bar, y)[0], y, None
    if scheme == "plain_euler":
        return x + h * velocity, s["factor"] * y + k * force, None
    alpha = s["c_log"] / t + s["c_lin"]
    if scheme == "presymp_euler":
        return x + h * velocity, (1 - alpha * k) * y + k * force, None
    if scheme == "exp_euler":
        return x + h * velocity, damped(s, t, k) * y + weight(s, t, k) * force, None
    slope = force - alpha * y if scheme == "ab2" else force
    F0, G0, h0, k0 = old or (velocity, slope, h, k)
    x = x + h * ((2 * h0 + h) / (2 * h0) * velocity - h / (2 * h0) * F0)
    moved = y + k * ((2 * k0 + k) / (2 * k0) * slope - k / (2 * k0) * G0)
    if scheme == "ab2":
        return x, moved, (velocity, slope, h, k)
    sigma = damped(s, t, k)  # etd_ab2: y e^eta is what AB-2 steps, with the force times e^eta
    return x, sigma * moved, (velocity, sigma * force, h, k)


# --- layers


def mlp(cfg: Any, block: Any, x: Tensor) -> Tensor:
    inner = norm(cfg, block.mlp.norm.weight, x) @ block.mlp.up.weight.mT
    if cfg.mlp == "relu2":
        inner = inner**2 * (inner > 0)
    elif cfg.mlp == "swiglu":
        gate, inner = inner.chunk(2, -1)
        inner = inner * gate / (1 + torch.exp(-gate))
    else:
        inner = inner * (1 + torch.erf(inner / math.sqrt(2))) / 2
    return inner @ block.mlp.down.weight.mT


def prelude(model: Any, k: int, x: Tensor, y: Tensor, second: Any) -> Pair:
    """What comes ahead of layer k: the second table, then every token goes a share of the way to the one before."""
    part = model.blocks[k]
    if part.second is not None:
        x = x + part.second.weight * second
    moved = []
    for u, share in ((x, part.share_x), (y, part.share_y)):
        new = u.clone()
        if share is not None:
            c = 1 / (1 + torch.exp(-share.weight))
            for i in range(1, u.shape[1]):
                new[:, i] = (1 - c) * u[:, i] + c * u[:, i - 1]
        moved.append(new)
    return moved[0], moved[1]


def drifted(cfg: Any, bound: Any, u: Tensor) -> Tensor:
    """What moves the position: as it is, or under a norm of its own."""
    return norm(cfg, bound.drift.weight, u) if cfg.bound == "drift" else u


def bounded(cfg: Any, bound: Any, y: Tensor) -> Tensor:
    if cfg.bound == "momentum":
        return norm(cfg, bound.momentum.weight, y)
    rms = y.square().mean(-1, keepdim=True).sqrt()
    return torch.where(rms > 1, y / rms, y) if cfg.bound in ("cap", "drift") else y


def updated(cfg: Any, bound: Any, update: Tensor) -> Tensor:
    """What is added: as it is, or under a norm of its own."""
    return norm(cfg, bound.force.weight, update) if cfg.bound == "update" else update


def hamiltonian(model: Any, x: Tensor, y: Tensor, second: Any = None) -> Tensor:
    """Algorithm 1. The look-ahead of Figure 1 where the config has it."""
    cfg, t, v, old = model.cfg, 1.0, torch.zeros_like(x), None
    for k, block in enumerate(model.blocks):
        x, y = prelude(model, k, x, y, second)
        s, parallel = model.scalars.report()[k], cfg.splitting == "parallel"
        s = {"c_log": 0.0, "c_lin": 0.0} | s
        bound, last = block.bounds[0], block.bounds[-1]
        plain = (softmax_oracle if cfg.attention == "softmax" else linear_oracle)(block, cfg)

        ahead = x + s.get("mu", 0.0) * y
        beside = mlp(cfg, block, ahead) if parallel else 0.0

        def oracle(bar: Tensor, y: Tensor, plain: Any = plain, bound: Any = bound, beside: Any = beside) -> Pair:
            velocity, force = plain(bar, y)
            return drifted(cfg, bound, velocity), updated(cfg, bound, force + beside)

        bar = norm(cfg, block.norm.weight, ahead)
        x_half, y, old = step(cfg.integrator, oracle, bar, x, y, t, s, old)
        y = bounded(cfg, bound, y)  # after the drift
        m, gamma = s.get("mu_mlp", 0.0), s.get("gamma_mlp", 0.0)
        if parallel:
            x = x_half
        elif cfg.mlp_velocity == "attention":  # the authors' scripts
            x = x_half + gamma * mlp(cfg, block, x_half + m * (x_half - x) / s["h_x"])
        else:
            u = y if cfg.mlp_velocity == "momentum" else v
            u = bounded(cfg, last, s["beta_mlp"] * u + gamma * updated(cfg, last, mlp(cfg, block, x_half + m * u)))
            x = x_half + drifted(cfg, last, u)
            y, v = (u, v) if cfg.mlp_velocity == "momentum" else (y, u)
        t = t + s["h_x"]
    return x


def attention(block: Any, cfg: Any, x: Tensor) -> Tensor:
    """Attention without momenta, kernel by kernel."""
    part, d = block.attention, cfg.d_model
    linear = cfg.attention == "linear"
    weight, m = part.qk.weight if linear else part.qkv.weight, cfg.width_key
    rest = (len(weight) - m) // (1 if (linear and cfg.heads != "projected") or cfg.value == "tied" else 2)
    W_Q, W_K = weight[:m], weight[m : m + rest]
    along = x @ weight[m + rest :].mT if cfg.value == "free" else x
    if linear and cfg.heads != "projected":
        along = x @ part.potential.weight.mT
    scores, n = scores_of(part, cfg, x, W_Q, W_K), 1 if cfg.heads == "averaged" else cfg.n_head
    if not linear and cfg.value == "tied":
        A = mean_score_matrix(W_Q, W_K, cfg.n_head)
        A = (A + A.mT) / 2
        scores, along = [x @ A @ x.mT], x @ A
    heads = []
    for S, v in zip(scores, grouped(along, d // n, n), strict=True):
        M = S if linear else S.exp()
        mixed = mean_over_visible(M, v)
        heads.append(mixed if linear else mixed / mean_over_visible(M, torch.ones_like(x[..., :1])))
    out = torch.cat(heads, -1)
    out = out @ part.out.weight.mT if cfg.heads == "projected" else out
    B = getattr(getattr(part, "mobility", None), "factor", None)
    if B is None:
        return out
    B = B.weight @ B.weight.mT + 1e-4 * torch.eye(d, dtype=x.dtype) if cfg.mobility == "spd" else B.weight
    return out @ B.mT


def forces(block: Any, cfg: Any) -> list[Callable[[Tensor], Tensor]]:
    """Of the steps of a layer: attention, then the MLP, or both in one."""

    def attend(x: Tensor) -> Tensor:
        return attention(block, cfg, norm(cfg, block.norm.weight, x))

    if cfg.splitting == "parallel":
        return [lambda x: attend(x) + mlp(cfg, block, x)]
    return [attend, lambda x: mlp(cfg, block, x)]


def nesterov(model: Any, x: Tensor, y: Tensor, second: Any = None) -> Tensor:
    """YuriiFormer, Lie-Trotter."""
    cfg = model.cfg
    for k, block in enumerate(model.blocks):
        x, y = prelude(model, k, x, y, second)
        s, bound = model.scalars.report()[k], block.bounds[0]
        for half, force in zip(("attention", "mlp"), forces(block, cfg), strict=False):
            mu, beta, gamma = (s[f"{name}_{half}"] for name in ("mu", "beta", "gamma"))
            y = bounded(cfg, bound, beta * y + gamma * updated(cfg, bound, force(x + mu * y)))
            x = x + drifted(cfg, bound, y)
    return x


def gradient(model: Any, x: Tensor, y: Tensor, second: Any = None) -> Tensor:
    """x + h Attn(LN x), then x + MLP(LN x)."""
    cfg = model.cfg
    for k, block in enumerate(model.blocks):
        x, y = prelude(model, k, x, y, second)
        steps = model.scalars.report()[k].get("h_x", 1.0), 1.0
        for h, force, bound in zip(steps, forces(block, cfg), block.bounds, strict=False):
            x = x + h * updated(cfg, bound, force(x))
    return x


LAYERS = {"hamiltonian": hamiltonian, "nesterov": nesterov, "gradient": gradient}


@torch.no_grad()
def logits(model: Any, idx: Tensor) -> Tensor:
    cfg, T = model.cfg, idx.shape[1]
    x = model.tokens.weight[idx]
    y = torch.zeros_like(x) if model.token_momenta is None else model.token_momenta.weight[idx]
    if cfg.positions == "learned":
        x = x + model.positions.weight[:T]
        y = y if model.token_momenta is None else y + model.position_momenta.weight[:T]
    second = None if model.second_tokens is None else model.second_tokens.weight[idx]
    x = LAYERS[cfg.stepper](model, x, y, second)
    head = model.tokens.weight if model.head is None else model.head.weight
    return F.linear(norm(cfg, model.norm.weight, x), head)
