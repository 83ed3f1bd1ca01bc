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


def norm(gain: Tensor, u: Tensor) -> Tensor:
    centred = u - u.mean(-1, keepdim=True)
    return gain * centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()


def mean_over_visible(weights: Tensor, values: Tensor) -> Tensor:
    """1/n_i sum_{j <= i} weights_ij values_j."""
    n = torch.arange(1, weights.shape[-1] + 1, dtype=weights.dtype)[:, None]
    return torch.tril(weights) @ values / n


def mean_score_matrix(W_Q: Tensor, W_K: Tensor, n_head: int) -> Tensor:
    """A with x_j' A x_i the mean over heads of k_j.q_i / sqrt(width of a head)."""
    heads = [K.mT @ Q / math.sqrt(len(Q)) for Q, K in zip(W_Q.chunk(n_head), W_K.chunk(n_head), strict=True)]
    return torch.stack(heads).mean(0)


# --- oracles: (x, y) -> (F, G)


def softmax_oracle(block: Any, cfg: Any) -> Callable[[Tensor, Tensor], Pair]:
    weight, W = block.oracle.qkv.weight, block.oracle.mobility.factor.weight
    eye = torch.eye(cfg.d_model, dtype=W.dtype)
    W_Q, W_K, *W_V = weight.split((cfg.d_key or cfg.d_model), 0)
    A = mean_score_matrix(W_Q, W_K, cfg.n_head)
    if cfg.value == "tied":
        A = (A + A.mT) / 2
    along = A if cfg.value == "tied" else W_V[0]  # what the force points along, as a matrix on x
    B = {"free": lambda: W, "spd": lambda: W @ W.mT + 1e-4 * eye, "derived": lambda: W @ torch.linalg.inv(A)}[
        cfg.mobility
    ]()
    B = B if cfg.mobility == "free" else (B + B.mT) / 2

    def oracle(x: Tensor, y: Tensor) -> Pair:
        M = (x @ A.mT @ x.mT).exp()  # M_ij = exp(x_j' A x_i)
        z = mean_over_visible(M, torch.ones_like(x[..., :1]))
        rho = (y * (y @ B.mT)).sum(-1, keepdim=True) / z**2
        others = rho.mT if cfg.form == "paper" else 0.0
        return y @ B.mT / z, mean_over_visible(M * (rho / 2 + others / 2 + 1), x @ along.mT)

    return oracle


def linear_oracle(block: Any, cfg: Any) -> Callable[[Tensor, Tensor], Pair]:
    weight, V = block.oracle.qk.weight, block.oracle.potential.weight
    if cfg.kernel == "spd":
        A = mean_score_matrix(weight, weight, cfg.n_head) + 1e-6 * torch.eye(len(V), dtype=V.dtype)
        V = (V + V.mT) / 2
    else:
        W_Q, W_K = weight.chunk(2)
        A = mean_score_matrix(W_Q, W_K, cfg.n_head)
    along = A.mT if cfg.value == "tied" else block.oracle.pull.weight @ weight.chunk(2)[1]

    def oracle(x: Tensor, y: Tensor) -> Pair:
        return mean_over_visible(x @ A.mT @ x.mT, y), x @ V.mT - mean_over_visible(y @ y.mT, x @ along.mT)

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


def mlp(block: Any, x: Tensor) -> Tensor:
    inner = norm(block.mlp.norm.weight, x) @ block.mlp.up.weight.mT
    return inner * (1 + torch.erf(inner / math.sqrt(2))) / 2 @ block.mlp.down.weight.mT


def hamiltonian(model: Any, x: Tensor, y: Tensor) -> Tensor:
    """Algorithm 1. The look-ahead of Figure 1 where the config has it."""
    cfg, t, v, old = model.cfg, model.cfg.t0, torch.zeros_like(x), None
    for block in model.blocks:
        s = block.scalars.report()
        oracle = (softmax_oracle if cfg.attention == "softmax" else linear_oracle)(block, cfg)
        bar = norm(block.norm_attention.weight, x + s.get("mu", 0.0) * y)
        x_half, y, old = step(cfg.integrator, oracle, bar, x, y, t, s, old)
        y = norm(block.bound_attention.weight, y)  # after the drift
        m, gamma = s["mlp_look_ahead"], s["gamma"]
        if cfg.mlp_velocity == "attention":  # the authors' scripts
            x = x_half + gamma * mlp(block, x_half + m * (x_half - x) / s["h_x"])
        else:
            u = y if cfg.mlp_velocity == "momentum" else v
            u = norm(block.bound_mlp.weight, s["beta"] * u + gamma * mlp(block, x_half + m * u))
            x = x_half + u
            y, v = (u, v) if cfg.mlp_velocity == "momentum" else (y, u)
        t = t + s["h_x"]
    return x


def attention(block: Any, cfg: Any, x: Tensor) -> Tensor:
    """Classical attention, head by head."""
    heads = []
    W = [part.chunk(cfg.n_head) for part in block.attention.qkv.weight.chunk(3)]
    for W_Q, W_K, W_V in zip(*W, strict=True):
        scores = x @ W_Q.mT @ (x @ W_K.mT).mT / math.sqrt(len(W_Q))
        if cfg.attention == "softmax":
            scores = scores.exp()
            heads.append(mean_over_visible(scores, x @ W_V.mT) / mean_over_visible(scores, torch.ones_like(x[..., :1])))
        else:
            heads.append(mean_over_visible(scores, x @ W_V.mT))
    return torch.cat(heads, -1) @ block.attention.out.weight.mT


def nesterov(model: Any, x: Tensor, y: Tensor) -> Tensor:
    """YuriiFormer, Lie-Trotter."""
    for block in model.blocks:
        s = block.scalars.report()
        for half in ("attention", "mlp"):
            mu, beta, gamma = (s[f"{name}_{half}"] for name in ("mu", "beta", "gamma"))
            if half == "attention":
                update = attention(block, model.cfg, norm(block.norm_attention.weight, x + mu * y))
            else:
                update = mlp(block, x + mu * y)
            y = norm(block.bound.weight, beta * y + gamma * update)
            x = x + y
    return x


def classical(model: Any, x: Tensor, y: Tensor) -> Tensor:
    """x + h Attn(LN x), then x + MLP(LN x)."""
    for block in model.blocks:
        h = block.scalars.report().get("h_x", 1.0)
        x = x + h * attention(block, model.cfg, norm(block.norm_attention.weight, x))
        x = x + mlp(block, x)
    return x


LAYERS = {"sympformer": hamiltonian, "yuriiformer": nesterov, "gpt": classical}


@torch.no_grad()
def logits(model: Any, idx: Tensor) -> Tensor:
    T, tables = idx.shape[1], (model.token_momenta, model.position_momenta)
    x = model.tokens.weight[idx] + model.positions.weight[:T]
    y = torch.zeros_like(x) if tables[0] is None else tables[0].weight[idx] + tables[1].weight[:T]
    x = LAYERS[model.cfg.architecture](model, x, y)
    return F.linear(norm(model.norm.weight, x), model.tokens.weight)
