"""Does inertia help a model that is already trained? Fine-tune a small GPT-2 on other text, with and without.

    python docs/results/accelerate_experiment.py --other my-texts/ --out runs/accelerate

For every seed a `GPT2LMHeadModel` is trained on the packaged storybook. Copies of it are then fine-tuned on the other
text (a folder or file of texts; a `test` split of its own is used, else 8 % are held out), all with the same batches in
the same order and the same number of steps: as it is, and after `sf.accelerate`. Each arm's rate is the best of
--rates on validation data with seed 0; the seeds reported are 1, 2, ... Losses are nats per token on test data.
"""

import argparse
import copy
import json
import time
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F
from transformers import GPT2Config, GPT2LMHeadModel

import sympformer as sf
from sympformer.data import BlockSampler, Tokens, prepare, validation_blocks
from sympformer.hf import optimizer_groups
from sympformer.inertia import inertia_scalars
from sympformer.studies.results.statistics import paired_difference
from sympformer.training.optimizer import learning_rate

BATCH, WARM_UP = 8, 50
# arm -> options of sf.accelerate; None: the model as it is
ARMS: dict[str, dict[str, Any] | None] = {
    "plain": None,
    "plain_euler": {"integrator": "plain_euler"},
    "plain_euler, a gain a channel": {"integrator": "plain_euler", "per_channel": True},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--other", required=True, help="text to fine-tune on: a corpus name, a folder or a file")
    parser.add_argument("--out", default="runs/accelerate", help="folder for tokens and results.json")
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=ARMS, help="plain must be among them")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--length", type=int, default=128, help="tokens of a text")
    parser.add_argument("--pretrain", type=int, default=600, help="steps on the storybook")
    parser.add_argument("--finetune", type=int, default=400, help="steps on the other text")
    parser.add_argument("--rates", type=float, nargs="+", default=[1e-3, 2e-3, 4e-3])
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    began, out = time.process_time(), Path(options.out)
    book = prepare("storybook", "bpe:1024", out / "storybook")
    other = prepare(options.other, str(out / "storybook"), out / "other", test=0.08)

    first = pretrained(book, 0, options)
    search: dict[str, dict[float, float]] = {arm: {} for arm in options.arms}
    for arm in options.arms:
        for rate in options.rates:
            model = finetuned(first, arm, other, 0, rate, options.finetune)
            search[arm][rate] = loss_on(model, other, "validation")
            print(json.dumps({"seed": 0, "arm": arm, "rate": rate, "validation": search[arm][rate]}), flush=True)
    rates = {arm: min(losses, key=losses.__getitem__) for arm, losses in search.items()}
    tests: dict[str, list[float]] = {"not fine-tuned": [], **{arm: [] for arm in options.arms}}
    scalars: dict[str, list[Any]] = {arm: [] for arm in options.arms if ARMS[arm] is not None}
    for seed in range(1, options.seeds + 1):
        start = pretrained(book, seed, options)
        tests["not fine-tuned"].append(loss_on(start, other, "test"))
        for arm in options.arms:
            model = finetuned(start, arm, other, seed, rates[arm], options.finetune)
            tests[arm].append(loss_on(model, other, "test"))
            if arm in scalars:
                scalars[arm].append(inertia_scalars(model))
        print(json.dumps({"seed": seed, **{arm: losses[-1] for arm, losses in tests.items()}}), flush=True)
    result = {
        "options": vars(options),
        "validation": search,
        "rates": rates,
        "test": tests,
        "minus plain": {arm: vars(paired_difference(tests[arm], tests["plain"])) for arm in scalars},
        "scalars": scalars,
        "cpu_seconds": round(time.process_time() - began),
    }
    (out / "results.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result["minus plain"]))


def pretrained(book: Tokens, seed: int, options: argparse.Namespace) -> Any:
    """A small GPT-2, trained on the storybook."""
    torch.manual_seed(seed)
    sizes: dict[str, Any] = {"n_layer": 4, "n_embd": options.width, "n_head": 4, "n_positions": options.length}
    sizes["vocab_size"] = book.tokenizer.vocab_size
    off: dict[str, Any] = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    model = GPT2LMHeadModel(GPT2Config(**sizes, **off, bos_token_id=None, eos_token_id=None))
    train(model, book, seed, 4e-3, options.pretrain)
    return model


def finetuned(start: Any, arm: str, text: Tokens, seed: int, rate: float, steps: int) -> Any:
    """A copy of a trained model after further training on another text."""
    model, inertia = copy.deepcopy(start), ARMS[arm]
    if inertia is not None:
        sf.accelerate(model, **inertia)
    train(model, text, seed, rate, steps)
    return model


def train(model: Any, text: Tokens, seed: int, rate: float, steps: int) -> None:
    sampler = BlockSampler(text.tokens("train"), model.config.n_positions, BATCH, seed)
    optimizer = torch.optim.AdamW(optimizer_groups(model, rate), betas=(0.9, 0.95), fused=True)
    factors = [group["lr"] / rate for group in optimizer.param_groups]
    model.train()
    for step in range(steps):
        for group, factor in zip(optimizer.param_groups, factors, strict=True):
            group["lr"] = factor * learning_rate(step, rate, WARM_UP, steps, 0.1)
        inputs, targets = map(torch.from_numpy, sampler.batch(step))
        loss = F.cross_entropy(model(inputs, use_cache=False).logits.flatten(0, 1), targets.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    model.eval()


@torch.no_grad()
def loss_on(model: Any, text: Tokens, split: str) -> float:
    """Nats per token, on at most 50,000 tokens."""
    blocks, total = validation_blocks(text.tokens(split), model.config.n_positions, 50_000), 0.0
    for inputs, targets in blocks.batches(32):
        logits = model(torch.from_numpy(inputs), use_cache=False).logits.flatten(0, 1)
        total += float(F.cross_entropy(logits, torch.from_numpy(targets).flatten(), reduction="sum"))
    return total / blocks.scored


if __name__ == "__main__":
    main()
