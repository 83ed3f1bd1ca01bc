"""Pronouns and who did what.

gender: he, she or they, after one name, another, or both; three choices.
resolve: "Tom gave Lily a cup. She smiled at ...": the pronoun says who acts, the other one is asked for; two choices.
who: two children of one gender, one gives and one gets; who has it now, or who had it before; two choices.
"""

from sympformer.data.probes.lexicon import BOYS, GIRLS, PLACES, THINGS
from sympformer.data.probes.probe import Draw, Group, Probe, collect, cut

# {who} acts, the end says so again with a pronoun; nothing in between tells one from many
GENDER = (
    "{who} went to the {place}. The sun was warm, and the birds sang in the trees. After a while <{he} sat down>.",
    "{who} ran to the {place} and looked for the {thing}. It was not there. Then <{he} went home>.",
    "{who} found a {thing} near the {place}. It was old, but it still worked. With a smile <{he} took it>.",
    "{who} read a story about the {place}. It was long, and soon the moon was up. That night <{he} slept>.",
    "{who} heard a loud noise near the {place}. It was very dark, and the {thing} was gone. So <{he} felt sad>.",
    "{who} lost the {thing} on the way to the {place}. It was getting dark. So <{he} cried>.",
)
RESOLVE = (
    ("{a} gave {b} a {thing} near the {place}.", "{He} was very happy and smiled at <{other}>."),
    ("{a} met {b} near the {place} and showed the {thing}.", "{He} laughed and waved to <{other}>."),
    ("{a} saw {b} with a {thing} near the {place}.", "{He} said hello and sat down next to <{other}>."),
    ("{a} played with {b} and the {thing} near the {place}.", "{He} had fun and wanted to hug <{other}>."),
    ("{a} walked to the {place} with {b} to find the {thing}.", "{He} was tired and held the hand of <{other}>."),
)
WHO = (
    "{a} gave {b} a {thing} near the {place}.",
    "On the way to the {place}, {a} handed a {thing} to {b}.",
    "{a} came back from the {place} with a {thing} and gave it to {b}.",
    "{a} made a {thing} for {b} and took it to the {place}.",
)
NOW = "Now the {thing} belonged to <{name}>."
BEFORE = "It was a present from <{name}>."


def gender(draw: Draw) -> Group:
    """One story about a boy, about a girl, and about both."""
    frame, thing, place = draw.pick(GENDER), draw.pick(THINGS), draw.pick(PLACES)
    boy, girl = draw.pick((*BOYS, "Dad", "The boy")), draw.pick((*GIRLS, "Mom", "The girl"))
    first, second = draw.some((boy, girl), 2)
    both = f"{first} and {second[:1].lower() + second[1:] if second.startswith('The ') else second}"
    actors = ((boy, "he"), (girl, "she"), (both, "they"))
    items = tuple(cut(frame.format(who=who, he=he, thing=thing, place=place)) for who, he in actors)
    return Group(tuple(choice for _, choice in items), items)


def resolve(draw: Draw) -> Group:
    """A boy and a girl: either comes first, either acts afterwards."""
    (first, then), thing, place = draw.pick(RESOLVE), draw.pick(THINGS), draw.pick(PLACES)
    boy, girl = draw.pick(BOYS), draw.pick(GIRLS)
    items = []
    for a, b in ((boy, girl), (girl, boy)):
        told = first.format(a=a, b=b, thing=thing, place=place)
        items += [cut(f"{told} {then.format(He=he, other=o)}") for he, o in (("He", girl), ("She", boy))]
    return Group((items[0][1], items[1][1]), tuple(items))


def who(draw: Draw) -> Group:
    """Two children of one gender: either gives, and either giver or receiver is asked for."""
    frame, thing, place = draw.pick(WHO), draw.pick(THINGS), draw.pick(PLACES)
    one, two = draw.some(draw.pick((BOYS, GIRLS)), 2)
    items = []
    for a, b in ((one, two), (two, one)):
        told = frame.format(a=a, b=b, thing=thing, place=place)
        items += [cut(f"{told} {NOW.format(thing=thing, name=b)}"), cut(f"{told} {BEFORE.format(name=a)}")]
    return Group((items[0][1], items[1][1]), tuple(items))


def pronoun(seed: int) -> tuple[Probe, ...]:
    """The pronoun set of a seed: 84 probes of gender, 80 of resolve, 80 of who."""
    return collect("pronoun", {"gender": (28, gender), "resolve": (20, resolve), "who": (20, who)}, seed)
