"""YuriiFormer: Nesterov's step in Euclidean space, and attention steps with a curvature term beside it."""

from typing import NamedTuple

from torch import Tensor

from sympformer.flows.damping import Scalar
from sympformer.nn.attention.base import View
from sympformer.nn.config import CURVED, StackConfig
from sympformer.nn.dynamics.base import Layer, State
from sympformer.nn.parts import bound_options, bounded, drift_norm, mlp, momentum_bound, norm
from sympformer.nn.scalars import Domain, LearnedScalars, ScalarSpec
from sympformer.nn.tables import ATTENTIONS, NO_MLP


class NesterovScalars(NamedTuple):
    """Look-ahead, factor and gain of each half."""

    beta_attention: Scalar
    gamma_attention: Scalar
    mu_attention: Scalar = 0.0
    mu_mlp: Scalar = 0.0
    beta_mlp: Scalar = 0.0
    gamma_mlp: Scalar = 0.0


class Nesterov(Layer):
    """y = LN_v(beta y + gamma Attn(LN(x + mu y)))        x = x + y        and the same with the MLP

    (Lie-Trotter splitting), with one LN_v for both halves and scalars of their own for each. That is attention_step
    "ahead". The others have attention at x, F = Attn(LN(x)) and W = beta y + gamma F, and with the curvature term C(u)
    of attention along u (`CurvedAttention`)

        h0: y = LN_v(W)             x = x + y
        r2: y = LN_v(W - C(W))      x = x + LN_v(W - C(W)/2)
        h1: y = LN_v(W - C(y))      x = x + y

    Bound "drift": y under a cap alone, and LN_v where it moves x: x = x + LN_v(y).
    """

    summary = "every layer is a step of Nesterov's method in Euclidean space"

    def __init__(self, cfg: StackConfig) -> None:
        super().__init__()
        kind, self.step = ATTENTIONS[cfg.attention], cfg.attention_step
        attention = kind.curved if cfg.attention_step in CURVED else kind.classical
        self.norm_attention, self.attention = norm(cfg), attention(cfg)
        self.mlp = mlp(cfg)
        self.bound, self.drift = momentum_bound(cfg), drift_norm(cfg)
        self.scalars = LearnedScalars(NesterovScalars, scalar_specs(cfg))

    @staticmethod
    def options(cfg: StackConfig) -> frozenset[str]:
        used = {"beta", "gamma", "zero_start", "attention_step"}
        used |= {"mu"} if any(name.startswith("mu") for name in scalar_specs(cfg)) else set()
        return frozenset(used) | bound_options(cfg) | ATTENTIONS[cfg.attention].shared

    def attention_half(self, state: State, view: View) -> State:
        s, x, y = self.scalars(), state.x, state.y
        if self.step in CURVED:
            x, y = self.curved_step(s, x, y, view)
            return state._replace(x=x, y=y)
        update = self.attention(self.norm_attention(x + s.mu_attention * y if self.step == "ahead" else x), view)
        y = self.bound(s.beta_attention * y + s.gamma_attention * update)
        return state._replace(x=x + bounded(self.drift, y), y=y)

    def curved_step(self, s: NesterovScalars, x: Tensor, y: Tensor, view: View) -> tuple[Tensor, Tensor]:
        """(x, y) after the attention step of r2 or h1."""

        def proposed(update: Tensor) -> Tensor:
            return s.beta_attention * y + s.gamma_attention * update

        update, u, C = self.attention(self.norm_attention(x), view, proposed if self.step == "r2" else y)
        W = u if self.step == "r2" else proposed(update)
        y = self.bound(W - C)
        return x + bounded(self.drift, self.bound(W - C / 2) if self.step == "r2" else y), y

    def mlp_half(self, state: State) -> State:
        if self.mlp is None:
            return state
        s, x, y = self.scalars(), state.x, state.y
        update = self.mlp(x + s.mu_mlp * y)
        y = self.bound(s.beta_mlp * y + s.gamma_mlp * update)
        return state._replace(x=x + bounded(self.drift, y), y=y)


def scalar_specs(cfg: StackConfig) -> dict[str, ScalarSpec]:
    """The scalars that a layer of this config uses, and no others."""
    domains: dict[str, Domain] = {"mu": "fraction", "beta": "fraction", "gamma": "positive"}
    halves = ("attention",) if cfg.mlp == NO_MLP else ("attention", "mlp")
    specs = {f"{n}_{half}": ScalarSpec(getattr(cfg, n), domain) for half in halves for n, domain in domains.items()}
    if cfg.attention_step != "ahead":
        del specs["mu_attention"]
    return specs
