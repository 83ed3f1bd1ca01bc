"""From a run, which is a folder that transformers loads, to one that it loads without sympformer too; and to a hub.

config.json  model.safetensors  tokenizer.json  tokenizer_config.json  generation_config.json     as in the run
*_sympformer.py  sympformer_*.py     the source that the model needs
README.md  sympformer_run.json       the card, and what it was filled from
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from safetensors.torch import save

from sympformer.audit import audit_model
from sympformer.errors import InputError
from sympformer.export.bundle import bundle
from sympformer.export.card import card
from sympformer.files import check_new, new_folder
from sympformer.models.folder import CONFIG, WEIGHTS, config_files, saved_names
from sympformer.opening import Opened, open_model
from sympformer.provenance import this_code
from sympformer.training.checkpoint import digest, model_tensors
from sympformer.training.folder import RunFolder, tokenizer_config

CARD, RECORD = "README.md", "sympformer_run.json"
AUTO_MAP = {
    "AutoConfig": "configuration_sympformer.SympFormerConfig",
    "AutoModel": "modeling_sympformer.SympFormerModel",
    "AutoModelForCausalLM": "modeling_sympformer.SympFormerForCausalLM",
}
# of a run's record: what the result depends on, not whose machine it was
KEPT = ("codes", "budgets", "init_from", "python", "torch", "processes")
SCORES = (
    "step", "tokens", "epoch", "validation_loss", "perplexity", "bits_per_byte", "best_validation_loss", "seconds",
)  # fmt: skip


def export_run(
    run: str | Path,
    out: str | Path,
    which: Literal["best", "last"] = "best",
    name: str | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Write the model of a run folder to `out`, whole or not at all; returns the record.

    which: the "best" weights by validation loss, or the "last". name: OWNER/NAME on a hub, for the card.
    """
    out = Path(out)
    check_new(out)
    folder, opened = RunFolder.open(run), open_model(run, which, say=say)
    model, tokenizer = opened.ours()
    report = audit_model(model, show_progress=None)
    if not report.passed:
        say("the audit failed, and the card says so: see 'sympformer audit'")
    record = record_of(folder, opened, which, report.to_dict())
    files = config_files(model.cfg, tokenizer.end_of_text) | tokenizer_config(model.cfg.block_size) | bundle()
    files[CONFIG] = json.dumps(json.loads(files[CONFIG]) | {"auto_map": AUTO_MAP}, indent=2) + "\n"
    files[RECORD] = json.dumps(record, indent=2) + "\n"
    tensors = model_tensors(model)
    with new_folder(out) as work:
        parameters = sum(parameter.numel() for parameter in model.parameters())
        files[CARD] = card(name or out.name, model.cfg, parameters, record)
        tokenizer.save(work)
        for file, content in files.items():
            (work / file).write_text(content, encoding="utf-8")
        about = {"format": "pt", "step": str(opened.step), "sha256": digest(tensors)}
        (work / WEIGHTS).write_bytes(save(saved_names(tensors), about))
    return record


def record_of(run: RunFolder, opened: Opened, which: str, audit: dict[str, Any]) -> dict[str, Any]:
    """The story of the weights: how they were trained, on what, by which code; their losses, their audit."""
    whole = run.record
    scored = [row for row in run.metrics() if row["step"] == opened.step and "validation_loss" in row]
    return {
        "which": which,
        "step": opened.step,
        "evaluation": {name: scored[-1][name] for name in SCORES if name in scored[-1]} if scored else None,
        "config": run.config.to_dict(),
        "data": {name: whole["data"][name] for name in ("corpus", "sha256", "tokenizer")},
        **{name: whole[name] for name in KEPT if name in whole},
        "audit": audit,
        "exported_by": this_code().to_dict(),
    }


# --- to a hub: HF_ENDPOINT chooses another one; HF_TOKEN or `hf auth login` says who you are


def check_repository(name: str) -> None:
    """Refuse what cannot be the name of a repository, before any work."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(name)
    except HFValidationError as error:
        raise InputError(f"--push {name!r} is not OWNER/NAME: {_first_line(error)}") from error
    if name.count("/") != 1:
        raise InputError(f"--push {name!r} is not OWNER/NAME: say under whose name the model goes to the hub")


def push_folder(folder: Path, name: str, private: bool = False) -> str:
    """Make the repository if it is not there, and put the folder's files into it in one commit; returns its address."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError
    from huggingface_hub.utils import disable_progress_bars

    disable_progress_bars()
    api = HfApi(library_name="sympformer")
    # the bases of the hub library's own error are those of whatever HTTP library it uses; ValueError: an address that
    # is none; RuntimeError: a file that did not go through
    troubles: tuple[type[BaseException], ...] = (ValueError, OSError, RuntimeError, *HfHubHTTPError.__bases__)
    try:
        url = api.create_repo(name, private=private, exist_ok=True)
        api.upload_folder(folder_path=folder, repo_id=name, commit_message="Upload a sympformer model")
    except troubles as error:
        status = getattr(getattr(error, "response", None), "status_code", None)
        what = f"{name} did not reach the hub ({_first_line(error)})"
        if status in (401, 403) or type(error).__name__ == "LocalTokenNotFoundError":
            what = f"the hub does not let you write to {name} (status {status}): log in with 'hf auth login'"
        again = f"the folder {folder} is whole: try again with 'hf upload {name} {folder}'"
        raise InputError(f"{what}; {again}") from error
    return str(url)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
