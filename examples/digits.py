"""Handwritten digits, each image a row of 64 tokens: three dynamics, several seeds, accuracy with intervals.

python examples/digits.py               # scikit-learn's 1,797 images of 8 x 8; a few minutes on one core
"""

import statistics

import torch
from scipy.stats import t as student
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F

import sympformer as sf

DYNAMICS = ("gpt", "yuriiformer", "sympformer")


class Classifier(nn.Module):
    """A pixel is a token: its grey value and its place. The mean over the tokens decides."""

    def __init__(self, dynamics: str, d: int = 32) -> None:
        super().__init__()
        self.grey = nn.Linear(1, d)
        self.encoder = sf.nn.Encoder(d, n_head=4, n_layer=3, dynamics=dynamics, positions="learned", block_size=64)
        self.head = nn.Linear(d, 10)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.encoder(self.grey(images.unsqueeze(-1))).mean(1))  # (B, 64) -> (B, 10)


def accuracy(dynamics: str, seed: int, epochs: int, n_train: int = 1400) -> float:
    """Train on the first images of a shuffled set, test on the others."""
    images, labels = (torch.as_tensor(part) for part in load_digits(return_X_y=True))
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    x, y = images[order].float() / 8 - 1, labels[order]
    torch.manual_seed(seed)
    model, at_once = Classifier(dynamics), 50
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    steps = epochs * (n_train // at_once)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=steps, pct_start=0.2)
    for step in range(steps):
        if step % (n_train // at_once) == 0:
            batches = torch.randperm(n_train).split(at_once)
        batch = batches[step % (n_train // at_once)]
        optimizer.zero_grad()
        F.cross_entropy(model(x[batch]), y[batch]).backward()
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        return (model.eval()(x[n_train:]).argmax(1) == y[n_train:]).float().mean().item()


def main(seeds: int = 5, epochs: int = 10) -> dict[str, list[float]]:
    found = {dynamics: [accuracy(dynamics, seed, epochs) for seed in range(seeds)] for dynamics in DYNAMICS}
    for dynamics, values in found.items():
        half = student.ppf(0.975, seeds - 1) * statistics.stdev(values) / seeds**0.5  # 95 % interval of the mean
        print(f"{dynamics:12} {100 * statistics.mean(values):.1f} % +- {100 * half:.1f} ({seeds} seeds)")
    return found


if __name__ == "__main__":
    main()
