"""Agreement of subject and verb: two choices, the verb's singular and plural.

plain: the verb follows the subject. same: a noun of the subject's number stands between. attractor: one of the other
number stands between, so that the nearest noun misleads: "The dogs near the tree were".
"""

from functools import partial

from sympformer.data.probes.lexicon import BEINGS, LANDMARKS, NEAR
from sympformer.data.probes.probe import Draw, Group, Probe, collect

SINGULAR, PLURAL = 0, 1
GROUPS = 40  # of each form, two probes in each

# what stands before the subject, the verb's two forms, and how the sentence may end
FRAMES: tuple[tuple[tuple[str, ...], tuple[str, str], tuple[str, ...]], ...] = (
    (
        (
            "It was a sunny day.",
            "It was time for lunch.",
            "Mom looked out of the window.",
            "The rain had stopped.",
            "Dad came home from work.",
            "Lily went outside to play.",
            "Tom walked home from school.",
        ),
        ("was", "were"),
        ("happy", "hungry", "sad", "sleepy", "quiet", "scared"),
    ),
    (
        ('"Look," said Tom.', '"Listen," said Mom.', 'Lily said, "Come with me.', '"Be careful," said Dad.'),
        ("is", "are"),
        ("happy", "hungry", "sad", "sleepy", "loud", "scared"),
    ),
    (
        ('"Wait," said Lily.', '"Look," said Mom.', 'Tom said, "I know why.', '"Oh no," said Dad.'),
        ("has", "have"),
        ("no food", "a friend", "a secret", "a home"),
    ),
)


def pair(draw: Draw, form: str) -> Group:
    """A sentence with a subject in the singular, and one with it in the plural."""
    openings, verbs, endings = draw.pick(FRAMES)
    opening, ending = draw.pick(openings), draw.pick(endings)
    subject, landmark, near = draw.pick(list(BEINGS.items())), draw.pick(list(LANDMARKS.items())), draw.pick(NEAR)
    # The opening of a spoken sentence is inside its quotes already where its quotes are still open.
    quote = '"' if verbs[SINGULAR] != "was" and opening.count('"') % 2 == 0 else ""
    close = '"' if verbs[SINGULAR] != "was" else ""
    choices = tuple(f" {verb} {ending}.{close}" for verb in verbs)
    items = []
    for number in (SINGULAR, PLURAL):
        between = {"plain": "", "same": landmark[number], "attractor": landmark[1 - number]}[form]
        place = f" {near} the {between}" if between else ""
        items.append((f"{opening} {quote}The {subject[number]}{place}", choices[number]))
    return Group(choices, tuple(items))


def agreement(seed: int) -> tuple[Probe, ...]:
    """The agreement set of a seed: 80 probes of each form."""
    forms = ("plain", "same", "attractor")
    return collect("agreement", {form: (GROUPS, partial(pair, form=form)) for form in forms}, seed)
