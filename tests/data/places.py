"""Where larger data may lie on this machine; tests that want it skip, with a reason, where it does not."""

from pathlib import Path

import pytest

SHARED = Path(__file__).parents[2].parent / "shared" / "data"
MERGES = SHARED / "gpt2" / "merges.txt"
TINYSTORIES = SHARED / "tinystories"

needs_merges = pytest.mark.skipif(not MERGES.is_file(), reason=f"GPT-2's merges are not at {MERGES}")
needs_tinystories = pytest.mark.skipif(not TINYSTORIES.is_dir(), reason=f"no TinyStories sample at {TINYSTORIES}")
