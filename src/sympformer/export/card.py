"""The model card: a README.md with the YAML head that the hub reads, filled from the record of the run."""

import math
import re
from typing import Any

import yaml

from sympformer.data.hub import HUB
from sympformer.models import ModelConfig
from sympformer.nn import STEPPERS
from sympformer.provenance import code_in
from sympformer.tables import Head, markdown_table
from sympformer.training.config import DEFAULT_VARIANT, TrainConfig, is_plain

LOSSES = {"validation_loss": "nats per token", "perplexity": "perplexity", "bits_per_byte": "bits per byte"}
PAGE = """---
{head}---

# {title}

A language model of {parameters:,} parameters with {attention} attention ({name}): {summary}. \
Made with sympformer {version}.

## How to load it

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

name = {place!r}  # or the path of this folder
tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=True)
model = AutoModelForCausalLM.from_pretrained(name, trust_remote_code=True)
ids = tokenizer("One day", return_tensors="pt")
print(tokenizer.decode(model.generate(**ids, max_new_tokens={new}, do_sample=True, temperature=0.8)[0]))
```

The source that the model needs is in this repository; `trust_remote_code` lets it run (the tokenizer is plain, but
transformers reads the model's config to load it). With sympformer installed, write `import sympformer.hf` and
leave `trust_remote_code` out.

## Model

{model}

## Data and budget

{training}

## Results

{results}

## Audit

`sympformer audit` {verdict} ({checks} checks: no token sees a later one, texts do not mix, cached generation equals \
the full pass). Details are in `sympformer_run.json`.{failures}

## Limits

It sees at most {context} tokens, knows only the text it was trained on, and has had no tuning for safety or \
instructions. Bundled source: MIT licence.
"""


def card(place: str, cfg: ModelConfig, parameters: int, record: dict[str, Any]) -> str:
    """The whole README.md. place: OWNER/NAME on a hub, or the folder's name."""
    name, report = model_name(record["config"]["model"], cfg), record["audit"]
    return PAGE.format(
        head=yaml.safe_dump(front_matter(place, name, record), sort_keys=False, allow_unicode=True),
        title=plain(place),
        parameters=parameters,
        attention=cfg.attention,
        name=name,
        summary=STEPPERS[cfg.stepper].summary,
        version=record["exported_by"]["sympformer"],
        place=place,
        new=max(1, min(50, cfg.block_size // 2)),  # prompt and new tokens must fit into the context
        model=_table(_model(name, cfg, parameters, record)),
        training=_table(_training(cfg, record)),
        results=_results(record),
        verdict="passed" if report["passed"] else "**failed**",
        checks=len(report["rows"]),
        failures="".join(f"\n\n- {row['sentence']}" for row in report["rows"] if not row["passed"]),
        context=cfg.block_size,
    )


def front_matter(place: str, name: str, record: dict[str, Any]) -> dict[str, Any]:
    corpus, scored = record["data"]["corpus"], record["evaluation"] or {}
    head: dict[str, Any] = {"library_name": "transformers", "pipeline_tag": "text-generation"}
    head["tags"] = ["sympformer", name]
    dataset = HUB[corpus].repo if corpus in HUB else corpus.split(":")[1] if corpus.startswith("hub:") else None
    if dataset is not None:
        head["datasets"] = [dataset]
    if math.isfinite(scored.get("validation_loss", math.nan)):
        metrics = [
            {"type": kind, "name": words, "value": scored[kind]}
            for kind, words in LOSSES.items()
            if math.isfinite(scored.get(kind, math.nan))
        ]
        text = {"name": corpus, "type": dataset or corpus, "split": "validation"}
        task = {"task": {"type": "text-generation"}, "dataset": text, "metrics": metrics}
        head["model-index"] = [{"name": place, "results": [task]}]
    return head


def model_name(options: dict[str, Any], cfg: ModelConfig) -> str:
    """The variant's name, or what the model is made of."""
    if not is_plain(options):
        return str(options.get("variant", DEFAULT_VARIANT))
    return "-".join(part.replace("_", "-") for part in (cfg.stepper, cfg.attention, cfg.integrator) if part)


def _model(name: str, cfg: ModelConfig, parameters: int, record: dict[str, Any]) -> dict[str, str]:
    options, tokenizer = record["config"]["model"], record["data"]["tokenizer"]
    preset = "" if is_plain(options) else f", preset {options.get('preset', 'tuned')}"
    return {
        "variant": name + preset,
        "layers, heads, width": f"{cfg.n_layer}, {cfg.n_head}, {cfg.d_model}",
        "context": f"{cfg.block_size} tokens",
        "tokenizer": f"{tokenizer['name']}, {tokenizer['vocab_size']:,} tokens",
        "parameters": f"{parameters:,}",
    }


def _training(cfg: ModelConfig, record: dict[str, Any]) -> dict[str, str]:
    config = TrainConfig.from_dict(record["config"])
    per_step = config.batch_size * config.accumulate * cfg.block_size
    rows = {
        "text": record["data"]["corpus"],
        "steps": f"{record['step']:,} of {config.total_steps(cfg.block_size):,}",
        "tokens": f"{record['step'] * per_step:,}, {per_step:,} a step",
        "optimizer": f"{config.optimizer}, peak rate {config.lr:g}, weight decay {config.weight_decay:g}",
        "precision": config.precision,
        "seed": str(config.seed),
        "code": ", then ".join(code_in(code).label for code in record["codes"]),
    }
    seconds = (record["evaluation"] or {}).get("seconds")
    return rows if seconds is None else rows | {"training time": f"{seconds:,.0f} s"}


def _results(record: dict[str, Any]) -> str:
    step, scored = record["step"], record["evaluation"]
    if scored is None:
        return f"These weights (step {step}) were not scored during training."
    rows = {
        "validation loss": f"{scored['validation_loss']:.4f} nats per token",
        "perplexity": f"{scored['perplexity']:.3f}",
        "bits per byte": f"{scored['bits_per_byte']:.4f}",
    }
    return f"Weights of step {step:,}, the {record['which']} of the run, on held-out text.\n\n{_table(rows)}"


def _table(rows: dict[str, str]) -> str:
    return markdown_table([Head("", left=True)] * 2, ((name, plain(value)) for name, value in rows.items())).rstrip()


def plain(text: str) -> str:
    """A name as text: no markup of its own, on one line, not long."""
    line = "".join(c for c in " ".join(text.split()) if c.isprintable())[:200]
    return re.sub(r"([\\`*\[\]<>]|_(?=\W|$)|(?<!\w)_)", r"\\\1", line)
