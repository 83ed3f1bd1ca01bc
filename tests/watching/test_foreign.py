"""Models of Hugging Face: ours with all their states, others by the hidden states they give."""

from typing import Any

import pytest
import torch
from torch import nn

import sympformer as sf
from sympformer.errors import InputError
from tests.models.cases import make, tokens

pytest.importorskip("transformers", reason="needs the hf extra")

SMALL: dict[str, Any] = {"vocab_size": 50, "bos_token_id": 0, "eos_token_id": 0}


def gpt2() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(n_positions=24, n_embd=16, n_layer=2, n_head=2, **SMALL)).double().eval()


def llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes: dict[str, Any] = {
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
    }
    return LlamaForCausalLM(LlamaConfig(**sizes, **SMALL)).double().eval()


@pytest.mark.parametrize("build", [gpt2, llama])
@torch.no_grad()
def test_hidden_states_lens_and_rows(build: Any) -> None:
    model, idx = build(), tokens(2, 6)
    kept = model.config._attn_implementation
    seen = sf.watch(model, idx, attention=[1, 4], lens=3)
    assert model.config._attn_implementation == kept
    output = model(idx, output_hidden_states=True)
    assert [stage.name for stage in seen.stages] == ["embedding", "layer 1", "layer 2"]
    torch.testing.assert_close(seen.x[:2], torch.stack(output.hidden_states[:2]))
    assert seen.y is None
    assert seen.physics.hamiltonian.startswith("No Hamiltonian")
    norm = model.transformer.ln_f if build is gpt2 else model.model.norm
    torch.testing.assert_close(norm(seen.x[-1]), output.hidden_states[-1])  # kept from before the norm
    assert seen.lens is not None
    assert torch.equal(seen.lens.ids[-1], output.logits.topk(3).indices)
    torch.testing.assert_close(
        seen.lens.probabilities[-1].double(), output.logits.softmax(-1).topk(3).values, rtol=1e-6, atol=1e-8
    )
    assert seen.attention is not None
    assert seen.attention.shape == (2, 2, 2, 2, 6)
    torch.testing.assert_close(seen.attention.sum(-1), torch.ones(2, 2, 2, 2, dtype=torch.float64))
    assert not norm._forward_hooks


def test_ours_in_the_form_of_hugging_face_keeps_its_momenta() -> None:
    from sympformer.hf import SympFormerForCausalLM

    model, idx = make("softmax-ab2"), tokens(1, 6)
    seen, twin = sf.watch(model, idx, lens=2), sf.watch(SympFormerForCausalLM.from_language_model(model), idx, lens=2)
    assert seen.y is not None
    assert twin.y is not None
    assert torch.equal(seen.x, twin.x)
    assert torch.equal(seen.y, twin.y)
    assert seen.stages == twin.stages


def test_logits_that_are_not_norm_and_head_have_no_lens() -> None:
    class Doubled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = gpt2()
            self.config = self.inner.config

        def get_output_embeddings(self) -> Any:
            return self.inner.get_output_embeddings()

        def forward(self, idx: Any, **asked: Any) -> Any:
            output = self.inner(idx, **asked)
            output.logits = 2 * output.logits
            return output

    assert len(sf.watch(Doubled(), tokens(1, 4)).x) == 3
    with pytest.raises(InputError, match="no logits that are its final norm and head applied to its states"):
        sf.watch(Doubled(), tokens(1, 4), lens=1)
