"""`sympformer audit`: a table of what holds for a language model, and exit code 1 where something does not."""

from dataclasses import replace
from json import dumps
from pathlib import Path

from rich.console import Console

from sympformer.audit.auditor import Weights, audit_model
from sympformer.audit.report import AuditReport
from sympformer.errors import InputError
from sympformer.files import write
from sympformer.opening import Opened, open_model
from sympformer.tables import Head, terminal_table


def audit(
    target: str,
    vocab_size: int | None = None,
    length: int | None = None,
    seed: int = 0,
    trust_remote_code: bool = False,
    json: str | None = None,
) -> int:
    """Test a language model for leaks: future tokens, longer texts, other texts in the batch, its cache.

    Args:
        target: A variant, a run folder, a Hugging Face folder, package.module:factory or path/to/file.py:factory.
        vocab_size: Number of token ids, for a model that does not tell.
        length: Tokens of the texts that are tried; 80 by default, or what the model takes.
        seed: Of texts, edits and perturbations.
        trust_remote_code: Run the code that lies in a Hugging Face folder.
        json: Also write the report to this file.
    """
    if json is not None and (not json or Path(json).is_dir() or not Path(json).parent.is_dir()):
        raise InputError(f"cannot write the report to {json!r}: give the name of a file in a folder that is there")
    opened = open_model(target, trust_remote_code=trust_remote_code, vocab_size=vocab_size)
    weights: tuple[Weights, ...] = ("given", "fresh", "perturbed") if opened.kind == "run" else ("given", "perturbed")
    report = audit_model(
        opened.model, vocab_size=opened.vocab_size, length=length, seed=seed, weights=weights, show_progress=None
    )
    if json is not None:
        write(Path(json), dumps({"target": opened.name, "kind": opened.kind, **report.to_dict()}, indent=2) + "\n")
    _print(opened, report)
    return 0 if report.passed else 1


def _print(target: Opened, report: AuditReport) -> None:
    # a variant or a factory has just been started; a run and a folder have been trained
    given = "fresh" if target.kind in ("variant", "factory") else "trained"
    rows = [replace(row, weights=given) if row.weights == "given" else row for row in report.rows]
    colours = {"holds": "[green]holds[/]", "FAILS": "[bold red]FAILS[/]"}
    heads = [Head("check", True), Head("weights", True), Head("deviation"), Head("allowed"), Head("first at")]
    cells = []
    for row in rows:
        size = "" if row.deviation is None else f"{row.deviation:.2g}"
        first = "" if row.first_position is None else str(row.first_position)
        verdict = colours.get(row.verdict, row.verdict)
        cells.append((row.check, row.weights, size, f"{row.tolerance:.1g}", first, verdict))
    title = f"{target.name}: {report.length} tokens of {report.vocab_size}, {report.precision}"
    console = Console()
    console.print(terminal_table(title, [*heads, Head("verdict", True)], cells))
    lines = list(dict.fromkeys(f"{row.check}: {row.note}" for row in rows if row.note and row.passed))
    lines += [f"FAILS {row.sentence}" for row in rows if not row.passed]
    for line in (*lines, *([f"{target.name} passes"] if report.passed else [])):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
