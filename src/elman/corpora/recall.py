"""Recall over long distances: "she tried to print her tickets … she finally printed her ___"."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from random import Random
from typing import Any

from elman.corpora.base import ProbedCorpus, ProbeItem, split_of

SIZES = {"train": 20_000, "dev": 1_000, "test": 1_000}
LARGEST = 6  # sentences between the two
KINDS = {
    ("print", "printed"): ("tickets", "letters", "photos", "maps"),
    ("wash", "washed"): ("shirts", "socks", "coats", "scarves"),
    ("cook", "cooked"): ("beans", "eggs", "noodles", "carrots"),
    ("feed", "fed"): ("rabbits", "ducks", "horses", "parrots"),
}
TRIED = ("tried", "hoped", "wanted")
WHO = (("she", "her"), ("he", "his"))
PEOPLE = ("neighbour", "sister", "brother", "uncle", "teacher", "doctor")
DID = ("laughed", "waited", "slept", "called", "sang", "complained")
WHEN = ("again", "twice", "at noon", "in the morning", "for an hour", "until late")
THINGS = ("weather", "printer", "kitchen", "river", "road", "music")
HOW = ("cold", "slow", "loud", "empty", "strange", "fine")


class Recall(ProbedCorpus):
    """Little stories: someone tries something with a thing, time passes, and it is done with that thing.

    The last verb tells the kind, one of four; which of the four things of that kind it is, only the
    first mention tells, up to 45 words before. Nothing in between speaks for another thing.

    >>> item = min(Recall().probe(seed=1, items=9), key=lambda item: item.distance)
    >>> print(item.prefix, item.right)
    her doctor laughed at noon . she hoped to wash her shirts . she finally washed her shirts
    """

    summary = "stories whose last word was named near their beginning; with a probe"

    def generate(self, split: str, random: Random) -> Iterator[dict[str, Any]]:
        # Short stories come more often: from them a network learns what to look for in long ones.
        stories = _stories(split, random, lambda: random.randint(0, random.randint(0, LARGEST)))
        for story in islice(stories, SIZES[split]):
            yield {"text": f"{story.prefix} {story.right}"}

    def probe(self, seed: int, items: int) -> list[ProbeItem]:
        """Stories of all lengths up to their last word: the thing against another of its kind."""
        random = Random(f"probe {seed}")
        return list(islice(_stories("test", random, lambda: random.randint(0, LARGEST)), items))


def _stories(split: str, random: Random, length: Callable[[], int]) -> Iterator[ProbeItem]:
    """Stories of a split without end, cut before their last word."""
    while True:
        story = _story(random, length())
        if split_of(f"{story.prefix} {story.right}") == split:
            yield story


def _story(random: Random, sentences: int) -> ProbeItem:
    (verb, done), kind = random.choice(list(KINDS.items()))
    right, wrong = random.sample(kind, 2)
    who, whose = random.choice(WHO)
    begin = [*_sentence(random, whose), who, random.choice(TRIED), "to", verb, whose, right]
    between = ["."]
    for _ in range(sentences):
        between += _sentence(random, whose)
    between += [who, "finally", done, whose]
    return ProbeItem(" ".join(begin + between), right, wrong, len(between), attractors=0)


def _sentence(random: Random, whose: str) -> list[str]:
    sentence = random.choice(
        (
            f"the {random.choice(THINGS)} was {random.choice(HOW)} .",
            f"{whose} {random.choice(PEOPLE)} {random.choice(DID)} {random.choice(WHEN)} .",
        )
    )
    return sentence.split()
