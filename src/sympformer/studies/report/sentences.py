"""What was compared and what came out, in sentences made from the results."""

from sympformer.pages.markup import Html, joined, tag
from sympformer.studies.report.figures import counted, interval, listed, number
from sympformer.studies.results import NOT_SHOWN, ModelResult, Results
from sympformer.studies.results.loss_plots import kernel_passes_per_token
from sympformer.studies.results.plot_style import UNITS, scored_split, state_of


def compared(results: Results) -> list[str]:
    """Three sentences: the training, the text, the figure that ranks."""
    return [_training(results), _text(results), _ranking(results)]


def _training(results: Results) -> str:
    seeds = f"seed{'s' if len(results.seeds) > 1 else ''}: {listed([str(seed) for seed in results.seeds])}"
    rates = max((len(model.rates) for model in results.models), default=0)
    shared = results.config.get("choose_in") if "common" in results.config else None
    whose = f"each level of {shared['factor']} at its" if shared else "each at its own"
    chosen = f", {whose} best of up to {rates} learning rates" if rates > 1 else ""
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
    against = "" if results.baseline is None else f", and compared with {results.against}, paired by seed"
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
    if best.name == results.against:
        return joined([opening, f", the {results.role(best)} itself."])
    found = best.difference
    if found is None:
        return joined([opening, "."])
    side = "below" if found.mean < 0 else "above"
    gap = f", {number(abs(found.mean))} {side} the {'reference' if results.reference else 'baseline'} {results.against}"
    if not interval(found):
        return joined([opening, gap, " (one seed: no interval, so no difference is shown)."])
    shown = "" if found.verdict != NOT_SHOWN else ", which contains zero: no difference is shown"
    if found.verdict != found.settled:
        shown = "; after Holm's correction no difference is shown"
    return joined([opening, gap, " (95 % interval of the difference ", interval(found), shown, ")."])


def _counts(results: Results, ranked: list[ModelResult]) -> str:
    """How many models show a difference to the baseline, and how many do not."""
    verdicts = [model.difference.settled for model in ranked if model.difference is not None]
    if not verdicts:
        return ""
    better, worse = verdicts.count("better"), verdicts.count("worse")
    rest = len(verdicts) - better - worse
    return (
        f"Of {counted(len(verdicts), 'other model')}, {better} {'is' if better == 1 else 'are'} better than "
        f"{results.against}, {worse} {'is' if worse == 1 else 'are'} worse, and {rest} "
        f"{'shows' if rest == 1 else 'show'} no difference{_after_holm(results)}."
    )


def _after_holm(results: Results) -> str:
    return ", after Holm's correction" if results.corrected else ""


def _baseline_trouble(results: Results) -> str:
    """A warning where the baseline is no fair measure."""
    baseline = next((model for model in results.models if model.name == results.against), None)
    if baseline is None or baseline.rank is not None:
        return ""
    role = results.role(baseline)
    if state_of(results, baseline) == "no figures":
        return f"The {role} {baseline.name} has no figures: nothing is compared with it."
    return f"The {role} {baseline.name} did not pass its audit: the differences to it mean little."


# --- why the order is another one by tokens, by time and by kernel passes


def reasons(results: Results) -> list[str]:
    """Who is first to the baseline's final loss by each measure, and where the order turns round, why."""
    baseline = next((model for model in results.models if model.name == results.baseline), None)
    spent = {measure: _spent(results, measure) for measure in _MEASURES} if baseline is not None else {}
    spent = {m: of for m, of in spent.items() if baseline is not None and baseline.name in of and len(of) > 1}
    if baseline is None or "tokens" not in spent:
        return []
    return [_first(baseline, spent), *_overtaken(results, spent), *_turned(results, baseline, spent)]


_MEASURES = {"tokens": "by tokens", "seconds": "by time", "passes": "by kernel passes"}


def _spent(results: Results, measure: str) -> dict[str, float]:
    """What each ranked model spends to reach the baseline's final loss; those that do not reach it are left out."""
    ranked = {model.name: model for model in results.models if model.rank is not None}
    if measure == "seconds":
        return {name: m.seconds_to_baseline for name, m in ranked.items() if m.seconds_to_baseline is not None}
    tokens = {name: m.tokens_to_baseline for name, m in ranked.items() if m.tokens_to_baseline is not None}
    if measure == "tokens":
        return tokens
    passes = kernel_passes_per_token(results)
    return {name: passes[name] * count for name, count in tokens.items() if name in passes}


def _first(baseline: ModelResult, spent: dict[str, dict[str, float]]) -> str:
    """a is first by tokens (80 % of gpt's) and by kernel passes (80 %), b by time (75 %)."""
    leaders: dict[str, list[str]] = {}
    for measure, of in spent.items():
        name = min(of, key=lambda one: of[one])
        leaders.setdefault(name, []).append(f"{_MEASURES[measure]} ({100 * of[name] / of[baseline.name]:.0f} %)")
    parts = [f"{name} {listed(ways)}" for name, ways in leaders.items()]
    return (
        f"First to {baseline.name}'s final loss, as a share of what {baseline.name} itself spends: {'; '.join(parts)}."
    )


def _overtaken(results: Results, spent: dict[str, dict[str, float]]) -> list[str]:
    """Why the first by tokens is not the first by something else: what a token costs the two."""
    by_name = {model.name: model for model in results.models}
    first = by_name[min(spent["tokens"], key=lambda name: spent["tokens"][name])]
    leaders = {measure: by_name[min(of, key=lambda name: of[name])] for measure, of in spent.items()}
    return [
        f"{leader.name} overtakes {first.name} {_MEASURES[measure]}: {_why(measure, leader, first)}."
        for measure, leader in leaders.items()
        if leader.name != first.name
    ]


def _turned(results: Results, baseline: ModelResult, spent: dict[str, dict[str, float]]) -> list[str]:
    """The models that are ahead of the baseline by tokens and behind it by something else, or the other way round."""
    by_name = {model.name: model for model in results.models}

    def ahead(measure: str, name: str) -> bool:
        return spent[measure][name] < spent[measure][baseline.name]

    sentences = []
    for measure in [measure for measure in spent if measure != "tokens"]:
        for first, then in (("ahead of", "behind"), ("behind", "ahead of")):
            turned = [
                f"{name} ({_why(measure, by_name[name], baseline)})"
                for name in spent[measure]
                if name != baseline.name and ahead("tokens", name) == (first == "ahead of") != ahead(measure, name)
            ]
            if turned:
                words = f"By tokens {first} {baseline.name} and {_MEASURES[measure]} {then} it"
                sentences.append(f"{words}: {listed(turned)}.")
    return sentences


def _why(measure: str, model: ModelResult, other: ModelResult) -> str:
    """What a token costs a model, by what it costs the other."""
    if measure == "seconds":
        assert model.tokens_per_second  # there are seconds
        assert other.tokens_per_second
        return f"it trains {model.tokens_per_second / other.tokens_per_second:.2f} times as many tokens a second"
    return f"it makes {model.passes_a_layer:g} kernel passes a layer, {other.name} {other.passes_a_layer:g}"
