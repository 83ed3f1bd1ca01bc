"""YuriiFormer: Nesterov's step in Euclidean space."""

from typing import NamedTuple

from sympformer.flows.damping import Scalar
from sympformer.nn.attention.base import View
from sympformer.nn.config import StackConfig
from sympformer.nn.dynamics.base import Layer, State
from sympformer.nn.parts import bound_options, bounded, drift_norm, mlp, momentum_bound, norm
from sympformer.nn.scalars import LearnedScalars, ScalarSpec
from sympformer.nn.tables import ATTENTIONS


class NesterovScalars(NamedTuple):
    """Look-ahead, factor and gain of each half."""

    mu_attention: Scalar
    beta_attention: Scalar
    gamma_attention: Scalar
    mu_mlp: Scalar = 0.0
    beta_mlp: Scalar = 0.0
    gamma_mlp: Scalar = 0.0


class Nesterov(Layer):
    """y = LN_v(beta y + gamma Attn(LN(x + mu y)))        x = x + y        and the same with the MLP

    (Lie-Trotter splitting), with one LN_v for both halves and scalars of their own for each. Bound "drift": y under a
    cap alone, and x = x + LN_v(y).
    """

    summary = "every layer is a step of Nesterov's method in Euclidean space"

    def __init__(self, cfg: StackConfig) -> None:
        super().__init__()
        self.norm_attention, self.attention = norm(cfg), ATTENTIONS[cfg.attention].classical(cfg)
        self.mlp = mlp(cfg)
        self.bound, self.drift = momentum_bound(cfg), drift_norm(cfg)
        specs = {
            "mu": ScalarSpec(cfg.mu, "fraction"),
            "beta": ScalarSpec(cfg.beta, "fraction"),
            "gamma": ScalarSpec(cfg.gamma, "positive"),
        }
        halves = ("attention",) if self.mlp is None else ("attention", "mlp")
        self.scalars = LearnedScalars(
            NesterovScalars, {f"{name}_{half}": spec for half in halves for name, spec in specs.items()}
        )

    @staticmethod
    def options(cfg: StackConfig) -> frozenset[str]:
        return frozenset({"mu", "beta", "gamma", "zero_start"}) | bound_options(cfg) | ATTENTIONS[cfg.attention].shared

    def attention_half(self, state: State, view: View) -> State:
        s, x, y = self.scalars(), state.x, state.y
        update = self.attention(self.norm_attention(x + s.mu_attention * y), view)
        y = self.bound(s.beta_attention * y + s.gamma_attention * update)
        return state._replace(x=x + bounded(self.drift, y), y=y)

    def mlp_half(self, state: State) -> State:
        if self.mlp is None:
            return state
        s, x, y = self.scalars(), state.x, state.y
        update = self.mlp(x + s.mu_mlp * y)
        y = self.bound(s.beta_mlp * y + s.gamma_mlp * update)
        return state._replace(x=x + bounded(self.drift, y), y=y)
