"""What was compared and what came out, in sentences made from the results."""

from sympformer.pages.markup import Html, joined, tag
from sympformer.studies.report.figures import counted, interval, listed, number
from sympformer.studies.results import ModelResult, Results
from sympformer.studies.results.plot_style import UNITS, scored_split, state_of


def compared(results: Results) -> list[str]:
    """Three sentences: the training, the text, the figure that ranks."""
    return [_training(results), _text(results), _ranking(results)]


def _training(results: Results) -> str:
    seeds = f"seed{'s' if len(results.seeds) > 1 else ''}: {listed([str(seed) for seed in results.seeds])}"
    rates = max((len(model.rates) for model in results.models), default=0)
    chosen = f", each at its own best of up to {rates} learning rates" if rates > 1 else ""
    were = "was" if len(results.models) == 1 else "were"
    return f"{counted(len(results.models), 'model')} {were} trained (budget: {results.budget}; {seeds}){chosen}."


def _text(results: Results) -> str:
    data = results.data
    tokens = data.get("tokens", {})
    sizes = [f"{_millions(count)} for {_PURPOSES.get(split, split)}" for split, count in tokens.items()]
    text = f"The text is {data.get('corpus', 'not recorded')}, cut by the tokenizer {data.get('tokenizer', 'unknown')}"
    return f"{text} into tokens: {listed(sizes)}." if sizes else f"{text}."


_PURPOSES = {"train": "training", "validation": "validation", "test": "the test"}


def _millions(count: int) -> str:
    return f"{count / 1e6:,.1f}\N{NO-BREAK SPACE}M" if count >= 100_000 else f"{count:,}"


def _ranking(results: Results) -> str:
    what = "loss" if results.metric == "loss" else "code length"
    against = "" if results.baseline is None else f", and compared with {results.baseline}, paired by seed"
    data = scored_split(results)
    unit = UNITS[results.metric]
    return f"Models are ranked by the {data} {what} of their last weights in {unit}, lower is better{against}."


def verdict(results: Results) -> Html:
    """The outcome in plain words: the best model, how the others do against the baseline, who does not count."""
    ranked = [model for model in results.ranked() if model.rank is not None]
    sentences: list[object] = [_best(results, ranked[0])] if ranked else ["No model has a figure that counts."]
    sentences += [sentence for sentence in (_counts(results, ranked), _baseline_trouble(results)) if sentence]
    for state, words in _NOT_COUNTED.items():
        names = [model.name for model in results.models if state_of(results, model) == state]
        if names:
            sentences.append(f"{words}: {listed(names)}.")
    if results.mixed_code:
        codes = listed(results.mixed_code)
        sentences.append(f"The runs were made by different code, {codes}: a difference may come from that.")
    return joined(sentences, " ")


_NOT_COUNTED = {
    "failed audit": "Failed the audit, so not ranked",
    "not audited": "Not audited, so not ranked",
    "no figures": "No figures, as training did not finish with finite numbers",
}


def _best(results: Results, best: ModelResult) -> Html:
    figure = results.metric_of(best)
    assert figure is not None  # it has a rank
    opening = joined(["Best is ", tag("strong", best.name), f" with {number(figure.mean)} {UNITS[results.metric]}"])
    if best.name == results.baseline:
        return joined([opening, ", the baseline itself."])
    found = best.difference
    if found is None:
        return joined([opening, "."])
    side = "below" if found.mean < 0 else "above"
    gap = f", {number(abs(found.mean))} {side} the baseline {results.baseline}"
    if not interval(found):
        return joined([opening, gap, " (one seed: no interval, so no difference is shown)."])
    shown = "" if found.verdict != "no difference shown" else ", which contains zero: no difference is shown"
    return joined([opening, gap, " (95 % interval of the difference ", interval(found), shown, ")."])


def _counts(results: Results, ranked: list[ModelResult]) -> str:
    """How many models show a difference to the baseline, and how many do not."""
    verdicts = [model.difference.verdict for model in ranked if model.difference is not None]
    if not verdicts:
        return ""
    better, worse = verdicts.count("better"), verdicts.count("worse")
    rest = len(verdicts) - better - worse
    return (
        f"Of {counted(len(verdicts), 'other model')}, {better} {'is' if better == 1 else 'are'} better than "
        f"{results.baseline}, {worse} {'is' if worse == 1 else 'are'} worse, and {rest} "
        f"{'shows' if rest == 1 else 'show'} no difference."
    )


def _baseline_trouble(results: Results) -> str:
    """A warning where the baseline is no fair measure."""
    baseline = next((model for model in results.models if model.name == results.baseline), None)
    if baseline is None or baseline.rank is not None:
        return ""
    if state_of(results, baseline) == "no figures":
        return f"The baseline {baseline.name} has no figures: nothing is compared with it."
    return f"The baseline {baseline.name} did not pass its audit: the differences to it mean little."
