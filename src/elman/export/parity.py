"""The proof of an export: the same answers as the model's, how far apart their numbers are, and how fast."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import islice
from time import perf_counter
from typing import Any, NamedTuple, TypeVar

import torch

from elman.errors import ExportError, shortened
from elman.export.options import Answer, Answering, ExportOptions
from elman.predictor import Predictor
from elman.tasks.predictions import Prediction
from elman.training.sources import training_data

T = TypeVar("T")

PROVEN = 1000  # lines of validation data
TIMED = 200  # of them that torch answers one by one
NEAR = 1e-4  # how far log-probabilities may be apart in float32
LEAST = -87.0  # below it a probability in float32 has lost digits: how far down it is no longer counts
POINTS = 0.5  # by how many points of accuracy int8 may be worse


class Line(NamedTuple):
    """A line that is asked, and what the answer should be, if that is known."""

    text: str
    gold: str | None = None


@dataclass(frozen=True)
class Proof:
    """What was compared, and what came of it.

    equal: answers that are the model's. largest_difference: of log-probabilities, over equal
    answers; of a written text it is that of the whole over its tokens.
    accuracy, accuracy_model: of answers (of a tagger: of tags) against what the data say, where they say it.
    lines_per_second: of the export, of torch one line at a time on one thread, and of torch in batches.
    """

    lines: int
    skipped: int
    equal: int
    largest_difference: float
    bytes: int
    accuracy: float | None
    accuracy_model: float | None
    lines_per_second: float
    torch_one_by_one: float
    torch_batched: float
    different: str | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def sentences(self) -> list[str]:
        found = [
            f"proof: {self.equal:,} of {self.lines:,} answers equal, log-probabilities within "
            f"{self.largest_difference:.1e}",
            f"size: {self.bytes / 1e6:.2f} MB",
            f"speed: {self.lines_per_second:,.0f} lines a second; torch on one thread "
            f"{self.torch_one_by_one:,.0f} one by one, {self.torch_batched:,.0f} in batches",
        ]
        if self.accuracy is not None and self.accuracy_model is not None:
            found.append(f"accuracy: {self.accuracy:.2%}; the model's {self.accuracy_model:.2%}")
        if self.skipped:
            found.append(f"{self.skipped:,} lines are left out: they have no token, or too many")
        return found


def validation_lines(predictor: Predictor, most: int = PROVEN) -> list[Line]:
    """The first lines of the validation data that a run was trained with."""
    task = predictor.task
    _, data = training_data(task)
    first, *others = task.roles
    found = []
    for record in islice(data, most):
        text, gold = (_text(record.fields.get(role)) for role in (first, others[-1] if others else ""))
        found.append(Line(text or "", gold))
    return found


def _text(value: str | list[str] | None) -> str | None:
    return value if value is None or isinstance(value, str) else " ".join(value)


def answer_of(prediction: Prediction) -> Answer:
    """A prediction as an export tells it."""
    chances, written = prediction.probabilities, prediction.written
    if chances is not None:
        numbers = list(chances.values()) if isinstance(chances, dict) else chances
        return Answer(prediction.line, tuple(math.log(max(one, 1e-45)) for one in numbers))
    if written is not None and written.log_probability is not None:
        return Answer(prediction.line, (written.log_probability,))
    return Answer(prediction.line)


def prove(
    predictor: Predictor, answering: Answering, lines: Sequence[Line], options: ExportOptions, *, size: int
) -> Proof:
    """Ask the export and the model the same lines."""
    whole = [Line(in_one_line(text), gold) for text, gold in lines]
    asked = [line for line in whole if _fits(predictor, line.text, options.max_length)]
    if not asked:
        raise ExportError("there is no line to prove the export with; give some with --lines FILE")
    texts = [line.text for line in asked]
    with one_thread():
        predictor.details(texts[:1])  # once, so that kernels are compiled
        batched, predictions = timed(lambda: predictor.details(texts))
        few = texts[:TIMED]
        with one_by_one(predictor):
            single, _ = timed(lambda: predictor.details(few))
    answering(texts[:1])  # once, so that what is read at first is there
    own, found = timed(lambda: answering(texts))
    if len(found) != len(texts):
        raise ExportError(f"the export gave {len(found)} answers to {len(texts)} lines")
    expected = [answer_of(one) for one in predictions]
    counts = [1 if one.written is None else 1 + len(one.written.tokens) for one in predictions]
    same = [a.line == b.line for a, b in zip(found, expected, strict=True)]
    rows = zip(found, expected, counts, same, strict=True)
    least = -math.inf if predictor.task.generation else LEAST
    apart = [distance(a, b, least) / count for a, b, count, equal in rows if equal]
    other = next((place for place, equal in enumerate(same) if not equal), None)
    different = None
    if other is not None:
        different = (
            f"{shortened(texts[other])!r}: {shortened(found[other].line)!r}, "
            f"not {shortened(expected[other].line)!r}"
        )
    golds = [line.gold for line in asked]
    return Proof(
        lines=len(texts),
        skipped=len(lines) - len(asked),
        equal=sum(same),
        largest_difference=max(apart, default=0.0),
        bytes=size,
        accuracy=accuracy(found, golds, listed=predictor.task.listed),
        accuracy_model=accuracy(expected, golds, listed=predictor.task.listed),
        lines_per_second=len(texts) / own,
        torch_one_by_one=len(few) / single,
        torch_batched=len(texts) / batched,
        different=different,
    )


def check_proof(proof: Proof, options: ExportOptions) -> None:
    """A mismatch is an error: of float32 an answer or a number, of int8 the accuracy."""
    if not options.int8 and proof.equal != proof.lines:
        count = proof.lines - proof.equal
        raise ExportError(f"{count:,} of {proof.lines:,} answers differ from the model's; {proof.different}")
    if not options.int8 and not proof.largest_difference <= NEAR:
        raise ExportError(
            f"log-probabilities are {proof.largest_difference:.2e} apart from the model's, more than {NEAR:g}"
        )
    before, after = proof.accuracy_model, proof.accuracy
    if before is not None and after is not None and 100 * (before - after) > POINTS:
        raise ExportError(
            f"the accuracy is {after:.2%}, more than {POINTS} points below the model's {before:.2%}; "
            "export it without --int8"
        )


def distance(one: Answer, other: Answer, least: float = -math.inf) -> float:
    """The largest difference of two answers' numbers; infinite where they have not equally many.

    Where both numbers are below ``least`` they count as equal.
    """
    if len(one.log_probabilities) != len(other.log_probabilities):
        return math.inf
    pairs = zip(one.log_probabilities, other.log_probabilities, strict=True)
    apart = [0.0 if a == b or (a < least and b < least) else abs(a - b) for a, b in pairs]
    return math.inf if any(map(math.isnan, apart)) else max(apart, default=0.0)


def accuracy(answers: Sequence[Answer], golds: Sequence[str | None], *, listed: bool) -> float | None:
    """The share of answers, or of tags, that are as the data say; None where they do not say it."""
    right = total = 0
    for answer, gold in zip(answers, golds, strict=True):
        if gold is None:
            continue
        pairs = (
            list(zip(answer.line.split(), gold.split(), strict=False)) if listed else [(answer.line, gold)]
        )
        right += sum(a == b for a, b in pairs)
        total += len(pairs)
    return right / total if total else None


def in_one_line(text: str) -> str:
    """A text as a line: cells of a table may have line ends inside, or what readers of lines take off."""
    return text.replace("\n", " ").removeprefix("\ufeff").rstrip("\r")


def _fits(predictor: Predictor, text: str, most: int) -> bool:
    """Has a line a token, and not too many?"""
    field = next(iter(predictor.task.text_fields.values()), None)
    count = len(text.split()) if field is None or predictor.task.listed else len(field.split(text))
    return 0 < count <= most


@contextmanager
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def one_by_one(predictor: Predictor) -> Iterator[None]:
    """A predictor that computes one text at a time."""
    task = predictor.task
    writer = None if task.generation is None else task.generation.writer
    kept = task.together, None if writer is None else writer.together
    task.together = 1
    if writer is not None:
        writer.together = 1
    try:
        yield
    finally:
        task.together = kept[0]
        if writer is not None and kept[1] is not None:
            writer.together = kept[1]


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """How long some work takes, in seconds, and what it gives."""
    start = perf_counter()
    found = work()
    return max(perf_counter() - start, 1e-9), found
