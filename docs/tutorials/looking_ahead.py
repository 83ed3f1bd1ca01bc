"""Is my model looking ahead?

A language model that sees the future has a wonderful loss and is worth nothing. The leak is easy to write and hard to
see. Here is a model that is not ours, written as one writes such a model, with a slip in it; the audit that finds the
slip; the repair; and a model of Hugging Face's library under the same audit.
"""

import torch
from torch import Tensor, nn

from sympformer.audit import AuditReport, assert_causal, audit_model


def main() -> None:
    """Audit, repair, audit again."""
    show("with a slip", Foreign(slip=True))
    show("repaired", Foreign(slip=False))
    assert_causal(Foreign(slip=False), length=24)  # what to write in your own tests
    hugging_face()


# ## A model from elsewhere
#
# Two blocks of masked attention with PyTorch's own parts. The attention is right. The slip is in the norm before it:
# it centres every feature over the *whole text*, which a mask in the attention does not see. In training the loss
# looks fine, a little too fine.
class Block(nn.Module):
    def __init__(self, d: int, slip: bool) -> None:
        super().__init__()
        self.slip = slip
        self.norm, self.attention = nn.LayerNorm(d), nn.MultiheadAttention(d, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x: Tensor) -> Tensor:
        u = self.norm(x)
        if self.slip:
            u = u - u.mean(1, keepdim=True)  # over all tokens: also those to come
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        x = x + self.attention(u, u, u, attn_mask=mask, need_weights=False)[0]
        return x + self.mlp(x)


class Foreign(nn.Module):
    def __init__(self, slip: bool, vocabulary: int = 100, d: int = 16) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, d), nn.Embedding(64, d)
        self.blocks = nn.Sequential(Block(d, slip), Block(d, slip))
        self.head = nn.Linear(d, vocabulary)

    def forward(self, idx: Tensor) -> Tensor:
        return self.head(self.blocks(self.tokens(idx) + self.places(torch.arange(idx.shape[1]))))


# ## The audit
#
# Any module from token ids to logits will do. Later tokens are edited, and no earlier logit may move; a text's
# beginning must have the same logits alone; a text must not care for its neighbours in the batch. All in float64, with
# the given weights and with noise on them, because a fresh model can hide a leak where a layer starts at zero.
def show(name: str, model: nn.Module) -> AuditReport:
    report = audit_model(model, length=24)
    print(f"{name}: {'passes' if report.passed else report.worst.sentence}")
    return report


# ## A model of Hugging Face's
#
# The same audit, and since the model has a cache of keys and values, reading through the cache in pieces must give
# what reading the whole text gives. From the shell: `sympformer audit some-folder/`, or `package.module:factory`; the
# exit code is 1 where something leaks.
def hugging_face() -> AuditReport | None:
    try:
        from transformers import GPT2Config, GPT2LMHeadModel
    except ImportError:
        print("transformers is not installed (the extra hf has it)")
        return None
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=100, n_positions=64, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
    return show("GPT-2 of Hugging Face", GPT2LMHeadModel(config))


# ## What it cannot show
#
# It tries some texts and some edits: it finds leaks, it does not prove that there are none. And it looks at the model,
# not at the data: a validation set that was trained on is a leak of another kind. [Auditing](../audit.md) has the
# whole list.
if __name__ == "__main__":
    main()
