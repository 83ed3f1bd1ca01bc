"""Score a language model on the probes of `sympformer.data.probes`: which of the choices it finds most likely.

A choice's score is its log-likelihood after the context, summed over its tokens: the probability that the model would
go on in this very way. It is not divided by the length. Choices of a group differ by a word and end alike, each is
right equally often, so a liking for short words costs both sides the same; per byte the score would no longer be a
probability.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

import torch

from sympformer.data.probes import KINDS, Probe, probe_set
from sympformer.errors import DivergenceError, InputError
from sympformer.models.foreign import Logits
from sympformer.progress import steps_with_progress
from sympformer.tables import Head, terminal_table

if TYPE_CHECKING:
    from rich.table import Table

Encode = Callable[[str], list[int]]


@dataclass(frozen=True)
class Score:
    """How a model did on some probes; on a kind of them also on each of its forms."""

    accuracy: float  # share of right answers; among n equally likely choices a right one counts 1/n
    chance: float  # accuracy of guessing
    items: int
    margin: float  # nats: log-likelihood of the right choice over the best wrong one, on average
    standard_error: float  # of the accuracy, over groups: probes of one group are not independent
    forms: dict[str, "Score"] = field(default_factory=dict)
    cut: int = 0  # probes whose context did not fit and lost its beginning


class Row(NamedTuple):
    """Token ids of a context with one choice; ids[first:] are scored. cut: the context lost its beginning."""

    ids: list[int]
    first: int
    cut: bool


def score_probes(
    logits: Logits, encode: Encode, block_size: int | None, kinds: Sequence[str] = KINDS, batch_size: int = 16
) -> dict[str, Score]:
    """Score a model on some kinds of probes, all by default.

    logits: (B, T) ids -> (B, T, V); the model must be causal and in eval mode. block_size: the longest text it takes,
    None for any; contexts that do not fit lose their beginning and are counted in `cut`.
    """
    probes = {kind: probe_set(kind) for kind in kinds}
    rows = {kind: [encode_probe(probe, encode, block_size) for probe in probes[kind]] for kind in probes}
    every = [row for of_kind in rows.values() for of_probe in of_kind for row in of_probe]
    nats = iter(log_likelihoods(logits, every, batch_size))
    found = {}
    for kind, of_kind in rows.items():
        likelihoods = [[next(nats) for _ in of_probe] for of_probe in of_kind]
        found[kind] = summarise(probes[kind], likelihoods, sum(of_probe[0].cut for of_probe in of_kind))
    return found


def encode_probe(probe: Probe, encode: Encode, block_size: int | None) -> list[Row]:
    """Context and choice encoded together, one row a choice.

    What all choices have in common at the front is context, wherever the tokenizer puts the boundary. All choices of
    a probe are cut at the same place, so that they are scored after the same context.
    """
    encoded = [list(encode(text)) for text in probe.texts]
    longest = max(map(len, encoded))
    first = sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, zip(*encoded, strict=False)))
    if first == 0:
        raise InputError(f"the tokenizer gives no common beginning to the choices of the probe {probe.texts[0]!r}")
    # The last token is only predicted, so block_size + 1 tokens fit.
    start = 0 if block_size is None else max(0, longest - 1 - block_size)
    if start >= first:
        raise InputError(
            f"a model that sees {block_size} tokens is too short for the probes: {probe.choices[probe.answer]!r} alone"
            f" has {longest - first}"
        )
    return [Row(ids[start:], first - start, start > 0) for ids in encoded]


@torch.no_grad()
def log_likelihoods(logits: Logits, rows: Sequence[Row], batch_size: int) -> list[float]:
    """Nats of every row's scored tokens. Rows are filled up on the right, which a causal model does not see."""
    order = sorted(range(len(rows)), key=lambda i: len(rows[i].ids))  # like lengths together: little filling
    found = [0.0] * len(rows)
    for step in steps_with_progress(-(-len(rows) // batch_size), "probes"):
        batch = order[step * batch_size : (step + 1) * batch_size]
        width = len(rows[batch[-1]].ids) - 1
        output = logits(torch.tensor([rows[i].ids[:-1] + [0] * (width + 1 - len(rows[i].ids)) for i in batch]))
        for place, i in enumerate(batch):
            ids, first, _ = rows[i]
            predicted = output[place, first - 1 : len(ids) - 1].double().log_softmax(-1)
            found[i] = float(predicted.gather(-1, torch.tensor(ids[first:], device=predicted.device)[:, None]).sum())
    if not all(map(math.isfinite, found)):
        raise DivergenceError("the model gives no finite likelihoods for the probes: its weights or logits are broken")
    return found


def credit(likelihoods: Sequence[float], answer: int) -> float:
    """1 for a right answer, 0 for a wrong one; where n choices are best together, what drawing one of them gives."""
    best = max(likelihoods)
    return float(likelihoods[answer] == best) / sum(value == best for value in likelihoods)


def summarise(probes: Sequence[Probe], likelihoods: Sequence[Sequence[float]], cut: int = 0) -> Score:
    """The figures of a kind from the log-likelihoods of every probe's choices."""
    pairs = list(zip(probes, likelihoods, strict=True))
    forms = {
        form: _score([(probe, values) for probe, values in pairs if probe.form == form])
        for form in dict.fromkeys(probe.form for probe in probes)
    }
    return replace(_score(pairs), forms=forms, cut=cut)


def _score(pairs: Sequence[tuple[Probe, Sequence[float]]]) -> Score:
    credits = [credit(values, probe.answer) for probe, values in pairs]
    wrong = [max(value for i, value in enumerate(values) if i != probe.answer) for probe, values in pairs]
    return Score(
        accuracy=fmean(credits),
        chance=fmean(1 / len(probe.choices) for probe, _ in pairs),
        items=len(pairs),
        margin=fmean(values[probe.answer] - best for (probe, values), best in zip(pairs, wrong, strict=True)),
        standard_error=standard_error(credits, [probe.group for probe, _ in pairs]),
    )


def standard_error(values: Sequence[float], groups: Sequence[int]) -> float:
    """Of the mean of values that are independent between groups but not within one; 0 for a single group."""
    mean, deviations = fmean(values), dict[int, float]()
    for value, group in zip(values, groups, strict=True):
        deviations[group] = deviations.get(group, 0.0) + value - mean
    count = len(deviations)
    return math.sqrt(count / max(1, count - 1) * sum(d * d for d in deviations.values())) / len(values)


# --- for people


def probe_table(scores: dict[str, Score]) -> "Table":
    """Accuracy, chance and margin of every kind, and the accuracy of its forms, for the terminal."""
    rows = list[tuple[str, ...]]()
    for kind, score in scores.items():
        accuracy = f"{100 * score.accuracy:.1f} % ± {100 * score.standard_error:.1f}"
        rows.append((kind, accuracy, f"{100 * score.chance:.1f} %", f"{score.margin:+.2f}", str(score.items)))
        for name, form in score.forms.items():
            figures = (f"{100 * share:.1f} %" for share in (form.accuracy, form.chance))
            rows.append((f"  {name}", *figures, "", str(form.items)))
    heads = [Head("kind", left=True), *map(Head, ("accuracy", "chance", "margin (nats)", "items"))]
    return terminal_table("probes", heads, rows)


def cut_note(scores: dict[str, Score], block_size: int | None) -> str | None:
    """One sentence where contexts did not fit into the model."""
    cut = [f"{score.cut} of {score.items} {kind} probes" for kind, score in scores.items() if score.cut]
    lost = f"are longer than the model's {block_size} tokens and lost their beginning"
    return f"note: {', '.join(cut)} {lost}" if cut else None
