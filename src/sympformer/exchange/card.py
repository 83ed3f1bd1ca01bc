"""The model card: a README.md with the YAML head that the hub reads, filled from the run."""

import math
import re
from dataclasses import dataclass
from typing import Any

from sympformer.audit import AuditReport
from sympformer.data.hub import HUB
from sympformer.exchange.record import Record
from sympformer.models import ModelConfig
from sympformer.nn import STEPPERS
from sympformer.provenance import code_in
from sympformer.tables import Head, markdown_table
from sympformer.training.choices import is_plain
from sympformer.training.config import DEFAULT_VARIANT, TrainConfig

CARD = "README.md"


@dataclass(frozen=True)
class CardFacts:
    """What a card is about."""

    title: str  # OWNER/NAME on a hub, or the folder's name
    cfg: ModelConfig
    parameters: int
    record: Record


def card(facts: CardFacts) -> str:
    """The whole README.md."""
    import yaml

    head = yaml.safe_dump(front_matter(facts), sort_keys=False, allow_unicode=True)
    parts = [_opening(facts), _loading(facts), _model(facts), _training(facts), _results(facts.record)]
    return f"---\n{head}---\n\n" + "\n\n".join([*parts, _audit(facts.record), _limits(facts)]) + "\n"


def front_matter(facts: CardFacts) -> dict[str, Any]:
    """The card's metadata."""
    record = facts.record
    head: dict[str, Any] = {
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["sympformer", model_name(record, facts.cfg)],
    }
    if (dataset := hub_dataset(corpus_of(record))) is not None:
        head["datasets"] = [dataset]
    if record.evaluation is not None and math.isfinite(record.evaluation["validation_loss"]):
        head["model-index"] = [{"name": facts.title, "results": [_index(record)]}]
    return head


def _index(record: Record) -> dict[str, Any]:
    evaluation = record.evaluation or {}
    names = {"validation_loss": "nats per token", "perplexity": "perplexity", "bits_per_byte": "bits per byte"}
    metrics = [
        {"type": kind, "name": name, "value": evaluation[kind]}
        for kind, name in names.items()
        if math.isfinite(evaluation.get(kind, math.nan))
    ]
    corpus = corpus_of(record)
    dataset = {"name": corpus, "type": hub_dataset(corpus) or corpus, "split": "validation"}
    return {"task": {"type": "text-generation"}, "dataset": dataset, "metrics": metrics}


def corpus_of(record: Record) -> str:
    """The name of the training text."""
    return str(record.environment.get("data", {}).get("corpus", record.config["data"]["corpus"]))


def hub_dataset(corpus: str) -> str | None:
    """OWNER/NAME of a corpus that is on the hub."""
    if corpus in HUB:
        return HUB[corpus].repo
    return corpus.split(":")[1] if corpus.startswith("hub:") else None


def model_name(record: Record, cfg: ModelConfig) -> str:
    """The variant's name, or its parts."""
    options = record.config["model"]
    if not is_plain(options):
        return str(options.get("variant", DEFAULT_VARIANT))
    parts = (cfg.stepper, cfg.attention, cfg.to_dict().get("integrator", ""))
    return "-".join(part.replace("_", "-") for part in parts if part)


def _opening(facts: CardFacts) -> str:
    cfg = facts.cfg
    return (
        f"# {plain(facts.title)}\n\nA language model of {facts.parameters:,} parameters with {cfg.attention} attention "
        f"({model_name(facts.record, cfg)}): {STEPPERS[cfg.stepper].summary}. "
        f"Made with sympformer {facts.record.sympformer}."
    )


def _loading(facts: CardFacts) -> str:
    new = max(1, min(50, facts.cfg.block_size // 2))  # prompt and new tokens must fit into the context
    return f"""## How to load it

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

name = {facts.title!r}  # or the path of this folder
tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=True)
model = AutoModelForCausalLM.from_pretrained(name, trust_remote_code=True)
ids = tokenizer("One day", return_tensors="pt")
print(tokenizer.decode(model.generate(**ids, max_new_tokens={new}, do_sample=True, temperature=0.8)[0]))
```

The source that the model needs is in this repository; `trust_remote_code` lets it run (the tokenizer is plain, but
transformers reads the model's config to load it). With sympformer installed, write `import sympformer.hf` and
leave `trust_remote_code` out."""


def _model(facts: CardFacts) -> str:
    cfg, record = facts.cfg, facts.record
    options = record.config["model"]
    preset = "" if is_plain(options) else f", preset {options.get('preset', 'tuned')}"
    rows = {
        "variant": model_name(record, cfg) + preset,
        "layers, heads, width": f"{cfg.n_layer}, {cfg.n_head}, {cfg.d_model}",
        "context": f"{cfg.block_size} tokens",
        "tokenizer": f"{record.tokenizer['name']}, {record.tokenizer['vocab_size']:,} tokens",
        "parameters": f"{facts.parameters:,}",
    }
    return "## Model\n\n" + _table(rows)


def _training(facts: CardFacts) -> str:
    config, progress = facts.record.config, facts.record.progress
    per_step = config["batch_size"] * config["accumulate"] * facts.cfg.block_size
    rows = {
        "text": corpus_of(facts.record),
        "steps": f"{progress['step']:,} of {_total_steps(facts):,}",
        "tokens": f"{progress['step'] * per_step:,}, {per_step:,} a step",
        "optimizer": f"{config['optimizer']}, peak rate {config['lr']:g}, weight decay {config['weight_decay']:g}",
        "precision": config["precision"],
        "seed": str(config["seed"]),
        "code": ", then ".join(code_in(code).label for code in facts.record.environment["codes"]),
    }
    if (seconds := (facts.record.evaluation or {}).get("seconds")) is not None:
        rows["training time"] = f"{seconds:,.0f} s"
    return "## Data and budget\n\n" + _table(rows)


def _total_steps(facts: CardFacts) -> int:
    return TrainConfig.from_dict(facts.record.config).total_steps(facts.cfg.block_size)


def _results(record: Record) -> str:
    if record.evaluation is None:
        return f"## Results\n\nThese weights (step {record.progress['step']}) were not scored during training."
    kind = "the best of the run" if record.which == "best" else "the last of the run"
    rows = {
        "validation loss": f"{record.evaluation['validation_loss']:.4f} nats per token",
        "perplexity": f"{record.evaluation['perplexity']:.3f}",
        "bits per byte": f"{record.evaluation['bits_per_byte']:.4f}",
    }
    return f"## Results\n\nWeights of step {record.progress['step']:,}, {kind}, on held-out text.\n\n{_table(rows)}"


def _audit(record: Record) -> str:
    report = AuditReport.from_dict(record.audit)
    failed = [f"\n\n- {row.sentence}" for row in report.failures]
    verdict = "passed" if report.passed else "**failed**"
    return (
        f"## Audit\n\n`sympformer audit` {verdict} ({len(report.rows)} checks: no token sees a later one, texts do not "
        "mix, cached generation equals the full pass). Details are in `sympformer_run.json`." + "".join(failed)
    )


def _limits(facts: CardFacts) -> str:
    return (
        f"## Limits\n\nIt sees at most {facts.cfg.block_size} tokens, knows only the text it was trained on, and has "
        "had no tuning for safety or instructions. Bundled source: MIT licence."
    )


def _table(rows: dict[str, str]) -> str:
    return markdown_table([Head("", left=True)] * 2, ((name, plain(value)) for name, value in rows.items())).rstrip()


def plain(text: str) -> str:
    """A name as text: no markup of its own, on one line, not long."""
    line = "".join(c for c in " ".join(text.split()) if c.isprintable())[:200]
    return re.sub(r"([\\`*\[\]<>]|_(?=\W|$)|(?<!\w)_)", r"\\\1", line)
