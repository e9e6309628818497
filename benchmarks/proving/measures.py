"""Measures as sums of counts over test examples, so that two contenders can be compared on the same ones."""

import base64
import math
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

DRAWS = 300  # of test examples, for a standard error
Counts = NDArray[np.float64]  # (N, C): what each test example counts


def spans(tags: Sequence[str]) -> set[tuple[int, int, str]]:
    """Begin, end and type, as conlleval finds them: a type that changes begins a span, too."""
    found, begin, kind = set(), 0, ""
    for place, tag in enumerate([*tags, "O"]):
        mark, _, own = tag.partition("-")
        if kind and (mark in "BO" or own != kind):
            found.add((begin, place, kind))
            kind = ""
        if not kind and mark != "O":
            begin, kind = place, own
    return found


def count(measure: str, said: Sequence[Any], truth: Sequence[Any]) -> Counts:
    """Of every example: right and all; of spans right, said and true; of words by n-grams, as BLEU has it."""
    rows: list[list[float]] = []
    for answer, true in zip(said, truth, strict=True):
        if measure == "accuracy":
            rows.append([answer in true.split("\n"), 1])
        elif measure == "words":
            rows.append([sum(a == b for a, b in zip(answer, true, strict=True)), len(true)])
        elif measure == "f1":
            own, gold = spans(answer), spans(true)
            rows.append([len(own & gold), len(own), len(gold)])
        else:
            rows.append(_bleu().corpus_score([answer], [[true]]).__dict__)  # type: ignore[arg-type]
    if measure == "bleu":
        rows = [[*one["counts"], *one["totals"], one["sys_len"], one["ref_len"]] for one in rows]  # type: ignore[call-overload]
    return np.array(rows, dtype=np.float64)


def _bleu() -> Any:
    from sacrebleu.metrics import BLEU

    return BLEU(tokenize="13a", effective_order=False)


def value(measure: str, sums: NDArray[np.float64]) -> float:
    """The measure of summed counts (C,): in per cent, or bits a token, below zero so that more is better."""
    if measure == "bits":
        return -float(sums[0] / sums[1]) / math.log(2)
    if measure == "f1":
        return 200 * float(sums[0]) / max(1.0, float(sums[1] + sums[2]))
    if measure == "bleu":
        return _bleu_of(sums)
    return 100 * float(sums[0] / sums[1])


def _bleu_of(sums: NDArray[np.float64]) -> float:
    right, total, (said, true) = sums[:4], sums[4:8], sums[8:]
    if not right[0] or not said:
        return 0.0
    shares, smoothing = [], 1.0
    for own, all_ in zip(right, total, strict=True):
        smoothing *= 1 if own else 2
        shares.append((own or 1 / smoothing) / max(1.0, all_))
    brevity = min(1.0, math.exp(1 - true / said))
    return 100 * brevity * math.exp(sum(map(math.log, shares)) / 4)


def difference(measure: str, ours: list[Counts], theirs: list[Counts]) -> tuple[float, float]:
    """Ours minus theirs, the mean over seeds, and its standard error.

    By drawing anew: test examples, the same ones for both and for all seeds, and seeds, which are draws of
    training examples.
    """

    def gap(weights: NDArray[np.float64], seeds: Sequence[int]) -> float:
        of = [[value(measure, weights @ own[seed]) for seed in seeds] for own in (ours, theirs)]
        return float(np.mean(of[0]) - np.mean(of[1]))

    size, seeds = len(ours[0]), range(len(ours))
    random = np.random.default_rng(0)
    found = []
    for _ in range(DRAWS):
        weights = random.multinomial(size, [1 / size] * size).astype(np.float64)
        found.append(gap(weights, random.choice(seeds, len(seeds)).tolist()))
    return gap(np.ones(size), seeds), float(np.std(found))


def packed(counts: Counts) -> str:
    return base64.b64encode(zlib.compress(counts.astype(np.float32).tobytes(), 9)).decode()


def unpacked(text: str, examples: int) -> Counts:
    flat = np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype=np.float32)
    return flat.reshape(examples, -1).astype(np.float64)
