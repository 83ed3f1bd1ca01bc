"""The command `sympformer export`."""

from pathlib import Path
from typing import Literal

from sympformer.errors import InputError, missing_extra


def export(
    run: str, out: str, which: Literal["best", "last"] = "best", push: str | None = None, private: bool = False
) -> int:
    """Make a Hugging Face folder of a trained run: weights, config, tokenizer, card, and the source it needs.

    Args:
        run: Run folder.
        out: Folder to write; it must not exist or be empty.
        which: The best weights by validation loss, or the last.
        push: OWNER/NAME: send the folder to the hub as well. Log in with 'hf auth login' first.
        private: Make a new repository private.
    """
    require_transformers("export")
    from sympformer.exchange.exporting import export_run
    from sympformer.exchange.push import check_repository, push_folder

    if push is not None:
        check_repository(push)
    elif private:
        raise InputError("--private goes with --push OWNER/NAME")
    _calm()
    record = export_run(run, out, which, push, _say)
    audit = "passed" if record.audit["passed"] else "FAILED"
    print(f"{out}: the model of {run}, step {record.progress['step']} ({which}), audit {audit}")
    if push is not None:
        print(f"pushed to {push_folder(Path(out), push, private)}")
    return 0


def require_transformers(command: str) -> None:
    """Raise where transformers is not installed."""
    from importlib.util import find_spec

    if find_spec("transformers") is None:
        raise missing_extra(f"'sympformer {command}'", "transformers", "hf")


def _calm() -> None:
    """No bars and log lines between our own."""
    from huggingface_hub.utils import logging as hub_logging
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    hub_logging.set_verbosity_error()


def _say(text: str) -> None:
    import sys

    print(text, file=sys.stderr)
