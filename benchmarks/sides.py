"""The two sides, ready to run on the same data with the same weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import plain
import torch
from corpus import Corpus
from torch import Tensor, nn

from elman.config import DecodingSettings
from elman.models import seq2seq as models
from elman.tasks.base import Examples
from elman.tasks.seq2seq import Seq2Seq
from elman.text.batches import pad
from elman.text.readers import Record

SCORES = {"after": "bilinear", "before": "additive"}  # by placement
RATE, CLIP = 1e-3, 1.0


@dataclass(frozen=True)
class Bench:
    """A task that has learned its words, its encoded pairs, and sources to decode."""

    task: Seq2Seq
    examples: Examples
    sources: list[str]

    def batches(self, count: int, epoch: int = 0) -> Iterator[Any]:
        for key in self.task.plan(self.examples, epoch)[:count]:
            yield self.task.collate(self.examples, key)

    @property
    def attention(self) -> str:
        placement = self.task.config.model.placement
        return f"{placement} ({SCORES[placement]})"


def prepare(data: Corpus, placement: str, *, H: int, batch: int, pairs: int, sentences: int) -> Bench:
    """The task as ``elman train`` would make it, for one placement of attention; without dropout."""
    settings = {
        "task": "seq2seq",
        "model": {
            "hidden": H,
            "embedding": H,
            "attention": SCORES[placement],
            "placement": placement,
            "tied": False,
            "dropout": 0.0,
            "input_dropout": 0.0,
            "rare_dropout": 0.0,
        },
        "training": {"batch_size": batch},
    }
    task = Seq2Seq(Seq2Seq.Settings.model_validate(settings))
    records = [
        Record({"source": source, "target": target}, data.name, line)
        for line, (source, target) in enumerate(data.pairs[:pairs], 1)
    ]
    task.learn(records)
    task.fill_defaults()
    return Bench(task, task.examples(records), data.sources[:sentences])


def fresh(task: Seq2Seq) -> models.Seq2Seq:
    """A new model, always the same."""
    torch.manual_seed(1)
    model = task.build_model()
    assert isinstance(model, models.Seq2Seq)
    return model


def trained(bench: Bench, updates: int, kept: Path) -> models.Seq2Seq:
    """A model that has learned when to end, as a fresh one never does; read from ``kept`` if that exists."""
    model = fresh(bench.task)
    if kept.exists():
        model.load_state_dict(torch.load(kept, weights_only=True))
        return model.eval()
    know_frequencies(model, bench.task)
    update = Training(model, partial(ours_loss, bench.task, model))
    epoch = done = 0
    while done < updates:
        for batch in bench.batches(updates - done, epoch):
            update(batch)
            done += 1
        epoch += 1
    kept.parent.mkdir(parents=True, exist_ok=True)
    torch.save(model.state_dict(), kept)
    return model.eval()


def know_frequencies(model: models.Seq2Seq, task: Seq2Seq) -> None:
    """Start the output's bias at the log frequency of each token.

    Otherwise the first updates teach it to the readouts instead, and saturate them for good.
    """
    counts = torch.tensor(task.target.counts, dtype=torch.float).clamp_min(0.5)
    counts[plain.END] = task.statistics.examples
    with torch.no_grad():
        model.bias.copy_((counts / counts.sum()).log())


class Training:
    """A call is an update on one batch: forward, backward, clipping, Adam."""

    def __init__(self, model: nn.Module, loss: Callable[[Any], Tensor]) -> None:
        self.weights, self.loss = list(model.parameters()), loss
        self.optimizer = torch.optim.Adam(self.weights, lr=RATE, fused=True)

    def __call__(self, batch: Any) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        self.loss(batch).backward()
        nn.utils.clip_grad_norm_(self.weights, CLIP)
        self.optimizer.step()


def ours_loss(task: Seq2Seq, model: models.Seq2Seq, batch: Any) -> Tensor:
    loss = task.loss(model, batch)
    return loss.total / loss.count


def plain_loss(model: plain.Plain, batch: Any) -> Tensor:
    ids, source_lengths, previous, targets, _ = batch
    return plain.loss(model, ids, source_lengths, previous, targets)


class PlainWriter:
    """The peer from text to text: words are looked up, batches padded, outputs joined."""

    def __init__(self, model: plain.Plain, task: Seq2Seq, settings: DecodingSettings) -> None:
        self.model, self.longest, self.K = model, settings.max_length or 0, settings.beam
        self.index, self.words = task.source.vocabulary.index, task.target.vocabulary.tokens

    def write(self, sources: Sequence[str], *, together: int, by_length: bool = False) -> list[str]:
        """What each source becomes, ``together`` at once."""
        rows = [np.array([self.index.get(word, plain.UNKNOWN) for word in text.split()]) for text in sources]
        order = list(range(len(rows)))
        if by_length:
            order.sort(key=lambda i: len(rows[i]))
        outputs = [""] * len(rows)
        for start in range(0, len(rows), together):
            part = order[start : start + together]
            ids, lengths = (torch.from_numpy(array) for array in pad([rows[i] for i in part]))
            for i, found in zip(part, self._search(ids, lengths), strict=True):
                outputs[i] = " ".join(self.words[token] for token in found)
        return outputs

    def _search(self, ids: Tensor, lengths: Tensor) -> list[list[int]]:
        if self.K is None:
            return plain.greedy(self.model, ids, lengths, longest=self.longest)
        return plain.beam(self.model, ids, lengths, longest=self.longest, K=self.K)
