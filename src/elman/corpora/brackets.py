"""Brackets of three kinds, properly closed: a language that only a memory of what is open can predict."""

from collections.abc import Iterator
from itertools import count, islice
from random import Random
from typing import ClassVar

from elman.corpora.base import Corpus, Example, Settings, split_of

SIZES = {"train": 10_000, "dev": 500, "test": 500}
PAIRS = (("(", ")"), ("[", "]"), ("{", "}"))
DEEPEST = 6
LONGEST = 20  # pairs


class Brackets(Corpus):
    """The Dyck language of three kinds: ``( [ ] ) { }``, 4 to 20 pairs, at most 6 deep.

    Which bracket opens, and when one closes, is chance; *which* one closes is not.
    """

    task = "lm"
    summary = "properly nested brackets of three kinds, at most six deep (Dyck language)"
    settings: ClassVar[Settings] = {"text.unit": "word"}

    def generate(self, split: str, random: Random) -> Iterator[Example]:
        texts = (" ".join(_brackets(random, random.randint(4, LONGEST))) for _ in count())
        for text in islice((text for text in texts if split_of(text) == split), SIZES[split]):
            yield {"text": text}


def _brackets(random: Random, pairs: int) -> Iterator[str]:
    """A proper sequence of that many pairs, opening or closing with equal chance where both can be."""
    stack: list[str] = []
    while pairs or stack:
        if not stack or (pairs > 0 and len(stack) < DEEPEST and random.random() < 0.5):
            pairs -= 1
            opening, closing = random.choice(PAIRS)
            stack.append(closing)
            yield opening
        else:
            yield stack.pop()
