"""Sets of points: a digit as the set of its inked pixels. A set has no order, and rows hold different numbers of them.

python examples/point_sets.py           # a minute on one core
"""

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F

import sympformer as sf


def point_sets() -> tuple[Tensor, Tensor, Tensor]:
    """Points (B, T, 3) as row, column and ink; the padding of each set (B, T), True where there is no point; labels."""
    images, labels = (torch.as_tensor(part) for part in load_digits(return_X_y=True))
    rows, columns = torch.meshgrid(torch.linspace(-1, 1, 8), torch.linspace(-1, 1, 8), indexing="ij")
    ink = images.float() / 16
    points = torch.stack((rows.flatten().expand_as(ink), columns.flatten().expand_as(ink), ink), -1)
    order = (ink < 0.25).int().argsort(dim=1, stable=True)  # inked pixels first, line by line
    padding = (ink < 0.25).gather(1, order)
    T = int((~padding).sum(1).max())
    return points.gather(1, order.unsqueeze(-1).expand_as(points))[:, :T], padding[:, :T], labels


def shuffled(points: Tensor, padding: Tensor, seed: int = 0) -> tuple[Tensor, Tensor]:
    """The same sets, their points and their padding in another order."""
    order = torch.rand(padding.shape, generator=torch.Generator().manual_seed(seed)).argsort(1)
    return points.gather(1, order.unsqueeze(-1).expand_as(points)), padding.gather(1, order)


class SetClassifier(nn.Module):
    """The mean over the points that are there decides. Without positions the order of the points cannot matter."""

    def __init__(self, positions: str, d: int = 32) -> None:
        super().__init__()
        self.enter, self.head = nn.Linear(3, d), nn.Linear(d, 10)
        self.encoder = sf.nn.Encoder(d, n_head=4, n_layer=3, dynamics="sympformer", positions=positions)

    def forward(self, points: Tensor, padding: Tensor) -> Tensor:
        out = self.encoder(self.enter(points), key_padding_mask=padding)  # zero at padding
        return self.head(out.sum(1) / (~padding).sum(1, keepdim=True))


def main(epochs: int = 12, n_train: int = 1400) -> dict[str, tuple[float, float]]:
    """Accuracy on sets whose points come line by line, as in training, and on the same sets shuffled."""
    points, padding, labels = point_sets()
    found = {}
    for positions in ("none", "rotary"):
        torch.manual_seed(0)
        model = SetClassifier(positions)
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        for batch in (batch for _ in range(epochs) for batch in torch.randperm(n_train).split(50)):
            optimizer.zero_grad()
            F.cross_entropy(model(points[batch], padding[batch]), labels[batch]).backward()
            optimizer.step()
        tests = (points[n_train:], padding[n_train:]), shuffled(points[n_train:], padding[n_train:])
        with torch.no_grad():
            right = [(model(*sets).argmax(1) == labels[n_train:]).float().mean().item() for sets in tests]
        found[positions] = right[0], right[1]
        print(f"positions = {positions}: {right[0]:.1%} in order, {right[1]:.1%} shuffled")
    return found


if __name__ == "__main__":
    main()
