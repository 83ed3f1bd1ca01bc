"""From a run folder to a folder that Hugging Face's transformers loads, with or without sympformer installed."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError

from sympformer.errors import InputError
from sympformer.exchange.bundle import bundle
from sympformer.exchange.card import CARD, CardFacts, card
from sympformer.exchange.record import RECORD, Record, record_of
from sympformer.exchange.tokenizers import save_fast_tokenizer
from sympformer.files import check_new, new_folder
from sympformer.opening import Opened, open_model
from sympformer.training.folder import RunFolder

if TYPE_CHECKING:
    from sympformer.hf import SympFormerForCausalLM

CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"
AUTO_MAP = {
    "AutoConfig": "configuration_sympformer.SympFormerConfig",
    "AutoModel": "modeling_sympformer.SympFormerModel",
    "AutoModelForCausalLM": "modeling_sympformer.SympFormerForCausalLM",
}


def export_run(
    run: str | Path,
    out: str | Path,
    which: str = "best",
    name: str | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Record:
    """Write the model of a run folder to `out`, whole or not at all.

    which: the "best" weights by validation loss, or the "last". name: OWNER/NAME on a hub, for the card.
    """
    from sympformer.audit import audit_model

    out = Path(out)
    check_new(out)
    folder, trained = RunFolder.open(run), open_model(run, which, say=say)  # type: ignore[arg-type]
    model, tokenizer = trained.ours()
    report = audit_model(model, show_progress=None)
    record = record_of(folder, trained, which, report.to_dict())
    if not report.passed:
        say("the audit failed, and the card says so: see 'sympformer audit'")
    with new_folder(out) as work:
        _save(to_hugging_face(trained), work, out)
        save_fast_tokenizer(tokenizer, work, model.cfg.block_size)
        for file, source in bundle().items():
            (work / file).write_text(source, encoding="utf-8")
        parameters = sum(parameter.numel() for parameter in model.parameters())
        facts = CardFacts(name or out.name, model.cfg, parameters, record)
        (work / CARD).write_text(card(facts), encoding="utf-8")
        (work / RECORD).write_text(record.to_json(), encoding="utf-8")
    return record


def _save(model: "SympFormerForCausalLM", work: Path, out: Path) -> None:
    """Weights and config; the library that writes the weights has an error of its own for a disk that is full, and
    lets nobody else read them.
    """
    try:
        model.save_pretrained(work)
    except SafetensorError as error:
        raise InputError(f"cannot write {out}: {error}") from error
    for file in work.glob("*.safetensors"):
        shutil.copymode(work / CONFIG, file)


def to_hugging_face(trained: Opened) -> "SympFormerForCausalLM":
    """The model of a run as a Hugging Face model with its own copy of the weights."""
    from transformers import GenerationConfig

    from sympformer.hf import SympFormerForCausalLM

    model_of_ours, tokenizer = trained.ours()
    end = tokenizer.end_of_text
    special = {"bos_token_id": end, "eos_token_id": end, "pad_token_id": end}
    model = SympFormerForCausalLM.from_language_model(model_of_ours, **special, auto_map=AUTO_MAP)
    model.generation_config = GenerationConfig(**special)
    return model
