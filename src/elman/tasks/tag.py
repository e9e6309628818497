"""Sequence labelling: a tag for every word, by a softmax at each position or a CRF over all (row T1)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from elman.errors import shortened
from elman.metrics.spans import (
    Span,
    SpanCounts,
    is_span_tag,
    legal_transitions,
    scheme,
    spans,
    strange_tags,
    well_formed,
)
from elman.models.counting import CountTagger
from elman.models.indicators import Affixes
from elman.models.losses import output_loss
from elman.models.tagger import LinearTagger, Tagger
from elman.tasks.base import Axes, Chances, Judges, Loss, Measures, network_kind
from elman.tasks.calibrating import Judgement
from elman.tasks.defaults import Choice, Choices
from elman.tasks.examples import Examples, device_of, tensor, unseen_measures
from elman.tasks.generation import Partners
from elman.tasks.predictions import Prediction
from elman.tasks.statistics import Statistics, Tally, tallied
from elman.tasks.tag_batch import (
    TagBatch,
    TagWeighing,
    decode,
    evaluation_loss,
    for_experts,
    judge,
    real_scores,
    tag_chances,
    word_scores,
)
from elman.tasks.tag_settings import TagSettings
from elman.tasks.words import WordConfig, WordTask, usual_epochs
from elman.text.batches import pad
from elman.text.columns import counted
from elman.text.fields import State
from elman.text.files import Repairs
from elman.text.reading import read_fields, read_tokens
from elman.text.records import Record, Source
from elman.text.vocabulary import MARKERS, UNKNOWN


class Tagged(NamedTuple):
    """A sentence as a model reads it: its tags by number, how probable all are (T, K), its unknown words."""

    tags: list[int]
    chances: NDArray[np.float64]
    unknown: int


class Tag(WordTask[Tagger, TagBatch]):
    """Words in, tags out; span tags (BIO, BIOES) are judged as spans, others one by one."""

    Settings = TagSettings
    roles: ClassVar[tuple[str, ...]] = ("word", "tag")
    stratum = "tag"
    buckets = parted = True
    listed = True
    config: TagSettings
    legal: bool  # do the training data obey the scheme of their tags? Then only legal transitions are decoded

    def __init__(self, config: TagSettings) -> None:
        super().__init__(config, "tag")
        self.companion = TagWeighing(self.evaluation_batches, lambda: self.labels.names)

    @property
    def spans(self) -> bool:
        return scheme(self.labels.names) is not None

    def metrics(self) -> dict[str, bool]:
        spans = dict.fromkeys(("f1", "precision", "recall"), True) if self.spans else {}
        return {**spans, "accuracy": True, "loss": False}

    def read(self, source: Source, repairs: Repairs) -> Iterator[Record]:
        """Sentences, a word a line; where a column is named as ``text``, those that stand in it."""
        if not source.asked or "text" not in (source.columns or {}):
            return read_tokens(source, self.roles, repairs)
        texts = read_fields(replace(source, format=None), ("text",), repairs)
        return (replace(one, fields={"word": words_in(one.fields["text"])}) for one in texts)

    def _words_of(self, record: Record) -> list[str]:
        words: list[str] = record.fields["word"]
        return [word.lower() for word in words] if self.config.text.lowercase else words

    def _labels_of(self, record: Record) -> Sequence[str]:
        tags: Sequence[str] = record.fields["tag"]
        return tags

    def _reads_letters(self, config: WordConfig) -> bool:
        """A comparator reads none, unless asked to: it would not be one; the counted tagger reads endings."""
        if network_kind(self.config.model).counted:
            return True
        model = self.config.model
        given = model.characters
        usual = model.network == "rnn" and not self.config.text.vectors_alone
        read = usual if given is None else bool(given)
        return read or bool(model.affixes or model.shortcut)

    def build_vocabularies(self, records: Iterable[Record]) -> Statistics:
        """As for all words; and whether the tags of the training data break the rules of their scheme."""
        seen = super().build_vocabularies(records)
        name = scheme(self.labels.names)
        broken = tallied(records, self._count_broken).seen.examples if name else 0
        self.legal = name is not None and not broken
        if broken:
            seen.notes.append(
                f"{counted(broken, 'sentence')} against the rules of {name}: transitions are not constrained"
            )
        return seen

    def _build(self, tally: Tally) -> Statistics:
        seen = super()._build(tally)
        if strange := strange_tags(dict(tally.counts["label"].items())):
            named = ", ".join(repr(shortened(tag)) for tag in strange[:5])
            seen.notes.append(
                f"nothing is read as a span because of tags that are none: {named}; elman doctor tells where"
            )
        if seen.examples == 1:
            seen.notes.append("all words are one sentence; a blank line stands between sentences")
        return seen

    def _count_broken(self, records: Iterable[Record]) -> Tally:
        tally, name = Tally(), scheme(self.labels.names) or ""
        tally.seen.examples = sum(not well_formed(record.fields["tag"], name) for record in records)
        return tally

    def state(self) -> State:
        return super().state() | {"legal": self.legal}

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        self.legal = bool(state["legal"])

    def choices(self, statistics: Statistics) -> Choices:
        letters, N = self._reads_letters(self.config), statistics.examples
        kind = "spans" if self.spans else "classes of single words"
        crf = self.spans if self.config.model.crf is None else self.config.model.crf
        shown = f"since there are {N:,} sentences"
        beside = "since how words begin and end, and their neighbours, tell much about their tags"
        return {
            "model.hidden": 200,
            "model.embedding": 100,
            "model.characters": 50 if letters and self.config.model.network == "rnn" else 0,
            "model.affixes": Choice(100, "since new words are known by how they begin and end")
            if letters
            else 0,
            "model.shortcut": Choice(True, beside) if letters else False,
            "model.dropout": 0.5,
            "model.input_dropout": 0.4,
            "model.token_dropout": 0.0,
            "model.rare_dropout": 0.25,
            "model.crf": Choice(self.spans, f"since the tags are {kind}"),
            "model.span_bias": Choice(crf and self.spans, "since F1 counts spans, not words")
            if crf
            else None,
            "training.batch_size": 32 if self.config.training.batch_tokens is None else None,
            "training.learning_rate": 2e-3,
            "training.schedule": "one-cycle",
            "training.averaging": "ema",
            "training.epochs": Choice(usual_epochs(N, 130_000, most=16), shown),
        }

    def build_model(self, *, fresh: bool = False) -> Any:
        vocabulary = self.words.text.vocabulary
        if network_kind(self.config.model).counted:
            capitals = [token not in MARKERS and token.isupper() for token in self.words.characters.tokens]
            unknown = vocabulary.id(UNKNOWN)
            return CountTagger(len(vocabulary), len(self.labels.names), capitals, unknown=unknown)
        settings, letters, K = self.config.model, self.words.characters.tokens, len(self.labels.names)
        left_out = settings.input_dropout or 0.0
        affixes = Affixes(letters, settings.affixes, dropout=left_out) if settings.affixes else None
        words = self._make_words(fresh=fresh, affixes=affixes, alone=self.config.text.vectors_alone)
        shortcut = LinearTagger(letters, K) if settings.shortcut else None
        crf, biased = bool(settings.crf), bool(settings.span_bias)
        model = Tagger(words, settings, K, crf=crf, biased=biased, shortcut=shortcut)
        if model.crf is not None and self.legal:
            model.crf.constrain(legal_transitions(self.labels.names))
        return model

    def _axes(self) -> dict[str, Axes]:
        names = self.labels.names
        single = dict.fromkeys(("output.bias", "crf.start", "crf.end", "shortcut.bias"), (names,))
        return {
            **super()._axes(),
            "output.weight": (names, None),
            "crf.transitions": (names, names),
            "shortcut.weight": (None, names),
            **single,
        }

    def collate(self, examples: Examples, key: Iterable[int], device: torch.device) -> TagBatch:
        tags, _ = pad(examples.rows("tag", key))
        words = self._word_batch(examples, key, device)
        return TagBatch(words, tensor(tags, device), examples.texts("unseen", key))

    def loss(self, model: Tagger, batch: TagBatch, *, carry: Any = None, progress: float = 1.0) -> Loss:
        experts = model.experts(batch.words)
        scores, every = torch.cat(experts), for_experts(batch, len(experts))
        if model.crf is not None:
            total = -model.crf.log_likelihood(scores, every.tags, every.words.lengths).sum()
        else:
            kind, smoothing = self.config.training.loss, self.config.training.label_smoothing
            total = output_loss(*real_scores(scores, every), kind=kind, smoothing=smoothing)
        return Loss(total / len(experts), *(batch.counts or batch.counted()))

    @torch.no_grad()
    def evaluate(
        self,
        model: Tagger,
        examples: Examples,
        *,
        quick: bool = False,
        partners: Partners = (),
        threshold: float | None = None,
    ) -> Measures:
        """A tag that training never saw is wrong, and not in the loss.

        With a CRF, its sentence is not, nor one that breaks the rules of the scheme.
        """
        counts, right, total, loss, judged = SpanCounts(), 0, 0, 0.0, 0
        judges = Judges(self.config, self.config.evaluation.metrics or ())
        judgement = Judgement(self.calibration, quick=quick, threshold=threshold)
        names = self.labels.names
        for batch in self.evaluation_batches(examples, device_of(model)):
            scores, lengths = model(batch.words), batch.words.lengths
            value, words_judged = evaluation_loss(model, scores, batch)
            loss, judged = loss + value, judged + words_judged
            decoded = decode(model, scores, lengths)
            judge(judgement, batch, word_scores(model, scores, lengths), decoded, model if quick else None)
            rows = zip(
                batch.tags.tolist(),
                batch.unseen,
                decoded,
                lengths.tolist(),
                strict=True,
            )
            for row, new, found, length in rows:
                spelt = iter(new)
                gold_tags = [names[tag] if tag >= 0 else next(spelt) for tag in row[:length]]
                found_tags = [names[tag] for tag in found]
                right += sum(a == b for a, b in zip(gold_tags, found_tags, strict=True))
                total += length
                judges.add(found_tags, [gold_tags])
                if self.spans:
                    counts.add([tag if is_span_tag(tag) else "O" for tag in gold_tags], found_tags)
        measures: Measures = {
            "loss": loss / judged if judged else 0.0 if quick else None,
            "accuracy": right / total,
            "tokens": total,
        }
        if self.spans:
            measures |= {"precision": counts.precision, "recall": counts.recall, "f1": counts.f1}
            measures |= {"by_type": counts.as_json()["types"], "report": counts.table()}
        measures |= judgement.measures()
        return measures | judges.values() | unseen_measures(examples.unseen)

    def predict(
        self,
        model: Tagger,
        texts: Sequence[str | list[str]],
        *,
        partners: Partners = (),
        trace: int | None = None,
    ) -> list[Prediction]:
        """Tags of words, or of a text's, and how probable each is: by a softmax, or by marginals.

        ``trace``: so many tags of each word, the one that was given first, then the most probable others.
        """
        split, predictions = [words_in(text) for text in texts], []
        for words, one in zip(split, self._judged(model, split), strict=True):
            rows = zip(one.chances.tolist(), one.tags, strict=True)
            best = [self._best(row, tag, trace or 1) for row, tag in rows]
            tags = [tag for (tag, _), *_ in best]
            predictions.append(
                Prediction(
                    tags,
                    words,
                    "words",
                    probabilities=[chance for (_, chance), *_ in best],
                    spans=self._spans(tags),
                    alternatives=best if trace else None,
                    read=len(words),
                    unknown=one.unknown,
                )
            )
        return predictions

    def chances(self, model: Tagger, texts: Sequence[str | list[str]]) -> Chances:
        found = self._judged(model, [words_in(text) for text in texts])
        return [one.chances / one.chances.sum(-1, keepdims=True) for one in found]

    def _spans(self, tags: Sequence[str]) -> list[Span] | None:
        """The spans that tags mean, in order, where they mean any."""
        return sorted(spans(tags), key=lambda span: span.start) if self.spans else None

    @torch.no_grad()
    def _judged(self, model: Tagger, sentences: Sequence[list[str]]) -> list[Tagged]:
        results = [Tagged([], np.zeros((0, len(self.labels.names))), 0)] * len(sentences)
        real = [i for i, words in enumerate(sentences) if words]
        if not real:
            return results
        lower = self.config.text.lowercase
        spelt = ([word.lower() if lower else word for word in sentences[i]] for i in real)
        with self._spare_lexicon() as lexicon:
            examples = Examples.asked(spelt, lexicon)
            for key in examples.in_order(*self.measured, tokens=self.positions, size=self.together):
                words = self._word_batch(examples, key, device_of(model))
                scores = model(words)
                chances = tag_chances(model, scores, words.lengths, self.temperature)
                decoded = zip(decode(model, scores, words.lengths), self._unknown(words), strict=True)
                rows = chances.double().cpu().numpy()
                for i, row, (found, unknown) in zip(key, rows, decoded, strict=True):
                    results[real[i]] = Tagged(found, row[: len(found)], unknown)
        return results

    def _best(self, chances: Sequence[float], tag: int, top: int) -> list[tuple[str, float]]:
        """A tag, and the most probable others."""
        order = sorted(range(len(chances)), key=lambda one: -chances[one]) if top > 1 else []
        best = [tag, *(one for one in order if one != tag)][:top]
        return [(self.labels.names[one], chances[one]) for one in best]

    def samples(self, model: Tagger, examples: Examples) -> list[str]:
        lengths = examples.lengths("word")
        if not len(lengths):
            return []
        shown = int(abs(lengths - 10).argmin())
        words = [examples.words[word] for word in examples.store.fields["word"][shown]]
        spelt = iter(examples.texts("unseen", [shown])[0])
        tags = examples.store.fields["tag"][shown]
        gold = [self.labels.names[tag] if tag >= 0 else next(spelt) for tag in tags]
        [one] = self._judged(model, [words])
        tagged = zip(words, (self.labels.names[tag] for tag in one.tags), gold, strict=True)
        return [" ".join(f"{w}/{f}" + ("" if f == g else f"✗{g}") for w, f, g in tagged)]


def words_in(text: str | list[str]) -> list[str]:
    """The words of a text; a list of them is that already."""
    return [word for word in re.split("[ \t]+", text) if word] if isinstance(text, str) else list(text)
