"""A batch of tagged words, and what scores of its tags mean: a loss, tags, probabilities."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from elman.metrics.spans import SpanCounts, is_span_tag
from elman.models.embedding import WordBatch
from elman.models.losses import output_loss
from elman.models.shortcut import weighed
from elman.models.tagger import Tagger
from elman.tasks.buckets import Counts, bucketed_words, real_targets
from elman.tasks.calibrating import Judgement
from elman.tasks.examples import Examples, device_of
from elman.tensors.rows import pick, real_rows

SMALLEST = 1e-43  # of a marginal whose logarithm is taken
LEAST = -20.0  # of a log-probability that decides how much a model counts: also of what a CRF rules out
EQUAL = torch.tensor([0.5, 0.5], dtype=torch.float64)


class TagBatch(NamedTuple):
    """Words, and the tag (B, T) of each; of a tag that training never saw, −1, and what it is.

    Where the ``counts`` are known, padding has no tag.
    """

    words: WordBatch
    tags: Tensor
    unseen: Sequence[Sequence[str]] = ()
    counts: Counts | None = None

    def counted(self) -> Counts:
        count = int(self.words.lengths.sum())
        return Counts(count, len(self.tags), count)

    @property
    def size(self) -> int:
        return len(self.tags)

    def taken(self, rows: Tensor) -> TagBatch:
        unseen = [self.unseen[i] for i in rows.tolist()] if self.unseen else ()
        return TagBatch(self.words.taken(rows), self.tags[rows.to(self.tags.device)], unseen)

    def bucketed(self) -> TagBatch:
        words = bucketed_words(self.words)
        tags = real_targets(self.tags, words.lengths, words.places.shape[1])
        return TagBatch(words, tags, (), self.counted())


def for_experts(batch: TagBatch, times: int) -> TagBatch:
    """The tags and the lengths of a batch for so many experts, one after the other."""
    words = batch.words._replace(lengths=batch.words.lengths.repeat(times))
    return batch._replace(words=words, tags=batch.tags.repeat(times, 1)) if times > 1 else batch


def real_scores(scores: Tensor, batch: TagBatch) -> tuple[Tensor, Tensor]:
    """Scores (N, K) and tags (N,) of the real positions whose tag is known."""
    if batch.counts is not None:  # what is not real has no tag
        return scores.flatten(0, 1), batch.tags.flatten()
    real = real_rows(batch.words.lengths, scores.shape[1], scores.device)
    if any(batch.unseen):
        real = real[batch.tags.flatten()[real] >= 0]
    return pick(scores.flatten(0, 1), real), batch.tags.flatten()[real]


def evaluation_loss(model: Tagger, scores: Tensor, batch: TagBatch) -> tuple[float, int]:
    """−log P(tags), summed, and of how many words; what a constrained CRF rules out has no likelihood."""
    lengths = batch.words.lengths
    if model.crf is None:
        known, tags = real_scores(scores, batch)
        return float(output_loss(known, tags)), len(tags)
    tags = batch.tags.clamp(min=0)
    kept = model.crf.permits(tags, lengths) & (batch.tags >= 0).all(1)
    likelihood = model.crf.log_likelihood(scores, tags, lengths)
    return -float(likelihood[kept].sum()), int(lengths[kept.to(lengths.device)].sum())


def decode(model: Tagger, scores: Tensor, lengths: Tensor) -> list[list[int]]:
    if model.crf is not None:
        return model.crf.decode(scores, lengths)
    best = scores.argmax(-1).tolist()
    return [row[:length] for row, length in zip(best, lengths.tolist(), strict=True)]


def word_scores(model: Tagger, scores: Tensor, lengths: Tensor) -> Tensor:
    """(B, T, K) of which softmax makes the probabilities of a word's tags: with a CRF, log-marginals."""
    if model.crf is None:
        return scores
    return model.crf.marginals(scores, lengths).clamp_min(SMALLEST).log()


def tag_chances(model: Tagger, scores: Tensor, lengths: Tensor, temperature: float) -> Tensor:
    """(B, T, K) how probable the tags of each word are."""
    if model.crf is not None and temperature == 1.0:
        return model.crf.marginals(scores, lengths)
    return (word_scores(model, scores, lengths) / temperature).softmax(-1)


def judge(
    judgement: Judgement, batch: TagBatch, scores: Tensor, decoded: list[list[int]], fitted: Tagger | None
) -> None:
    """Show a judgement the words of a batch; what a constrained CRF rules out is not ``fitted``."""
    tags, lengths = batch.tags, batch.words.lengths
    if fitted is not None and fitted.crf is not None:
        kept = fitted.crf.permits(tags.clamp(min=0), lengths)
        tags = tags.where(kept[:, None], -1)
    real = real_rows(lengths, scores.shape[1], scores.device)
    chosen = torch.tensor([tag for row in decoded for tag in row], device=scores.device)
    judgement.add(pick(scores.flatten(0, 1), real), tags.flatten()[real], chosen)


class TagWeighing:
    """How much a tagger's shortcut counts, and how much spans do: validation data decide."""

    MOST = 20_000  # words that are looked at
    BIASES = tuple(n / 2 for n in range(-2, 7))  # of the tags of spans

    def __init__(
        self,
        batches: Callable[[Examples, torch.device], Iterable[TagBatch]],
        names: Callable[[], Sequence[str]],
    ) -> None:
        self._batches, self._names = batches, names

    def fit(self, model: Tagger, examples: Examples) -> None:
        """Nothing: it learns by the updates of the network."""

    @torch.no_grad()
    def weigh(self, model: Tagger, examples: Examples) -> None:
        batches = self._first(examples, device_of(model))
        if model.shortcut is not None:
            self._weigh_shortcut(model, batches)
        if model.crf is not None and model.crf.bias is not None:
            self._weigh_spans(model, batches)

    def _first(self, examples: Examples, device: torch.device) -> list[TagBatch]:
        """Batches of so many words that they are enough."""
        found, words = [], 0
        for batch in self._batches(examples, device):
            found.append(batch)
            words += int(batch.words.lengths.sum())
            if words > self.MOST:
                break
        return found

    def _weigh_shortcut(self, model: Tagger, batches: Sequence[TagBatch]) -> None:
        """Find the best weights of what both say about each word, and keep their proportion."""
        assert model.shortcut is not None
        found: list[tuple[Tensor, Tensor]] = []
        for batch in batches:
            every = [word_scores(model, one, batch.words.lengths) for one in model.experts(batch.words)]
            logs = torch.stack([one.log_softmax(-1) for one in every], 2).clamp_min(LEAST)  # (B, T, 2, K)
            found.append(real_scores(logs, batch))
        if found:
            logs, tags = (torch.cat(part) for part in zip(*found, strict=True))
            network, linear = weighed(logs, tags, EQUAL).tolist()
            model.shortcut.share.fill_(linear / (network + linear) if network + linear > 0 else 0.5)

    def _weigh_spans(self, model: Tagger, batches: Sequence[TagBatch]) -> None:
        """Find the bias with which the spans that are decoded have the best F1.

        The most probable tags leave out spans that are likely, but less so than nothing; on few examples, or
        others than those of training, that is most of them.
        """
        assert model.crf is not None
        assert model.crf.bias is not None
        names, bias = self._names(), model.crf.bias
        kinds = torch.tensor([float(is_span_tag(name) and name != "O") for name in names], device=bias.device)
        counts = [SpanCounts() for _ in self.BIASES]
        bias.zero_()
        for batch in batches:
            lengths = batch.words.lengths.repeat(len(self.BIASES))
            scores = model(batch.words)
            every = model.crf.decode(torch.cat([scores + one * kinds for one in self.BIASES]), lengths)
            gold = [[names[tag] if tag >= 0 else "O" for tag in row] for row in batch.tags.tolist()]
            for place, tags in enumerate(every):
                count, row = counts[place // len(gold)], place % len(gold)
                count.add(gold[row][: len(tags)], [names[tag] for tag in tags])
        f1 = [count.f1 for count in counts]
        padded = [f1[0], *f1, f1[-1]]  # its neighbours count, too: a single span shall not decide
        smooth = [sum(padded[i : i + 3]) + padded[i + 1] for i in range(len(f1))]
        best = max(range(len(f1)), key=lambda i: (smooth[i], -abs(self.BIASES[i])))
        bias.copy_(self.BIASES[best] * kinds)
