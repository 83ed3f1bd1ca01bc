"""Handwritten digits, each image a row of 64 tokens: three steppers, several seeds, accuracy with intervals.

python examples/digits.py               # scikit-learn's 1,797 images of 8 x 8; a minute on one core
"""

import statistics

import torch
from scipy.stats import t as student
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F

import sympformer as sf

STEPPERS = ("gradient", "nesterov", "hamiltonian")
RATE = 1e-2  # the best of three for gradient on images kept back from training; the others take it as it is


class Classifier(nn.Module):
    """A pixel is a token: two vectors of its place, the second times its grey value. The tokens' mean decides."""

    def __init__(self, stepper: str, d: int = 32) -> None:
        super().__init__()
        self.places = nn.Parameter(0.02 * torch.randn(2, 64, d))  # the size of tokens that the layers' starts expect
        self.encoder = sf.nn.Encoder(d, n_head=4, n_layer=2, stepper=stepper)
        self.head = nn.Linear(d, 10)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.places[0] + images.unsqueeze(-1) * self.places[1]  # (B, 64) -> (B, 64, d)
        return self.head(self.encoder(tokens).mean(1))  # (B, 10)


def accuracy(stepper: str, seed: int, epochs: int, n_train: int = 1400, at_once: int = 20) -> float:
    """Train on the first images, test on the last 397. A seed means the same batches to all steppers."""
    images, y = (torch.as_tensor(part) for part in load_digits(return_X_y=True))
    x = images.float() / 8 - 1
    torch.manual_seed(seed)
    model, order = Classifier(stepper), torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters())
    steps = epochs * (n_train // at_once)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps, pct_start=0.2)
    for _ in range(epochs):
        for batch in torch.randperm(n_train, generator=order).split(at_once):
            optimizer.zero_grad()
            F.cross_entropy(model(x[batch]), y[batch]).backward()
            optimizer.step()
            schedule.step()
    with torch.no_grad():
        return (model.eval()(x[1400:]).argmax(1) == y[1400:]).float().mean().item()


def interval(values: list[float]) -> str:
    """The mean and Student's 95 % interval, in per cent."""
    half = student.ppf(0.975, len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5
    return f"{100 * statistics.mean(values):.1f} % +- {100 * half:.1f}"


def main(seeds: int = 3, epochs: int = 4) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for stepper in STEPPERS:
        values = found[stepper] = [accuracy(stepper, seed, epochs) for seed in range(seeds)]
        difference = [a - b for a, b in zip(values, found["gradient"], strict=True)]
        each = ", ".join(f"{value:.4f}" for value in values)
        print(f"{stepper:12} {interval(values)}   minus gradient {interval(difference)}   ({each})", flush=True)
    return found


if __name__ == "__main__":
    main()
