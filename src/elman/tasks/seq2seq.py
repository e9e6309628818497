"""Sequence to sequence: one text in, another of a different length out, aligned (rows E1–E8, A1–A6)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal

import torch

from elman.config import DecodingSettings, Options, changed, lookup
from elman.errors import ColumnError, ConfigError, EmptyError
from elman.metrics.bleu import Bleu, has_ngrams
from elman.metrics.sequences import SequenceScores
from elman.metrics.ter import quickly_edited
from elman.metrics.translation import TranslationMetric
from elman.models.embedding import Tokens
from elman.models.losses import layer_loss, output_loss
from elman.models.seq2seq import Seq2Seq as Model
from elman.tasks.base import Axes, Judges, Loss, Measures, Task, describe_network
from elman.tasks.examples import Examples, packed, shifted, tensor, unpacked
from elman.tasks.generation import Generation, Partners
from elman.tasks.predictions import Prediction, Written
from elman.tasks.seq2seq_defaults import shared_script, usual_settings, whole_features
from elman.tasks.seq2seq_evaluation import Seq2SeqBatch, mean_losses, references_of, watched_pairs
from elman.tasks.seq2seq_settings import PARTS, Seq2SeqDecoding, Seq2SeqSettings, forcing
from elman.tasks.seq2seq_writer import Seq2SeqWriter
from elman.tasks.statistics import Statistics, Tally, tallied
from elman.tensors.draws import rand
from elman.text.batches import pad
from elman.text.counts import Counts
from elman.text.fields import LARGEST, State, TextField
from elman.text.files import Repairs
from elman.text.lexicon import Lexicon
from elman.text.reading import read_fields
from elman.text.records import Record, Source
from elman.text.store import Row
from elman.text.vocabulary import PAD, UNKNOWN

Side = Literal["source", "target"]
SIDES: tuple[Side, Side] = ("source", "target")
TRANSLATION = ("bleu", "chrf", "ter")  # metrics where none are named
MANY = 2_000  # types from which on a word seen once is shown as unknown
LOGITS = 2**26  # and numbers that come out for them, which is a few times 256 MB


class Seq2Seq(Task[Model, Seq2SeqBatch]):
    """Source in, target out."""

    Settings = Seq2SeqSettings
    roles: ClassVar[tuple[str, ...]] = SIDES
    measured: ClassVar[tuple[str, ...]] = SIDES
    buckets = parted = True
    reader = "source", "encoder.network"
    positions = 8000
    config: Seq2SeqSettings
    generation: Generation[Model]

    def __init__(self, config: Seq2SeqSettings) -> None:
        super().__init__(config)
        if config.training.teacher_forcing_schedule != "constant":
            self.unrecordable = "training.teacher_forcing changes from update to update"
        text = config.text
        self.source, self.target = (
            TextField(
                text.side(name),
                vectors=text.side(name).vectors,
                remove=getattr(text, name).remove,
                start=text.start,
                end=text.end,
            )
            for name in SIDES
        )
        self.source.whole = text.source.whole
        self.text_fields = {"source": self.source, "target": self.target}
        self.writer = Seq2SeqWriter(self.source, self.target, naive=config.model.form == "naive")
        self.writer.attend(config.model.attention not in (None, "none"))
        self.generation, self.axes = Generation(self.writer), self._axes
        self.watched = partial(watched_pairs, self)

    @property
    def shared(self) -> bool:
        """One network cannot read two vocabularies."""
        return bool(self.config.text.shared) or self.config.model.form != "two"

    def metrics(self) -> dict[str, bool]:
        names = {"error_rate": False, "exact_match": True, "accuracy": True, "loss": False}
        return names | ({"bleu": True} if "bleu" in self._translation_metrics() else {})

    def _translation_metrics(self) -> Sequence[str]:
        wanted = self.config.evaluation.metrics
        return TRANSLATION if wanted is None else wanted

    # From files to numbers

    def read(self, source: Source, repairs: Repairs) -> Iterator[Record]:
        try:
            yield from read_fields(source, self.roles, repairs)
        except ColumnError as error:
            if source.target is None and self.config.data.train_target is not None:
                error.remedy = "training read two files: name the second one, with --target or --dev-target"
            elif source.columns is None and (error.remedy or "").endswith("source=0,target=1"):
                error.remedy = f"{error.remedy}, or source=0+2,target=1 where two columns make one side"
            raise

    def build_vocabularies(self, records: Iterable[Record]) -> Statistics:
        reasons = self._look_at(records)
        self._build_units(records)
        tally = tallied(records, self._count)
        seen, counts = tally.seen, tally.counts
        seen.reasons = reasons
        self.writer.longest_pair = tally.longest, seen.longest
        both = tally.together(*SIDES)
        seen.types = len(both)
        marks = self.target.start, self.target.end, PAD
        if markers := [one for one, n in zip(marks, counts["target"].of(marks), strict=True) if n]:
            seen.notes.append(
                f"target: the texts hold {', '.join(markers)}, which no output has: Elman sets its markers "
                "itself; text.target.remove takes those out"
            )
        if self.shared:
            seen.notes += _vocabulary(self.source, both, "both sides")
            self.target.share(self.source)
        else:
            for name in SIDES:
                seen.notes += _vocabulary(self.text_fields[name], counts[name], name)
        self.target.counts[self.target.vocabulary.id(self.target.end)] = seen.examples
        return seen

    def _count(self, records: Iterable[Record]) -> Tally:
        tally = Tally(*SIDES)
        for record in records:
            source, target = (self._split(record, name) for name in SIDES)
            tally.counts["source"].update(source)
            tally.counts["target"].update(target)
            length = len(target) + 1
            tally.seen.add(tokens=len(source) + length, losses=length, length=length)
            tally.longest = max(tally.longest, len(source))
        return tally

    def _look_at(self, records: Iterable[Record]) -> dict[str, str]:
        """Choose, where nobody did, what decides how texts are cut and counted; why."""
        reasons: dict[str, str] = {}
        for key, choose in (("text.source.whole", whole_features), ("text.shared", shared_script)):
            if lookup(self.config, key) is None:
                value, reason = choose(self.config, self.source, self.target, records)
                self.config = changed(self.config, {key: value})
                reasons |= {key: reason} if value else {}
        self.source.whole = self.config.text.source.whole
        return reasons

    def _build_units(self, records: Iterable[Record]) -> None:
        """A unit that is learned learns from its side, or from both where they share it."""
        for name in SIDES[:1] if self.shared else SIDES:
            read = SIDES if self.shared else (name,)
            texts = (self.text_fields[one].clean(record.fields[one]) for record in records for one in read)
            self.text_fields[name].build_unit(texts)
        if self.shared:
            self.target.unit = self.source.unit

    def encode(self, records: Iterable[Record], lexicon: Lexicon | None) -> Iterator[Row]:
        """Tokens of both sides, and both texts: a source as it stands, a target as a reference should."""
        end = self.target.vocabulary.id(self.target.end)
        for record in records:
            source, target = (self._split(record, name) for name in SIDES)
            yield {
                "source": self.source.vocabulary.ids(source),
                "target": [*self.target.vocabulary.ids(target), end],
                "source_text": packed(record.fields["source"]),
                "target_text": packed(self.target.reference(record.fields["target"])),
            }

    def _split(self, record: Record, side: Side) -> list[str]:
        tokens = self.text_fields[side].split(record.fields[side])
        if not tokens:
            raise record.error(EmptyError, f"{side} has no token", field=side, remedy="take the pair out")
        return tokens

    def choices(self, statistics: Statistics) -> Options:
        return usual_settings(self.config, self.source, self.target, statistics)

    def fill_defaults(self, statistics: Statistics) -> None:
        super().fill_defaults(statistics)
        self.writer.attend(self.config.model.attention != "none")
        if self.config.model.copy_dropout and not self.shared:
            raise ConfigError("model.copy_dropout needs one vocabulary of both sides; set text.shared = true")
        penalty = self.config.decoding.coverage_penalty
        if penalty and not self.writer.attends:
            raise ConfigError(
                f"decoding.coverage_penalty is {penalty}, but without attention nothing is covered; "
                "set it to 0, or model.attention"
            )

    # The network

    def build_model(self, *, fresh: bool = False) -> Model:
        settings = self.config.model
        two = settings.form == "two"
        source, target = (
            Tokens.of(
                self.text_fields[name],
                settings.embedding or 0,
                rare_dropout=(settings.rare_dropout or 0.0) if name == "source" else 0.0,
                token_dropout=settings.token_dropout or 0.0,
                tuned=self.config.text.side(name).tune_vectors,
            )
            for name in SIDES
        )
        joint = not two or settings.tied == "all"
        model = Model(
            source,
            None if joint else target,
            settings.network("encoder"),
            settings.network("decoder") if two else None,
            start=settings.start or "transform",
            context=settings.context,
            attention=settings.attention or "none",
            attention_options=settings.attention_options,
            placement=settings.placement or "before",
            feeding=settings.input_feeding,
            tied=bool(settings.tied),
        )
        if fresh:
            self._initialise(model)
        return model

    def _initialise(self, model: Model) -> None:
        n = torch.tensor(self.target.counts) + 0.1  # markers that never come
        with torch.no_grad():
            model.bias.copy_((n / n.sum()).log())  # frequencies need not be learned
        model.source.fill(self.source)
        if model.target is not model.source:
            model.target.fill(self.target)

    def describe(self, model: Model) -> list[str]:
        parts = PARTS if self.config.model.form == "two" else PARTS[:1]
        networks = [describe_network(self.config.model.network(part)) for part in parts]
        return [" → ".join(networks), *model.describe()]

    def collate(self, examples: Examples, key: Iterable[int], device: torch.device) -> Seq2SeqBatch:
        sources, first = self.writer.first_tokens(examples.rows("source", key))
        ids, source_lengths = pad(sources)
        targets, lengths = pad(examples.rows("target", key))
        return Seq2SeqBatch(
            tensor(ids, device),
            torch.from_numpy(source_lengths),
            tensor(shifted(first, targets), device),
            tensor(targets, device),
            torch.from_numpy(lengths),
        )

    def evaluation_batches(self, examples: Examples, device: torch.device) -> Iterator[Seq2SeqBatch]:
        most = max(1, min(self.positions, LOGITS // len(self.target.vocabulary)))
        keys = examples.in_order(*SIDES, tokens=most, size=self.together)
        return (self.collate(examples, key, device) for key in keys)

    def loss(self, model: Model, batch: Seq2SeqBatch, *, carry: Any = None, progress: float = 1.0) -> Loss:
        settings, vocabulary = self.config.training, self.target.vocabulary
        if (rate := self.config.model.copy_dropout) and model.training:
            batch = batch.hidden(rate, len(vocabulary), vocabulary.id(UNKNOWN))
        gold, source = batch.gold(), model.read(batch.sources, batch.source_lengths)
        p, smoothing = forcing(settings, progress), settings.label_smoothing or 0.0
        if p < 1:
            truth = rand(*batch.previous.shape, device=batch.previous.device) < p
            logits = model.mixed(source, batch.previous, batch.lengths, truth)
            total = output_loss(logits, gold, kind=settings.loss, smoothing=smoothing)
        else:
            layer = model(source, batch.previous, batch.lengths), model.output_weight, model.bias
            every = batch.counts is None
            total = layer_loss(*layer, gold, kind=settings.loss, smoothing=smoothing, every=every)
        return Loss(total, *(batch.counts or batch.counted()))

    # What a model is worth and writes

    @torch.no_grad()
    def evaluate(
        self, model: Model, examples: Examples, *, quick: bool = False, partners: Partners = ()
    ) -> Measures:
        """Losses with the truth fed and with its own outputs fed; and what is written, against references.

        A source that occurs more than once has several references; it is written once. ``quick``: written
        greedily, not much longer than anything in training, and of sacrebleu BLEU alone.
        """
        measures = mean_losses(self, model, examples)
        sources, references = references_of(self, examples)
        decoding = self._quick() if quick else self.config.decoding
        found = self._write(model, sources, decoding, partners)
        names = [name for name in self._translation_metrics() if name == "bleu" or not quick]
        left_out = self._unsuited(names, references)
        names = [name for name in names if name not in left_out]
        scores, split = SequenceScores(), self._compared
        judges = Judges(self.config, names, tokenize=self.config.evaluation.tokenize)
        for source, one, gold in zip(sources, found, references, strict=True):
            length = len(self.source.split(source))
            scores.add(split(one.line), [split(text) for text in gold], source_length=length)
            judges.add(one.line, gold)
        measures |= scores.as_json() | judges.values()
        judged = [metric for metric in judges.metrics if isinstance(metric, TranslationMetric)]
        if judged:
            measures["signatures"] = {metric.name: metric.signature for metric in judged}
            warned = [note for metric in judged if isinstance(metric, Bleu) for note in metric.notes()]
            asked_for = "is left out: {}; evaluation.metrics asks for it".format
            measures["notes"] = [*warned, *(f"{name} {asked_for(why)}" for name, why in left_out.items())]
        return measures | {"sources": len(sources), "examples": len(examples)}

    def _unsuited(self, names: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, str]:
        """Which metrics are of no use here, and why; none that was asked for."""
        settings, asked = self.config.evaluation, self.config.training.metric
        found = {}
        if "bleu" in names and not has_ngrams(references, settings.tokenize):
            found["bleu"] = "every reference is one token"
        if "ter" in names and not quickly_edited(references):
            found["ter"] = "it takes long here"
        return {name: why for name, why in found.items() if settings.metrics is None and name != asked}

    def _quick(self) -> Seq2SeqDecoding:
        given = self.config.decoding
        length = max(
            self.writer.longest_pair[1] + 10, given.min_length, len(self.target.unit.split(given.prefix))
        )
        length = min(length, given.max_length or length)
        update = {"strategy": "greedy", "strategy_options": {}, "n_best": 1, "max_length": length}
        return given.model_copy(update=update)

    def predict(
        self,
        model: Model,
        texts: Sequence[str],
        *,
        partners: Partners = (),
        trace: int | None = None,
    ) -> list[Prediction]:
        return self._write(model, texts, self.config.decoding, partners, trace)

    def _write(
        self,
        model: Model,
        sources: Sequence[str],
        settings: DecodingSettings,
        partners: Partners = (),
        trace: int | None = None,
    ) -> list[Prediction]:
        """What each source becomes; a source without a token, for a partner too, becomes nothing."""
        others = [writer.source for writer, _ in partners if isinstance(writer, Seq2SeqWriter)]
        readers = [self.source, *others]
        real = [i for i, text in enumerate(sources) if all(reader.split(text) for reader in readers)]
        shown = trace is not None or self.writer.copies(settings)
        found = self.generation.predict(
            model, [sources[i] for i in real], settings, partners=partners, trace=trace, keep_shown=shown
        )
        written = Written([], scored=True)
        answers = [Prediction("", text, "source", written=written, read=0) for text in sources]
        for number, one in zip(real, found, strict=True):
            read, unknown = self.source.read(sources[number])
            answers[number] = replace(one, read=read, unknown=unknown)
        return answers

    def samples(self, model: Model, examples: Examples) -> list[str]:
        sources, golds = (
            [unpacked(row) for row in examples.rows(f"{name}_text", range(min(3, len(examples))))]
            for name in SIDES
        )
        shown = []
        for source, gold, one in zip(sources, golds, self._write(model, sources, self._quick()), strict=True):
            wrong = "" if self._compared(one.line) == self._compared(gold) else f" ✗ {gold[:60]}"
            shown.append(f"{source[:60]} → {one.line[:60]}{wrong}")
        return shown

    def _compared(self, text: str) -> list[str]:
        """What an error rate counts: characters, or words; pieces of words are no unit of anybody's."""
        unit = self.target.unit
        return unit.split(text) if unit.counted else (text.lower() if unit.lowercase else text).split()

    # What was learned from the text

    def _axes(self) -> dict[str, Axes]:
        source, target = self.source.vocabulary.tokens, self.target.vocabulary.tokens
        sides = {"source.{}.weight": source, "_target.{}.weight": target, "weight": target}
        kinds = "embedding", "pretrained"
        rows = {name.format(kind): (names, None) for name, names in sides.items() for kind in kinds}
        return {**rows, "bias": (target,)}

    def state(self) -> State:
        sides = SIDES[:1] if self.shared else SIDES
        return {name: self.text_fields[name].state() for name in sides} | {
            "longest": self.writer.longest_pair[1],
            "longest_source": self.writer.longest_pair[0],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        for name in SIDES[:1] if self.shared else SIDES:
            self.text_fields[name].restore(state[name])
        if self.shared:
            self.target.share(self.source)
        self.writer.longest_pair = int(state.get("longest_source", 0)), int(state["longest"])


def _vocabulary(field: TextField, counts: Counts, name: str) -> list[str]:
    rare = 2 if field.unit.grain == "word" and len(counts) > MANY else 1
    return field.build_vocabulary(counts, rare=rare, limit=LARGEST, name=name)
