"""Score a language model on the probes of `sympformer.data.probes`: which of the choices it finds most likely.

A choice's score is its log-likelihood after the context, summed over its tokens: the probability that the model would
go on in this very way. It is not divided by the length. Choices of a group differ by a word and end alike, each is
right equally often, so a liking for short words costs both sides the same; per byte the score would no longer be a
probability.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch

from sympformer.data.probes import KINDS, Probe, probe_set
from sympformer.errors import DivergenceError, InputError
from sympformer.models.foreign import Logits
from sympformer.progress import steps_with_progress
from sympformer.tables import Head, terminal_table

if TYPE_CHECKING:
    from rich.table import Table


class Encoder(Protocol):
    """All that the probes ask of a tokenizer."""

    def encode(self, text: str) -> list[int]:
        """The ids of a text."""


@dataclass(frozen=True)
class FormScore:
    """How a model did on one form of a kind."""

    accuracy: float
    chance: float
    items: int


@dataclass(frozen=True)
class ProbeScore:
    """How a model did on one kind of probe."""

    kind: str
    accuracy: float  # share of right answers; among n equally likely choices a right one counts 1/n
    items: int
    chance: float  # accuracy of guessing
    margin: float  # nats: log-likelihood of the right choice over the best wrong one, on average
    standard_error: float  # of the accuracy, over groups: probes of one group are not independent
    cut: int  # probes whose context did not fit and lost its beginning
    forms: dict[str, FormScore]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON takes them."""
        return asdict(self)


@dataclass(frozen=True)
class Row:
    """Token ids of a context with one choice; ids[first:] are scored."""

    ids: list[int]
    first: int


@dataclass(frozen=True)
class Question:
    """A probe in tokens: a row for every choice."""

    rows: list[Row]
    cut: bool  # the context did not fit and lost its beginning


def score_probes(
    logits: Logits,
    tokenizer: Encoder,
    block_size: int | None,
    kinds: Sequence[str] | None = None,
    batch_size: int = 16,
) -> dict[str, ProbeScore]:
    """Score a model on some kinds of probes, all by default.

    logits: (B, T) ids -> (B, T, V); the model must be causal and in eval mode. block_size: the longest text it takes,
    None for any; contexts that do not fit lose their beginning and are counted in `cut`.
    """
    if batch_size < 1:
        raise InputError(f"batch_size must be at least 1, got {batch_size}")
    probes = {kind: probe_set(kind) for kind in (KINDS if kinds is None else kinds)}
    questions = {kind: [encode_probe(probe, tokenizer, block_size) for probe in probes[kind]] for kind in probes}
    rows = [row for of_kind in questions.values() for question in of_kind for row in question.rows]
    nats = iter(log_likelihoods(logits, rows, batch_size))
    return {
        kind: summarise(
            kind,
            probes[kind],
            likelihoods=[[next(nats) for _ in question.rows] for question in of_kind],
            cut=sum(question.cut for question in of_kind),
        )
        for kind, of_kind in questions.items()
    }


def encode_probe(probe: Probe, tokenizer: Encoder, block_size: int | None) -> Question:
    """Context and choice encoded together, one row a choice.

    What all choices have in common at the front is context, wherever the tokenizer puts the boundary. All choices of
    a probe are cut at the same place, so that they are scored after the same context.
    """
    encoded = [list(tokenizer.encode(text)) for text in probe.texts]
    first, longest = common_prefix(encoded), max(map(len, encoded))
    if first == 0:
        raise InputError(f"the tokenizer gives no common beginning to the choices of the probe {probe.texts[0]!r}")
    # The last token is only predicted, so block_size + 1 tokens fit.
    start = 0 if block_size is None else max(0, longest - 1 - block_size)
    if start >= first:
        raise InputError(
            f"a model that sees {block_size} tokens is too short for the probes: {probe.choices[probe.answer]!r} alone"
            f" has {longest - first}"
        )
    return Question([Row(ids[start:], first - start) for ids in encoded], cut=start > 0)


def common_prefix(sequences: Sequence[Sequence[int]]) -> int:
    """Number of ids that all sequences begin with."""
    shared = 0
    for column in zip(*sequences, strict=False):  # ends with the shortest
        if len(set(column)) > 1:
            break
        shared += 1
    return shared


@torch.no_grad()
def log_likelihoods(logits: Logits, rows: Sequence[Row], batch_size: int) -> list[float]:
    """Nats of every row's scored tokens. Rows are filled up on the right, which a causal model does not see."""
    order = sorted(range(len(rows)), key=lambda i: len(rows[i].ids))  # like lengths together: little filling
    found = [0.0] * len(rows)
    for step in steps_with_progress(-(-len(rows) // batch_size), "probes"):
        batch = order[step * batch_size : (step + 1) * batch_size]
        width = len(rows[batch[-1]].ids) - 1
        inputs = torch.tensor([_filled(rows[i].ids[:-1], width) for i in batch])
        output = logits(inputs)
        for place, i in enumerate(batch):
            row = rows[i]
            predicted = output[place, row.first - 1 : len(row.ids) - 1].double().log_softmax(-1)
            targets = torch.tensor(row.ids[row.first :], device=predicted.device)
            found[i] = float(predicted.gather(-1, targets[:, None]).sum())
    if not all(map(math.isfinite, found)):
        raise DivergenceError("the model gives no finite likelihoods for the probes: its weights or logits are broken")
    return found


def _filled(ids: list[int], width: int) -> list[int]:
    return ids + [0] * (width - len(ids))


def credit(likelihoods: Sequence[float], answer: int) -> float:
    """1 for a right answer, 0 for a wrong one; where n choices are best together, what drawing one of them gives."""
    best = max(likelihoods)
    return float(likelihoods[answer] == best) / sum(value == best for value in likelihoods)


def summarise(kind: str, probes: Sequence[Probe], likelihoods: Sequence[Sequence[float]], cut: int = 0) -> ProbeScore:
    """The figures of a kind from the log-likelihoods of every probe's choices."""
    credits = [credit(values, probe.answer) for probe, values in zip(probes, likelihoods, strict=True)]
    margins = [
        values[probe.answer] - max(value for i, value in enumerate(values) if i != probe.answer)
        for probe, values in zip(probes, likelihoods, strict=True)
    ]
    chances = [1 / len(probe.choices) for probe in probes]
    forms = {}
    for form in dict.fromkeys(probe.form for probe in probes):
        of_form = [i for i, probe in enumerate(probes) if probe.form == form]
        forms[form] = FormScore(
            _mean([credits[i] for i in of_form]), _mean([chances[i] for i in of_form]), len(of_form)
        )
    return ProbeScore(
        kind,
        accuracy=_mean(credits),
        items=len(probes),
        chance=_mean(chances),
        margin=_mean(margins),
        standard_error=standard_error(credits, [probe.group for probe in probes]),
        cut=cut,
        forms=forms,
    )


def standard_error(values: Sequence[float], groups: Sequence[int]) -> float:
    """Of the mean of values that are independent between groups but not within one."""
    mean = _mean(values)
    deviations: dict[int, float] = {}
    for value, group in zip(values, groups, strict=True):
        deviations[group] = deviations.get(group, 0.0) + value - mean
    count = len(deviations)
    return math.sqrt(count / (count - 1) * sum(d * d for d in deviations.values())) / len(values)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


# --- for people


def probe_table(scores: dict[str, ProbeScore]) -> "Table":
    """Accuracy, chance and margin of every kind, and the accuracy of its forms, for the terminal."""
    rows = []
    for kind, score in scores.items():
        accuracy = f"{_percent(score.accuracy)} ± {100 * score.standard_error:.1f}"
        rows.append((kind, accuracy, _percent(score.chance), f"{score.margin:+.2f}", str(score.items)))
        for name, form in score.forms.items():
            rows.append((f"  {name}", _percent(form.accuracy), _percent(form.chance), "", str(form.items)))
    figures = [Head(text) for text in ("accuracy", "chance", "margin (nats)", "items")]
    return terminal_table("probes", [Head("kind", left=True), *figures], rows)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def cut_note(scores: dict[str, ProbeScore], block_size: int | None) -> str | None:
    """One sentence where contexts did not fit into the model."""
    cut = [f"{score.cut} of {score.items} {kind} probes" for kind, score in scores.items() if score.cut]
    if not cut:
        return None
    return f"note: {', '.join(cut)} are longer than the model's {block_size} tokens and lost their beginning"
