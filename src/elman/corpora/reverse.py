"""Strings of letters and the same strings read backwards: what no summary of fixed size holds for long."""

from collections.abc import Iterator
from random import Random
from typing import ClassVar

from elman.corpora.base import Corpus, Example, Settings, split_of

SIZES = {"train": 20_000, "dev": 1_000, "test": 2_000}
LETTERS = "abcdefghij"
LONGEST = 40


class Reverse(Corpus):
    """Strings of 1 to 40 letters, all lengths alike, and their reversals.

    A string occurs once, so that the shortest are as few as there are. Nothing about one letter says
    anything about the next: a network without attention must keep the whole string in its last state.
    """

    longest: ClassVar[int] = LONGEST
    task = "seq2seq"
    summary = "strings of 1 to 40 letters → the same backwards"
    settings: ClassVar[Settings] = {
        "text.unit": "character",
        "text.shared": False,
        "model.hidden": 256,
        "model.embedding": 64,
        "model.dropout": 0.2,
        "training.batch_size": 64,
        "training.epochs": 30,
        "decoding.beam": 1,
    }

    def generate(self, split: str, random: Random) -> Iterator[Example]:
        seen: set[str] = set()
        while len(seen) < SIZES[split]:
            source = "".join(random.choices(LETTERS, k=random.randint(1, self.longest)))
            if split_of(source) == split and source not in seen:
                seen.add(source)
                yield {"source": source, "target": source[::-1]}
