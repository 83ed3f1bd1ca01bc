"""How many nats does a look into the future fake? Train a run of a comparison again with a leaking force.

    python docs/results/leak_experiment.py runs/compare/tinystories-cpu/runs/exp-euler/final-seed1 [--causal]

Same weights at the start, same batches, same rate, same budget as the named run (a softmax SympFormer with form "own");
only the force differs: it is the gradient of the masked Hamiltonian of the whole sequence, as in code that takes the
paper's energy, masks the kernel and differentiates. Token i then also feels every later token j that looks at it:

    force_i = sum_{j <= i} g_i W_ij v_j  +  sum_{j >= i} g_j W_ji v_j,    W_ij = exp(s_ij) / n_i,  g = rho / 2 + 1

The first sum is causal, the second is the leak. --causal leaves it out: then the run's own loss must come out.
"""

import argparse
import json
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from sympformer.audit import audit_model
from sympformer.data import BlockSampler, open_tokens, validation_blocks
from sympformer.flows import Field
from sympformer.models import LanguageModel, build_model
from sympformer.nn import View
from sympformer.nn.attention.softmax import LOG_Z_BOUND, RHO_BOUND, Matrices, SoftmaxAttention, SoftmaxField
from sympformer.nn.parts import merge_heads, split_heads
from sympformer.progress import steps_with_progress
from sympformer.training.config import choose_model, load_config
from sympformer.training.evaluate import evaluate_model
from sympformer.training.optimizer import clip_gradients, learning_rate, make_optimizers, set_learning_rate


@dataclass(frozen=True)
class LeakingField(Field):
    """The causal field with the forbidden second sum in its force."""

    causal: SoftmaxField
    weights: Tensor  # (B, H, T, T)
    values: Tensor  # (B, H, T, c)

    def velocity(self, y: Tensor) -> Tensor:
        return self.causal.velocity(y)

    def force(self, y: Tensor) -> Tensor:
        rows, By = (split_heads(part, self.values.shape[1]) for part in (y, F.linear(y, self.causal.B)))
        rho = (rows * By).sum(-1, keepdim=True) * torch.exp(-2 * self.causal.log_z)
        g = rho.clamp(-RHO_BOUND, RHO_BOUND) / 2 + 1
        return self.causal.force(y) + merge_heads(self.weights.mT @ (g * self.values))

    def first_order(self) -> Tensor:
        return self.causal.first_order()


class LeakingAttention(SoftmaxAttention):
    """Positions -> `LeakingField`. Dense: T x T is held."""

    def forward(self, x: Tensor, view: View, matrices: Matrices) -> LeakingField:  # type: ignore[override]
        causal = super().forward(x, view, matrices)
        q, k, v = (split_heads(part, self.n_kernel) for part in self.qkv(x).chunk(3, -1))
        scores = self.scale * q @ k.mT - view.log_n[:, None]  # log W
        hidden = torch.ones_like(scores, dtype=torch.bool).triu(1)
        # bounded as log z and rho are in the models: a model that reads the future drives its scores far up
        weights = scores.clamp_max(LOG_Z_BOUND).masked_fill(hidden, -torch.inf).exp()
        return LeakingField(causal, weights, v)


def leak(model: LanguageModel) -> None:
    """Swap every layer's attention for the leaking one; the parameters stay."""
    for block in model.blocks:
        block.attention.__class__ = LeakingAttention


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="folder of a finished run of a comparison")
    parser.add_argument("--causal", action="store_true", help="without the leak, as a check of this script")
    parser.add_argument("--steps", type=int, help="stop after so many steps (the schedule stays that of the whole run)")
    options = parser.parse_args()
    config = load_config(f"{options.run}/train.yaml")
    prepared = open_tokens(config.data)
    cfg = choose_model(config.model, prepared.tokenizer)
    if cfg.stepper != "hamiltonian" or cfg.attention != "softmax" or cfg.form != "own":
        parser.error("the leak is defined for a softmax SympFormer with form 'own'")
    model = build_model(cfg, seed=config.seed)
    if not options.causal:
        leak(model)
    train(model, config, prepared, options.steps)
    size = prepared.tokenizer.byte_lengths()
    scores = {
        split: evaluate_model(model, validation_blocks(prepared.tokens(split), cfg.block_size, limit), size).loss
        for split, limit in (("validation", config.eval_tokens), ("test", None))
    }
    report = audit_model(model, vocab_size=cfg.vocab_size)
    print(json.dumps({"run": options.run, "leaks": not options.causal, **scores, "audit_passed": report.passed}))


def train(model: LanguageModel, config, prepared, steps: int | None) -> None:  # type: ignore[no-untyped-def]
    """The protocol of `sympformer train`, bare."""
    total = config.total_steps(model.cfg.block_size)
    sampler = BlockSampler(prepared.tokens("train"), model.cfg.block_size, config.global_batch(), config.seed)
    optimizers = make_optimizers(model, config)
    model.train()
    for step in steps_with_progress(min(total, steps or total), "training"):
        rate = learning_rate(step, config.lr, config.warm_up, total, config.min_lr_ratio)
        set_learning_rate(optimizers, rate)
        inputs, targets = (torch.from_numpy(part) for part in sampler.batch(step))
        loss = model(inputs, targets).loss
        if not torch.isfinite(loss):
            raise SystemExit(f"the loss is not finite from step {step} of {total} on")
        loss.backward()
        clip_gradients(optimizers, config.clip)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
    model.eval()


if __name__ == "__main__":
    main()
