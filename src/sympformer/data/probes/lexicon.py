"""Words for the probes: short, frequent in children's stories, none with a vowel at its start (`a` fits them all).

These lists are not the storybook's, so that a change of the corpus never changes the probes.
"""

from dataclasses import dataclass

BOYS = ("Tom", "Ben", "Sam", "Tim", "Max", "Jack", "Leo", "Billy", "Bob", "Jim")
GIRLS = ("Lily", "Mia", "Sara", "Sue", "Lucy", "Mary", "Lola", "Jane", "Molly", "Lisa")

THINGS = (
    "ball",
    "kite",
    "book",
    "hat",
    "doll",
    "drum",
    "bell",
    "cup",
    "truck",
    "boat",
    "bike",
    "robot",
    "train",
    "box",
)
PLACES = ("park", "beach", "zoo", "farm", "store", "lake", "forest", "school", "river", "market", "garden", "castle")
PETS = ("dog", "cat", "bird", "frog", "duck", "rabbit", "bear", "fox", "mouse", "pig", "horse", "monkey")
FOODS = ("cake", "soup", "bread", "pizza", "pie", "milk", "rice", "candy", "cheese", "honey", "juice", "fruit")
SPOTS = ("bed", "chair", "table", "rug", "bench", "wall", "roof", "grass", "sofa", "rock")
COLORS = ("red", "blue", "green", "yellow", "pink", "purple", "brown", "black", "white")

# singular -> plural: who can be glad or hungry
BEINGS = {
    "dog": "dogs",
    "cat": "cats",
    "bird": "birds",
    "frog": "frogs",
    "duck": "ducks",
    "rabbit": "rabbits",
    "bear": "bears",
    "horse": "horses",
    "cow": "cows",
    "pig": "pigs",
    "monkey": "monkeys",
    "boy": "boys",
    "girl": "girls",
    "child": "children",
    "kid": "kids",
    "lion": "lions",
}
# singular -> plural: what they can be near
LANDMARKS = {
    "tree": "trees",
    "house": "houses",
    "car": "cars",
    "box": "boxes",
    "bed": "beds",
    "rock": "rocks",
    "chair": "chairs",
    "bush": "bushes",
    "flower": "flowers",
    "table": "tables",
    "wall": "walls",
    "truck": "trucks",
}
NEAR = ("near", "behind", "next to", "in front of", "by")


@dataclass(frozen=True)
class Child:
    """A name with the pronouns that go with it."""

    name: str
    he: str
    him: str
    his: str

    def slots(self, prefix: str = "") -> dict[str, str]:
        """The words of a frame: {name} {he} {He} {him} {his}, after a prefix if there is one."""
        words = {"name": self.name, "he": self.he, "He": self.he.capitalize(), "him": self.him, "his": self.his}
        return {prefix + slot: word for slot, word in words.items()}


CHILDREN = tuple(
    [Child(name, "he", "him", "his") for name in BOYS] + [Child(name, "she", "her", "her") for name in GIRLS]
)
