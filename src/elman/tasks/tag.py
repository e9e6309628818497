"""Sequence labelling: a tag for every word, by a softmax at each position or a CRF over all (row T1)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from elman.config import Config, ModelSettings, TextSettings
from elman.errors import LabelError, UnknownNameError, nearest
from elman.metrics.spans import SpanCounts, legal_transitions, scheme, well_formed
from elman.models.counting import CountTagger
from elman.models.losses import output_loss
from elman.models.tagger import Tagger
from elman.tasks._words import WordTask, usual_epochs
from elman.tasks.base import Examples, Loss, tensor
from elman.tensors.rows import pick, real_rows
from elman.text.batches import pad
from elman.text.lexicon import Lexicon
from elman.text.readers import Record, Repairs, Source, read_tokens
from elman.text.vocabulary import MARKERS, UNKNOWN


class TagText(TextSettings):
    """From text to tokens."""

    unit: Literal["word"] = Field("word", description="what a token is: a tag belongs to a word")


class TagModel(ModelSettings):
    """The network; every cell fits every task."""

    bidirectional: bool = Field(True, description="read in both directions")
    characters: int | None = Field(
        None, ge=0, description="width of the network that reads a word's letters; 0: none"
    )
    crf: bool | None = Field(None, description="a CRF over the tags; unset: where the tags are spans")


class TagSettings(Config):
    text: TagText = TagText()
    model: TagModel = TagModel()

    @model_validator(mode="after")
    def _has_one_loss(self) -> TagSettings:
        if self.model.crf and (self.training.loss != "cross-entropy" or self.training.label_smoothing):
            raise ValueError(
                "a CRF has its own loss, −log p(tags); training.loss and training.label_smoothing need "
                "model.crf = false"
            )
        return self


class Tag(WordTask[TagSettings]):
    """Words in, tags out; span tags (BIO, BIOES) are judged as spans, others one by one."""

    Settings = TagSettings
    metric = "accuracy"
    roles: ClassVar[tuple[str, ...]] = ("word", "tag")
    legal: bool  # do the training data obey the scheme of their tags? Then only legal transitions are decoded

    @property
    def spans(self) -> bool:
        return scheme(self.labels.tokens) is not None

    def chosen_metric(self) -> str:
        return self.config.training.metric or ("f1" if self.spans else "accuracy")

    def metrics(self) -> tuple[str, ...]:
        return ("loss", "accuracy", "precision", "recall", "f1") if self.spans else ("loss", "accuracy")

    def read(self, source: Source, repairs: Repairs) -> Iterator[Record]:
        return read_tokens(source, self.roles, repairs)

    def words_of(self, record: Record) -> list[str]:
        words: list[str] = record.fields["word"]
        return [word.lower() for word in words] if self.config.text.lowercase else words

    def labels_of(self, record: Record) -> Sequence[str]:
        tags: Sequence[str] = record.fields["tag"]
        return tags

    def learn(self, records: Iterable[Record]) -> None:
        """As for all words; and whether the tags of the training data break the rules of their scheme."""
        super().learn(records)
        name = scheme(self.labels.tokens)
        broken = sum(not well_formed(record.fields["tag"], name) for record in records) if name else 0
        self.legal = name is not None and not broken
        if broken:
            self.notes.append(
                f"{broken:,} sentences break the rules of {name}: transitions are not constrained"
            )

    def meet(self, records: Iterable[Record]) -> None:
        """As for all words; a tag of held-out sentences alone may tell of another scheme, or of none."""
        before = scheme(self.labels.tokens)
        super().meet(records)
        if self.legal and scheme(self.labels.tokens) != before:
            self.legal = False
            self.notes.append(f"held-out tags are not those of {before}: transitions are not constrained")

    def tables(self) -> dict[str, Any]:
        return super().tables() | {"legal": self.legal}

    def restore(self, tables: Mapping[str, Any]) -> None:
        super().restore(tables)
        self.legal = bool(tables["legal"])

    @property
    def letters_read(self) -> bool:
        if self.config.model.encoder == "ngram":
            return True  # the counted tagger reads endings
        given = self.config.model.characters
        return self.recurrent if given is None else bool(given)

    def character_width(self) -> int:
        return self.config.model.characters or 0

    def encode(
        self, records: Iterable[Record], lexicon: Lexicon | None = None
    ) -> Iterator[dict[str, Sequence[int]]]:
        lexicon = lexicon or self.lexicon()
        for record in records:
            yield {"word": lexicon.ids(self.words_of(record)), "tag": self._tags(record)}

    def choices(self) -> dict[str, Any]:
        N = self.statistics.examples
        return {
            "model.hidden": 200,
            "model.embedding": 100,
            "model.characters": 100 if self.recurrent else 0,
            "model.dropout": 0.5,
            "model.input_dropout": 0.4,
            "model.token_dropout": 0.0,
            "model.rare_dropout": 0.25,
            "model.crf": self.spans,
            "training.batch_size": 32 if self.config.training.batch_tokens is None else None,
            "training.learning_rate": 2e-3,
            "training.schedule": "one-cycle",
            "training.averaging": "ema",
            "training.epochs": usual_epochs(N, 150_000, most=30),
        }

    def build_model(self) -> nn.Module:
        if self.config.model.encoder == "ngram":
            capitals = [token not in MARKERS and token.isupper() for token in self.characters.tokens]
            return CountTagger(
                len(self.vocabulary), len(self.labels), capitals, unknown=self.vocabulary.id(UNKNOWN)
            )
        model = Tagger(
            self.make_words(), self.config.model, len(self.labels), crf=bool(self.config.model.crf)
        )
        if model.crf is not None and self.legal:
            model.crf.constrain(legal_transitions(self.labels.tokens))
        return model

    def collate(self, examples: Examples, key: Any) -> Any:
        tags, _ = pad([examples.store.fields["tag"][i] for i in key])
        return self.word_batch(examples, key), tensor(tags, self.device)

    def loss(self, model: Tagger, batch: Any, carry: Any = None) -> Loss:
        words, tags = batch
        scores = model(words)
        count = int(words.lengths.sum())
        return Loss(self._loss(model, scores, tags, words.lengths), count, len(tags), count)

    @torch.no_grad()
    def evaluate(self, model: Tagger, examples: Examples) -> dict[str, Any]:
        """Figures; with a CRF, a sentence that breaks the rules of the scheme is left out of the loss."""
        counts, right, total, loss, judged = SpanCounts(), 0, 0, 0.0, 0
        names = self.labels.tokens
        for key in self.in_order(examples):
            words, tags = self.collate(examples, key)
            scores = model(words)
            value, words_judged = self._evaluation_loss(model, scores, tags, words.lengths)
            loss, judged = loss + value, judged + words_judged
            for row, found, length in zip(
                tags.tolist(), self._decode(model, scores, words.lengths), words.lengths.tolist(), strict=True
            ):
                gold = row[:length]
                right += sum(a == b for a, b in zip(gold, found, strict=True))
                total += length
                if self.spans:
                    counts.add([names[tag] for tag in gold], [names[tag] for tag in found])
        figures: dict[str, Any] = {"loss": loss / max(1, judged), "accuracy": right / total, "tokens": total}
        if self.spans:
            figures |= {"precision": counts.precision, "recall": counts.recall, "f1": counts.f1}
            figures |= {"by_type": counts.as_json()["types"], "report": counts.table()}
        return figures

    @torch.no_grad()
    def predict(self, model: Tagger, texts: Sequence[str]) -> list[dict[str, Any]]:
        """Tags of white-space separated words."""
        split = [[word for word in re.split("[ \t]+", text) if word] for text in texts]
        found = self.tag(model, [words for words in split if words])
        tagged = iter(found)
        results = []
        for words in split:
            tags, scores = next(tagged) if words else ([], [])
            results.append(
                {"prediction": tags, "line": " ".join(tags), "words": words, "probabilities": scores}
            )
        return results

    def tag(self, model: Tagger, sentences: Sequence[list[str]]) -> list[tuple[list[str], list[float]]]:
        """For each sentence its tags and how probable each is, by a softmax or by the CRF's marginals."""
        if not sentences:
            return []
        records = [
            Record({"word": words, "tag": []}, "", number) for number, words in enumerate(sentences, 1)
        ]
        lexicon = self.lexicon()
        rows = [{"word": lexicon.ids(self.words_of(record))} for record in records]
        examples = Examples.in_memory(rows, lexicon)
        results: list[tuple[list[str], list[float]]] = [([], [])] * len(sentences)
        for key in self.in_order(examples):
            words = self.word_batch(examples, key)
            scores = model(words)
            chances = scores.softmax(-1) if model.crf is None else model.crf.marginals(scores, words.lengths)
            for b, (i, found) in enumerate(zip(key, self._decode(model, scores, words.lengths), strict=True)):
                sure = [float(chances[b, t, tag]) for t, tag in enumerate(found)]
                results[i] = [self.labels.tokens[tag] for tag in found], sure
        return results

    def samples(self, model: Tagger, examples: Examples) -> list[str]:
        shown = min(
            range(len(examples)), key=lambda i: abs(len(examples.store.fields["word"][i]) - 10), default=None
        )
        if shown is None:
            return []
        words = [examples.words[w] for w in examples.store.fields["word"][shown]]
        gold = [self.labels.tokens[t] for t in examples.store.fields["tag"][shown]]
        with torch.no_grad():
            [(found, _)] = self.tag(model, [words])
        return [
            " ".join(
                f"{w}/{f}" + ("" if f == g else f"✗{g}") for w, f, g in zip(words, found, gold, strict=True)
            )
        ]

    def _tags(self, record: Record) -> list[int]:
        try:
            return self.labels.ids(record.fields["tag"])
        except UnknownNameError:
            place = next(i for i, tag in enumerate(record.fields["tag"]) if tag not in self.labels)
            tag = record.fields["tag"][place]
            raise record.error(
                LabelError,
                "a tag that training never saw",
                token=place,
                text=tag,
                remedy=nearest(tag, self.labels.tokens),
            ) from None

    def _loss(self, model: Tagger, scores: Tensor, tags: Tensor, lengths: Tensor) -> Tensor:
        if model.crf is not None:
            return -model.crf.log_likelihood(scores, tags, lengths).sum()
        settings = self.config.training
        return output_loss(
            *self._flat(scores, tags, lengths), kind=settings.loss, smoothing=settings.label_smoothing
        )

    def _evaluation_loss(
        self, model: Tagger, scores: Tensor, tags: Tensor, lengths: Tensor
    ) -> tuple[float, int]:
        """−log P(tags), summed, and of how many words; what a constrained CRF rules out has no likelihood."""
        if model.crf is None:
            return float(output_loss(*self._flat(scores, tags, lengths))), int(lengths.sum())
        kept = model.crf.permits(tags, lengths)
        likelihood = model.crf.log_likelihood(scores, tags, lengths)
        return -float(likelihood[kept].sum()), int(lengths[kept.to(lengths.device)].sum())

    def _flat(self, scores: Tensor, tags: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Scores (N, K) and tags (N,) of the real positions."""
        real = real_rows(lengths, scores.shape[1], scores.device)
        return pick(scores.flatten(0, 1), real), tags.flatten()[real]

    def _decode(self, model: Tagger, scores: Tensor, lengths: Tensor) -> list[list[int]]:
        if model.crf is not None:
            return model.crf.decode(scores, lengths)
        best = scores.argmax(-1).tolist()
        return [row[:length] for row, length in zip(best, lengths.tolist(), strict=True)]
