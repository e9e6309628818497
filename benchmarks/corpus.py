"""Sentences to measure with: Multi30k where it lies, else some with the same lengths and word counts."""

from __future__ import annotations

import lzma
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

FOLDER = "seq2seq/multi30k/tok"
TRAIN, TEST = "train.lc.norm.tok.{}.xz", "test_2016_flickr.lc.norm.tok.{}"
PAIRS, SENTENCES = 29_000, 1_000
MEAN, DEVIATION, LONGEST = 13.0, 4.0, 41  # words of an English sentence in Multi30k
TYPES = 7_000  # words, between those of its English and its German


@dataclass(frozen=True)
class Corpus:
    """Pairs of source and target to learn from, and sources to write targets for."""

    name: str
    pairs: list[tuple[str, str]]
    sources: list[str]


def find(folder: Path | None) -> Corpus:
    """Multi30k (English to German) below this folder, or generated sentences."""
    place = None if folder is None else folder / FOLDER
    if place is None or not place.is_dir():
        return generated()
    train = [_lines(place / TRAIN.format(language)) for language in ("en", "de")]
    return Corpus("Multi30k", list(zip(*train, strict=True)), _lines(place / TEST.format("en")))


def generated() -> Corpus:
    """Sentences of independent words by Zipf's law; the target is the source in another's words."""
    random = np.random.Generator(np.random.PCG64(1))
    shares = 1 / np.arange(1, TYPES + 1)
    total = PAIRS + SENTENCES
    lengths = random.normal(MEAN, DEVIATION, total).round().clip(3, LONGEST).astype(int)
    words = random.choice(TYPES, lengths.sum(), p=shares / shares.sum())
    sentences = np.split(words, lengths.cumsum()[:-1])
    pairs = [(_spelt("s", sentence), _spelt("t", sentence)) for sentence in sentences]
    return Corpus("generated", pairs[:PAIRS], [source for source, _ in pairs[PAIRS:]])


def _spelt(letter: str, words: NDArray[np.int64]) -> str:
    return " ".join(f"{letter}{word}" for word in words)


def _lines(path: Path) -> list[str]:
    opened = lzma.open if path.suffix == ".xz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        return file.read().rstrip("\n").split("\n")
