"""Sequence classification: one label for a whole text (rows C1 and C2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from elman.config import Config, ModelSettings, TrainingSettings
from elman.errors import EmptyError, LabelError, UnknownNameError, nearest
from elman.metrics.classification import Agreement, Confusion
from elman.models.classifier import Classifier
from elman.models.counting import NaiveBayes
from elman.models.embedding import Ngrams
from elman.models.losses import output_loss
from elman.tasks._words import WordTask, usual_epochs
from elman.tasks.base import Examples, Loss, tensor
from elman.tensors.transfer import moved
from elman.text.lexicon import Lexicon
from elman.text.readers import Record, Repairs, Source, read_fields

NGRAM_DROPOUT = 0.3  # so that the network does not lean on the n-grams alone


class ClassifyModel(ModelSettings):
    """The network; every cell fits every task."""

    bidirectional: bool = Field(True, description="read in both directions")
    characters: int | None = Field(
        None, ge=0, description="width of the network that reads a word's letters; 0: none"
    )
    ngrams: int | None = Field(
        None, ge=1, description="each token also brings the n-grams that end with it, up to this n"
    )
    pooling: Literal["last", "mean", "max", "attention"] | None = Field(
        None, description="the last output, or all outputs pooled"
    )
    head: int = Field(0, ge=0, description="width of a hidden layer between pooling and softmax; 0: none")


class ClassifyTraining(TrainingSettings):
    """How the weights are found."""

    class_weights: Literal["none", "balanced"] = Field(
        "none", description="balanced: a rare class counts as much as a frequent one"
    )


class ClassifySettings(Config):
    model: ClassifyModel = ClassifyModel()
    training: ClassifyTraining = ClassifyTraining()


class Classify(WordTask[ClassifySettings]):
    """Text in, label out."""

    Settings = ClassifySettings
    metric = "accuracy"
    roles: ClassVar[tuple[str, ...]] = ("text", "label")
    label_counts: Counter[str]

    def metrics(self) -> tuple[str, ...]:
        of_the_rarer = ("precision", "recall", "f1") if len(self.labels) == 2 else ()
        return ("loss", "accuracy", *of_the_rarer, "macro_f1")

    def read(self, source: Source, repairs: Repairs) -> Iterator[Record]:
        return read_fields(source, self.roles, repairs)

    def learn(self, records: Iterable[Record]) -> None:
        texts = (record.fields["text"] for record in records)
        self.unit = self.make_unit(training=texts if self.config.text.unit == "bpe" else None)
        super().learn(records)

    @property
    def letters_read(self) -> bool:
        given = self.config.model.characters
        return bool(given) if given is not None else self._letters_help

    @property
    def _letters_help(self) -> bool:
        """Raw words have capitals, numbers and misspellings to read; prepared ones have fewer."""
        return self.config.text.unit == "word" and self.recurrent and self.cased

    def character_width(self) -> int:
        return self.config.model.characters or 0

    def ngrams(self) -> Ngrams | None:
        settings = self.config.model
        if (settings.ngrams or 1) == 1 or not settings.embedding:
            return None
        return Ngrams(settings.ngrams or 1, settings.embedding, dropout=NGRAM_DROPOUT)

    def words_of(self, record: Record) -> list[str]:
        words = self.unit.split(record.fields["text"])
        if not words:
            raise record.error(EmptyError, "a text without a word", field="text", remedy="remove the line")
        return words

    def labels_of(self, record: Record) -> Sequence[str]:
        return [record.fields["label"]]

    def encode(
        self, records: Iterable[Record], lexicon: Lexicon | None = None
    ) -> Iterator[dict[str, Sequence[int]]]:
        lexicon = lexicon or self.lexicon()
        for record in records:
            yield {"word": lexicon.ids(self.words_of(record)), "label": [self._label(record)]}

    def choices(self) -> dict[str, Any]:
        N = max(1, self.statistics.examples)
        words = self.config.text.unit in ("word", "bpe")
        return {
            "model.order": 1 if words else 3,
            "model.hidden": 128,
            "model.embedding": 100 if words else 48,
            "model.dropout": 0.5 if words else 0.3,
            "model.input_dropout": 0.5 if words else 0.0,
            "model.token_dropout": 0.0,
            "model.rare_dropout": 0.25 if words else 0.0,
            "model.characters": 32 if self._letters_help else 0,
            "model.ngrams": 1 if words or self.config.model.embedding == 0 else 3,
            "model.pooling": "last" if self.config.model.encoder == "bag" else "max",
            "training.batch_size": 32 if self.config.training.batch_tokens is None else None,
            "training.learning_rate": 2e-3,
            "training.schedule": "one-cycle",
            "training.averaging": "ema",
            "training.epochs": usual_epochs(N, 50_000 if words else 150_000, most=20),
        }

    def build_model(self) -> nn.Module:
        settings = self.config.model
        if settings.encoder == "ngram":
            return NaiveBayes(len(self.vocabulary), len(self.labels), order=settings.order or 1)
        return Classifier(
            self.make_words(),
            settings,
            len(self.labels),
            pooling=settings.pooling or "last",
            head=settings.head,
        )

    def collate(self, examples: Examples, key: Any) -> Any:
        labels = np.array([examples.store.fields["label"][i][0] for i in key], dtype=np.int64)
        return self.word_batch(examples, key), tensor(labels, self.device)

    def loss(self, model: Classifier, batch: Any, carry: Any = None) -> Loss:
        words, labels = batch
        settings = self.config.training
        total = output_loss(
            model(words),
            labels,
            kind=settings.loss,
            smoothing=settings.label_smoothing,
            weights=self._weights(),
        )
        return Loss(total, len(labels), len(labels), int(words.lengths.sum()))

    @torch.no_grad()
    def evaluate(self, model: Classifier, examples: Examples) -> dict[str, Any]:
        """Figures, a report by class and the confusion matrix; of two classes, f1 is the rarer one's."""
        confusion, loss, tokens = Confusion(self.labels.tokens), 0.0, 0
        names = self.labels.tokens
        for key in self.in_order(examples):
            words, labels = self.collate(examples, key)
            scores = model(words)
            loss += float(output_loss(scores, labels))
            tokens += int(words.lengths.sum())
            for gold, found in zip(labels.tolist(), scores.argmax(-1).tolist(), strict=True):
                confusion.add(names[gold], names[found])
        figures = {
            "loss": loss / len(examples),
            "accuracy": confusion.accuracy,
            "macro_f1": confusion.macro_f1,
        }
        if len(names) == 2:  # labels stand by falling frequency
            rare = confusion.by_class().get(names[-1], Agreement(0, 0, 0))
            figures |= {
                "precision": rare.precision,
                "recall": rare.recall,
                "f1": rare.f1,
            }
        return figures | {
            "positive_class": names[-1] if len(names) == 2 else None,
            "tokens": tokens,
            "examples": len(examples),
            **confusion.as_json(),
            "report": confusion.table(),
        }

    @torch.no_grad()
    def predict(self, model: Classifier, texts: Sequence[str]) -> list[dict[str, Any]]:
        """The label of each text, with all probabilities; a text without a word has none."""
        lexicon = self.lexicon()
        split = [self.unit.split(text) for text in texts]
        rows = [{"word": lexicon.ids(words)} for words in split if words]
        results: list[dict[str, Any]] = [
            {"prediction": "", "line": "", "text": text, "probabilities": {}} for text in texts
        ]
        if not rows:
            return results
        real = [i for i, words in enumerate(split) if words]
        examples = Examples.in_memory(rows, lexicon)
        for key in self.in_order(examples):
            chances = model(self.word_batch(examples, key)).softmax(-1)
            for i, row in zip(key, chances.tolist(), strict=True):
                label = self.labels.tokens[max(range(len(row)), key=row.__getitem__)]
                table = dict(zip(self.labels.tokens, row, strict=True))
                results[real[i]] |= {"prediction": label, "line": label, "probabilities": table}
        return results

    def samples(self, model: Classifier, examples: Examples) -> list[str]:
        shown = []
        for i in range(min(3, len(examples))):
            text = self.unit.join([examples.words[w] for w in examples.store.fields["word"][i]])
            gold = self.labels.tokens[int(examples.store.fields["label"][i][0])]
            found = self.predict(model, [text])[0]["prediction"]
            shown.append(f"{found}{'' if found == gold else f' ✗ {gold}'}: {text[:70]}")
        return shown

    def tables(self) -> dict[str, Any]:
        return super().tables() | {"label_counts": dict(self.label_counts)}

    def restore(self, tables: Mapping[str, Any]) -> None:
        super().restore(tables)
        self.label_counts = Counter(tables["label_counts"])

    def _label(self, record: Record) -> int:
        label = record.fields["label"]
        try:
            return self.labels.id(label)
        except UnknownNameError:
            raise record.error(
                LabelError,
                "a label that training never saw",
                field="label",
                text=label,
                remedy=nearest(label, self.labels.tokens),
            ) from None

    def _weights(self) -> Tensor | None:
        """n / (K · n_k) for class k, so that the mean weight of an example is 1.

        K counts the classes that training saw; one that only held-out examples have weighs 1.
        """
        if self.config.training.class_weights == "none":
            return None
        counts = torch.tensor([self.label_counts[label] for label in self.labels.tokens], dtype=torch.float32)
        seen = counts > 0
        return moved(torch.where(seen, counts.sum() / (seen.sum() * counts), 1.0), self.device)
