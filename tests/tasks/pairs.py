"""Pairs of texts, and what a model makes of the first of them."""

import random

from elman.tasks.seq2seq_settings import Seq2SeqDecoding
from elman.text.records import Record

LETTERS = "abcdefgh"
LEARNING = {
    "text.unit": "character",
    "model.hidden": 32,
    "model.embedding": 16,
    "training.batch_size": 32,
    "training.learning_rate": 0.01,
    "training.averaging": "none",
    "decoding.max_length": 10,
    "evaluation.metrics": [],
}


def strings(count, shortest, longest):
    """Different strings of letters, in a mixed order."""
    draw = random.Random(1)
    found = {}
    while len(found) < count:
        found["".join(draw.choices(LETTERS, k=draw.randint(shortest, longest)))] = None
    return list(found)


def tsv(pairs):
    return "".join(f"{source}\t{target}\n" for source, target in pairs)


def records(*pairs):
    return [Record({"source": s, "target": t}, "pairs.tsv", line) for line, (s, t) in enumerate(pairs, 1)]


def outputs(one, texts, *, trace=None, partners=(), **decoding):
    """What each text becomes."""
    settings = Seq2SeqDecoding(**{"max_length": 10} | decoding)
    return one.task._write(one.model, texts, settings, partners=partners, trace=trace)
