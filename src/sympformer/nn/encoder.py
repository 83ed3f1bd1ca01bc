"""Layers for any model: a stack of time steps over (B, T, d) with a padding mask, and one step by itself.

    encoder = Encoder(d_model=64, n_head=4, n_layer=4, stepper="hamiltonian")
    out = encoder(x, key_padding_mask)          # as torch.nn.TransformerEncoder, norm_first

They are the layers of the language model, which is a stack too.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal, overload

import torch
from torch import Tensor

from sympformer.config_checks import check_names
from sympformer.errors import InputError
from sympformer.nn.layer import Constants, Layer
from sympformer.nn.options import StackConfig
from sympformer.nn.parts import norm
from sympformer.nn.positions import positions, with_positions
from sympformer.nn.presets import starts_of
from sympformer.nn.stack import Stack
from sympformer.nn.steppers import State
from sympformer.nn.view import View, check_rows, places_of, real_columns


@dataclass(frozen=True)
class EncoderConfig(StackConfig):
    """The layers of an encoder."""

    block_size: int | None = None
    """Longest row, for learned positions."""

    def used(self) -> dict[str, Any]:
        return super().used() | ({"block_size": 512} if self.positions == "learned" else {})


class EncoderLayer(Stack):
    """One time step: a state of tokens, or their positions x (B, T, d) at rest, to the state after it.

    state = layer(x, key_padding_mask)
    state = another(state, key_padding_mask)        # state.x, state.y, state.t: positions, momenta, the clock
    """

    cfg: EncoderConfig

    def __init__(self, d_model: int, n_head: int, stepper: str = "hamiltonian", **options: Any) -> None:
        super().__init__(layer_config(d_model=d_model, n_head=n_head, n_layer=1, stepper=stepper, **options))
        self.make_blocks()
        self.positions = positions(self.cfg)

    def forward(self, state: State | Tensor, key_padding_mask: Tensor | None = None) -> State:
        x = state if isinstance(state, Tensor) else state.x
        view, places = _view(self, x, key_padding_mask)
        if isinstance(state, Tensor):
            state = self.start(with_positions(view.tokens(x), self.positions, places))
        state = self.advance(state, view)
        return state._replace(t=state.t + self.values().get("h_x", torch.zeros(1))[0])


class Encoder(Stack):
    """Layers as time steps, then a norm: (B, T, d) -> (B, T, d).

    stepper: "hamiltonian" (the damped flow), "nesterov" (Euclidean) or "gradient" (classical blocks).
    attention, integrator, norm, mlp, positions: names of the tables in `sympformer.nn`. causal: whether a token sees
    only itself and earlier ones. preset: how the layers start. options: any other field of `EncoderConfig`.
    """

    cfg: EncoderConfig

    def __init__(
        self,
        d_model: int,
        n_head: int,
        n_layer: int,
        stepper: str = "hamiltonian",
        attention: str = "softmax",
        causal: bool = False,
        dropout: float = 0.0,
        preset: str = "tuned",
        **options: Any,
    ) -> None:
        given = {"d_model": d_model, "n_head": n_head, "n_layer": n_layer, "causal": causal, "dropout": dropout}
        super().__init__(layer_config(stepper=stepper, attention=attention, preset=preset, **given, **options))
        self.make_blocks()
        self.norm = norm(self.cfg)
        self.positions = positions(self.cfg)

    @overload
    def forward(
        self, x: Tensor, key_padding_mask: Tensor | None = None, return_states: Literal[False] = False
    ) -> Tensor: ...
    @overload
    def forward(
        self, x: Tensor, key_padding_mask: Tensor | None = None, *, return_states: Literal[True]
    ) -> tuple[Tensor, list[State]]: ...
    def forward(
        self, x: Tensor, key_padding_mask: Tensor | None = None, return_states: bool = False
    ) -> Tensor | tuple[Tensor, list[State]]:
        """x (B, T, d), key_padding_mask (B, T), True at padding. The result is zero there.

        With return_states also the state after every layer: `states[k].x` and `states[k].y`, each (B, T, d).
        """
        states: list[State] = []

        def call(layer: Layer, state: State, view: View, constants: Constants, k: int) -> State:
            states.append(layer(state, view, constants))
            return states[-1]

        view, places = _view(self, x, key_padding_mask)
        x = view.tokens(x)  # whatever stands at padding, NaN included, goes no further
        state = self.start(with_positions(x, self.positions, places))
        state = self.advance(state, view, call=call) if return_states else self.advance(state, view)
        out = view.tokens(self.norm(state.x))
        return (out, states) if return_states else out


def layer_config(stepper: str, attention: str = "softmax", preset: str = "tuned", **options: Any) -> EncoderConfig:
    """The config of such layers: what the preset gives them, and on top of it what is given."""
    check_names(EncoderConfig, options, "layers", "option of layers")
    starts = starts_of(preset, stepper, attention, options.get("integrator"))
    fields = {field.name for field in dataclasses.fields(EncoderConfig)}  # a language model has more
    starts = {name: value for name, value in starts.items() if name in fields}
    return EncoderConfig.made_of(starts, {"stepper": stepper, "attention": attention, "causal": False, **options})


def _view(stack: Encoder | EncoderLayer, x: Tensor, key_padding_mask: Tensor | None) -> tuple[View, Tensor]:
    """What tokens at positions x see, and their places in their rows, after all was found to be fit."""
    cfg = stack.cfg
    if x.ndim != 3 or x.shape[1] < 1 or x.shape[2] != cfg.d_model or not x.is_floating_point():
        raise InputError(
            f"x must hold floats of shape (batch, tokens, d_model = {cfg.d_model}), at least one token;"
            f" got {x.dtype} {tuple(x.shape)}"
        )
    B, T, _ = x.shape
    if cfg.block_size is not None and cfg.block_size < T:
        raise InputError(f"{T} tokens exceed the block_size = {cfg.block_size} places of positions = 'learned'")
    real = real_columns(key_padding_mask, (B, T))
    check_rows(real)
    places = torch.arange(T, device=x.device) if real is None else places_of(real)
    view = View.of(cfg.causal, 0, T, x.device, x.dtype, real)
    return view._replace(rotation=stack.positions.rotation(places, x.dtype)), places
