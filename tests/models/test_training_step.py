"""Loss and steps: the fused loss, one step that lowers it, dropout, shared layers, and the same under torch.compile."""

import pytest
import torch

from sympformer.models import VARIANTS
from sympformer.models.describe import parameter_counts
from tests.models.cases import SIZE, every_model, make, make_choice, tokens


@every_model
def test_loss_equals_cross_entropy_of_the_logits(name: str, preset: str) -> None:
    model, idx, targets = make(name, preset), tokens(), tokens(seed=9)
    targets[0, :5] = -100
    out = model(idx, targets=targets)
    want = torch.nn.functional.cross_entropy(out.logits.flatten(0, 1), targets.flatten(), ignore_index=-100)
    torch.testing.assert_close(out.loss, want, rtol=1e-9, atol=1e-9)


def test_dropout_acts_in_training_only() -> None:
    model = make_choice("dropout")
    idx = tokens()
    assert torch.equal(model(idx).logits, model(idx).logits)
    model.train()
    assert not torch.equal(model(idx).logits, model(idx).logits)


def test_shared_layers_have_one_set_of_weights() -> None:
    shared, apart = make_choice("shared"), make("softmax-etd-ab2")
    assert len(shared.blocks) == 1
    assert len(shared.layer_scalars()) == len(apart.layer_scalars()) == SIZE["n_layer"]
    assert sum(parameter_counts(shared).values()) < sum(parameter_counts(apart).values())


# --- torch.compile


COMPILED = [(name, "aot_eager") for name in VARIANTS] + [
    # code generation takes half a minute each: one of every kind
    (name, "inductor")
    for name in ("softmax-baseline", "softmax-yuriiformer", "softmax-exp-euler", "linear-etd-ab2")
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "backend"), COMPILED)
def test_compiled_equals_eager_and_trains(name: str, backend: str) -> None:
    import warnings

    import torch._dynamo as dynamo

    model = make(name, dtype=torch.float32, n_layer=2).train()
    idx, targets = tokens(4), tokens(4, seed=9)
    eager = model(idx, targets=targets)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the compiler's own deprecations
        dynamo.reset()  # else the models of earlier tests use up the recompilation limit, and all runs eagerly
        dynamo.utils.counters.clear()
        compiled = torch.compile(model, backend=backend)
        out = compiled(idx, targets=targets)
        assert dynamo.utils.counters["frames"]["ok"] > 0
        assert not dynamo.utils.counters["graph_break"], "the forward pass must be one graph"
        torch.testing.assert_close(out.loss, eager.loss, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(out.logits, eager.logits, rtol=1e-3, atol=1e-4)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = compiled(idx, targets=targets).loss
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert losses[2] < losses[0]
