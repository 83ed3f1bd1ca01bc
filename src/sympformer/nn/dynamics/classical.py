"""The classical transformer block: one Euler step of a first-order flow, then the MLP's."""

from typing import NamedTuple

from sympformer.flows.damping import Scalar
from sympformer.nn.attention.base import View
from sympformer.nn.config import StackConfig
from sympformer.nn.dynamics.base import Layer, State
from sympformer.nn.parts import bounded, mlp, norm
from sympformer.nn.scalars import LearnedScalars, ScalarSpec
from sympformer.nn.tables import ATTENTIONS


class ClassicalScalars(NamedTuple):
    """The step of the attention update."""

    h_x: Scalar = 1.0


class Block(Layer):
    """Abstract base of what is made of the classical block's parts: attention and MLP, each with a norm in front of it,
    and one on what it adds where there is an update_norm."""

    def __init__(self, cfg: StackConfig) -> None:
        super().__init__()
        self.norm_attention, self.attention = norm(cfg), ATTENTIONS[cfg.attention].classical(cfg)
        self.mlp = mlp(cfg)
        self.bound_attention = norm(cfg, cfg.momentum_gain) if cfg.update_norm else None
        self.bound_mlp = norm(cfg, cfg.momentum_gain) if cfg.update_norm and self.mlp is not None else None

    @staticmethod
    def options(cfg: StackConfig) -> frozenset[str]:
        used = {"zero_start", "update_norm"} | ({"momentum_gain"} if cfg.update_norm else set())
        return frozenset(used) | ATTENTIONS[cfg.attention].shared


class Classical(Block):
    """x = x + h Attn(LN(x))        x = x + MLP(LN(x))

    h = 1 in GPT-2; the paper's linear baseline learns it. update_norm: a norm on Attn and on MLP before they are added.
    """

    has_momentum = False
    summary = "a classical transformer block, the baseline of the comparison"

    def __init__(self, cfg: StackConfig) -> None:
        super().__init__(cfg)
        unit_step = cfg.h_x == 1.0 and not cfg.learn_steps
        step = {} if unit_step else {"h_x": ScalarSpec(cfg.h_x, "positive", cfg.learn_steps)}
        self.scalars = LearnedScalars(ClassicalScalars, step)

    @staticmethod
    def options(cfg: StackConfig) -> frozenset[str]:
        return Block.options(cfg) | {"h_x", "learn_steps"}

    def attention_half(self, state: State, view: View) -> State:
        h = self.scalars().h_x
        update = bounded(self.bound_attention, self.attention(self.norm_attention(state.x), view))
        return state._replace(x=state.x + h * update)

    def mlp_half(self, state: State) -> State:
        if self.mlp is None:
            return state
        return state._replace(x=state.x + bounded(self.bound_mlp, self.mlp(state.x)))  # the norm is the MLP's own
