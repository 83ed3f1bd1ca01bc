"""Today's numbers are those of the commit at which `tests/golden` was made, to 1e-12 of the largest of their kind.

`golden/make.py` wrote the files, at f10bd74: small models of every variant and preset with perturbed weights, flows,
tokens, batches, checksums of the texts that ship. Of gradients and of weights after three optimizer steps, every
parameter has a row of `SUMMARY` numbers. A scalar that layers learn is a parameter (layers,), however it is stored.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import sympformer as sf
from sympformer import data, flows
from sympformer.data.probes import KINDS, probe_set
from sympformer.data.tokenizers import make_tokenizer
from sympformer.training.config import TrainConfig
from sympformer.training.optimizer import clip_gradients, make_optimizers, set_learning_rate
from tests.data.places import MERGES, needs_merges
from tests.flows import cases

FOLDER = Path(__file__).parent / "golden"
PRESETS = ("tuned", "full", "paper", "paper-spd", "modern")
SIZE = {"n_layer": 2, "d_model": 16, "n_head": 2, "block_size": 24, "vocab_size": 29}
UNIT = 2.0**-10  # weights are stored as whole numbers of it
SUMMARY = 5  # three projections, the norm, the largest
CHUNKS = (1, 5, 1, 6)
STEPS, RATE, CLIP = 3, 0.01, 0.5
CLOSE = 1e-12
Floats = NDArray[np.float64]

# How a parameter is called today, by its name in the files (of a layer's parameter: without `blocks.K.`).
TODAY: dict[str, str] = {
    "norm_attention.weight": "norm.weight",
    "bound.weight": "bounds.0.momentum.weight",
    "bound_attention.weight": "bounds.0.momentum.weight",
    "bound_mlp.weight": "bounds.1.momentum.weight",
    "attention.qkv.weight": "attention.qkv.weight or attention.qk.weight",  # of linear attention
    "scalars.mlp_look_ahead": "scalars.mu_mlp",
    "scalars.beta": "scalars.beta_mlp",
    "scalars.gamma": "scalars.gamma_mlp",
}


# --- models
class Model:
    """A model of the language library with its parameters under the names of the files."""

    def __init__(self, variant: str, preset: str) -> None:
        self.model = sf.build_model(sf.variant(variant, preset=preset, **SIZE), seed=0).double()
        self.places = dict(places(self.model))

    def put(self, name: str, value: Tensor) -> None:
        """Give the parameter of a name in the files its value."""
        with torch.no_grad():
            parameter, i = self.place(name)
            parameter[i] = value

    def read(self, name: str, gradients: bool = False) -> Tensor:
        """The value, or the gradient, of the parameter of a name in the files; no gradient is zero."""
        p, i = self.place(name)
        return (p if not gradients else torch.zeros_like(p) if p.grad is None else p.grad)[i].detach().clone()

    def place(self, name: str) -> tuple[nn.Parameter, Any]:
        return next(self.places[one] for one in today(name).split(" or ") if one in self.places)

    def summaries(self, names: Iterable[str], gradients: bool = False) -> Floats:
        return np.stack([summary(self.read(name, gradients)) for name in names])

    def names(self) -> list[str]:
        return list(self.places)


def today(name: str) -> str:
    """Today's name of a parameter, or several of which one is there."""
    name = name.replace("preludes.", "blocks.").replace(".oracle.", ".attention.")
    parts = name.split(".")
    prefix, rest = (parts[:2], parts[2:]) if parts[0] == "blocks" else ([], parts)
    names = TODAY.get(".".join(rest), ".".join(rest)).split(" or ")
    return " or ".join(".".join([*prefix, one]) for one in names)


def places(model: nn.Module) -> Iterator[tuple[str, tuple[nn.Parameter, Any]]]:
    """Where the numbers of every parameter stand: all of one, or a row of those of the learned scalars."""
    modules = dict(model.named_modules())
    for name, parameter in model.named_parameters():
        owner, _, domain = name.rpartition(".")
        if owner == "scalars":
            yield from ((f"scalars.{one}", (parameter, i)) for i, one in enumerate(modules[owner].names[domain]))
        else:
            yield name, (parameter, ...)


def summary(value: Tensor) -> Floats:
    """Projections on three fixed directions of that shape, the norm, and the largest."""
    flat = value.numpy().ravel()
    directions = np.random.default_rng([17, *value.shape]).standard_normal((SUMMARY - 2, flat.size))
    return np.array([*(directions @ flat), np.linalg.norm(flat), np.abs(flat).max()])


def logits_in_chunks(model: sf.LanguageModel, ids: Tensor) -> Floats:
    cache = model.new_cache(len(ids))
    with torch.no_grad():
        return torch.cat([model(part, cache=cache).logits for part in ids.split(CHUNKS, 1)], 1).numpy()


def train(own: Model, ids: Tensor, optimizer: str) -> None:
    """A few steps on one batch, as `sympformer train` makes them, in float64 throughout."""
    config = TrainConfig(optimizer=optimizer)  # type: ignore[arg-type]
    optimizers = make_optimizers(own.model, config)
    # Muon rounds to bfloat16, where the last bit of a gradient can move an update by a hundredth
    with patch.object(Tensor, "bfloat16", Tensor.clone):
        for _ in range(STEPS):
            own.model.zero_grad()
            own.model(ids[:, :-1], ids[:, 1:]).loss.backward()
            set_learning_rate(optimizers, RATE)
            clip_gradients(optimizers, CLIP)
            for each in optimizers:
                each.step()


def fresh(files: dict[str, Any], variant: str, preset: str) -> tuple[Model, list[str]]:
    """The model with the weights of the files, and the names of its parameters there."""
    own, shapes = Model(variant, preset), json.loads(str(files[f"{variant}/{preset}/shapes"]))
    numbers, at = files[f"{variant}/{preset}/weights"] * UNIT, 0
    for name, shape in shapes.items():
        own.put(name, torch.from_numpy(numbers[at : at + int(np.prod(shape))]).view(shape))
        at += int(np.prod(shape))
    return own, list(shapes)


def opened(name: str) -> dict[str, Any]:
    with np.load(FOLDER / name) as files:
        return dict(files)


@pytest.fixture(scope="module")
def models() -> dict[str, Any]:
    return opened("models.npz")


def agree(found: Floats, stored: Floats, close: float = CLOSE) -> None:
    np.testing.assert_allclose(found, stored, rtol=0, atol=close * np.abs(stored).max())


def rows_agree(names: list[str], found: Floats, stored: Floats, close: float = CLOSE) -> None:
    """Every parameter's row, by its own norm or a thousandth of the largest."""
    norms = stored[:, -2]
    allowed = close * np.maximum(norms, 1e-3 * norms.max())[:, None] * 10  # a projection is a few norms long
    bad = [name for name, row in zip(names, (np.abs(found - stored) <= allowed).all(1), strict=True) if not row]
    assert not bad, f"other numbers than stored for {', '.join(bad)}"


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("variant", list(sf.VARIANTS))
def test_model(models: dict[str, Any], variant: str, preset: str) -> None:
    own, names = fresh(models, variant, preset)
    ids, stored = torch.from_numpy(models["ids"]), {n: models[f"{variant}/{preset}/{n}"] for n in ("logits", "loss")}
    inputs, targets = ids[:, :-1], ids[:, 1:]
    assert sum(own.read(name).numel() for name in names) == sum(p.numel() for p in own.model.parameters())
    agree(own.model(inputs).logits.detach().numpy(), stored["logits"])
    with sf.ops.plain():
        agree(own.model(inputs).logits.detach().numpy(), stored["logits"])
    agree(logits_in_chunks(own.model, inputs), stored["logits"])
    loss = own.model(inputs, targets).loss
    assert abs(loss.item() - stored["loss"]) <= CLOSE * stored["loss"]
    loss.backward()
    rows_agree(names, own.summaries(names, gradients=True), models[f"{variant}/{preset}/gradients"])


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("variant", list(sf.VARIANTS))
def test_optimizer_steps(models: dict[str, Any], variant: str, preset: str) -> None:
    """A step divides by the size of a gradient, so that the rounding of a small one counts for more."""
    for optimizer in ("adamw", "muon"):
        own, names = fresh(models, variant, preset)
        train(own, torch.from_numpy(models["ids"]), optimizer)
        rows_agree(names, own.summaries(names), models[f"{variant}/{preset}/{optimizer}"], close=1e-10)


# --- flows
def systems() -> dict[str, flows.System]:
    masked = flows.SoftmaxAttention(cases.symmetric(), cases.positive(), causal=True, form="own")
    linear = flows.LinearAttention(cases.positive(), cases.symmetric(), causal=True)
    return {name: make() for name, make in cases.SYSTEMS.items()} | {"softmax-own": masked, "linear-causal": linear}


def path(system: flows.System, integrator: str) -> Floats:
    """Positions and momenta (2, times, 5, 3) under damping, with steps of two sizes."""
    damping, sizes = flows.LogLinear(r=1.3, m=0.4, t0=0.5), [0.05, 0.04] * 6
    start = {"h": sizes, "steps": 12, "save_every": 4, "integrator": integrator, "damping": damping}
    found = flows.simulate(system, cases.randn(5, cases.D) / 3, cases.randn(5, cases.D, seed=5) / 5, **start)  # type: ignore[arg-type]
    return torch.stack([found.x[1:], found.y[1:]]).numpy()


@pytest.mark.parametrize("integrator", list(flows.INTEGRATORS))
def test_paths(integrator: str) -> None:
    files = opened("flows.npz")
    for name, system in systems().items():
        agree(path(system, integrator), files[f"{name}/{integrator}"])


# --- texts, tokens, batches
TEXT = (
    "Once upon a time, Mia said: \u201cWe'll count to 1234567!\u201d\n\n  Na\u00efve caf\u00e9,"
    " \u6771\u4eac \U0001f680\t<|endoftext|> done. "
)


def tokenizers() -> dict[str, list[int]]:
    """The ids of a text by each tokenizer that needs no file."""
    return {n: make_tokenizer(n, lambda: data.stories(200)).encode(TEXT) for n in ("byte", "bpe:512", "bpe:2048")}


def batches() -> dict[str, Any]:
    tokens = np.arange(1013, dtype=np.uint16) * 7 % 251
    sampler = data.BlockSampler(tokens, block_size=8, batch_size=6, seed=3)
    drawn = {f"step {s}": [part.tolist() for part in sampler.batch(s)] for s in (0, 1, 20, 21, 500)}
    shares = {f"rank {r}": sampler.batch(7, r, 3)[0].tolist() for r in range(3)}
    scored = {
        f"validation {limit}": [b.tolist() for _, b in data.validation_blocks(tokens[:200], 16, limit).batches(5)]
        for limit in (None, 64)
    }
    return drawn | shares | scored


def sha256(texts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def texts() -> dict[str, str]:
    """Checksums of the splits of the storybook, and of the probes of every kind."""
    found: dict[str, str] = {}
    for name in ("storybook", "storybook:1000"):
        splits: dict[str, list[str]] = {}
        for split, text in data.find(data.DataConfig(corpus=name)).documents():
            splits.setdefault(split, []).append(text)
        found |= {f"{name} {split}": sha256(documents) for split, documents in sorted(splits.items())}
    for kind in KINDS:
        probes = probe_set(kind)
        found[f"probes {kind}"] = sha256(
            f"{p.form}\t{p.group}\t{p.context}\t{'|'.join(p.choices)}\t{p.answer}" for p in probes
        )
    return found


@pytest.mark.parametrize("find", [tokenizers, batches, texts], ids=lambda f: f.__name__)
def test_data(find: Any) -> None:
    assert find() == json.loads((FOLDER / "data.json").read_text())[find.__name__]


@needs_merges
def test_gpt2() -> None:
    ids = make_tokenizer(f"gpt2:{MERGES}", list).encode(TEXT)
    assert ids == json.loads((FOLDER / "data.json").read_text())["gpt2"]
