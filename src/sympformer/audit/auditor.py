"""The audit of one model: every check on every set of weights."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor, nn

from sympformer.audit import checks
from sympformer.audit.caching import chunked_logits
from sympformer.audit.checks import Finding
from sympformer.audit.gradients import adversarial
from sympformer.audit.report import AuditReport, AuditRow
from sympformer.audit.weights import Specimen, Weights, copied, specimen
from sympformer.errors import InputError
from sympformer.loading import Logits, as_text_model, block_size_of, logits_of, sees_all, token_tables, vocab_size_of
from sympformer.progress import steps_with_progress

LENGTH = 80  # tokens, if the model takes as many: more than the 64 of the longest chunk of our linear scan
LENGTHS = (LENGTH, 32, 16, 8)  # tried in turn where a model does not tell its longest text
LONGEST = 1 << 20  # tokens of a text
TEXTS = 3


@dataclass(frozen=True)
class Trial:
    """What a check needs."""

    model: nn.Module
    logits: Logits
    texts: Tensor  # (TEXTS, T)
    vocab_size: int
    tolerance: float
    seed: int

    @property
    def text(self) -> Tensor:
        """The first text, (1, T)."""
        return self.texts[:1]


# what every token seeing all does to a model, by name
FUTURE = ("causality", "adversarial", "prefix")


def _adversarial(trial: Trial) -> Finding:
    tables = token_tables(trial.model)
    return adversarial(trial.logits, tables, trial.text, trial.vocab_size, trial.tolerance, trial.seed)


def _cache(trial: Trial) -> Finding:
    if sees_all(trial.model):
        return Finding(None, note="not tried: where every token sees all, a text cannot be continued")
    chunked = chunked_logits(trial.model, trial.text[:, :1])
    if chunked is None:
        return Finding(None, note="not tried: the model has no cache")
    return checks.cache(chunked, trial.logits, trial.texts[:2], trial.tolerance, trial.seed)


# name -> check; the names are those of report.MEANINGS
CHECKS: dict[str, Callable[[Trial], Finding]] = {
    "repeat": lambda trial: checks.repeat(trial.logits, trial.texts, trial.tolerance),
    "causality": lambda trial: checks.causality(
        trial.logits, trial.text, trial.vocab_size, trial.tolerance, trial.seed
    ),
    "adversarial": _adversarial,
    "prefix": lambda trial: checks.prefix(trial.logits, trial.text, trial.tolerance, trial.seed),
    "batch": lambda trial: checks.batch(trial.logits, trial.texts, trial.tolerance),
    "cache": _cache,
}


def audit_model(
    model: nn.Module,
    *,
    vocab_size: int | None = None,
    length: int | None = None,
    seed: int = 0,
    weights: Sequence[Weights] = ("given", "perturbed"),
    dtype: torch.dtype | None = None,
    show_progress: bool | None = False,
) -> AuditReport:
    """Test causality, prefix invariance, batch independence and the cache of a model (B, T) ids -> logits.

    An `nn.Encoder` is looked at too; where all its tokens see all, it sees the future as asked, which is no failure.
    vocab_size: number of token ids; found in the model's config or embedding by default. length: tokens of the texts;
    80 by default, or what the model takes. weights: as given, perturbed, and "fresh" for sympformer models. dtype:
    float64 by default, or float32 for a model that cannot be converted. show_progress: None shows a bar on a terminal.
    The model stays as it is: copies are looked at, in eval mode.
    """
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    with torch.random.fork_rng([device] if device.type == "cuda" else []), torch.no_grad():
        model = copied(as_text_model(model)).eval()
        vocab_size = vocab_size_of(model) if vocab_size is None else vocab_size
        _check_options(vocab_size, length, seed, weights)
        texts = _texts(model, vocab_size, length, seed, device)

        @lru_cache(maxsize=1)  # one copy at a time
        def look_at(name: Weights) -> Specimen:
            return specimen(model, name, texts, dtype, seed)

        jobs = [(name, check) for name in weights for check in CHECKS]
        rows = []
        for i in steps_with_progress(len(jobs), "auditing", show_progress):
            name, check = jobs[i]
            rows.append(_row(name, check, look_at(name), texts, vocab_size, seed))
        return AuditReport(rows, look_at(weights[-1]).precision, texts.shape[1], vocab_size, seed)


def _row(name: str, check: str, looked_at: Specimen, texts: Tensor, vocab_size: int, seed: int) -> AuditRow:
    trial = Trial(looked_at.model, logits_of(looked_at.model), texts, vocab_size, looked_at.tolerance, seed)
    try:
        found = CHECKS[check](trial)
    except InputError as error:  # it took whole texts, and fails on prefixes, on a single text or in its cache
        found = Finding(math.inf, note=str(error))
    note = "; ".join(part for part in (found.note, looked_at.note) if part)
    asked = check in FUTURE and sees_all(looked_at.model)
    return AuditRow(check, name, found.deviation, looked_at.tolerance, found.first_position, note, asked)


def _check_options(vocab_size: int, length: int | None, seed: int, weights: Sequence[Weights]) -> None:
    if not 2 <= vocab_size < 1 << 31:
        raise InputError(f"vocab_size must be at least 2, and below 2^31, got {vocab_size}")
    if length is not None and not 2 <= length <= LONGEST:
        raise InputError(f"length must be at least 2 tokens, and at most {LONGEST:,}, got {length}")
    if not 0 <= seed < 1 << 63:
        raise InputError(f"seed must lie between 0 and 2^63 - 1, got {seed}")
    if not weights:
        raise InputError("weights must name at least one of given, fresh, perturbed")


def _texts(model: nn.Module, vocab_size: int, length: int | None, seed: int, device: torch.device) -> Tensor:
    """Random texts (TEXTS, T), as long as was asked for, or as the model takes."""

    def draw(T: int) -> Tensor:
        return torch.randint(vocab_size, (TEXTS, T), generator=torch.Generator().manual_seed(seed)).to(device)

    longest = block_size_of(model)
    if length is not None or longest is not None:
        if length is not None and longest is not None and length > longest:
            raise InputError(f"length {length} exceeds the {longest} tokens that the model takes")
        return draw(length or min(LENGTH, longest or LENGTH))
    for T in LENGTHS:
        try:
            logits_of(model)(draw(T))
        except InputError:
            if LENGTHS[-1] == T:
                raise
        else:
            return draw(T)
    raise AssertionError("the last length returns or raises")
