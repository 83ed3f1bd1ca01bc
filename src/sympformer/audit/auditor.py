"""The audit of one model: every check on every set of weights, each on a copy in the best precision it can do."""

import copy
import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from sympformer.audit import checks
from sympformer.audit.checks import ChunkedLogits, Finding
from sympformer.audit.report import AuditReport, AuditRow
from sympformer.errors import InputError, unknown_name
from sympformer.models import LanguageModel, build_model, perturb_
from sympformer.models.foreign import (
    Logits,
    as_text_model,
    block_size_of,
    find_logits,
    logits_of,
    one_line,
    sees_all,
    token_tables,
    vocab_size_of,
)
from sympformer.progress import steps_with_progress

Weights = Literal["given", "fresh", "perturbed"]
LENGTHS = (80, 32, 16, 8)  # tokens; tried in turn where a model does not tell its longest text. Chunks of scans have 64
TEXTS = 3
LIMITS = {"vocab_size": (2, 2**31 - 1), "length": (2, 2**20), "seed": (0, 2**63 - 1)}
GAIN = 0.8  # of a perturbation, seen as a matrix on vectors of its width; 0.2 an entry at width 16
TRIES = 5  # perturbations, each half as strong, before giving up on finite logits
# tolerance, as a share of the largest logit, by the least precise numbers that a model works with
TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 5e-2, torch.float16: 1e-2}


def audit_model(
    model: nn.Module,
    *,
    vocab_size: int | None = None,
    length: int | None = None,
    seed: int = 0,
    weights: Sequence[Weights] = ("given", "perturbed"),
    show_progress: bool | None = False,
) -> AuditReport:
    """Test causality, prefix invariance, batch independence and the cache of a model (B, T) ids -> logits.

    An `nn.Encoder` is looked at too; where all its tokens see all, it sees the future as asked, which is no failure.
    vocab_size: number of token ids; found in the model's config or embedding by default. length: tokens of the texts;
    80 by default, or what the model takes. weights: as given, perturbed, and "fresh" for sympformer models.
    show_progress: None shows a bar on a terminal. The model stays as it is: copies are looked at, in eval mode, in
    float64, or in float32 where they cannot be converted.
    """
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    with torch.random.fork_rng([device] if device.type == "cuda" else []), torch.no_grad():
        model = _copied(as_text_model(model)).eval()
        vocab_size = vocab_size_of(model) if vocab_size is None else vocab_size
        _check_options({"vocab_size": vocab_size, "length": length, "seed": seed}, weights)
        texts = _texts(model, vocab_size, length, seed).to(device)

        @lru_cache(maxsize=1)  # one copy at a time
        def look_at(name: Weights) -> Specimen:
            return specimen(model, name, texts, vocab_size, seed)

        jobs = [(name, check) for name in weights for check in CHECKS]
        rows = [_row(*jobs[i], look_at(jobs[i][0])) for i in steps_with_progress(len(jobs), "auditing", show_progress)]
        return AuditReport(rows, look_at(weights[-1]).precision, texts.shape[1], vocab_size, seed)


def assert_causal(model: nn.Module, **options: Any) -> None:
    """For tests: raise an AssertionError that names check, position and deviation, unless the model passes the audit.

    options: those of `audit_model`, such as vocab_size, length, seed.
    """
    rows = audit_model(model, **options).rows
    lines = [row.sentence for row in rows if not row.passed or row.asked]
    if lines:
        found = "\n  ".join(lines)
        raise AssertionError(f"{type(model).__name__} fails {len(lines)} of {len(rows)} checks:\n  {found}")


def _check_options(numbers: dict[str, int | None], weights: Sequence[Weights]) -> None:
    for name, number in numbers.items():
        least, most = LIMITS[name]
        if number is not None and not least <= number <= most:
            raise InputError(f"{name} must lie between {least} and {most:,}, got {number}")
    if not weights:
        raise InputError("weights must name at least one of given, fresh, perturbed")


def _texts(model: nn.Module, vocab_size: int, length: int | None, seed: int) -> Tensor:
    """Random texts (TEXTS, T), as long as was asked for, or as the model takes."""

    def draw(T: int) -> Tensor:
        return torch.randint(vocab_size, (TEXTS, T), generator=torch.Generator().manual_seed(seed))

    longest = block_size_of(model)
    if length is not None and longest is not None and length > longest:
        raise InputError(f"length {length} exceeds the {longest} tokens that the model takes")
    if length is not None or longest is not None:
        return draw(length or min(LENGTHS[0], longest or LENGTHS[0]))
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    for T in LENGTHS[:-1]:
        try:
            logits_of(model)(draw(T).to(device))
        except InputError:
            continue
        return draw(T)
    return draw(LENGTHS[-1])


# --- checks


@dataclass(frozen=True)
class Specimen:
    """A model to be looked at, in eval mode, with its texts and the tolerance that its precision and logits allow."""

    model: nn.Module
    texts: Tensor  # (TEXTS, T)
    vocab_size: int
    seed: int
    tolerance: float
    precision: str
    note: str = ""

    @property
    def logits(self) -> Logits:
        return logits_of(self.model)

    @property
    def text(self) -> Tensor:
        """The first text, (1, T)."""
        return self.texts[:1]


def _cache(m: Specimen) -> Finding:
    if sees_all(m.model):
        return Finding(None, note="not tried: where every token sees all, a text cannot be continued")
    chunked = chunked_logits(m.model, m.text[:, :1])
    if chunked is None:
        return Finding(None, note="not tried: the model has no cache")
    return checks.cache(chunked, m.logits, m.texts[:2], m.tolerance, m.seed)


# name -> check; the names are those of report.MEANINGS
CHECKS: dict[str, Callable[[Specimen], Finding]] = {
    "repeat": lambda m: checks.repeat(m.logits, m.texts, m.tolerance),
    "causality": lambda m: checks.causality(m.logits, m.text, m.vocab_size, m.tolerance, m.seed),
    "adversarial": lambda m: checks.adversarial(
        m.logits, token_tables(m.model), m.text, m.vocab_size, m.tolerance, m.seed
    ),
    "prefix": lambda m: checks.prefix(m.logits, m.text, m.tolerance, m.seed),
    "batch": lambda m: checks.batch(m.logits, m.texts, m.tolerance),
    "cache": _cache,
}
FUTURE = ("causality", "adversarial", "prefix")  # what every token seeing all does to a model


def _row(weights: str, check: str, m: Specimen) -> AuditRow:
    try:
        found = CHECKS[check](m)
    except InputError as error:  # it took whole texts, and fails on prefixes, on a single text or in its cache
        found = Finding(math.inf, note=str(error))
    note = "; ".join(filter(None, (found.note, m.note)))
    asked = check in FUTURE and sees_all(m.model)
    return AuditRow(check, weights, found.deviation, m.tolerance, found.first_position, note, asked)


def chunked_logits(model: Any, token: Tensor) -> ChunkedLogits | None:
    """The chunked pass of a model with `new_cache(batch_size)` and `cache=`, or with Hugging Face's `past_key_values`.

    None for a model without a cache. token: (1, 1) ids to try.
    """
    ours = hasattr(model, "new_cache")
    if not ours:
        if not {"past_key_values", "use_cache"} <= set(inspect.signature(model.forward).parameters):
            return None
        if getattr(model(token, use_cache=True), "past_key_values", None) is None:  # encoders have none
            return None

    def chunked(idx: Tensor, sizes: Sequence[int]) -> Tensor:
        try:
            cache, out = model.new_cache(len(idx)) if ours else None, []
            for part in idx.split(list(sizes), 1):
                output = model(part, cache=cache) if ours else model(part, past_key_values=cache, use_cache=True)
                cache = cache if ours else output.past_key_values
                out.append(find_logits(output, part))
            return torch.cat(out, 1)
        except InputError:
            raise
        except Exception as error:
            raise InputError(f"the cache failed on chunks of {[*sizes][:6]} tokens: {one_line(error)}") from error

    return chunked


# --- the copies that are looked at


def specimen(model: nn.Module, weights: Weights, texts: Tensor, vocab_size: int, seed: int) -> Specimen:
    """The copy of `model` with the weights asked for, in float64 if it works there, else in float32."""
    if weights not in ("given", "fresh", "perturbed"):
        raise unknown_name("weights", weights, ["given", "fresh", "perturbed"])
    if weights != "fresh":
        looked_at = _copied(model)
    elif isinstance(model, LanguageModel):
        looked_at = build_model(model.cfg, seed)
    else:
        raise InputError(f"weights 'fresh' need a sympformer model, got {type(model).__name__}: leave them out")
    looked_at.eval()
    try:  # complex numbers stay what they are
        logits_of(looked_at.double())(texts)
    except (InputError, TypeError):  # TypeError: a device without float64
        looked_at.float()
    note = _perturb(looked_at, texts, seed) if weights == "perturbed" else ""
    with _SeenDtypes() as dtypes:  # some models work in float32 inside, whatever their weights are
        logits = logits_of(looked_at)(texts)
    if not _usable(logits):
        raise InputError(f"the logits of the model with {weights} weights are not finite: nothing can be compared")
    least = max(dtypes.seen, key=TOLERANCES.__getitem__)
    scale = logits[logits.isfinite()].abs().max().item()
    outer, inner = (str(d).removeprefix("torch.") for d in (logits.dtype, least))
    precision = outer if outer == inner else f"{outer}, {inner} inside"
    return Specimen(looked_at, texts, vocab_size, seed, TOLERANCES[least] * (scale or 1.0), precision, note)


def _copied(model: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(model)
    except (RuntimeError, TypeError, NotImplementedError) as error:
        raise InputError(f"the model cannot be copied, and an audit works on a copy: {error}") from error


def _perturb(model: nn.Module, idx: Tensor, seed: int) -> str:
    """Put noise on every matrix and table, so that all parts matter: a fresh start hides leaks. Gives the note."""
    starts = [parameter.clone() for parameter in model.parameters()]
    for k in range(TRIES):
        perturb_(model, GAIN / 2**k, seed, by_width=True)
        if _usable(logits_of(model)(idx)):
            return "" if k == 0 else f"perturbed {2**k} times less, for finite logits"
        for parameter, start in zip(model.parameters(), starts, strict=True):
            parameter.copy_(start)
    return "not perturbed: no perturbation gives finite logits"


def _usable(logits: Tensor) -> bool:
    """Whether there are no NaN, and some finite numbers (ids may be masked by minus infinity)."""
    return not bool(logits.isnan().any()) and bool(logits.isfinite().any())


class _SeenDtypes(TorchDispatchMode):
    """Notes the real dtypes of all tensors that are computed within the block."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[torch.dtype] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for part in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(part, Tensor) and part.numel() > 1:
                self.seen.add(torch.float32 if part.dtype == torch.complex64 else part.dtype)
        self.seen &= set(TOLERANCES)
        return out
