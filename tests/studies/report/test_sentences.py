"""The sentences of the report say what the figures say."""

import dataclasses
from typing import Any

import pytest

from sympformer.pages.markup import Html, tag
from sympformer.studies.report.figures import MINUS, NONE, interval, listed, number, scientific, signed, spread
from sympformer.studies.report.sentences import compared, verdict
from sympformer.studies.results import Difference
from tests.studies.results import made_up


def said(*models: Any, **changes: Any) -> str:
    return verdict(made_up.results(models, **changes)).replace("<strong>", "").replace("</strong>", "")


def test_what_was_compared() -> None:
    training, text, ranking = compared(made_up.results(["gpt", "exp-euler"]))
    assert training == (
        "2 models were trained (budget: 2,000,000 tokens; seeds: 1, 2 and 3), "
        "each at its own best of up to 4 learning rates."
    )
    assert text.replace("\N{NO-BREAK SPACE}", " ") == (
        "The text is tinystories, cut by the tokenizer bpe:2048 into tokens: "
        "48.1 M for training, 3.0 M for validation and 4.4 M for the test."
    )
    assert ranking == (
        "Models are ranked by the test loss of their last weights in nats per token, lower is better, "
        "and compared with gpt, paired by seed."
    )


def test_what_was_compared_of_a_single_run_without_test_data() -> None:
    one = made_up.model("exp-euler", [4], rates={})
    data = {"corpus": "my.txt", "tokenizer": "byte", "tokens": {"train": 900, "validation": 80}, "scored": "validation"}
    training, text, ranking = compared(made_up.results([one], seeds=[4], metric="bits_per_byte", data=data))
    assert training == "1 model was trained (budget: 2,000,000 tokens; seed: 4)."
    assert "900 for training and 80 for validation" in text
    assert "validation code length of their last weights in bits per byte, lower is better." in ranking


def test_the_best_model_and_how_far_it_is_from_the_baseline() -> None:
    results = made_up.results(["gpt", "exp-euler", "linear-yuriiformer", "linear-gpt"])
    difference = results.models[1].difference
    assert difference is not None
    assert results.models[1].last is not None
    text = said("gpt", "exp-euler", "linear-yuriiformer", "linear-gpt")
    assert text.startswith(
        f"Best is exp-euler with {results.models[1].last.mean:.3f} nats per token, {-difference.mean:.3f} below the "
        f"baseline gpt (95 % interval of the difference {interval(difference)})."
    )
    assert "Of 3 other models, 1 is better than gpt, 1 is worse, and 1 shows no difference." in text


def test_the_baseline_may_be_the_best() -> None:
    text = said("gpt", "linear-gpt")
    assert "Best is gpt with 3.029 nats per token, the baseline itself." in text
    assert "Of 1 other model, 0 are better than gpt, 1 is worse, and 0 show no difference." in text


def test_an_interval_that_contains_zero_is_said() -> None:
    unsure = Difference(-0.01, -0.05, 0.03, "no difference shown")
    results = made_up.results(["gpt", "exp-euler"])
    models = [results.models[0], dataclasses.replace(results.models[1], difference=unsure)]
    text = verdict(dataclasses.replace(results, models=models))
    assert "[\N{MINUS SIGN}0.050,\N{NO-BREAK SPACE}+0.030], which contains zero: no difference is shown" in text


def test_one_seed_shows_no_difference() -> None:
    text = said("gpt", "exp-euler", seeds=[7])
    assert "(one seed: no interval, so no difference is shown)" in text
    assert "0 are better" in text


def test_a_failed_audit_is_named_and_never_the_best() -> None:
    text = said("gpt", "exp-euler", made_up.leaking("cheater"))
    assert "Best is exp-euler" in text
    assert "Of 1 other model, 1 is better" in text  # the cheater is not counted
    assert "Failed the audit, so not ranked: cheater." in text


def test_models_without_figures_or_audit_are_named() -> None:
    unseen = made_up.model("unseen", audit=None)
    text = said("gpt", made_up.diverged("burst"), unseen)
    assert "No figures, as training did not finish with finite numbers: burst." in text
    assert "Not audited, so not ranked: unseen." in text


def test_a_baseline_that_cannot_serve_is_said() -> None:
    assert "The baseline gpt has no figures: nothing is compared with it." in said("exp-euler", made_up.diverged("gpt"))
    failed = made_up.model("gpt", audit=made_up.audit(leak_at=2))
    assert "The baseline gpt did not pass its audit" in said("exp-euler", failed)


def test_nothing_to_rank() -> None:
    assert said(made_up.diverged(), baseline=None).startswith("No model has a figure that counts.")


def test_without_a_baseline() -> None:
    assert said("exp-euler", "ab2") == "Best is exp-euler with 2.842 nats per token."


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (number(-1234.5678), f"{MINUS}1,234.568"),
        (number(None), NONE),
        (signed(-0.1), f"{MINUS}0.100"),
        (signed(0.1), "+0.100"),
        (spread(None), NONE),
        (spread(made_up.spread([1.0])), "1.000"),
        (spread(made_up.spread([1.0, 3.0])), "2.000\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}1.414"),
        (scientific(3.14e-15), f"3.1e{MINUS}15"),
        (scientific("inf"), "inf"),
        (scientific(0.42), "0.42"),
        (listed(["a"]), "a"),
        (listed(["a", "b", "c"]), "a, b and c"),
    ],
)
def test_figures_read_well(shown: str, expected: str) -> None:
    assert shown == expected


def test_markup_escapes_what_is_not_markup() -> None:
    assert tag("b", "<i>", Html("<i></i>"), title='"', hidden=True, lang=None) == (
        '<b title="&quot;" hidden>&lt;i&gt;<i></i></b>'
    )
