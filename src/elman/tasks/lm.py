"""Language models: the next token from those before it; scores and generates text (rows L1–L4)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elman.config import DecodingSettings
from elman.errors import EmptyError
from elman.models.adaptive_softmax import cluster_names
from elman.models.counting import NgramLM
from elman.models.embedding import Tokens
from elman.models.language_model import LanguageModel, activity
from elman.models.losses import NO_TARGET, output_loss
from elman.tasks.base import Axes, Loss, Measures, Task, network_kind
from elman.tasks.buckets import Counts, bucket, real_targets, taken_rows, widened
from elman.tasks.examples import Examples, device_of, shifted, tensor
from elman.tasks.generation import Generation, Partners
from elman.tasks.lm_adaptation import AdaptiveReader, adapted_losses, check_adaptable
from elman.tasks.lm_defaults import largest_vocabulary, lm_choices, usual_truncate
from elman.tasks.lm_settings import LmSettings
from elman.tasks.lm_writer import LmWriter
from elman.tasks.predictions import Prediction
from elman.tasks.statistics import Statistics, Tally, tallied
from elman.tensors.nested import map_tensors
from elman.tensors.rows import length_mask, pick, real_rows
from elman.tensors.transfer import moved
from elman.text.batches import EpochBatches, Segments, pad, plan_batches
from elman.text.fields import State, TextField
from elman.text.files import Repairs
from elman.text.lexicon import Lexicon
from elman.text.reading import read_text
from elman.text.records import Record, Source
from elman.text.store import Row
from elman.text.vocabulary import UNKNOWN

EVALUATION_STEPS = 256  # steps of a stream that evaluation reads at once
VALIDATION_ROWS = 16  # parts of a stream that validation on a GPU reads side by side
VALIDATION_LENGTH = 2000  # steps that such a part has at least
HELD_OUT_LINES = 10  # of a running text that are held out together


class LmBatch(NamedTuple):
    """Inputs (B, T), targets (B, T) and, with the CPU, lengths (B,); a stream has no padding, so none.

    Nor has a batch whose ``counts`` are known: there, padding has no target.
    """

    inputs: Tensor
    targets: Tensor
    lengths: Tensor | None
    counts: Counts | None = None

    @property
    def real(self) -> Tensor | None:
        """(B, T) which positions are real; None: all of them."""
        T = self.inputs.shape[1]
        if self.lengths is not None:
            return moved(length_mask(self.lengths, T), self.inputs.device)
        return None if self.counts is None else self.targets != NO_TARGET

    @property
    def size(self) -> int:
        return len(self.inputs)

    def taken(self, rows: Tensor) -> LmBatch:
        return taken_rows(self, rows)

    def bucketed(self) -> LmBatch:
        (B, T), lengths = self.inputs.shape, self.lengths
        if lengths is None:
            return self._replace(counts=Counts(B * T, B, B * T))
        T, N = bucket(T), int(lengths.sum())
        targets = real_targets(self.targets, lengths, T)
        return LmBatch(widened(self.inputs, T), targets, None, Counts(N, B, N))


class Lm(Task[LanguageModel, LmBatch]):
    """``P(w_1 … w_n) = ∏ P(w_i | w_1 … w_{i-1})``, the end marker included."""

    Settings = LmSettings
    roles: ClassVar[tuple[str, ...]] = ("text",)
    measured: ClassVar[tuple[str, ...]] = ("token",)
    buckets = parted = True
    reader = "tokens", "encoder.network"
    config: LmSettings
    generation: Generation[LanguageModel]

    def __init__(self, config: LmSettings) -> None:
        super().__init__(config)
        self.streams = config.text.context == "stream"
        self.held_out_block = HELD_OUT_LINES if self.streams else 1
        text = config.text
        self.field = TextField(
            text, vectors=text.vectors, reverse=text.reversed, start=text.start, end=text.end
        )
        self.text_fields = {"": self.field}
        self.writer = LmWriter(self.field, streams=self.streams)
        self.generation = Generation(self.writer)
        self.scorer, self.axes = self, self._axes

    @property
    def start(self) -> int:
        """What stands before the first token: in a stream the end of the line before."""
        return self.field.vocabulary.id(self.field.end if self.streams else self.field.start)

    @property
    def end(self) -> int:
        return self.field.vocabulary.id(self.field.end)

    def metrics(self) -> dict[str, bool]:
        return {"loss": False, "perplexity": False, "accuracy": True}

    def read(self, source: Source, repairs: Repairs) -> Iterator[Record]:
        for record in read_text(source, repairs):
            if record.fields["text"].strip() or self.streams or source.asked:
                yield record
            else:
                repairs["blank line skipped"] += 1

    def build_vocabularies(self, records: Iterable[Record]) -> Statistics:
        self.field.build_unit(record.fields["text"] for record in records)
        tally = tallied(records, self._count)
        counts, seen = tally.counts["token"], tally.seen
        if not len(counts):
            remedy = "give a file with words in it"
            raise EmptyError("no text to train on", path=str(self.config.data.train), remedy=remedy)
        seen.types = len(counts)
        rare = 2 if self.field.unit.grain == "word" and not counts[UNKNOWN] else 1
        seen.notes += self.field.build_vocabulary(counts, rare=rare, limit=largest_vocabulary(self.config))
        if self.streams:  # the examples of a stream are its segments
            usual = usual_truncate(characters=self._characters)
            seen.losses = seen.examples * (self.config.training.truncate or usual)
        return seen

    def _count(self, records: Iterable[Record]) -> Tally:
        tally = Tally("token")
        counts, seen = tally.counts["token"], tally.seen
        for record in records:
            tokens = self.field.split(record.fields["text"])
            counts.update(tokens)
            seen.add(tokens=len(tokens) + 1, losses=len(tokens) + 1, length=len(tokens) + 1)
        return tally

    def encode(self, records: Iterable[Record], lexicon: Lexicon | None) -> Iterator[Row]:
        """The tokens of every line and the end marker; a stream begins with the start marker."""
        end = self.end
        first = [self.start] if self.streams and getattr(records, "begins", True) else []
        for record in records:
            yield {"token": [*first, *self.field.ids(record.fields["text"]), end]}
            first = []

    @property
    def _characters(self) -> bool:
        return self.field.unit.grain == "character"

    def choices(self, statistics: Statistics) -> dict[str, Any]:
        entries = len(self.field.vocabulary)
        return lm_choices(self.config, statistics, vocabulary=entries, characters=self._characters)

    def build_model(self, *, fresh: bool = False) -> Any:
        settings, V = self.config.model, len(self.field.vocabulary)
        if network_kind(self.config.model).counted:
            return NgramLM(V, order=settings.order or 5)
        tokens = Tokens.of(
            self.field,
            settings.embedding or 0,
            rare_dropout=settings.rare_dropout or 0.0,
            token_dropout=settings.token_dropout or 0.0,
            embedding_dropout=settings.embedding_dropout or 0.0,
            tuned=self.config.text.tune_vectors,
        )
        adaptive = bool(settings.adaptive_softmax)
        model = LanguageModel(tokens, settings, tied=bool(settings.tied), adaptive=adaptive)
        if fresh:
            tokens.fill(self.field)
        return model

    def epoch(self, examples: Examples, epoch: int) -> EpochBatches:
        settings = self.config.training
        if self.streams:
            varied = (settings.seed, epoch) if settings.vary_truncate else None
            return self._segments(examples, settings.batch_size or 1, settings.truncate or 35, varied)
        return super().epoch(examples, epoch)

    def collate(self, examples: Examples, key: Any, device: torch.device) -> LmBatch:
        if self.streams:
            inputs, targets = key
            return LmBatch(tensor(inputs, device), tensor(targets, device), None)
        return self._sentences(examples.rows("token", key), device)

    def loss(
        self, model: LanguageModel | NgramLM, batch: LmBatch, *, carry: Any = None, progress: float = 1.0
    ) -> Loss:
        settings = self.config.training
        kind, smoothing, besides = settings.loss, settings.label_smoothing, None
        ar, tar = settings.activation_regularisation or 0.0, settings.temporal_regularisation or 0.0
        if isinstance(model, LanguageModel) and (ar or tar):
            raw, outputs, state = model.activations(batch.inputs, batch.lengths, carry)
            besides = activity(raw, outputs, batch.real, ar=ar, tar=tar)
        else:
            outputs, state = model(batch.inputs, batch.lengths, carry)
        rows, targets = _real(outputs, batch)
        if isinstance(model, LanguageModel):
            every = batch.counts is None or self.streams
            total = model.loss(rows, targets, kind=kind, smoothing=smoothing, every=every)
        else:
            total = output_loss(model.logits(rows), targets, kind=kind, smoothing=smoothing)
        counts = batch.counts or Counts(len(targets), len(batch.inputs), len(targets))
        carried = map_tensors(Tensor.detach, state) if self.streams else None
        return Loss(total, *counts, carried, regularisation=besides)

    @torch.no_grad()
    def evaluate(
        self, model: LanguageModel, examples: Examples, *, quick: bool = False, partners: Partners = ()
    ) -> Measures:
        """A stream is one long sequence, read from its first token to its last.

        ``quick`` on a GPU, a long stream is read as parts side by side, each without what came before it. So
        the loss is a little higher, in every validation alike; up to 15 tokens at the end, too few for one
        more step, are not read.
        """
        device, rows = device_of(model), 1
        if quick and self.streams and device.type != "cpu":
            parts = len(examples.store.fields["token"].values) // VALIDATION_LENGTH
            rows = max(1, min(VALIDATION_ROWS, parts))
        sums = torch.zeros(3, dtype=torch.float64, device=device)  # of losses, right ones, unknown ones;
        count, hidden = 0, self.field.vocabulary.id(UNKNOWN)  # they stay there until all batches are read
        state: Any = None
        for batch in self._evaluation(examples, device, rows):
            outputs, state = model(batch.inputs, batch.lengths, state if self.streams else None)
            real, targets = _real(outputs, batch)
            logits = model.logits(real)
            right, unknown = (logits.argmax(-1) == targets).sum(), (targets == hidden).sum()
            sums += torch.stack([output_loss(logits, targets), right, unknown])
            count += len(targets)
        total, right, unknown = sums.tolist()
        loss = total / count
        measures: Measures = {
            "loss": loss,
            "perplexity": math.exp(min(loss, 700)),
            "accuracy": right / count,
            "tokens": count,
            "unknown": unknown / count,  # share of tokens that the vocabulary lacks: they are easy to predict
        }
        losses = {} if quick else self._adapted_losses(model, examples)
        measures |= {f"{name}_loss": value for name, value in losses.items()}
        measures |= {f"{name}_perplexity": math.exp(min(value, 700)) for name, value in losses.items()}
        if self._characters:
            unit = f"bits_per_{self.config.text.unit}"
            measures[unit] = loss / math.log(2)
            measures |= {f"{name}_{unit}": value / math.log(2) for name, value in losses.items()}
        elif not quick and self.field.unit.grain == "piece":  # whose number is nobody's measure
            measures["bits_per_character"] = total / math.log(2) / self._letters(examples)
        return measures

    def _letters(self, examples: Examples) -> int:
        """The characters that are predicted, the ends of lines among them."""
        ids, names = examples.store.fields["token"].values, self.field.vocabulary.tokens
        ends = ids == self.end
        return len(self.field.join([names[i] for i in ids[~ends]])) + int(ends.sum()) - self.streams

    @torch.no_grad()
    def score(
        self, model: LanguageModel, texts: Sequence[str], *, reader: AdaptiveReader | None = None
    ) -> list[list[tuple[str, float]]]:
        """For each text its tokens and the end marker, with ``log P(token | those before)`` (row L3).

        A reader, which learns, reads one text after the other, and goes on from each in a stream.
        """
        end, device = self.end, device_of(model)
        split = [self.field.split(text) for text in texts]
        rows = [np.array([*self.field.vocabulary.ids(tokens), end]) for tokens in split]
        if reader is not None:
            lines = (tensor(np.array([self.start, *row]), device) for row in rows)
            found = [reader.read(line, carry=self.streams)[1].tolist() for line in lines]
            return [
                [*zip([*own, self.field.end], one, strict=True)]
                for own, one in zip(split, found, strict=True)
            ]
        scored: list[list[tuple[str, float]]] = [[] for _ in texts]
        lengths = np.array([len(row) for row in rows], dtype=np.int64)
        size, tokens = self.together, self.positions
        for chosen in plan_batches(lengths, size=size, tokens=tokens, seed=0, epoch=0, shuffle=False):
            batch = self._sentences([rows[i] for i in chosen], device)
            outputs, _ = model(batch.inputs, batch.lengths)
            real, targets = _real(outputs, batch)
            log_probs = model.logits(real).log_softmax(-1)
            values = iter(log_probs.gather(1, targets[:, None])[:, 0].tolist())
            for i in chosen:
                scored[i] = [(token, next(values)) for token in [*split[i], self.field.end]]
        return scored

    def predict(
        self, model: LanguageModel, texts: Sequence[str], *, partners: Partners = (), trace: int | None = None
    ) -> list[Prediction]:
        """Text that goes on from each prompt (row L4); an empty prompt starts from the beginning."""
        found = self.generation.predict(model, texts, self.config.decoding, partners=partners, trace=trace)
        if trace is not None:
            found = [self._with_prompt(model, one, trace) for one in found]
        counts = ([self.field.read(line) for line in text.split("\n")] for text in texts)
        return [
            replace(one, read=sum(read for read, _ in lines), unknown=sum(missing for _, missing in lines))
            for one, lines in zip(found, counts, strict=True)
        ]

    @torch.no_grad()
    def _with_prompt(self, model: LanguageModel, one: Prediction, top: int) -> Prediction:
        """The steps that read the prompt before those that write; a stream starts at the end of a line."""
        ids = self.writer.tokens_before(str(one.asked))
        if one.written is None or len(ids) < 2:
            return one
        outputs, _ = model(torch.tensor([ids[:-1]], device=device_of(model)))
        read = self.writer.prompt_steps(ids, model.logits(outputs)[0].log_softmax(-1).cpu(), top)
        return replace(one, written=replace(one.written, steps=[*read, *(one.written.steps or ())]))

    def samples(self, model: LanguageModel, examples: Examples) -> list[str]:
        """Short draws; rules that ask for more than so few tokens can give are left to ``generate``."""
        length, given = 30 if self.field.unit.grain == "word" else 150, self.config.decoding
        drawn = DecodingSettings(
            strategy="sample",
            temperature=0.8,
            top_k=given.top_k,
            top_p=given.top_p,
            max_length=max(length, len(self.field.unit.split(given.prefix))),
            banned=given.banned,
            prefix=given.prefix,
            stop=given.stop,
            seed=given.seed,
        )
        return [one.line for one in self.generation.predict(model, [""], drawn)]

    def _adapted_losses(self, model: LanguageModel, examples: Examples) -> dict[str, float]:
        """What the model is worth while it learns from the text, as ``evaluation.*`` says."""
        settings, ids, device = self.config.evaluation, examples.store.fields["token"], device_of(model)
        if not (settings.dynamic or settings.cache):
            return {}
        check_adaptable(model)
        if self.streams:
            return adapted_losses(model, settings, [tensor(ids.values.astype(np.int64), device)])
        lines = (np.concatenate([[self.start], ids[number]]) for number in range(len(examples)))
        return adapted_losses(model, settings, [tensor(line, device) for line in lines])

    def _axes(self) -> dict[str, Axes]:
        names = self.field.vocabulary.tokens
        rows = ("tokens.embedding.weight", "tokens.pretrained.weight", "weight")
        clusters = {f"adaptive.{key}": (own, None) for key, own in cluster_names(names).items()}
        return {**dict.fromkeys(rows, (names, None)), "bias": (names,), **clusters}

    def state(self) -> State:
        return self.field.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        self.field.restore(state)

    def evaluation_batches(self, examples: Examples, device: torch.device) -> Iterator[LmBatch]:
        if not self.streams:
            return self._evaluation(examples, device)
        return (self.collate(examples, key, device) for key in self._segments(examples, 1, 65_536))

    def _segments(
        self, examples: Examples, rows: int, length: int, varied: tuple[int, int] | None = None
    ) -> Segments:
        ids = examples.store.fields["token"].values
        return Segments(ids, min(rows, max(1, len(ids) // 2)), length, varied=varied)

    def _evaluation(self, examples: Examples, device: torch.device, rows: int = 1) -> Iterator[LmBatch]:
        keys: Iterable[Any] = (
            self._segments(examples, rows, EVALUATION_STEPS)
            if self.streams
            else examples.in_order("token", tokens=self.positions, size=self.together)
        )
        return (self.collate(examples, key, device) for key in keys)

    def _sentences(self, rows: Sequence[NDArray[Any]], device: torch.device) -> LmBatch:
        """Each row, and before it the same row one step later with the start marker in front."""
        targets, lengths = pad(rows)
        inputs = shifted(np.full(len(rows), self.start), targets)
        return LmBatch(tensor(inputs, device), tensor(targets, device), torch.from_numpy(lengths))


def _real(outputs: Tensor, batch: LmBatch) -> tuple[Tensor, Tensor]:
    """Outputs (N, ·) and targets (N,) of the real positions."""
    outputs, targets = outputs.flatten(0, 1), batch.targets.flatten()
    if batch.lengths is not None:
        real = real_rows(batch.lengths, len(targets) // len(batch.lengths), targets.device)
        outputs, targets = pick(outputs, real), targets[real]
    return outputs, targets
