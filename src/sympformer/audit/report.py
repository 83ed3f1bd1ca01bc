"""What an audit found: rows, a verdict, sentences, JSON."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

AS_ASKED = "sees the future, as asked"
NOT_HERE = "does not see the future with these weights, though asked to"
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
    """One check on one set of weights."""

    check: str
    weights: str
    """given, fresh or perturbed."""
    deviation: float | None
    """Largest difference of a logit that should have stayed the same; None: the check was not tried."""
    tolerance: float
    first_position: int | None
    """The first position, counted from 0, whose logits differ by more than the tolerance."""
    note: str = ""
    asked: bool = False
    """Whether the deviation is what full visibility asks for: every token sees all."""

    @property
    def tried(self) -> bool:
        """Whether the check could be made."""
        return self.deviation is not None

    @property
    def passed(self) -> bool:
        """Whether nothing was found. A check that was not tried has found nothing; its note says why."""
        return self.deviation is None or self.asked or self.deviation <= self.tolerance

    @property
    def verdict(self) -> str:
        """In two words or so."""
        if not self.tried:
            return "not tried"
        if self.asked:
            return AS_ASKED if self.deviation is not None and self.deviation > self.tolerance else NOT_HERE
        return "holds" if self.passed else "FAILS"

    @property
    def sentence(self) -> str:
        """The row in words."""
        if self.deviation is None:
            return f"{self.check} ({self.weights} weights): {self.note}"
        if self.asked:
            return f"{self.check} ({self.weights} weights): {self.verdict}"
        if self.passed:
            return f"{self.check} ({self.weights} weights): holds to {self.deviation:.2g}"
        if self.deviation == math.inf and self.note:
            return f"{self.check} ({self.weights} weights): {self.note}"
        place = "" if self.first_position is None else f", first at position {self.first_position}"
        note = f" ({self.note})" if self.note else ""
        return (
            f"{self.check} ({self.weights} weights): {MEANINGS[self.check]}, by up to {self.deviation:.2g}"
            f" where {self.tolerance:.1g} is allowed{place}{note}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, which has no infinity."""
        values = dataclasses.asdict(self) | {"passed": self.passed}
        return values | {"deviation": "inf"} if self.deviation == math.inf else values

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "AuditRow":
        fields = {name: value for name, value in values.items() if name != "passed"}
        if fields["deviation"] is not None:
            fields["deviation"] = float(fields["deviation"])
        return cls(**fields)


@dataclass(frozen=True)
class AuditReport:
    """All rows of an audit, and how it was made."""

    rows: list[AuditRow]
    precision: str
    """float64 or float32, and where a model works in less inside, that."""
    length: int
    """Tokens of the texts that were tried."""
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
        """Plain values, for JSON."""
        own = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "rows"}
        return {"passed": self.passed, **own, "rows": [row.to_dict() for row in self.rows]}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "AuditReport":
        """The report that `to_dict` wrote."""
        own = {field.name: values[field.name] for field in dataclasses.fields(cls) if field.name != "rows"}
        return cls(rows=[AuditRow.from_dict(row) for row in values["rows"]], **own)
