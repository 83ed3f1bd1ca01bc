"""One layer = one time step. Three architectures, each written as its equations."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sympformer import ops
from sympformer.flows import LogLinear, OneStep, Step, get_integrator
from sympformer.flows.damping import Scalar
from sympformer.models.attention import ORACLES, ClassicalAttention
from sympformer.models.cache import LayerCache, Visible, once
from sympformer.models.config import ModelConfig
from sympformer.models.direct import Function, part
from sympformer.models.layers import MLP, Norm, bounded_sum, momentum_bound
from sympformer.models.scalars import LearnedScalars, ScalarSpec


class Carry(NamedTuple):
    """What one layer hands to the next: positions, momenta, the MLP's own velocity, the clock, the history."""

    x: Tensor  # (B, T, d)
    y: Tensor  # (B, T, d)
    v: Tensor | None  # (B, T, d), of mlp_velocity "own" only
    t: Scalar
    history: Any


def scalars_now(scalars: LearnedScalars, cache: LayerCache | None) -> Any:
    """A layer's scalars: tensors that learn, or the numbers that a cache keeps when nothing learns."""
    if cache is None or torch.is_grad_enabled():
        return scalars()
    return once(cache, "scalars", scalars.numbers)


class GPTBlock(nn.Module):
    """x = x + h Attn(LN(x));  x = x + MLP(LN(x)).  h = 1 in GPT-2; the paper's linear baseline learns it."""

    def __init__(self, cfg: ModelConfig) -> None:
        super().__init__()
        self.norm_attention, self.attention = Norm(cfg.d_model), ClassicalAttention(cfg)
        self.mlp = MLP(cfg) if cfg.mlp else None
        self.unit_step = cfg.h_x == 1.0 and not cfg.learn_steps
        step = {} if self.unit_step else {"h_x": ScalarSpec(cfg.h_x, "positive", cfg.learn_steps)}
        self.scalars = LearnedScalars(step)

    def forward(self, carry: Carry, k: int, visible: Visible, cache: LayerCache | None) -> Carry:
        update = self.attention(part(self, "norm_attention", cache)(carry.x), visible, cache)
        x = carry.x + (update if self.unit_step else scalars_now(self.scalars, cache).h_x * update)
        if self.mlp is not None:
            x = x + part(self, "mlp", cache)(x)
        return carry._replace(x=x)


class YuriiBlock(nn.Module):
    """Nesterov's step in Euclidean space, attention then MLP (Lie-Trotter):

    y = LN_v(beta y + gamma Attn(LN(x + mu y)));  x = x + y        and the same with the MLP

    with one LN_v for both halves and scalars of their own for each.
    """

    def __init__(self, cfg: ModelConfig) -> None:
        super().__init__()
        self.norm_attention, self.attention = Norm(cfg.d_model), ClassicalAttention(cfg)
        self.mlp = MLP(cfg) if cfg.mlp else None
        self.bound = momentum_bound(cfg)
        halves = ("attention", "mlp") if cfg.mlp else ("attention",)
        self.scalars = LearnedScalars(
            {
                f"{name}_{half}": spec
                for half in halves
                for name, spec in (
                    ("mu", ScalarSpec(cfg.mu, "fraction")),
                    ("beta", ScalarSpec(cfg.beta, "fraction")),
                    ("gamma", ScalarSpec(cfg.gamma, "positive")),
                )
            }
        )

    def forward(self, carry: Carry, k: int, visible: Visible, cache: LayerCache | None) -> Carry:
        s, x, y = scalars_now(self.scalars, cache), carry.x, carry.y
        ahead = part(self, "norm_attention", cache)(ops.plus(x, s.mu_attention, y))
        update = self.attention(ahead, visible, cache)
        y = self.bound(ops.plus(s.beta_attention * y, s.gamma_attention, update))
        x = x + y
        if self.mlp is not None:
            update = part(self, "mlp", cache)(ops.plus(x, s.mu_mlp, y))
            y = self.bound(ops.plus(s.beta_mlp * y, s.gamma_mlp, update))
            x = x + y
        return carry._replace(x=x, y=y)


class SympBlock(nn.Module):
    """A step of the damped Hamiltonian system, then an inertial MLP step (the paper's Algorithm 1):

    F, G = oracle(LN(x + mu y), y);   x, y = integrator step;   y = LN_y(y)
    d = MLP(LN(x + m y));   y = LN_v(beta y + gamma d);   x = x + y
    """

    def __init__(self, cfg: ModelConfig) -> None:
        super().__init__()
        self.norm_attention, self.oracle = Norm(cfg.d_model), ORACLES[cfg.attention](cfg)
        self.integrator = get_integrator(cfg.integrator)
        self.bound_attention = momentum_bound(cfg)
        self.mlp = MLP(cfg) if cfg.mlp else None
        self.bound_mlp = momentum_bound(cfg) if cfg.mlp else None
        self.mlp_velocity, self.look_ahead = cfg.mlp_velocity, cfg.look_ahead
        self.t0 = cfg.t0
        self.scalars = LearnedScalars(symp_scalars(cfg))

    def forward(self, carry: Carry, k: int, visible: Visible, cache: LayerCache | None) -> Carry:
        s, x, y = scalars_now(self.scalars, cache), carry.x, carry.y
        ahead = part(self, "norm_attention", cache)(ops.plus(x, s.mu, y) if self.look_ahead else x)
        field = self.oracle.at(ahead, visible, cache)
        step = once(cache, "step", lambda: self.step(s, k, carry.t))
        x_half, y, history = self.integrator.step(lambda _: field, x, y, step, carry.history)
        carry = Carry(x_half, y, carry.v, carry.t + s.h_x, history)
        if self.bound_mlp is None:
            return carry
        moved = (x_half - x) / s.h_x if self.mlp_velocity == "attention" else None
        return self.mlp_step(carry, moved, s, part(self, "mlp", cache), self.bound_mlp)

    def mlp_step(self, carry: Carry, moved: Tensor | None, s: Any, mlp: Function, bound: nn.Module) -> Carry:
        """The inertial MLP step on the velocity that cfg.mlp_velocity names."""
        x, y, v, t, history = carry
        velocity = moved if moved is not None else y if v is None else v
        update = mlp(ops.plus(x, s.mlp_look_ahead, velocity))
        velocity = bounded_sum(bound, s.beta, velocity, s.gamma, update)
        if self.mlp_velocity == "momentum":
            y = velocity
        elif self.mlp_velocity == "own":
            v = velocity
        return Carry(x + velocity, y, v, t, history)

    def step(self, s: Any, k: int, t: Scalar) -> Step:
        """The layer as a time step, from its scalars. Plain numbers are evaluated once and for all."""
        schedule = LogLinear(getattr(s, "c_log", 0.0), getattr(s, "c_lin", 0.0), self.t0)
        damping = schedule if isinstance(t, Tensor) else OneStep.of(schedule, t, s.h_y)
        return Step(k, t, s.h_x, s.h_y, damping, getattr(s, "factor", None), self.bound_attention)


def symp_scalars(cfg: ModelConfig) -> dict[str, ScalarSpec]:
    """The scalars that a layer of this config uses, and no others."""
    specs = {
        "h_x": ScalarSpec(cfg.h_x, "positive", cfg.learn_steps),
        "h_y": ScalarSpec(cfg.h_y, "positive", cfg.learn_steps),
    }
    if cfg.integrator == "plain_euler":
        specs["factor"] = ScalarSpec(cfg.factor, "fraction")
    else:
        if cfg.damping != "constant":
            specs["c_log"] = ScalarSpec(cfg.c_log, "positive", cfg.learn_damping)
        if cfg.damping != "nesterov":
            specs["c_lin"] = ScalarSpec(cfg.c_lin, "positive", cfg.learn_damping)
    if cfg.look_ahead:
        specs["mu"] = ScalarSpec(cfg.mu, "fraction")
    if cfg.mlp:
        specs["mlp_look_ahead"] = ScalarSpec(cfg.mlp_look_ahead, "fraction")
        specs["beta"] = ScalarSpec(cfg.beta, "fraction")
        specs["gamma"] = ScalarSpec(cfg.gamma, "positive")
    return specs


BLOCKS: dict[str, type[GPTBlock] | type[YuriiBlock] | type[SympBlock]] = {
    "gpt": GPTBlock,
    "yuriiformer": YuriiBlock,
    "sympformer": SympBlock,
}
