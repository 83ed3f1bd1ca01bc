"""A folder exported by the code of commit a79876e, before the layers were rebuilt, still loads and says the same."""

from pathlib import Path

import torch

from sympformer.exchange import import_run
from sympformer.training import load_run
from tests.exchange.test_export import load

OLD = Path(__file__).parent / "old_export"
# what that code answered to the ids 1 to 12: the sum of all logits, and the first of the last place
SUM, LAST = 49.83335876464844, [0.04376320168375969, 0.060446616262197495, 0.18043369054794312, 0.02515469118952751]


def test_its_logits_are_what_they_were(tmp_path: Path) -> None:
    import_run(OLD, tmp_path / "run")
    ids = torch.arange(1, 13).view(1, 12)
    theirs, own = load(OLD), load_run(tmp_path / "run").model
    with torch.no_grad():
        for logits in (theirs(ids, use_cache=False).logits, theirs(ids).logits, own(ids).logits):
            torch.testing.assert_close(logits[0, -1, :4], torch.tensor(LAST), rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(logits.sum().item(), SUM, rtol=1e-5, atol=1e-4)
