"""Writes village.txt: a long, simple, made-up text for examples/transformer to learn.

    python examples/data/make_village.py

Sentences are put together at random by the rules below, the same ones on every run. The text is this
script's work, and is published as the rest of the tree is.
"""

import pathlib

PEOPLE = [
    ("Anna", "she", "her"), ("Ben", "he", "his"), ("Clara", "she", "her"), ("David", "he", "his"),
    ("Emma", "she", "her"), ("the baker", "he", "his"), ("the miller", "he", "his"),
    ("the old teacher", "she", "her"), ("the farmer", "she", "her"),
]
ANIMALS = ["cat", "dog", "horse", "goat", "heron", "fox", "hen", "owl", "donkey", "rabbit"]
ADJECTIVES = {
    "animal": ["small", "grey", "old", "hungry", "quiet", "brown", "clever", "sleepy"],
    "place": ["old", "narrow", "quiet", "stone", "wooden", "green"],
    "thing": ["red", "heavy", "warm", "little", "round", "new"],
}
PLACES = ["bridge", "mill", "garden", "market", "well", "barn", "school", "hill", "river", "forest"]
THINGS = ["bread", "basket", "lamp", "hat", "letter", "blanket", "apple", "bell", "book", "kettle"]
WEATHER = [
    "The sun is warm", "It rains all day", "A cold wind blows", "Snow lies on the roofs",
    "The sky is clear", "Fog comes up from the river", "The first stars are out",
]
TIMES = ["in the morning", "at noon", "in the evening", "before supper", "after the rain", "at night"]
FEELINGS = ["happy", "tired", "curious", "afraid", "hungry", "glad"]


class Choice:
    """Draws numbers by a rule of our own, so that no version of Python changes the text."""

    def __init__(self, seed):
        self.state = seed

    def below(self, n):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % n

    def of(self, items):
        return items[self.below(len(items))]


def a(words):
    return ("an " if words[0] in "aeiou" else "a ") + words


def capital(text):
    return text[0].upper() + text[1:]


def story(choice):
    name, she, her = choice.of(PEOPLE)
    other = choice.of([p for p in PEOPLE if p[0] != name])
    animal = f"{choice.of(ADJECTIVES['animal'])} {choice.of(ANIMALS)}"
    kind = animal.split()[1]
    place = f"{choice.of(ADJECTIVES['place'])} {choice.of(PLACES)}"
    thing = f"{choice.of(ADJECTIVES['thing'])} {choice.of(THINGS)}"
    item = thing.split()[1]
    feeling, time = choice.of(FEELINGS), choice.of(TIMES)
    openings = [
        f"{choice.of(WEATHER)}. {capital(time)} {name} walks to the {place}.",
        f"{capital(name)} lives near the {place}. {choice.of(WEATHER)} today.",
        f"{capital(time)} {name} looks for {her} {thing}.",
        f"There is {a(animal)} behind the {place}. {choice.of(WEATHER)}.",
    ]
    middles = [
        f"{capital(she)} sees {a(animal)} and stops.",
        f"The {kind} looks at {her} hands and waits.",
        f"{capital(she)} gives the {kind} some bread and sits down.",
        f"The {kind} follows {name} down the road.",
        f"\"Good day,\" says {other[0]}. \"Have you seen my {item}?\"",
        f"\"What a {thing}!\" says {other[0]}, and laughs.",
        f"{capital(she)} is {feeling}, but {she} does not say a word.",
        f"{capital(other[0])} carries {a(thing)} across the {place}.",
        f"Under the {item} {she} finds a key and a short letter.",
        f"Together they wait at the {place} until the {kind} comes back.",
    ]
    endings = [
        f"{capital(name)} goes home and tells {other[0]} about the {kind}.",
        f"Then {she} puts the {item} on the table and goes to sleep.",
        f"That night the {kind} sleeps by the door.",
        f"\"Come again,\" says {other[0]}, \"and bring the {kind}.\"",
        f"{capital(she)} is {feeling} no more.",
        f"Nobody knows where the {item} came from.",
    ]
    lines = [choice.of(openings)]
    for _ in range(2 + choice.below(3)):
        line = choice.of([m for m in middles if m not in lines])
        lines.append(line)
    lines.append(choice.of(endings))
    return " ".join(lines)


def main():
    choice = Choice(2024)
    stories = []
    while sum(len(s) + 1 for s in stories) < 48 * 1024:
        stories.append(story(choice))
    path = pathlib.Path(__file__).resolve().parent / "village.txt"
    path.write_text("\n".join(stories) + "\n")
    print(f"{path.name}: {len(stories)} stories, {path.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
