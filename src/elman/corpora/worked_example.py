"""The worked example of class to sequence: three words, each with the words that follow it."""

from collections.abc import Iterator
from random import Random
from typing import ClassVar

from elman.corpora.base import Corpus, Example, Settings

VOCABULARY = [
    *("allowed", "always", "and", "are", "been", "cat", "cats", "dogs", "enemies", "have", "i"),
    *("is", "it", "lap", "love", "my", "natural", "not", "raining", "water"),
    *("<start>", "<end>"),
]
SEQUENCES = {"I": "love my cat", "cats": "and dogs lap water", "it": "is raining cats and dogs"}


class WorkedExample(Corpus):
    """Three classes and their sequences over 22 words; every split is the same three examples.

    The order of the vocabulary is part of the example: counted from 1, i is word 11, love 15, my 16,
    cat 6 and <end> 22. A class is its own word, so that x is the one-hot of word 11 among 22 for I.
    """

    task = "class2seq"
    summary = "I / cats / it → love my cat / and dogs lap water / is raining cats and dogs"
    settings: ClassVar[Settings] = {
        "text.unit": "word",
        "text.vocabulary": VOCABULARY,
        "text.start": "<start>",
        "text.end": "<end>",
        "text.classes": "token",
    }

    def generate(self, split: str, random: Random) -> Iterator[Example]:
        for name, sequence in SEQUENCES.items():
            yield {"class": name, "sequence": sequence}
