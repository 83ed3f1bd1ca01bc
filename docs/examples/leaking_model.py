"""A small GPT-like model that looks trained and sane, and leaks the future. Watch the audit catch it:

    sympformer audit docs/examples/leaking_model.py:build

Every token has a position x and a momentum y. The force is the gradient of the Hamiltonian of the *whole sequence*,

    H(x, y) = sum_i ( |y_i|^2 / z_i - z_i ) / 2        z_i = mean over j <= i of exp(<q_i, k_j>)

The mask is in every z_i, and yet -dH/dx_i has a second part: x_i is also a key of all later tokens j > i, so z_j
depends on x_i, and the force on token i knows q_j and y_j. A causal force differentiates a token's own terms only.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

VOCAB, LENGTH, WIDTH, LAYERS = 128, 64, 32, 2


class HamiltonianBlock(nn.Module):
    """One step of the flow, then a GPT-2 MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.mlp_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.queries, self.keys = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def z(self, x: Tensor) -> Tensor:
        """The masked normaliser of every token, (B, T, 1)."""
        scores = self.queries(x) @ self.keys(x).mT / WIDTH**0.5
        n = torch.arange(1, x.shape[1] + 1, device=x.device, dtype=x.dtype).unsqueeze(1)
        return scores.exp().tril().sum(-1, keepdim=True) / n

    def force(self, x: Tensor, y: Tensor) -> Tensor:
        """-dH/dx: here is the leak, in the sum over all tokens."""
        with torch.enable_grad():
            if not x.requires_grad:
                x = x.detach().requires_grad_()
            z = self.z(x)
            H = (y.square().sum(-1, keepdim=True) / z - z).sum() / 2
            return -torch.autograd.grad(H, x, create_graph=self.training)[0]

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        x_bar = self.norm(x)
        x, y = x + 0.1 * y / self.z(x_bar), 0.9 * y + self.force(x_bar, y)
        return x + self.mlp(self.mlp_norm(x)), F.layer_norm(y, (WIDTH,))


class LeakingModel(nn.Module):
    """Token and place embeddings, blocks, tied head."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCAB, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(HamiltonianBlock() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, idx: Tensor) -> Tensor:
        """(B, T) ids -> (B, T, V) logits."""
        x = self.tokens(idx) + self.places(torch.arange(idx.shape[1], device=idx.device))
        y = torch.zeros_like(x)
        for block in self.blocks:
            x, y = block(x, y)
        return F.linear(self.norm(x), self.tokens.weight)


def build() -> nn.Module:
    """What the audit calls."""
    return LeakingModel()
