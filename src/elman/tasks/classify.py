"""Sequence classification: one label for a whole text (rows C1 and C2)."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from elman.config import EvaluationSettings, Options, PartOf, TrainingSettings, Whole, setting
from elman.errors import EmptyError
from elman.metrics.classification import Agreement, Confusion
from elman.models.classifier import Classifier
from elman.models.counting import NaiveBayes
from elman.models.embedding import Ngrams, WordBatch
from elman.models.losses import output_loss
from elman.registry import POOLINGS
from elman.tasks.base import Judges, Loss, Measures, network_kind
from elman.tasks.examples import Examples, device_of, tensor
from elman.tasks.generation import Partners
from elman.tasks.predictions import Prediction
from elman.tasks.statistics import Statistics
from elman.tasks.words import WordConfig, WordModel, WordTask, usual_epochs
from elman.tensors.transfer import moved
from elman.text.fields import State
from elman.text.lexicon import Lexicon
from elman.text.records import Record
from elman.text.store import Row

NGRAM_DROPOUT = 0.3  # so that the network does not lean on the n-grams alone


class ClassifyModel(WordModel):
    ngrams: int | None = Field(
        None, ge=1, description="each token also brings the n-grams that end with it, up to this n"
    )
    pooling: Annotated[str, PartOf(POOLINGS)] | None = setting(None, "the last output, or all outputs pooled")
    pooling_options: Options = setting({}, "options of the pooling's constructor")
    head: Whole = setting(0, "width of a hidden layer between pooling and softmax; 0: none")


class ClassifyTraining(TrainingSettings):
    class_weights: Literal["none", "balanced"] = setting(
        "none", "balanced: a rare class counts as much as a frequent one"
    )


class ClassifySettings(WordConfig):
    model: ClassifyModel = ClassifyModel()
    training: ClassifyTraining = ClassifyTraining()
    evaluation: EvaluationSettings = EvaluationSettings()


class ClassifyBatch(NamedTuple):
    """Words, and the label (B,) of each text."""

    words: WordBatch
    labels: Tensor


class Classify(WordTask[Classifier, ClassifyBatch]):
    """Text in, label out."""

    Settings = ClassifySettings
    roles: ClassVar[tuple[str, ...]] = ("text", "label")
    config: ClassifySettings

    def __init__(self, config: ClassifySettings) -> None:
        super().__init__(config, "label")

    def metrics(self) -> dict[str, bool]:
        of_the_rarer = ("precision", "recall", "f1") if len(self.labels.names) == 2 else ()
        return dict.fromkeys(("accuracy", *of_the_rarer, "macro_f1"), True) | {"loss": False}

    def build_vocabularies(self, records: Iterable[Record], held_out: Iterable[Record] = ()) -> Statistics:
        self.words.text.build_unit(record.fields["text"] for record in records)
        return super().build_vocabularies(records, held_out)

    def _reads_letters(self, config: WordConfig) -> bool | None:
        """Raw words have capitals, numbers and misspellings to read; prepared ones have fewer."""
        if config.model.characters is not None:
            return bool(config.model.characters)
        return None if config.text.unit == "word" and config.model.network == "rnn" else False

    def _words_of(self, record: Record) -> list[str]:
        words = self.words.text.split(record.fields["text"])
        if not words:
            raise record.error(EmptyError, "a text without a word", field="text", remedy="remove the line")
        return words

    def _labels_of(self, record: Record) -> Sequence[str]:
        return [record.fields["label"]]

    def encode(self, records: Iterable[Record], lexicon: Lexicon | None) -> Iterator[Row]:
        lexicon = lexicon or self.lexicon()
        for record in records:
            label = self.labels.ids([record.fields["label"]], record, field="label")
            yield {"word": lexicon.ids(self._words_of(record)), "label": label}

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
            "training.batch_size": 32 if self.config.training.batch_tokens is None else None,
            "training.learning_rate": 2e-3,
            "training.schedule": "one-cycle",
            "training.averaging": "ema",
            "training.epochs": usual_epochs(statistics.examples, 50_000 if words else 150_000, most=20),
        }

    def build_model(self, *, fresh: bool = False) -> Any:
        settings, K = self.config.model, len(self.labels.names)
        if network_kind(self.config.model).counted:
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
        )

    def collate(self, examples: Examples, key: Iterable[int], device: torch.device) -> ClassifyBatch:
        labels = np.concatenate(examples.rows("label", key)).astype(np.int64)
        return ClassifyBatch(self._word_batch(examples, key, device), tensor(labels, device))

    def loss(
        self, model: Classifier, batch: ClassifyBatch, *, carry: Any = None, progress: float = 1.0
    ) -> Loss:
        settings, labels = self.config.training, batch.labels
        total = output_loss(
            model(batch.words),
            labels,
            kind=settings.loss,
            smoothing=settings.label_smoothing,
            weights=self._weights(labels.device),
        )
        return Loss(total, len(labels), len(labels), int(batch.words.lengths.sum()))

    @torch.no_grad()
    def evaluate(
        self, model: Classifier, examples: Examples, *, quick: bool = False, partners: Partners = ()
    ) -> Measures:
        """Numbers, a report by class and the confusion matrix; of two classes, f1 is the rarer one's."""
        names = self.labels.names
        confusion, loss, tokens = Confusion(names), 0.0, 0
        judges = Judges(self.config, self.config.evaluation.metrics or ())
        for batch in self.evaluation_batches(examples, device_of(model)):
            scores = model(batch.words)
            loss += float(output_loss(scores, batch.labels))
            tokens += int(batch.words.lengths.sum())
            for gold, found in zip(batch.labels.tolist(), scores.argmax(-1).tolist(), strict=True):
                confusion.add(names[gold], names[found])
                judges.add(names[found], [names[gold]])
        measures: Measures = {
            "loss": loss / len(examples),
            "accuracy": confusion.accuracy,
            "macro_f1": confusion.macro_f1,
        }
        if len(names) == 2:  # labels stand by falling frequency
            rare = confusion.by_class().get(names[-1], Agreement(0, 0, 0))
            measures |= {"precision": rare.precision, "recall": rare.recall, "f1": rare.f1}
        return (
            measures
            | judges.values()
            | {
                "positive_class": names[-1] if len(names) == 2 else None,
                "tokens": tokens,
                "examples": len(examples),
                **confusion.as_json(),
                "report": confusion.table(),
            }
        )

    @torch.no_grad()
    def predict(
        self, model: Classifier, texts: Sequence[str], *, partners: Partners = (), trace: int | None = None
    ) -> list[Prediction]:
        """The label of each text, with all probabilities; a text without a word has none."""
        lexicon, device = self.lexicon(), device_of(model)
        split = [self.words.text.split(text) for text in texts]
        results = [Prediction("", text, "text", probabilities={}) for text in texts]
        real = [i for i, words in enumerate(split) if words]
        if not real:
            return results
        examples = Examples.in_memory([{"word": lexicon.ids(split[i])} for i in real], lexicon)
        names = self.labels.names
        for key in examples.in_order(*self.measured, tokens=self.positions):
            chances = model(self._word_batch(examples, key, device)).softmax(-1)
            for i, row in zip(key, chances.tolist(), strict=True):
                label = names[max(range(len(row)), key=row.__getitem__)]
                table = dict(zip(names, row, strict=True))
                results[real[i]] = Prediction(label, texts[real[i]], "text", probabilities=table)
        return results

    def samples(self, model: Classifier, examples: Examples) -> list[str]:
        shown = []
        for i in range(min(3, len(examples))):
            words = [examples.words[word] for word in examples.store.fields["word"][i]]
            text = self.words.text.join(words)
            gold = self.labels.names[int(examples.store.fields["label"][i][0])]
            found = self.predict(model, [text])[0].value
            shown.append(f"{found}{'' if found == gold else f' ✗ {gold}'}: {text[:70]}")
        return shown

    def state(self) -> State:
        return super().state() | {"label_counts": dict(self.labels.counts)}

    def _weights(self, device: torch.device) -> Tensor | None:
        """n / (K · n_k) for class k, so that the mean weight of an example is 1.

        K counts the classes that training saw; one that only held-out examples have weighs 1.
        """
        if self.config.training.class_weights == "none":
            return None
        counts = torch.tensor([self.labels.counts[label] for label in self.labels.names], dtype=torch.float32)
        seen = counts > 0
        return moved(torch.where(seen, counts.sum() / (seen.sum() * counts), 1.0), device)
