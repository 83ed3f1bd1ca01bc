"""How figures read in the report: a true minus sign, fixed places so that columns align, a dash for nothing."""

from sympformer.studies.results import Difference, Spread

NONE = "\N{EN DASH}"
MINUS = "\N{MINUS SIGN}"


def number(value: float | None, places: int = 3) -> str:
    """With thousands separated."""
    return NONE if value is None else f"{value:,.{places}f}".replace("-", MINUS)


def signed(value: float, places: int = 3) -> str:
    """With its sign, whichever."""
    return f"{value:+.{places}f}".replace("-", MINUS)


def spread(figure: Spread | None) -> str:
    """Mean and standard deviation."""
    if figure is None:
        return NONE
    return number(figure.mean) + ("" if figure.sd is None else f"\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}{figure.sd:.3f}")


def interval(found: Difference) -> str:
    """The 95 % interval; empty where there is none."""
    if found.low is None or found.high is None:
        return ""
    return f"[{signed(found.low)},\N{NO-BREAK SPACE}{signed(found.high)}]"


def percent(share: float) -> str:
    """Without places: a few hundred items tell no more."""
    return f"{100 * share:.0f}"


def scientific(value: float | str | None) -> str:
    """Two figures of a deviation or a tolerance; "inf" as audits write it."""
    if value is None:
        return NONE
    mantissa, e, exponent = f"{float(value):.2g}".partition("e")
    return (f"{mantissa}e{int(exponent)}" if e else mantissa).replace("-", MINUS)


def listed(names: list[str]) -> str:
    """a, b and c."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def counted(count: int, what: str) -> str:
    """1 model, 2 models."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"
