"""How a source becomes a target: read by the encoder, written by the decoder, with what attention saw."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elman.config import DecodingSettings
from elman.decoding.fixed import FixedStep, StepResult
from elman.decoding.results import Hypothesis, SearchResult
from elman.decoding.rows import Nested
from elman.models.seq2seq import ActiveSources, DecoderState, Seq2Seq, Source, repeated
from elman.tasks.examples import device_of, tensor
from elman.tasks.generation import DecodingStart, Writer, alternatives, steps_of
from elman.tasks.predictions import Looked, Prediction, Written, named_nodes
from elman.tasks.seq2seq_settings import Seq2SeqDecoding
from elman.text.batches import pad, plan_batches
from elman.text.fields import TextField
from elman.text.vocabulary import PAD, UNKNOWN

DECODED = 16_000  # positions of the texts that are decoded at once
SHORTEST = 50  # tokens that an output may have at least, if no setting says less
POSITIONS = 16  # of a source, of which a recorded step has a multiple


class Seq2SeqWriter(Writer[Seq2Seq]):
    """What each source becomes; ``naive`` writes on from the last token of the source."""

    wanted = "a source"
    together = 128

    longest_pair: tuple[int, int]  # tokens of the longest source and target of training

    def __init__(self, source: TextField, target: TextField, *, naive: bool) -> None:
        self.source, self.field, self.naive = source, target, naive
        self.longest_pair = 0, 0

    def attend(self, attends: bool) -> None:
        """Whether models look at the source, which the data may decide."""
        self.attends = attends

    def longest(self, prompts: Sequence[str]) -> int:
        """Twice the longest target of training; more for a source that is longer than any there."""
        sources, targets = self.longest_pair
        longer = max((len(self.source.split(text)) for text in prompts), default=0) / max(1, sources)
        return max(SHORTEST, math.ceil(2 * targets * max(1.0, longer)))

    def first_tokens(self, rows: Sequence[NDArray[Any]]) -> tuple[list[NDArray[Any]], NDArray[np.int64]]:
        """What the encoder reads of each source, and what the decoder reads first (B,).

        That is the start marker, which for a single network separates source and target. The naive form has
        no separator: it goes on from the last token of the source.
        """
        start = self.field.vocabulary.id(self.field.start)
        if not self.naive:
            return list(rows), np.full(len(rows), start)
        return [np.concatenate([[start], row[:-1]]) for row in rows], np.array([row[-1] for row in rows])

    def begin(self, model: Seq2Seq, prompts: Sequence[str]) -> DecodingStart:
        """Sources, none of them empty, read and ready for the first token."""
        device = device_of(model)
        sources, first = self.first_tokens([np.array(self.source.ids(text)) for text in prompts])
        ids, ends = pad(sources)
        lengths = tensor(ends, device)
        source = model.read(tensor(ids, device), torch.from_numpy(ends))
        active = ActiveSources(source)

        def step(tokens: Tensor, state: DecoderState) -> StepResult:
            examples = state.examples
            assert examples is not None
            left, rows = active.at(examples)
            log_probs, after, weights = model.step(tokens, state._replace(examples=rows), left)
            after = after._replace(examples=examples)
            if weights is None:
                return log_probs, after, None
            return log_probs, after, {"attention": weights, "source_length": lengths[examples]}

        def fixed() -> FixedStep:
            return _fixed(model, source, lengths)

        return DecodingStart(step, tensor(first, device), model.begin(source), fixed)

    def end_marker(self, settings: DecodingSettings) -> int:
        return self.field.vocabulary.id(self.field.end)

    def never(self, settings: DecodingSettings) -> set[int]:
        markers = [PAD, self.field.start, *(() if self.copies(settings) else (UNKNOWN,))]
        return set(self.field.vocabulary.ids(markers))

    def batches(self, prompts: Sequence[str], most: int) -> Iterable[Sequence[int]]:
        """Sources of about the same length, which end at about the same time."""
        lengths = np.array([len(self.source.split(text)) for text in prompts], dtype=np.int64)
        size = min(self.together, most)
        plan = plan_batches(lengths, size=size, tokens=DECODED, seed=0, epoch=0, shuffle=False)
        return (batch.tolist() for batch in plan)

    def copies(self, settings: DecodingSettings) -> bool:
        """Is an unknown word or letter replaced by that of the source that attention looks at?"""
        asked = isinstance(settings, Seq2SeqDecoding) and bool(settings.copy_unknown)
        return asked and may_copy(self.source, self.field) and self.attends

    def prediction(self, prompt: str, found: SearchResult, settings: DecodingSettings) -> Prediction:
        best = found.best
        tokens = self._tokens(prompt, best, settings)
        texts = (self.field.join(self._tokens(prompt, one, settings)) for one in found.hypotheses)
        written = Written(
            tokens,
            best.log_probability,
            best.stopped,
            score=best.score,
            scored=True,
            n_best=alternatives(found, texts, settings),
        )
        if best.trace is not None:
            written = self._traced(prompt, written, found)
        return Prediction(self.field.join(tokens), prompt, "source", written=written)

    def _tokens(self, source: str, hypothesis: Hypothesis, settings: DecodingSettings) -> list[str]:
        """The tokens of an output, copied from the source where they are unknown."""
        names = self.field.vocabulary.tokens
        tokens = [names[token] for token in hypothesis.tokens]
        if UNKNOWN in tokens and self.copies(settings) and hypothesis.shown is not None:
            words = self.source.split(source, self.field.unit)  # in the target's case
            new = [place for place, word in enumerate(words) if word not in self.field.vocabulary]
            places = new or range(len(words))  # what could have been written is no unknown word
            for place, (token, shown) in enumerate(zip(tokens, hypothesis.shown, strict=False)):
                if token == UNKNOWN:
                    tokens[place] = words[max(places, key=shown["attention"].__getitem__)]
        return tokens

    def _traced(self, source: str, written: Written, found: SearchResult) -> Written:
        """Step by step: where attention looked, what else could have come, and the whole search."""
        best, names = found.best, self.field.vocabulary.tokens
        words = self.source.split(source)
        out = [*written.tokens, self.field.end] if best.stopped == "end" else written.tokens
        steps = steps_of(best, out, words[-1] if self.naive else self.field.start, names) or []
        fed = [step.fed for step in steps[:1]] + [names[token] for token in best.tokens]
        steps = [
            step._replace(fed=token) for step, token in zip(steps, fed, strict=False)
        ]  # <unk> where copied
        attention = None
        if best.shown is not None:
            attention = np.array([row["attention"][: len(words)].tolist() for row in best.shown], np.float32)
            attention = attention.reshape(-1, len(words))
        looked = Looked(words, out, attention, named_nodes(found.tree, names))
        return replace(written, steps=steps, looked=looked)


def may_copy(source: TextField, target: TextField) -> bool:
    """Whether a token of the source can stand for an unknown one of the target: words do, and letters."""
    return source.unit.grain == target.unit.grain != "piece"


def _fixed(model: Seq2Seq, source: Source, lengths: Tensor) -> FixedStep:
    """The decoder's step with all sources as an argument; sources of similar lengths have one form."""
    memory = None if source.memory is None else source.memory.padded(POSITIONS)

    def function(tokens: Tensor, state: DecoderState, given: Nested) -> StepResult:
        source, lengths = given
        log_probs, after, weights = model.step(tokens, state, source)
        if weights is None:
            return log_probs, after, None
        return log_probs, after, {"attention": weights, "source_length": repeated(lengths, len(tokens))}

    start = model.begin(source)._replace(examples=None)
    return FixedStep(function, model, start, (Source(memory, source.context, None), lengths))
