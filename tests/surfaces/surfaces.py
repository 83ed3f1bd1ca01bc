"""Every way in which a model can be called, and what must hold of each: two tables.

A surface makes of a language model a `Called`: what runs, and whose parameters learn. A property takes a `Called` and
gives its largest deviation from what the model's equations give, one text at a time, without a cache or padding.
"""

import dataclasses
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sympformer import ops
from sympformer.audit import checks
from sympformer.models import LanguageModel
from sympformer.nn import Encoder
from sympformer.nn.encoder import EncoderConfig
from tests.models.cases import tokens
from tests.nn.rows import RAGGED

pytest.importorskip("transformers", reason="needs the extra hf")

import transformers

from sympformer.hf import SympFormerForCausalLM

TEXT = tokens(2, 11, vocab=40)  # what causality, prefixes, batches and caches are tried on
PADDED = tokens(len(RAGGED), RAGGED.shape[1], seed=4, vocab=40)
CHUNKS = (2, 3, 1, 1)  # of a padded batch


class Run(Protocol):
    """ids (B, T) -> logits (B, T, V). real: where tokens are. sizes: of the parts that go through a cache in turn."""

    def __call__(self, ids: Tensor, real: Tensor | None = None, sizes: Sequence[int] | None = None) -> Tensor: ...


class Called(NamedTuple):
    """A model as one surface calls it."""

    run: Run
    module: nn.Module | None  # whose gradients are compared
    vocab: int
    cached: bool = True
    causal: bool = True
    tolerance: float = 1e-11


# --- surfaces of a language model


def whole_or_parts(read: Callable[[Any, Tensor, Tensor | None], Tensor], cache: Callable[[int], Any]) -> Run:
    """read(cache, ids, padding) of a whole text without a cache, or of its parts with one."""

    def run(ids: Tensor, real: Tensor | None = None, sizes: Sequence[int] | None = None) -> Tensor:
        if sizes is None:
            return read(None, ids, None if real is None else ~real)
        memory, cuts = cache(len(ids)), list(sizes)
        paddings = [None] * len(cuts) if real is None else (~real).split(cuts, 1)
        return torch.cat([read(memory, *part) for part in zip(ids.split(cuts, 1), paddings, strict=True)], 1)

    return run


def native(model: LanguageModel, **changes: Any) -> Called:
    def read(cache: Any, ids: Tensor, padding: Tensor | None) -> Tensor:
        return model(ids, cache=cache, key_padding_mask=padding).logits

    return Called(whole_or_parts(read, model.new_cache), model, model.cfg.vocab_size)._replace(**changes)


def shut(model: LanguageModel) -> Called:
    """The equations as they stand."""
    called = native(model)

    def run(*args: Any, **kwargs: Any) -> Tensor:
        with ops.plain():
            return called.run(*args, **kwargs)

    return called._replace(run=run)


def numbers(model: LanguageModel) -> Called:
    """With what depends on weights alone worked out once, as a decoder has it."""
    constants = model.constants(numbers=True)

    def read(cache: Any, ids: Tensor, padding: Tensor | None) -> Tensor:
        return F.linear(model.hidden(ids, cache, padding, constants=constants), model.head_weight)

    return Called(whole_or_parts(read, model.new_cache), None, model.cfg.vocab_size)


def single(model: LanguageModel) -> Called:
    cfg, weights = model.cfg, model.state_dict()
    rough = LanguageModel(cfg).eval()
    rough.load_state_dict(weights)
    return native(rough, tolerance=2e-5, module=None)


def encoder(model: LanguageModel, **changes: Any) -> Called:
    """The layers by themselves, between the model's embeddings and its head."""
    fields = {field.name for field in dataclasses.fields(EncoderConfig)}
    options = {name: value for name, value in model.cfg.to_dict().items() if name in fields}
    if model.cfg.positions != "learned":
        del options["block_size"]
    layers = Encoder(**options).double().eval()
    missing, _ = layers.load_state_dict(model.state_dict(), strict=False)
    assert not missing

    def read(_: Any, ids: Tensor, padding: Tensor | None) -> Tensor:
        return F.linear(layers(model.tokens(ids), padding), model.head_weight)

    return Called(whole_or_parts(read, lambda _: None), layers, model.cfg.vocab_size, False)._replace(**changes)


def of_transformers(model: Any, **changes: Any) -> Called:
    """Anything with the interface of transformers. Places are those of a text alone, whatever stands around it."""

    def run(ids: Tensor, real: Tensor | None = None, sizes: Sequence[int] | None = None) -> Tensor:
        if sizes is None:
            return model(ids, use_cache=False, **_masks(real, slice(None))).logits
        out, past, start = [], None, 0
        for part in ids.split(list(sizes), 1):
            end = start + part.shape[1]
            output = model(part, past_key_values=past, use_cache=True, **_masks(real, slice(start, end)))
            past, start = output.past_key_values, end
            out.append(output.logits)
        return torch.cat(out, 1)

    return Called(run, model, model.config.vocab_size)._replace(**changes)


def _masks(real: Tensor | None, part: slice) -> dict[str, Tensor]:
    if real is None:
        return {}
    places = (real.cumsum(1) - 1).clamp_min(0)
    return {"attention_mask": real[:, : part.stop].long(), "position_ids": places[:, part]}


def hugging_face(model: LanguageModel) -> Called:
    return of_transformers(SympFormerForCausalLM.from_language_model(model).eval())


def saved(model: LanguageModel) -> Called:
    """Written without a pickle, and read by whoever knows no more than that it is a language model: the same bits."""
    with tempfile.TemporaryDirectory() as folder:
        SympFormerForCausalLM.from_language_model(model).save_pretrained(folder)
        assert not {path.suffix for path in Path(folder).iterdir()} & {".bin", ".pt", ".pkl"}
        again: Any = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    assert isinstance(again, SympFormerForCausalLM)
    back = again.to_language_model()
    assert back.cfg == model.cfg
    assert back.tokens.weight is again.get_input_embeddings().weight  # one set of parameters
    weights = back.state_dict()
    assert all(torch.equal(weights.pop(name), weight) for name, weight in model.state_dict().items())
    assert not weights
    return of_transformers(again.eval())


AT_REST = {"second_table": "none", "start_momentum": "zero"}  # an encoder knows no tokens
# name -> the surface, and how a model differs that has it
SURFACES: dict[str, tuple[Callable[[LanguageModel], Called], dict[str, Any]]] = {
    "native": (native, {}),
    "plain": (shut, {}),
    "numbers": (numbers, {}),
    "float32": (single, {}),
    "all seen": (lambda model: native(model, causal=False, cached=False), {"causal": False}),
    "encoder": (encoder, AT_REST),
    "encoder, all seen": (lambda model: encoder(model, causal=False), {"causal": False} | AT_REST),
    "transformers": (hugging_face, {}),
    "saved": (saved, {}),
}


# --- properties


class Alone(NamedTuple):
    """What the equations give: logits of `TEXT`, of `PADDED` row by row, and the gradients of the latter."""

    text: Tensor
    rows: list[Tensor]
    gradients: dict[str, Tensor]


def weights(logits: Tensor, row: int) -> Tensor:
    """A number for every logit, so that no part of a gradient cancels."""
    generator = torch.Generator().manual_seed(11 + row)
    return torch.randn(logits.shape, generator=generator, dtype=logits.dtype)


def loss_of(rows: Sequence[Tensor]) -> Tensor:
    return torch.stack([(weights(logits, row) * logits).sum() for row, logits in enumerate(rows)]).sum()


def gradients(module: nn.Module | None) -> dict[str, Tensor]:
    """By the native names. What nothing reads has a gradient of zero, or none."""
    if module is None:
        return {}
    named = ((name.removeprefix("model.body."), p) for name, p in module.named_parameters())
    return {name.replace("lm_head.", "head."): p * 0 if p.grad is None else p.grad for name, p in named}


@contextmanager
def learning(*modules: nn.Module | None) -> Iterator[None]:
    for module in filter(None, modules):
        module.zero_grad()
    with torch.enable_grad():
        yield


def alone(called: Called) -> Alone:
    """Every text by itself."""
    with torch.no_grad():
        text = called.run(TEXT)
    with learning(called.module):
        rows = [called.run(ids[None, real])[0] for ids, real in zip(PADDED, RAGGED, strict=True)]
        loss_of(rows).backward()
    return Alone(text, [row.detach() for row in rows], {n: g.clone() for n, g in gradients(called.module).items()})


def apart(got: Tensor, want: Tensor) -> float:
    """The largest difference, as a share of what is compared where that is large."""
    assert got.isfinite().all()
    return ((got - want).abs().max() / want.abs().max().clamp_min(1)).item()


def padding(called: Called, want: Alone, sizes: Sequence[int] | None = None) -> float:
    """Rows of a padded batch, and all gradients, against the rows alone."""
    learns = called.module is not None
    with learning(called.module) if learns else torch.no_grad():
        out = called.run(PADDED, RAGGED, sizes)
        rows = [logits[real] for logits, real in zip(out, RAGGED, strict=True)]
        if learns:
            loss_of(rows).backward()
    found = [apart(got, row) for got, row in zip(rows, want.rows, strict=True)]
    return max(found + [apart(grad, want.gradients[name]) for name, grad in gradients(called.module).items()])


def share(finding: checks.Finding, want: Alone) -> float:
    assert finding.deviation is not None
    return finding.deviation / want.text.abs().max().clamp_min(1).item()


def causality(called: Called, want: Alone) -> float:
    return max(share(checks.causality(called.run, text, called.vocab, 0.0), want) for text in TEXT.split(1))


def cache(called: Called, want: Alone) -> float:
    return share(checks.cache(lambda ids, sizes: called.run(ids, None, sizes), called.run, TEXT, 0.0), want)


# each gives the largest deviation from it
PROPERTIES: dict[str, Callable[[Called, Alone], float]] = {
    "equal": lambda called, want: apart(called.run(TEXT), want.text),
    "causality": causality,
    "prefix": lambda called, want: share(checks.prefix(called.run, TEXT, 0.0), want),
    "batch": lambda called, want: share(checks.batch(called.run, TEXT, 0.0), want),
    "padding": padding,
    "cache": cache,
    "padded cache": lambda called, want: padding(called, want, CHUNKS),
}
LEAKS = ("causality", "prefix", "cache")  # what a look into the future breaks


@torch.no_grad()
def deviations(called: Called, want: Alone, names: Sequence[str] = tuple(PROPERTIES)) -> dict[str, float]:
    """Of the properties of these names that the surface can have."""
    assert want.text.abs().max() > 0.1, "logits this small prove nothing"
    return {name: PROPERTIES[name](called, want) for name in names if called.cached or "cache" not in name}


def check(called: Called, want: Alone, names: Sequence[str] = tuple(PROPERTIES)) -> None:
    found = deviations(called, want, names)
    if not called.causal:
        assert min(found.pop("causality"), found.pop("prefix")) > 1e-3, "not every token sees all"
    wrong = {name: size for name, size in found.items() if not size <= called.tolerance}
    assert not wrong, wrong


def check_model(model: LanguageModel, padded: bool = True) -> None:
    """By itself, and with constants as numbers, beside its equations; for models of any parts."""
    want, names = alone(shut(model)), [name for name in PROPERTIES if padded or "padd" not in name]
    check(native(model), want, names)
    check(numbers(model), want, names)
