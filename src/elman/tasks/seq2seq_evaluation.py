"""Pairs of texts in batches, and how models of them are judged with the truth fed."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from elman.decoding.rows import Nested
from elman.models.losses import output_loss
from elman.models.seq2seq import Seq2Seq as Model
from elman.models.seq2seq import Source
from elman.tasks.base import Measures, Task
from elman.tasks.buckets import Counts, bucket, checked, real_targets, taken_rows, widened
from elman.tasks.examples import Examples, device_of, unpacked
from elman.tasks.watched import WATCHED, StepOutput, WatchedExample, watch
from elman.tensors.draws import rand
from elman.tensors.rows import real_rows
from elman.text.vocabulary import MARKERS


class Seq2SeqBatch(NamedTuple):
    """Sources (B, S) and their lengths (B,); previous tokens, targets (B, T) and their lengths (B,).

    Lengths stay with the CPU, which asks for them. Where the ``counts`` are known it does not: the source's
    lie beside the rest, targets have none, and padding among them is no target.
    """

    sources: Tensor
    source_lengths: Tensor
    previous: Tensor
    targets: Tensor
    lengths: Tensor | None
    counts: Counts | None = None

    def gold(self) -> Tensor:
        """(N,) the targets of the real positions."""
        if self.lengths is None:
            return self.targets.flatten()
        return self.targets.flatten()[real_rows(self.lengths, self.targets.shape[1], self.targets.device)]

    def counted(self) -> Counts:
        """What the lengths come to."""
        assert self.lengths is not None
        N = int(self.lengths.sum())
        return Counts(N, len(self.sources), N + int(self.source_lengths.sum()))

    def hidden(self, rate: float, types: int, unknown: int) -> "Seq2SeqBatch":
        """With a share of the types that both sides of a pair have shown as unknown on both.

        So the unknown token is one that is copied. Markers, which are the first types, stay.
        """
        none = torch.zeros(len(self.sources), types, dtype=torch.bool, device=self.sources.device)
        sides = self.sources, self.targets.clamp(min=0)  # where there is no target
        read, written = (none.scatter(1, side, True) for side in sides)
        gone = read & written & (rand(*read.shape, device=read.device) < rate)
        gone[:, : len(MARKERS)] = False

        def shown(tokens: Tensor) -> Tensor:
            return tokens.masked_fill(gone.gather(1, tokens.clamp(min=0)) & (tokens >= 0), unknown)

        return self._replace(
            sources=shown(self.sources), previous=shown(self.previous), targets=shown(self.targets)
        )

    @property
    def size(self) -> int:
        return len(self.sources)

    def taken(self, rows: Tensor) -> "Seq2SeqBatch":
        return taken_rows(self, rows)

    def bucketed(self) -> "Seq2SeqBatch":
        """In a shape that comes again."""
        assert self.lengths is not None
        S, T = self.sources.shape[1], bucket(self.targets.shape[1])
        return Seq2SeqBatch(
            widened(self.sources, bucket(S)),
            checked(self.source_lengths, S),
            widened(self.previous, T),
            real_targets(self.targets, self.lengths, T),
            None,
            self.counted(),
        )


PairTask = Task[Model, Seq2SeqBatch]


def references_of(task: PairTask, examples: Examples) -> tuple[list[str], list[list[str]]]:
    """The different sources in the order in which they come, and the targets of each."""
    found: dict[str, tuple[str, list[str]]] = {}
    for i in range(len(examples)):
        source, target = (unpacked(examples.store.fields[f"{name}_text"][i]) for name in ("source", "target"))
        found.setdefault(task.text_fields["source"].clean(source), (source, []))[1].append(target)
    return [source for source, _ in found.values()], [targets for _, targets in found.values()]


def mean_losses(task: PairTask, model: Model, examples: Examples) -> Measures:
    """Means over all target tokens: with the truth fed, and with the model's own outputs fed."""
    loss = own_loss = 0.0
    right = tokens = 0
    for batch in task.evaluation_batches(examples, device_of(model)):
        source, gold = model.read(batch.sources, batch.source_lengths), batch.gold()
        logits = model.logits(model(source, batch.previous, batch.lengths))
        nothing = torch.zeros_like(batch.previous, dtype=torch.bool)
        own = model.mixed(source, batch.previous, batch.lengths, nothing)
        loss += float(output_loss(logits, gold))
        own_loss += float(output_loss(own, gold))
        right += int((logits.argmax(-1) == gold).sum())
        tokens += len(gold)
    return {
        "loss": loss / tokens,
        "perplexity": math.exp(min(loss / tokens, 700)),
        "accuracy": right / tokens,
        "exposure_gap": (own_loss - loss) / tokens,
        "tokens": tokens,
    }


@torch.no_grad()
def watched_pairs(task: Task[Model, Seq2SeqBatch], model: Model, examples: Examples) -> list[WatchedExample]:
    """The first pairs, with the truth fed and with its own outputs fed."""
    found = []
    for number in range(min(WATCHED, len(examples))):
        batch = task.collate(examples, [number], device_of(model))
        source = model.read(batch.sources, batch.source_lengths)
        read, names = (task.text_fields[side].vocabulary.tokens for side in ("source", "target"))
        words = [read[one] for one in batch.sources[0].tolist()]

        def step(tokens: Tensor, state: Nested, source: Source = source) -> StepOutput:
            return model.step(tokens, state, source)

        first, truth = batch.previous[0, :1], batch.targets[0]
        found.append(watch(step, model.begin(source), first, truth, source=words, names=names))
    return found
