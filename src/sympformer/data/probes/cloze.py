"""Cloze: the last word of a short story is a fact that was told earlier; four choices.

recall: the story names the right word only; the three others would fit as well.
binding: the story names all four, each with its owner; one owner is asked for.
"""

from sympformer.data.probes.lexicon import BOYS, CHILDREN, COLORS, FOODS, GIRLS, PETS, PLACES, SPOTS, THINGS
from sympformer.data.probes.probe import Draw, Group, Probe, collect, cut

WORDS = 4  # in a group, each right in one probe of it
GROUPS = 30  # of each form
NAMES = tuple(child.name for child in CHILDREN)

# the words to choose from, and a story that tells {w} early and ends with it
RECALL: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        THINGS,
        "{name} got a {w} for {his} birthday. {He} was so happy that {he} jumped up and down. {f_name} came to visit,"
        " and they played in the yard all day. When it got dark, {f_name} went home. {name} went to bed and thought"
        " about {his} new <{w}>.",
    ),
    (
        THINGS,
        "One day, {name} found a {w} under a tree. {He} looked around, but nobody was there. {He} went from door to"
        ' door with {f_name} and asked all the people they met, "Did you lose a <{w}>?"',
    ),
    (
        THINGS,
        "{name} wanted to give {f_name} a {w}. {He} saved all {his} coins and went to town with Dad. On the way back"
        ' {he} could not stop smiling. {f_name} opened the door. {name} said, "Look what I have for you. It is a'
        ' <{w}>!"',
    ),
    (
        PLACES,
        "{name} and {f_name} wanted to go to the {w}. They packed some food and a big bottle of water. They walked for"
        " a long time and sang a song. Their legs were very tired, but at last they saw the <{w}>.",
    ),
    (
        PLACES,
        '"Can we go to the {w} today?" asked {name}. Mom looked at the sky. It was gray, and it was going to rain.'
        ' {name} was sad and sat by the window with {f_name}. Then the sun came out. Mom smiled and said, "Now we can'
        ' go to the <{w}>."',
    ),
    (
        PETS,
        "{name} heard a noise behind the house. It was a little {w}, and it was cold and wet. {name} gave it a warm"
        ' blanket and some water. {f_name} came to help. After some time it felt much better. "You are safe now,"'
        " {name} said to the little <{w}>.",
    ),
    (
        PETS,
        "{name} liked to draw. Today {he} drew a big {w} with a funny hat. {He} used all {his} crayons and worked very"
        ' hard. Then {he} showed the paper to {f_name}. {f_name} laughed and said, "That is a very funny <{w}>!"',
    ),
    (
        FOODS,
        "{name} was hungry and wanted some {w}. {He} looked in the kitchen, but there was nothing to eat. {He} went"
        ' outside and saw {f_name}. "Come to my house," said {f_name}. "My mom can give you some <{w}>."',
    ),
    (
        COLORS,
        "{name} wanted to paint {his} room {w}. {f_name} came to help, and they worked all morning. They had paint on"
        " their hands and on their shoes. When Mom came in, she was surprised. All the walls were <{w}>.",
    ),
    (
        COLORS,
        "{name} lost {his} {w} hat in the park. {He} asked everyone, but nobody had seen it. {f_name} looked behind the"
        ' bench and saw something there. "Is this your hat?" asked {f_name}. "Yes," said {name}, "because my hat is'
        ' <{w}>."',
    ),
    *(
        (
            names,
            f"Once upon a time, there was a little {kind} named {{w}}. One day, {he} went for a long walk and met"
            f' {{name}} and {{f_name}}. They were playing a game, and {he} wanted to play too. "What is your name?"'
            f' asked {{name}}. The little {kind} said, "My name is <{{w}}>."',
        )
        for names, kind, he in ((BOYS, "boy", "he"), (GIRLS, "girl", "she"))
    ),
)
# the words to choose from, who can own them, and a story that gives each of four owners one and asks for one owner
BINDING: tuple[tuple[tuple[str, ...], tuple[str, ...], str], ...] = (
    (
        THINGS,
        NAMES,
        "{n0} had a {w0}. {n1} had a {w1}. {n2} had a {w2}. {n3} had a {w3}. They all played together until the sun"
        " went down. Then it was time to go home, and {who} picked up the <{answer}>.",
    ),
    (
        SPOTS,
        PETS,
        "The {n0} sat on the {w0}. The {n1} sat on the {w1}. The {n2} sat on the {w2}. The {n3} sat on the {w3}. It was"
        " a quiet day, and nobody made a sound. In the evening, the {who} was still on the <{answer}>.",
    ),
    (
        FOODS,
        NAMES,
        "Mom made lunch for the children. {n0} got some {w0}, {n1} got some {w1}, {n2} got some {w2} and {n3} got some"
        " {w3}. They sat at the big table and talked and laughed. Soon {who} had no more <{answer}>.",
    ),
    (
        COLORS,
        THINGS,
        "There were many things in the room. The {n0} was {w0}. The {n1} was {w1}. The {n2} was {w2}. The {n3} was"
        " {w3}. The children put them all in a big bag. Outside they took out the {who}. It was <{answer}>.",
    ),
    (
        PLACES,
        NAMES,
        "{n0} went to the {w0}. {n1} went to the {w1}. {n2} went to the {w2}. {n3} went to the {w3}. In the evening"
        " they all came home and told Mom about the day. {who} had a lot to say about the <{answer}>.",
    ),
)


def recall(draw: Draw) -> Group:
    """One story told four times, each time with another word."""
    words, frame = draw.pick(RECALL)
    child, friend = draw.some(CHILDREN, 2)
    slots = child.slots() | friend.slots("f_")
    drawn = draw.some([word for word in words if word not in slots.values()], WORDS)
    return _group([frame.format(w=word, **slots) for word in drawn])


def binding(draw: Draw) -> Group:
    """One story with four questions, one for each owner."""
    words, owners, frame = draw.pick(BINDING)
    things, who = draw.some(words, WORDS), draw.some(owners, WORDS)
    told = {f"n{i}": who[i] for i in range(WORDS)} | {f"w{i}": things[i] for i in range(WORDS)}
    return _group([frame.format(who=who[i], answer=things[i], **told) for i in range(WORDS)])


def _group(stories: list[str]) -> Group:
    items = tuple(cut(story) for story in stories)
    return Group(tuple(choice for _, choice in items), items)


def cloze(seed: int) -> tuple[Probe, ...]:
    """The cloze set of a seed: 120 probes of recall and 120 of binding."""
    return collect("cloze", {"recall": (GROUPS, recall), "binding": (GROUPS, binding)}, seed)
