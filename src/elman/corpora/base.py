"""What a built-in corpus is: examples for a task, in three splits, the same for a seed on every machine."""

import hashlib
from collections.abc import Callable, Iterator
from itertools import islice
from random import Random
from typing import ClassVar, NamedTuple

from elman.errors import ArgumentError

SPLITS = ("train", "dev", "test")
PROBED_SIZES = {"train": 20_000, "dev": 1_000, "test": 1_000}

Example = dict[str, str | list[str]]  # its fields: texts, or in tagged sentences one word or tag each
Settings = dict[str, str | float | list[str]]  # by dotted key


class ProbeItem(NamedTuple):
    """A sentence up to a word that an earlier word decides, with a right and a wrong form of it."""

    prefix: str
    right: str
    wrong: str
    distance: int  # words between the one that decides and the one asked for
    attractors: int  # words in between that speak for the wrong one


class Corpus:
    """A corpus writes ``generate``; a file of this folder holds one, and is named like it.

    >>> from elman.registry import CORPORA
    >>> corpus = CORPORA.find("worked_example")()
    >>> next(corpus.examples("train"))
    {'class': 'I', 'sequence': 'love my cat'}
    """

    task: ClassVar[str]  # "lm", "tag", "classify" or "class2seq": it decides the fields of an example
    summary: ClassVar[str]  # one line
    settings: ClassVar[Settings] = {}  # what suits this corpus in a config

    def examples(self, split: str, seed: int = 1) -> Iterator[Example]:
        """The examples of a split; no two splits share one, even where their seeds differ."""
        if split not in SPLITS:
            raise ArgumentError(f"split is {split!r}; it must be one of {', '.join(map(repr, SPLITS))}")
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise ArgumentError(f"seed is {seed!r}; it must be a whole number")
        return self.generate(split, Random(f"{split} {seed}"))

    def generate(self, split: str, random: Random) -> Iterator[Example]:
        """The examples of a known split, drawn from nothing but ``random``."""
        raise NotImplementedError


class ProbedCorpus(Corpus):
    """A corpus for language models that also asks what they have learned.

    >>> from elman.registry import CORPORA
    >>> item = CORPORA.find("agreement")().probe(seed=3, items=1)[0]
    >>> item.prefix
    'the museums that are watching very slowly the famous pilot the small museum is missing again and again'
    >>> item.right, item.wrong, item.distance, item.attractors
    ('were', 'was', 16, 2)
    """

    task = "lm"
    largest: ClassVar[int]  # parts, such as phrases, that come between the two words
    settings: ClassVar[Settings] = {
        "text.unit": "word",
        "text.context": "sentence",
        "model.embedding": 32,
        "model.hidden": 64,
        "training.learning_rate": 0.01,
        "training.epochs": 10,
    }

    def generate(self, split: str, random: Random) -> Iterator[Example]:
        # Short ones come more often: from them a network learns what to look for in long ones.
        drawn = self._questions(split, random, lambda: random.randint(0, random.randint(0, self.largest)))
        for _, text in islice(drawn, PROBED_SIZES[split]):
            yield {"text": text}

    def probe(self, seed: int, items: int) -> list[ProbeItem]:
        """That many questions of all lengths, made of texts of the test split."""
        random = Random(f"probe {seed}")
        drawn = self._questions("test", random, lambda: random.randint(0, self.largest))
        return [item for item, _ in islice(drawn, items)]

    def question(self, random: Random, parts: int) -> tuple[ProbeItem, str]:
        """A question with so many parts in between, and the whole text that it was made of."""
        raise NotImplementedError

    def _questions(
        self, split: str, random: Random, parts: Callable[[], int]
    ) -> Iterator[tuple[ProbeItem, str]]:
        """Those whose texts are of the split, without end; short ones come again."""
        while True:
            item, text = self.question(random, parts())
            if split_of(text) == split:
                yield item, text


def split_of(text: str) -> str:
    """The split that a text belongs to, whatever the seed: 8 in 10 train, 1 dev, 1 test.

    >>> split_of("the flights were full")
    'train'
    """
    tenth = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) % 10
    return {0: "dev", 1: "test"}.get(tenth, "train")
