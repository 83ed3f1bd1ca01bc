"""The characters of a story: children or animals, with names, kinds, and pronouns that agree."""

from sympformer.data.storybook.teller import Teller

SLOTS = ("he", "him", "his", "himself")
PRONOUNS = {"she": ("she", "her", "her", "herself"), "he": SLOTS}
# The hero's pronouns stand alone ({he}); the others' follow a letter ({f he}, {o he}, {e he}).
PREFIX = {"hero": "", "friend": "f ", "other": "o ", "elder": "e "}
FAMILY = {"she": ("Grandma", "Aunt {}"), "he": ("Grandpa", "Uncle {}")}
AGREEMENT: dict[tuple[str, str], dict[str, str]] = {
    (role, gender): {PREFIX[role] + slot: form for slot, form in zip(SLOTS, forms, strict=True)}
    | {PREFIX[role] + slot.capitalize(): form.capitalize() for slot, form in zip(SLOTS, forms, strict=True)}
    for role in PREFIX
    for gender, forms in PRONOUNS.items()
}
FAMILY_LINES = ("", "{He} lived with {elder}.", "{He} often stayed with {elder}.", "{elder} lived there too.")
NEIGHBOUR_LINES = (
    "Next door lived {elder}, {a elder job} who had time for everyone.",
    "Across the road lived {elder}, {a elder job} and a good friend.",
    "{elder}, who was {a elder job}, always had a kind word for {him}.",
    "Close by lived {elder}, {a elder job} who liked children.",
)
WISE_LINES = (
    "Everyone asked {elder} for advice.",
    "The wisest of all was {elder}.",
    "Up the road lived {elder}, who was very old and knew a great deal.",
    "{elder} looked after them all.",
    "If anyone needed help, there was always {elder}.",
)
SIZES = ("a little", "a little", "a young", "a small", "a clever", "a cheerful", "a quiet", "a curious")


def invite(teller: Teller, roles: frozenset[str]) -> None:
    """Fill the slots of the hero and of every role in the story."""
    animals = teller.chance(0.5)
    for role in ("hero", "friend", "other"):
        if role == "hero" or role in roles:
            _introduce(teller, role, animals)
            teller.cast.add(role)
    if "elder" in roles:
        _introduce_elder(teller, animals)
        teller.cast.add("elder")
    _rank(teller)


def keep_company(teller: Teller, role: str | None) -> None:
    """Say who is under way: the hero alone, or the hero and a friend. Sets {company}, {they}, {them}, {their}."""
    slots = teller.slots
    if role is None:
        slots.update(company=slots["hero"], they=slots["he"], them=slots["him"], their=slots["his"])
    else:
        slots.update(company=f"{slots['hero']} and {slots[role]}", they="they", them="them", their="their")


def _introduce(teller: Teller, role: str, animals: bool) -> None:
    gender = "she" if teller.chance(0.5) else "he"
    size = teller.pick(SIZES)
    if animals:
        name, kind = teller.fresh(gender), teller.fresh("kind")
    else:
        kind = "girl" if gender == "she" else "boy"
        name = teller.fresh(kind)
    slots = teller.slots
    slots[role] = name
    slots[f"{role} intro"] = f"{size} {kind} named {name}"
    slots[f"{role} kind"] = f"{size} {kind}"
    slots.update(AGREEMENT[role, gender])


def _introduce_elder(teller: Teller, animals: bool) -> None:
    gender = "she" if teller.chance(0.5) else "he"
    slots = teller.slots
    if animals:
        slots["elder"] = "Old " + teller.fresh("wise")
        line = teller.pick(WISE_LINES)
    elif teller.chance(0.5):
        form = teller.pick(FAMILY[gender])
        slots["elder"] = form.format(teller.fresh("girl" if gender == "she" else "boy"))
        line = teller.pick(FAMILY_LINES)
    else:
        title = "Mr." if gender == "he" else teller.pick(("Mrs.", "Miss"))
        slots["elder"] = f"{title} {teller.fresh('surname')}"
        line = teller.pick(NEIGHBOUR_LINES)
        slots["elder job"] = teller.fresh("job")
    slots["elder line"] = line
    slots.update(AGREEMENT["elder", gender])


def _rank(teller: Teller) -> None:
    """{first}, {second}, {third}: the characters in a drawn order."""
    names = [teller.slots[role] for role in ("hero", "friend", "other") if role in teller.cast]
    for place in ("first", "second", "third")[: len(names)]:
        teller.slots[place] = names.pop(int(teller.random() * len(names)))
