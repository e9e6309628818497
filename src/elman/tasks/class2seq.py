"""Class to sequence: a class in, a sequence out, token by token (rows G1–G3)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from pydantic import model_validator
from torch import Tensor

from elman.config import (
    Among,
    Around,
    Config,
    Count,
    DecodingSettings,
    EvaluationSettings,
    MarkerSettings,
    Near,
    OneOf,
    Options,
    PartOf,
    RecurrentSettings,
    VocabularySettings,
    setting,
)
from elman.decoding.rows import Nested
from elman.errors import EmptyError, LabelError, nearest
from elman.models.counting import NgramGenerator
from elman.models.generator import Generator
from elman.models.losses import output_loss
from elman.registry import CELLS, NETWORKS
from elman.tasks.base import Axes, Judges, Loss, Measures, Task, network_kind
from elman.tasks.buckets import Counts, bucket, real_targets, taken_rows, widened
from elman.tasks.class2seq_writer import Class2SeqWriter
from elman.tasks.classes import ClassField
from elman.tasks.examples import Examples, device_of, shifted, tensor
from elman.tasks.generation import Generation, Partners
from elman.tasks.predictions import Prediction
from elman.tasks.statistics import Statistics, Tally, tallied
from elman.tasks.watched import WATCHED, WatchedExample, watch
from elman.tensors.rows import pick, real_rows
from elman.text.batches import pad
from elman.text.fields import State, TextField
from elman.text.lexicon import Lexicon
from elman.text.reading import formats
from elman.text.records import Record
from elman.text.store import Row
from elman.text.vocabulary import UNKNOWN

SMALL = 50  # up to so many examples the lectures' network and incremental descent are the default
NETWORK_NAMES = ("rnn", "ngram")


class Class2SeqText(MarkerSettings, VocabularySettings):
    reserved = ()
    classes: Annotated[str, OneOf("elman.tasks.classes:KINDS")] = setting(
        "class",
        "the first column is one class, features apart by spaces (many-hot), numbers (vector), or a token "
        "of the vocabulary (its one-hot vector)",
    )


class Class2SeqModel(RecurrentSettings):
    """The network; every cell fits every task."""

    cell: Annotated[str, PartOf(CELLS)] | None = setting(
        None, "name of a cell; unset: elman for few examples, else lstm"
    )  # type: ignore[assignment]
    cell_options: Options | None = setting(None, "options of the cell's constructor")  # type: ignore[assignment]
    network: Annotated[str, PartOf(NETWORKS)] = setting("rnn", "rnn, or ngram: a counted comparator")
    order: Count | None = setting(None, "tokens of the longest n-gram that is counted")
    feedback: Literal["hard", "soft"] = setting(
        "hard", "generation feeds back the argmax as a one-hot vector, or the softmax itself"
    )

    @model_validator(mode="after")
    def _reads_forward(self) -> Class2SeqModel:
        if self.bidirectional:
            raise ValueError("a generator goes in one direction; it cannot read what it has not written")
        if self.network not in NETWORK_NAMES:
            raise ValueError("class2seq starts a recurrent state; there is no comparator without one")
        return self


class Class2SeqSettings(Config):
    usable = {"data.format": partial(formats, "read"), "model.network": lambda: NETWORK_NAMES}  # noqa: RUF012
    search = {  # noqa: RUF012
        "model.hidden": Around(2),
        "model.embedding": Around(2),
        "model.layers": Among((1, 2)),
        "model.dropout": Near(0.2),
        "training.learning_rate": Around(3),
    }
    text: Class2SeqText = Class2SeqText()
    model: Class2SeqModel = Class2SeqModel()
    decoding: DecodingSettings = DecodingSettings()
    evaluation: EvaluationSettings = EvaluationSettings()


class Class2SeqBatch(NamedTuple):
    """Class vectors (B, P), previous tokens (B, T), tokens (B, T) and, with the CPU, lengths (B,).

    Where the ``counts`` are known, there are none, and padding has no token.
    """

    classes: Tensor
    previous: Tensor
    tokens: Tensor
    lengths: Tensor | None
    counts: Counts | None = None

    @property
    def size(self) -> int:
        return len(self.tokens)

    def taken(self, rows: Tensor) -> Class2SeqBatch:
        return taken_rows(self, rows)

    def bucketed(self) -> Class2SeqBatch:
        x, previous, tokens, lengths, _ = self
        assert lengths is not None
        T, N = bucket(tokens.shape[1]), int(lengths.sum())
        targets = real_targets(tokens, lengths, T)
        return Class2SeqBatch(x, widened(previous, T), targets, None, Counts(N, len(tokens), N))


class Class2Seq(Task[Generator, Class2SeqBatch]):
    """``y^h(0) = σ(W^i x)``, then a token at a time until the end marker."""

    Settings = Class2SeqSettings
    roles: ClassVar[tuple[str, ...]] = ("class", "sequence")
    measured: ClassVar[tuple[str, ...]] = ("token",)
    buckets = parted = True
    reader = "", "rnn"
    holds_out = False
    config: Class2SeqSettings
    generation: Generation[Generator]

    def __init__(self, config: Class2SeqSettings) -> None:
        super().__init__(config)
        text = config.text
        self.field = TextField(text, start=text.start, end=text.end)
        self.classes = ClassField(text.classes, self.field)
        self.parted = self.parted and text.classes != "vector"  # the first one tells how long all are
        self.text_fields, self.axes, self.watched = {"": self.field}, self._axes, self._watched
        soft = config.model.feedback == "soft"
        self.generation = Generation(Class2SeqWriter(self.field, self.classes, soft=soft))

    @property
    def label_names(self) -> list[str] | None:
        return self.classes.names if self.config.text.classes != "vector" else None

    @property
    def end(self) -> int:
        return self.field.vocabulary.index[self.field.end]

    def metrics(self) -> dict[str, bool]:
        return {"exact_match": True, "accuracy": True, "loss": False}

    def build_vocabularies(self, records: Iterable[Record]) -> Statistics:
        self.field.build_unit(record.fields["sequence"] for record in records)
        tally = tallied(records, self._count)
        counts, seen = tally.counts["token"], tally.seen
        seen.types = len(counts)
        self.field.build_vocabulary(counts, arrange=self._markers_last)
        self.classes.labels.build(Counter(dict(tally.counts["class"].items())))
        entries = len(self.field.vocabulary)
        seen.notes.append(f"vocabulary: {entries:,} entries; {len(self.classes.names)} classes")
        return seen

    def _count(self, records: Iterable[Record]) -> Tally:
        tally = Tally("token", "class")
        for record in records:
            tokens = self.field.split(record.fields["sequence"])
            if not tokens:
                raise record.error(
                    EmptyError, "a sequence without a token", field="sequence", remedy="remove the line"
                )
            tally.counts["token"].update(tokens)
            tally.counts["class"].update(self.classes.features(record))
            tally.seen.add(tokens=len(tokens) + 1, losses=len(tokens) + 1, length=len(tokens) + 1)
        return tally

    def _markers_last(self, tokens: Sequence[str]) -> list[str]:
        """A vocabulary that is given stays as it is; others end with the unknown token. Then the markers."""
        settings, field = self.config.text, self.field
        given = tokens if settings.vocabulary else [*(t for t in tokens if t != UNKNOWN), UNKNOWN]
        return [*given, *(marker for marker in (field.start, field.end) if marker not in given)]

    def encode(self, records: Iterable[Record], lexicon: Lexicon | None) -> Iterator[Row]:
        for record in records:
            yield {"class": self.classes.key(record), "token": [*self._tokens(record), self.end]}

    def choices(self, statistics: Statistics) -> dict[str, Any]:
        few = statistics.examples <= SMALL
        cell = self.config.model.cell or ("elman" if few else "lstm")
        optimizer = self.config.training.optimizer or ("incremental" if few else "adamw")
        one_by_one = optimizer == "incremental"
        rate = 2.0 if self.config.training.loss == "squared" else 0.5
        seen = 6_000 if one_by_one else 150_000
        return {
            "model.order": 5,
            "model.cell": cell,
            "model.cell_options": {"activation": "logistic", "bias": False} if cell == "elman" else {},
            "model.hidden": 32 if few else 128,
            "model.embedding": 0 if len(self.field.vocabulary) <= 500 else 64,
            "model.dropout": 0.0,
            "training.optimizer": optimizer,
            "training.batch_size": 1 if one_by_one else 32,
            "training.learning_rate": (rate if few else None) if one_by_one else 3e-3,
            "training.schedule": "constant" if one_by_one else "one-cycle",
            "training.averaging": "none" if one_by_one else "ema",
            "decoding.max_length": max(50, 2 * statistics.longest),
            "training.tolerance": 0.003 if one_by_one else 0.0,
            "training.epochs": max(5, min(2000, round(seen / statistics.examples))),
        }

    def build_model(self, *, fresh: bool = False) -> Any:
        settings, V = self.config.model, len(self.field.vocabulary)
        if network_kind(self.config.model).counted:
            return NgramGenerator(self.classes.size, V, order=settings.order or 5)
        return Generator(self.classes.size, V, settings)

    def _axes(self) -> dict[str, Axes]:
        tokens, classes = self.field.vocabulary.tokens, self.label_names
        classes = tokens if self.config.text.classes == "token" else classes
        starts = {f"starts.{depth}.weight": (None, classes) for depth in range(self.config.model.layers or 1)}
        return {**starts, "embedding.weight": (tokens, None), "output.weight": (tokens, None)}

    def collate(self, examples: Examples, key: Iterable[int], device: torch.device) -> Class2SeqBatch:
        tokens, lengths = pad(examples.rows("token", key))
        start = self.field.vocabulary.index[self.field.start]
        previous = shifted(np.full(len(tokens), start), tokens)
        x = self.classes.vectors([row.tolist() for row in examples.rows("class", key)], device)
        return Class2SeqBatch(x, tensor(previous, device), tensor(tokens, device), torch.from_numpy(lengths))

    def loss(
        self, model: Generator, batch: Class2SeqBatch, *, carry: Any = None, progress: float = 1.0
    ) -> Loss:
        settings = self.config.training
        logits, targets = _outputs(model, batch)
        total = output_loss(logits, targets, kind=settings.loss, smoothing=settings.label_smoothing)
        return Loss(total, *(batch.counts or Counts(len(targets), len(batch.tokens), len(targets))))

    @torch.no_grad()
    def evaluate(
        self, model: Generator, examples: Examples, *, quick: bool = False, partners: Partners = ()
    ) -> Measures:
        """Loss with the truth fed; and what is generated, against the nearest sequence that the class has.

        Sequences of unequal length are compared with the shorter one continued by end markers.
        """
        loss, tokens = 0.0, 0
        for batch in self.evaluation_batches(examples, device_of(model)):
            logits, targets = _outputs(model, batch)
            loss += float(output_loss(logits, targets))
            tokens += len(targets)
        references: dict[tuple[int, ...], list[list[int]]] = defaultdict(list)
        for i in range(len(examples)):
            key = tuple(examples.store.fields["class"][i].tolist())
            references[key].append(examples.store.fields["token"][i].tolist())
        found = self._sequences(model, list(references), partners)
        judges, names = (
            Judges(self.config, self.config.evaluation.metrics or ()),
            self.field.vocabulary.tokens,
        )
        right = total = exact = 0
        for sequences, one in zip(references.values(), found, strict=True):
            pairs = (agreement(one, gold, self.end) for gold in sequences)
            best = max(pairs, key=lambda pair: pair[0] / pair[1])
            right, total, exact = right + best[0], total + best[1], exact + (best[0] == best[1])
            judges.add([names[t] for t in one], [[names[t] for t in gold] for gold in sequences])
        measures = {"loss": loss / tokens, "accuracy": right / total, "exact_match": exact / len(references)}
        return measures | {"tokens": tokens, "classes": len(references)} | judges.values()

    def _sequences(
        self, model: Generator, keys: Sequence[Sequence[int]], partners: Partners
    ) -> list[list[int]]:
        """The tokens that classes become, with the end marker where it came."""
        prompts = [self.classes.prompt(key) for key in keys]
        found = self.generation.search(model, prompts, self.config.decoding, partners=partners)
        best = [one.best for one in found]
        return [[*one.tokens, self.end] if one.stopped == "end" else one.tokens for one in best]

    def predict(
        self, model: Generator, texts: Sequence[str], *, partners: Partners = (), trace: int | None = None
    ) -> list[Prediction]:
        """The sequence of each class, with its unrolling."""
        self.classes.keys(texts)  # a mistake is named with its number among all prompts
        settings = self.config.decoding
        return self.generation.predict(model, texts, settings, partners=partners, trace=trace or 0)

    def samples(self, model: Generator, examples: Examples) -> list[str]:
        found = self.predict(model, self.classes.names[:3])
        return [f"{one.asked} → {one.line}" for one in found]

    @torch.no_grad()
    def _watched(self, model: Generator, examples: Examples) -> list[WatchedExample]:
        def step(tokens: Tensor, state: Nested) -> tuple[Tensor, Nested, Tensor | None]:
            return *model.step(tokens, state), None

        found, names = [], self.field.vocabulary.tokens
        for number in range(min(WATCHED, len(examples))):
            batch = self.collate(examples, [number], device_of(model))
            prompt = [self.classes.prompt(examples.store.fields["class"][number].tolist())]
            first, start = batch.previous[0, :1], model.start(batch.classes)
            found.append(watch(step, start, first, batch.tokens[0], source=prompt, names=names))
        return found

    def state(self) -> State:
        return self.field.state() | {"classes": self.classes.names, "width": self.classes.width}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.field.restore(state)
        self.classes.labels.restore(state["classes"])
        self.classes.width = int(state["width"])

    def _tokens(self, record: Record) -> list[int]:
        vocabulary = self.field.vocabulary
        tokens = self.field.split(record.fields["sequence"])
        for token in tokens:
            if token not in vocabulary and UNKNOWN not in vocabulary:
                raise record.error(
                    LabelError,
                    "a token outside the vocabulary",
                    field="sequence",
                    text=token,
                    remedy=nearest(token, vocabulary.tokens),
                )
        return vocabulary.ids(tokens)


def _outputs(model: Generator, batch: Class2SeqBatch) -> tuple[Tensor, Tensor]:
    """Logits (N, V) and tokens (N,) of the real positions."""
    logits = model(batch.classes, batch.previous, batch.lengths)
    if batch.lengths is None:
        return logits.flatten(0, 1), batch.tokens.flatten()
    real = real_rows(batch.lengths, batch.tokens.shape[1], batch.tokens.device)
    return pick(logits.flatten(0, 1), real), batch.tokens.flatten()[real]


def agreement(found: Sequence[int], gold: Sequence[int], end: int) -> tuple[int, int]:
    """(equal positions, all positions), the shorter sequence read as continued with end markers (row G2).

    >>> agreement([4, 5, 9], [4, 6, 7, 9], end=9)
    (2, 4)
    """
    n = max(len(found), len(gold))
    pairs = zip([*found, *[end] * (n - len(found))], [*gold, *[end] * (n - len(gold))], strict=True)
    return sum(a == b for a, b in pairs), n
