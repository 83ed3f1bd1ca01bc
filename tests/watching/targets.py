"""Small models with tokenizers whose tokens are words, hostile ones among them."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from sympformer.models import LanguageModel
from sympformer.nn import State, View
from sympformer.opening import Opened
from sympformer.watching import Record
from tests.models.cases import make

HOSTILE = [
    "<script>alert(1)</script>",
    "</script><script>alert(2)</script>",
    "<!--<script>",
    "'\"><img src=x onerror=alert(3)>",
    "&lt;b&gt;&amp;",
    "\u202eright to left\u202c",
    "\u05e9\u05dc\u05d5\u05dd\u200f",
    "a\u0000\u0007\nb",
    "\U0001f469\u200d\U0001f52c\U0001f680",
    "\u2028`${alert(4)}`\\u003c",
    "\u0301\ud800",
]
EVIL_NAME = '<img src=x onerror=alert(5)> & "quotes" \u202e\''


@dataclass(frozen=True)
class Words:
    """Texts are words with bars between them."""

    words: list[str]
    end_of_text: int | None = None

    def encode(self, text: str) -> list[int]:
        return [self.words.index(word) for word in text.split("|")]

    def decode(self, ids: list[int]) -> str:
        return "|".join(self.words[token] for token in ids)


def view_of(model: LanguageModel, idx: Tensor) -> View:
    """What the tokens see, as the layers of the model are told."""
    views = []

    def call(layer: Any, state: State, view: View, own: Any, k: int) -> State:
        views.append(view)
        return layer(state, view, own)

    model.hidden(idx, call=call)
    return views[0]


def ahead(model: LanguageModel, seen: Record, k: int) -> State:
    """What the step of layer k starts from."""
    y = seen.x[2 * k] * 0 if seen.y is None else seen.y[2 * k]
    return model.layers()[k].ahead(State(seen.x[2 * k], y), view_of(model, seen.idx))


def target(name: str, variant: str, tokenizer: Any = None, **options: Any) -> Opened:
    """A perturbed model of a variant; without a tokenizer it reads bytes."""
    size: dict[str, Any] = {"n_layer": 2, "d_model": 16, "block_size": 64}
    size["vocab_size"] = 256 if tokenizer is None else len(tokenizer.words)
    model = make(variant, **size | options)
    return Opened(name, "factory", model.float(), tokenizer, model.cfg.vocab_size, model.cfg.block_size)
