"""`sympformer export`."""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from sympformer.errors import InputError, missing_extra


def export(
    run: str, out: str, which: Literal["best", "last"] = "best", push: str | None = None, private: bool = False
) -> None:
    """Make a Hugging Face folder of a trained run that loads without sympformer: weights, config, tokenizer, card, and
    the source it needs.

    Args:
        run: Run folder.
        out: Folder to write; it must not exist or be empty.
        which: The best weights by validation loss, or the last.
        push: OWNER/NAME: send the folder to the hub as well. Log in with 'hf auth login' first.
        private: Make a new repository private.
    """
    from sympformer.export.export import check_repository, export_run, push_folder

    if push is not None and find_spec("huggingface_hub") is None:
        raise missing_extra("--push", "huggingface_hub", "hf")
    if push is not None:
        check_repository(push)
    elif private:
        raise InputError("--private goes with --push OWNER/NAME")
    record = export_run(run, out, which, push, lambda text: print(text, file=sys.stderr))
    audit = "passed" if record["audit"]["passed"] else "FAILED"
    print(f"{out}: the model of {run}, step {record['step']} ({which}), audit {audit}")
    if push is not None:
        print(f"pushed to {push_folder(Path(out), push, private)}")
