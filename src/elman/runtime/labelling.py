"""Exported models that choose labels: of a text, or of each word."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from elman.runtime import crf
from elman.runtime.base import Exported, Prediction, field_of
from elman.runtime.search import Floats, Integers
from elman.runtime.words import WordBatches
from elman.text.batches import plan_batches
from elman.text.lexicon import Lexicon
from elman.text.ngram_index import NgramIndex, ngram_values
from elman.text.ngrams import TextNgrams
from elman.text.vocabulary import Vocabulary

POSITIONS = 8000  # words of the texts that are computed at once


def softmax(scores: Floats) -> Floats:
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    found: Floats = powers / powers.sum(-1, keepdims=True)
    return found


def log_softmax(scores: Floats) -> Floats:
    below = scores - scores.max(-1, keepdims=True)
    found: Floats = below - np.log(np.exp(below).sum(-1, keepdims=True))
    return found


class WordModel(Exported):
    """What labels and tags share: words of a lexicon, in batches."""

    def __init__(self, folder: Path, said: Mapping[str, Any], threads: int | None) -> None:
        super().__init__(folder, said, threads)
        self.field = field_of(said["field"])
        self.names: list[str] = said["labels"]
        self.temperature: float = said["temperature"]
        letters = said["characters"]
        characters = None if letters is None else Vocabulary(letters)
        vectors = {word: row for row, word in enumerate(said["vector_words"], 1)}
        make = partial(Lexicon, self.field.vocabulary, characters, vectors, lower=said["lower"])
        needed = [one.name for one in self.sequence.get_inputs()]
        self.batches = WordBatches(make, self.arrays, said["buckets"], needed)

    def scores(self, texts: Sequence[Sequence[str]]) -> Iterable[tuple[list[int], Floats, Integers]]:
        """Which of the texts, their scores, and their lengths, batch by batch."""
        rows = self.batches.rows(texts)
        lengths = np.array([len(row) for row in rows])
        plan = plan_batches(lengths, size=None, tokens=POSITIONS, seed=0, epoch=0, shuffle=False)
        for key in plan:
            [scores] = self.sequence.run(["scores"], self.batches.inputs([rows[i] for i in key]))
            yield key.tolist(), scores, lengths[key]


class Classifier(WordModel):
    """One label for a text, or several."""

    task = "classify"

    @cached_property
    def _index(self) -> NgramIndex:
        return NgramIndex(self, self.arrays["hashes"])

    @cached_property
    def _ngrams(self) -> TextNgrams:
        return TextNgrams()

    def _details(self, texts: Sequence[str]) -> list[Prediction]:
        several, between = self.said["several"], self.said["between"]
        split = [self.field.split(text) for text in texts]
        real = [i for i, words in enumerate(split) if words]
        found = [Prediction([] if several else "", text, {}, between=between) for text in texts]
        for key, scores, _ in self.scores([split[i] for i in real]) if real else ():
            scores = self._mixed(scores, [self.field.join(split[real[i]]) for i in key])
            tempered = (scores / np.float32(self.temperature)).astype(np.float32)
            chances = 1 / (1 + np.exp(-tempered)) if several else softmax(tempered)
            for i, row, best in zip(key, chances.tolist(), scores.argmax(-1).tolist(), strict=True):
                value = self._chosen(row) if several else self.names[best]
                named = dict(zip(self.names, row, strict=True))
                found[real[i]] = Prediction(value, texts[real[i]], named, between=between)
        return found

    def _chosen(self, chances: Sequence[float]) -> list[str]:
        least = self.said["threshold"]
        pairs = zip(chances, self.names, strict=True)
        return [name for _, name in sorted((-p, name) for p, name in pairs if p >= least)]

    def _mixed(self, scores: Floats, texts: Sequence[str]) -> Floats:
        """The network's scores and those of the linear models beside it, as log-probabilities of all."""
        if not self.said["shortcut"]:
            return scores
        kept = self.arrays
        places, values, offsets = ngram_values(*self._ngrams.of_all(texts), self._index, kept["rarity"])
        ends = [*offsets[1:], len(places)]
        sums = np.stack(
            [values[a:b] @ kept["weight"][places[a:b]] for a, b in zip(offsets, ends, strict=True)]
        )
        both = log_softmax((sums + kept["bias"]).reshape(len(texts), 2, -1))
        experts = np.concatenate([log_softmax(scores)[:, None], both], 1)
        return log_softmax(np.einsum("bek,e->bk", experts, kept["weights"]))


class Tagger(WordModel):
    """A tag for each word."""

    task = "tag"

    def _details(self, texts: Sequence[str | Sequence[str]]) -> list[Prediction]:
        split = [_words(text) for text in texts]
        found = [Prediction([], words, []) for words in split]
        real = [i for i, words in enumerate(split) if words]
        lower = self.said["field"]["lowercase"]
        spelt = [[word.lower() if lower else word for word in split[i]] for i in real]
        for key, scores, lengths in self.scores(spelt) if real else ():
            for i, row, length in zip(key, scores, lengths, strict=True):
                tags, chances = self._tags(row[:length])
                own = [float(chances[t, tag]) for t, tag in enumerate(tags)]
                found[real[i]] = Prediction([self.names[tag] for tag in tags], split[real[i]], own)
        return found

    def _tags(self, scores: Floats) -> tuple[list[int], Floats]:
        if not self.said["crf"]:
            return scores.argmax(-1).tolist(), softmax(scores / np.float32(self.temperature))
        chain = [self.arrays[f"crf_{name}"] for name in ("start", "transitions", "end")]
        tags = crf.decode(scores + self.arrays.get("crf_bias", np.float32(0)), *chain)
        chances = crf.marginals(scores, *chain)
        if self.temperature == 1.0:
            return tags, chances
        return tags, softmax(np.log(chances.astype(np.float32).clip(crf.SMALLEST)) / self.temperature)


def _words(text: str | Sequence[str]) -> list[str]:
    return [word for word in re.split("[ \t]+", text) if word] if isinstance(text, str) else list(text)
