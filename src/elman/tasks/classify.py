"""Sequence classification: one label for a whole text (rows C1 and C2)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elman.errors import ConfigError, EmptyError, LabelError
from elman.metrics.classification import Agreement, Confusion, LabelSets
from elman.models.classifier import Classifier
from elman.models.counting import NaiveBayes
from elman.models.embedding import Ngrams, WordBatch
from elman.models.losses import label_loss, output_loss
from elman.registry import UNITS
from elman.tasks.base import Axes, Chances, Judges, Loss, Measures, network_kind
from elman.tasks.beside import ShortcutFitting, has_shortcut
from elman.tasks.calibrating import Judgement
from elman.tasks.classify_batch import ClassifyBatch
from elman.tasks.classify_settings import ClassifySettings
from elman.tasks.defaults import Choice
from elman.tasks.examples import Batches, Examples, device_of, tensor, unseen_measures
from elman.tasks.generation import Partners
from elman.tasks.predictions import Prediction
from elman.tasks.repeats import Repeats
from elman.tasks.statistics import Statistics, Tally, tallied
from elman.tasks.words import WordConfig, WordTask, usual_epochs
from elman.tensors.transfer import moved
from elman.text.fields import State
from elman.text.files import Repairs
from elman.text.reading import read_fields
from elman.text.records import Record, Source
from elman.text.units.base import Unit

FEW = 20  # labels that are not too many, however few texts there are
NGRAM_DROPOUT = 0.3  # so that the network does not lean on the n-grams alone


class Classify(WordTask[Classifier, ClassifyBatch]):
    """Text in, label out; or several labels."""

    Settings = ClassifySettings
    roles: ClassVar[tuple[str, ...]] = ("text", "label")
    stratum = "label"
    buckets = parted = True
    config: ClassifySettings

    def __init__(self, config: ClassifySettings) -> None:
        super().__init__(config, "label")
        self._texts = self._again = 0  # of the training data, and those that occurred before
        self._repeats: Repeats | None = None
        self.beside = ShortcutFitting(self.words.text.join, self._by_network, self._weights_here, self._once)
        self.companion = self.beside

    @property
    def multilabel(self) -> bool:
        return bool(self.config.model.multilabel)

    def metrics(self) -> dict[str, bool]:
        if self.multilabel:
            names: tuple[str, ...] = "micro_f1", "macro_f1", "precision", "recall", "accuracy"
        else:
            of_the_rarer = ("precision", "recall", "f1") if len(self.labels.names) == 2 else ()
            names = "accuracy", *of_the_rarer, "macro_f1"
        return dict.fromkeys(names, True) | {"loss": False}

    def read(self, source: Source, repairs: Repairs) -> Iterator[Record]:
        separator = self.config.data.labels_separator
        blank = () if separator is None else ("label",)
        records = read_fields(replace(source, lists=("label",), blank=blank), self.roles, repairs)
        return records if separator is None or source.asked else (split(one, separator) for one in records)

    def build_vocabularies(self, records: Iterable[Record]) -> Statistics:
        self.words.text.build_unit(record.fields["text"] for record in records)
        self._counting = True
        tally = tallied(records, self._count)
        self._counting, self._texts, self._again = False, tally.seen.examples, tally.again
        self._several = tally.several or self.config.data.labels_separator is not None
        seen = self._build(tally)
        if len(self.labels.names) > max(FEW, min(seen.types, seen.examples / 2)):
            seen.notes.append(
                f"{len(self.labels.names):,} labels for {seen.examples:,} texts: if the columns stand the "
                "other way round, say so with --columns text=1,label=0"
            )
        return seen

    def _reads_letters(self, config: WordConfig) -> bool | None:
        """Raw words have capitals, numbers and misspellings to read; prepared ones have fewer."""
        if config.model.characters is not None:
            return bool(config.model.characters)
        kind: type[Unit] = UNITS.find(config.text.unit or "word")
        return None if kind.grain == "word" and config.model.network == "rnn" else False

    def _words_of(self, record: Record) -> list[str]:
        words = self.words.text.split(record.fields["text"])
        if not words:
            raise record.error(EmptyError, "a text without a word", field="text", remedy="remove the line")
        return words

    def _note(self, tally: Tally, record: Record, labels: Sequence[str]) -> None:
        tally.note(record.fields["text"])
        tally.several |= len(labels) != 1

    def _labels_of(self, record: Record) -> Sequence[str]:
        label: str | list[str] = record.fields["label"]
        labels = [label] if isinstance(label, str) else [*dict.fromkeys(label)]
        counting = self._counting and self.config.model.multilabel is None
        if len(labels) != 1 and not self.multilabel and not counting:
            raise record.error(
                LabelError,
                f"{len(labels)} labels instead of one",
                field="label",
                remedy="give one, or train with model.multilabel = true",
            )
        return labels

    def choices(self, statistics: Statistics) -> dict[str, Any]:
        model = self.config.model
        words = self.words.text.unit.grain != "character"
        return {
            "model.order": 1 if words else 3,
            "model.hidden": 128,
            "model.embedding": 100 if words else 48,
            "model.dropout": 0.5 if words else 0.3,
            "model.input_dropout": 0.5 if words else 0.0,
            "model.token_dropout": 0.0,
            "model.rare_dropout": 0.25 if words else 0.0,
            "model.characters": 32 if self.words.lower else 0,
            "model.ngrams": 1 if words or model.embedding == 0 else 3,
            "model.pooling": "last" if model.network == "bag" else "max",
            "model.multilabel": self._several,
            "model.shortcut": not (self._several or self.config.model.multilabel),
            "training.repeats": self._usual_repeats(),
            "training.batch_size": 32 if self.config.training.batch_tokens is None else None,
            "training.learning_rate": 2e-3,
            "training.schedule": "one-cycle",
            "training.averaging": "ema",
            "training.epochs": usual_epochs(statistics.examples, 50_000 if words else 150_000, most=20),
        }

    def _usual_repeats(self) -> Choice:
        if self._several or self.config.model.multilabel:
            return Choice("all", "since texts have several labels")
        if not self._again:
            return Choice("all", "since no text occurs again")
        return Choice("once", f"since {self._again:,} of {self._texts:,} texts occur again")

    def _once(self, examples: Examples) -> Repeats | None:
        """What is known of training texts that occur again, where each is to be learned from once."""
        if self.config.training.repeats != "once" or self.multilabel:
            return None
        if self._repeats is None or self._repeats.of is not examples:
            self._repeats = Repeats.find(examples, len(self.labels.names))
        return self._repeats

    def _learned_from(self, examples: Examples) -> NDArray[np.int64] | None:
        repeats = self._once(examples)
        return None if repeats is None else repeats.first

    def build_model(self, *, fresh: bool = False) -> Any:
        settings, K = self.config.model, len(self.labels.names)
        if network_kind(self.config.model).counted:
            if self.multilabel:
                raise ConfigError(
                    f"model.network is {settings.network!r}, which counts one label a text; "
                    "leave it out where texts have several"
                )
            return NaiveBayes(len(self.words.text.vocabulary), K, order=settings.order or 1)
        order, width = settings.ngrams or 1, settings.embedding
        ngrams = Ngrams(order, width, dropout=NGRAM_DROPOUT) if order > 1 and width else None
        return Classifier(
            self._make_words(fresh=fresh, ngrams=ngrams),
            settings,
            K,
            pooling=settings.pooling or "last",
            pooling_options=settings.pooling_options,
            head=settings.head,
            shortcut=bool(settings.shortcut) and not self.multilabel,
        )

    def describe(self, model: Classifier) -> list[str]:
        beside = ["beside it: logistic regression and naive Bayes of n-grams (model.shortcut)"]
        return super().describe(model) + (beside if has_shortcut(model) else [])

    def _axes(self) -> dict[str, Axes]:
        names, last = self.labels.names, 3 if self.config.model.head else 0
        return {**super()._axes(), f"head.{last}.weight": (names, None), f"head.{last}.bias": (names,)}

    def collate(self, examples: Examples, key: Iterable[int], device: torch.device) -> ClassifyBatch:
        rows = examples.rows("label", key)
        if self.multilabel:
            labels = np.zeros((len(rows), len(self.labels.names)), dtype=np.float32)
            for place, row in enumerate(rows):
                labels[place, row[row >= 0]] = 1
        else:
            labels = np.concatenate(rows).astype(np.int64)
        words = self._word_batch(examples, key, device)
        unseen = examples.texts("unseen", key)
        repeats = self._repeats if self._repeats is not None and self._repeats.of is examples else None
        shift = None if repeats is None else moved(repeats.shift, device)
        return ClassifyBatch(words, tensor(labels, device), unseen, self._weights(device), shift=shift)

    def loss(
        self, model: Classifier, batch: ClassifyBatch, *, carry: Any = None, progress: float = 1.0
    ) -> Loss:
        settings, labels = self.config.training, batch.labels
        loss = label_loss if self.multilabel else output_loss
        scores = model(batch.words)
        total = loss(
            scores if batch.shift is None else scores - batch.shift,
            labels,
            kind=settings.loss,
            smoothing=settings.label_smoothing,
            weights=batch.weights,
        )
        return Loss(total, *(batch.counts or batch.counted()))

    @torch.no_grad()
    def evaluate(
        self,
        model: Classifier,
        examples: Examples,
        *,
        quick: bool = False,
        partners: Partners = (),
        threshold: float | None = None,
    ) -> Measures:
        """Numbers and a report by class; of two classes, f1 is the rarer one's.

        A label that training never saw is wrong, and not in the loss.
        """
        names, loss, judged, tokens = self.labels.names, 0.0, 0, 0
        unseen = examples.unseen
        judges = Judges(self.config, self.config.evaluation.metrics or ())
        confusion, sets = Confusion([*names, *unseen]), LabelSets()
        judgement = Judgement(self.calibration, quick=quick, several=self.multilabel, threshold=threshold)
        for key in self._keys(examples):
            batch = self.collate(examples, key, device_of(model))
            scores, gold = self._scores(model, batch.words, examples, key), batch.labels
            tokens += int(batch.words.lengths.sum())
            judgement.add(scores, gold)
            if self.multilabel:
                judged += len(gold)
                loss += float(label_loss(scores, gold))
                probable = (scores / self.temperature).sigmoid()
                for row, new, chances in zip(gold, batch.unseen, probable, strict=True):
                    true, found = [*(names[k] for k in row.nonzero()), *new], self._chosen(chances.tolist())
                    sets.add(true, found)
                    judges.add(found, [true])
                continue
            known = gold >= 0
            judged += int(known.sum())
            loss += float(output_loss(scores[known], gold[known]))
            for place, new, best in zip(gold.tolist(), batch.unseen, scores.argmax(-1).tolist(), strict=True):
                label = names[place] if place >= 0 else new[0]
                confusion.add(label, names[best])
                judges.add(names[best], [label])
        counted = {"loss": loss / judged if judged else 0.0 if quick else None}
        figures = self._figures_of(sets) if self.multilabel else self._figures(confusion)
        size: Measures = {"tokens": tokens, "examples": len(examples)}
        size |= judgement.measures()
        return counted | figures | judges.values() | size | unseen_measures(unseen)

    def _keys(self, examples: Examples) -> Batches:
        return examples.in_order(*self.measured, tokens=self.positions, size=self.together)

    def _scores(self, model: Classifier, words: WordBatch, examples: Examples, key: Iterable[int]) -> Tensor:
        """Of the classes (B, K), by all that the model has."""
        scores: Tensor = model(words)
        if not has_shortcut(model):
            return scores
        assert model.shortcut is not None
        return model.shortcut.mix(scores, self.beside.ngrams(examples, key))

    def _by_network(
        self, model: Classifier, examples: Examples
    ) -> Iterator[tuple[NDArray[np.int64], Tensor]]:
        for key in self._keys(examples):
            yield key, model(self._word_batch(examples, key, device_of(model)))

    def _weights_here(self) -> Tensor | None:
        return self._weights(torch.device("cpu"))

    def _figures(self, confusion: Confusion) -> Measures:
        names = self.labels.names
        figures: Measures = {**confusion.as_json(), "report": confusion.table(), "positive_class": None}
        if len(names) == 2:  # labels stand by falling frequency
            rare = confusion.by_class().get(names[-1], Agreement(0, 0, 0))
            figures |= {"precision": rare.precision, "recall": rare.recall, "f1": rare.f1}
            figures["positive_class"] = names[-1]
        return figures

    def _figures_of(self, sets: LabelSets) -> Measures:
        figures = {"micro_f1": sets.f1, "macro_f1": sets.macro_f1, "accuracy": sets.accuracy}
        figures |= {"precision": sets.precision, "recall": sets.recall}
        return {
            **figures,
            "classes": {name: one.as_json() for name, one in sets.by_type().items()},
            "report": sets.table(),
        }

    def _chosen(self, chances: Sequence[float]) -> list[str]:
        """The labels that are probable enough, the most probable first."""
        least = self.config.evaluation.threshold
        found = [
            (-chance, name)
            for name, chance in zip(self.labels.names, chances, strict=True)
            if chance >= least
        ]
        return [name for _, name in sorted(found)]

    @torch.no_grad()
    def predict(
        self, model: Classifier, texts: Sequence[str], *, partners: Partners = (), trace: int | None = None
    ) -> list[Prediction]:
        """The label of each text, or its labels, with all probabilities; a text without a word has none."""
        names, several = self.labels.names, self.multilabel
        between = self.config.data.labels_separator or "|"
        results: dict[int, Prediction] = {}
        split = [self.words.text.split(text) for text in texts]
        real = [i for i, words in enumerate(split) if words]
        none: str | list[str] = [] if several else ""
        empty = Prediction(none, "", "text", {}, between=between, read=0)
        if not real:
            return [replace(empty, asked=text) for text in texts]
        with self._spare_lexicon() as lexicon:
            examples = Examples.asked((split[i] for i in real), lexicon)
            for key in self._keys(examples):
                words = self._word_batch(examples, key, device_of(model))
                scores = self._scores(model, words, examples, key)
                probable = scores / self.temperature
                chances = probable.sigmoid() if several else probable.softmax(-1)
                lengths, unknown = words.lengths.tolist(), self._unknown(words)
                for i, row, best, read, new in zip(
                    key.tolist(), chances.tolist(), scores.argmax(-1).tolist(), lengths, unknown, strict=True
                ):
                    results[real[i]] = Prediction(
                        self._chosen(row) if several else names[best],
                        texts[real[i]],
                        "text",
                        dict(zip(names, row, strict=True)),
                        between=between,
                        read=read,
                        unknown=new,
                    )
        return [results.get(i) or replace(empty, asked=text) for i, text in enumerate(texts)]

    def chances(self, model: Classifier, texts: Sequence[str]) -> Chances:
        """Of a text without a word all that is known is how frequent each label is in the training data."""
        counts = [self.labels.counts[name] for name in self.labels.names]
        usual = counts if any(counts) else [1] * len(counts)  # a run of an earlier version kept none
        total = self._texts if self.multilabel else sum(usual)
        found = [dict(one.best(len(counts))) for one in self.predict(model, texts)]
        empty = np.array(usual, dtype=np.float64) / total
        rows = [np.array([one[name] for name in self.labels.names]) if one else empty for one in found]
        return rows if self.multilabel else [row / row.sum() for row in rows]

    def samples(self, model: Classifier, examples: Examples) -> list[str]:
        shown = []
        for i in range(min(3, len(examples))):
            words = [examples.words[word] for word in examples.store.fields["word"][i]]
            text = self.words.text.join(words)
            answer = self.predict(model, [text])[0]
            labels = [self.labels.names[k] for k in examples.store.fields["label"][i] if k >= 0]
            gold = answer.between.join([*labels, *examples.texts("unseen", [i])[0]])
            found = answer.line
            shown.append(f"{found}{'' if found == gold else f' ✗ {gold}'}: {text[:70]}")
        return shown

    def state(self) -> State:
        return super().state() | {"label_counts": dict(self.labels.counts), "texts": self._texts}

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        self._texts = int(state.get("texts", 0))

    def _weights(self, device: torch.device) -> Tensor | None:
        """n / (K · n_k) for class k, so that the mean weight of an example is 1.

        K counts the classes that training saw; one that only held-out examples have weighs 1.
        """
        if self.config.training.class_weights == "none":
            return None
        counts = torch.tensor([self.labels.counts[label] for label in self.labels.names], dtype=torch.float32)
        seen = counts > 0
        return moved(torch.where(seen, counts.sum() / (seen.sum() * counts), 1.0), device)


def split(record: Record, separator: str) -> Record:
    """The same record with the list of its labels."""
    label: str | list[str] = record.fields["label"]
    labels = [one.strip() for one in label.split(separator)] if isinstance(label, str) else label
    return replace(record, fields=record.fields | {"label": [one for one in labels if one]})
