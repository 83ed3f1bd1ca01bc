"""Where larger data may lie on this machine; tests that want it skip, with a reason, where it does not."""

from pathlib import Path

import pytest

MERGES = Path(__file__).parents[2].parent / "shared" / "data" / "gpt2" / "merges.txt"
needs_merges = pytest.mark.skipif(not MERGES.is_file(), reason=f"GPT-2's merges are not at {MERGES}")
