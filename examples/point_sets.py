"""Sets of points: a digit as the set of its inked pixels. A set has no order, and rows hold different numbers of them.

python examples/point_sets.py           # a minute on one core
"""

import statistics

import torch
from scipy.stats import t as student
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F

import sympformer as sf

CASES = (("gradient", "none"), ("nesterov", "none"), ("hamiltonian", "none"), ("hamiltonian", "rotary"))
Sets = tuple[Tensor, Tensor]  # points (B, T, 3): row, column, ink; padding (B, T), True where there is no point


def point_sets() -> tuple[Sets, Tensor]:
    """The sets, each with its points line by line, and their labels."""
    images, labels = (torch.as_tensor(part) for part in load_digits(return_X_y=True))
    rows, columns = torch.meshgrid(torch.linspace(-1, 1, 8), torch.linspace(-1, 1, 8), indexing="ij")
    ink = images.float() / 16
    points = torch.stack((rows.flatten().expand_as(ink), columns.flatten().expand_as(ink), ink), -1)
    T = int((ink >= 0.25).sum(1).max())
    points, padding = ordered((points, ink < 0.25), (ink < 0.25).float())  # inked pixels first
    return (points[:, :T], padding[:, :T]), labels


def ordered(sets: Sets, keys: Tensor) -> Sets:
    """The same sets, their points and their padding in the order of keys (B, T)."""
    order = keys.argsort(dim=1, stable=True)
    return sets[0].gather(1, order.unsqueeze(-1).expand_as(sets[0])), sets[1].gather(1, order)


class SetClassifier(nn.Module):
    """The mean over the points that are there decides. Without positions the order of the points cannot matter."""

    def __init__(self, stepper: str, positions: str, d: int = 32) -> None:
        super().__init__()
        self.waves, self.enter, self.head = nn.Linear(3, 2 * d), nn.Linear(2 * d, d), nn.Linear(d, 10)
        nn.init.normal_(self.waves.weight, std=2.0)  # waves across the image tell its places apart, a plane does not
        self.encoder = sf.nn.Encoder(d, n_head=4, n_layer=2, stepper=stepper, positions=positions)

    def forward(self, points: Tensor, padding: Tensor) -> Tensor:
        out = self.encoder(self.enter(self.waves(points).sin()), key_padding_mask=padding)  # zero at padding
        return self.head(out.sum(1) / (~padding).sum(1, keepdim=True))


def accuracies(stepper: str, positions: str, seed: int, epochs: int, n_train: int = 1400) -> tuple[float, float]:
    """Accuracy on the last 397 sets with their points line by line, as in training, and on the same sets shuffled."""
    (points, padding), labels = point_sets()
    torch.manual_seed(seed)
    model, order = SetClassifier(stepper, positions), torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=epochs * (n_train // 20), pct_start=0.2)
    for batch in (b for _ in range(epochs) for b in torch.randperm(n_train, generator=order).split(20)):
        optimizer.zero_grad()
        F.cross_entropy(model(points[batch], padding[batch]), labels[batch]).backward()
        optimizer.step()
        schedule.step()
    test = points[1400:], padding[1400:]
    with torch.no_grad():
        out = (model(*sets).argmax(1) == labels[1400:] for sets in (test, ordered(test, torch.rand(test[1].shape))))
        a, b = (right.float().mean().item() for right in out)
    return a, b


def main(seeds: int = 3, epochs: int = 4) -> None:
    half = student.ppf(0.975, seeds - 1) / seeds**0.5  # of Student's 95 % interval of the mean, in deviations
    for stepper, positions in CASES:
        runs = [accuracies(stepper, positions, seed, epochs) for seed in range(seeds)]
        print(f"{stepper:12} positions = {positions:7}", end="")
        for name, values in zip(("in order", "shuffled"), zip(*runs, strict=True), strict=True):
            interval = f"{100 * statistics.mean(values):.1f} % +- {100 * half * statistics.stdev(values):.1f}"
            print(f" {name} {interval} ({', '.join(f'{value:.4f}' for value in values)})", end="")
        print(flush=True)


if __name__ == "__main__":
    main()
