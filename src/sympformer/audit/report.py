"""What an audit found: rows, a verdict, sentences, JSON."""

import math
from dataclasses import asdict, dataclass
from typing import Any

# check -> what a failure of it means
MEANINGS: dict[str, str] = {
    "repeat": "the same text gives different logits when it is read twice",
    "causality": "logits change when later tokens are edited",
    "adversarial": "logits have a gradient by later tokens, or change under the edits it suggests",
    "prefix": "logits change when the text goes on",
    "batch": "logits change with the other texts in the batch",
    "cache": "reading in chunks through the cache gives other logits than reading the whole text",
}


@dataclass(frozen=True)
class AuditRow:
    """One check on one set of weights: given, fresh or perturbed.

    deviation: the largest difference of a logit that should have stayed the same; None where the check was not tried,
    and the note says why. first_position: the first one, counted from 0, whose logits differ by more than the
    tolerance. asked: whether that is what full visibility asks for (every token sees all).
    """

    check: str
    weights: str
    deviation: float | None
    tolerance: float
    first_position: int | None
    note: str = ""
    asked: bool = False

    @property
    def passed(self) -> bool:
        """Whether nothing was found; a check that was not tried has found nothing."""
        return self.deviation is None or self.asked or self.deviation <= self.tolerance

    @property
    def verdict(self) -> str:
        """In two words or so."""
        if self.deviation is None:
            return "not tried"
        if not self.asked:
            return "holds" if self.passed else "FAILS"
        seen = self.deviation > self.tolerance
        return "sees the future, as asked" if seen else "does not see the future with these weights, though asked to"

    @property
    def sentence(self) -> str:
        """The row in words."""
        return f"{self.check} ({self.weights} weights): {self._found()}"

    def _found(self) -> str:
        if self.deviation is None or (self.deviation == math.inf and self.note and not self.passed):
            return self.note
        if self.passed:
            return self.verdict if self.asked else f"holds to {self.deviation:.2g}"
        place = "" if self.first_position is None else f", first at position {self.first_position}"
        size = f"by up to {self.deviation:.2g} where {self.tolerance:.1g} is allowed"
        return f"{MEANINGS[self.check]}, {size}{place}" + (f" ({self.note})" if self.note else "")


@dataclass(frozen=True)
class AuditReport:
    """All rows of an audit, and how it was made.

    precision: float64 or float32, and where a model works in less inside, that. length: tokens of the texts.
    """

    rows: list[AuditRow]
    precision: str
    length: int
    vocab_size: int
    seed: int

    @property
    def passed(self) -> bool:
        """Whether every check that was tried holds."""
        return all(row.passed for row in self.rows)

    @property
    def failures(self) -> list[AuditRow]:
        """The rows that fail."""
        return [row for row in self.rows if not row.passed]

    @property
    def worst(self) -> AuditRow:
        """The row that comes nearest to failing, or fails by most."""
        return max(self.rows, key=lambda r: -1.0 if r.deviation is None or r.asked else r.deviation / r.tolerance)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, which has no infinity; every row with its sentence."""
        rows = [asdict(row) | {"passed": row.passed, "sentence": row.sentence} for row in self.rows]
        for row in rows:
            row["deviation"] = "inf" if row["deviation"] == math.inf else row["deviation"]
        return asdict(self) | {"passed": self.passed, "rows": rows}
