"""Wrote the files of this folder, at commit f10bd74, with tests/test_golden.py as of the commit that added both.

Kept as the record of how they came about: it runs against the library of that commit only, from this repository's root.

    PYTHONPATH=.:WORKTREE_AT_f10bd74/src python tests/golden/make.py GPT2_MERGES
"""

import json
import sys
from typing import Any

import numpy as np
import torch

import sympformer as sf
from sympformer import flows
from sympformer.data.tokenizers import make_tokenizer
from tests import test_golden as g

IDS = np.random.default_rng(3).integers(29, size=(2, 1 + sum(g.CHUNKS)))


def perturbed(variant: str, preset: str) -> tuple[g.Model, dict[str, Any]]:
    """A model whose weights have left their starts, rounded to the unit in which they are stored."""
    own, draw = g.Model(variant, preset), np.random.default_rng(7)
    numbers = {n: own.read(n).numpy() + 0.2 * draw.standard_normal(own.read(n).shape) for n in own.names()}
    whole = {name: np.rint(value / g.UNIT) for name, value in numbers.items()}
    for name, value in whole.items():
        assert np.abs(value).max() < 2**15
        own.put(name, torch.from_numpy(value * g.UNIT))
    weights = np.concatenate([value.ravel() for value in whole.values()]).astype(np.int16)
    return own, {"weights": weights, "shapes": json.dumps({name: value.shape for name, value in whole.items()})}


def model_files() -> dict[str, Any]:
    files: dict[str, Any] = {"ids": IDS}
    ids = torch.from_numpy(IDS)
    for variant in sf.VARIANTS:
        for preset in g.PRESETS:
            own, found = perturbed(variant, preset)
            out = own.model(ids[:, :-1], ids[:, 1:])
            out.loss.backward()
            found |= {"logits": out.logits.detach().numpy(), "loss": out.loss.detach().numpy()}
            g.agree(g.logits_in_chunks(own.model, ids[:, :-1]), found["logits"])  # one array serves both
            found["gradients"] = own.summaries(own.names(), gradients=True)
            for optimizer in ("adamw", "muon"):
                trained, _ = perturbed(variant, preset)
                g.train(trained, ids, optimizer)
                found[optimizer] = trained.summaries(trained.names())
            files |= {f"{variant}/{preset}/{name}": value for name, value in found.items()}
    return files


if __name__ == "__main__":
    torch.set_num_threads(1)
    np.savez_compressed(g.FOLDER / "models.npz", **model_files())
    paths: dict[str, Any] = {
        f"{s}/{i}": g.path(system, i) for s, system in g.systems().items() for i in flows.INTEGRATORS
    }
    np.savez_compressed(g.FOLDER / "flows.npz", **paths)
    found: dict[str, Any] = {make.__name__: make() for make in (g.tokenizers, g.batches, g.texts)}
    found["gpt2"] = make_tokenizer(f"gpt2:{sys.argv[1]}", list).encode(g.TEXT)
    (g.FOLDER / "data.json").write_text(json.dumps(found, indent=None))
