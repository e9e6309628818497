"""Ours and the peer, ready to run on the same data with the same weights."""

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

from elman.attention.additive import Additive
from elman.attention.bilinear import Bilinear
from elman.config import DecodingSettings
from elman.layers.rnn import RNN
from elman.models import seq2seq as models
from elman.tasks.examples import Examples, encoded
from elman.tasks.generation import Generation
from elman.tasks.seq2seq import Seq2Seq
from elman.text.batches import pad
from elman.text.records import Record

SCORES = {"after": "bilinear", "before": "additive"}  # by placement
RATE, CLIP = 1e-3, 1.0


@dataclass(frozen=True)
class Workload:
    """A task that has learned its words, its encoded pairs, and sources to decode."""

    task: Seq2Seq
    examples: Examples
    sources: list[str]

    def batches(self, count: int, epoch: int = 0) -> Iterator[Any]:
        keys = self.task.epoch(self.examples, epoch)
        for place in range(min(count, len(keys))):
            yield self.task.collate(self.examples, keys[place], torch.device("cpu"))

    @property
    def attention(self) -> str:
        placement = self.task.config.model.placement
        return f"{placement} ({SCORES[placement]})"


def prepare(data: Corpus, placement: str, *, H: int, batch: int, pairs: int, sentences: int) -> Workload:
    """The task as ``elman train`` would make it, for one placement of attention; without dropout."""
    dropouts = dict.fromkeys(("dropout", "input_dropout", "rare_dropout"), 0.0)
    attention = {"attention": SCORES[placement], "placement": placement}
    settings = {
        "task": "seq2seq",
        "model": {"hidden": H, "embedding": H, "tied": False, **attention, **dropouts},
        "training": {"batch_size": batch, "label_smoothing": 0.0},
    }
    task = Seq2Seq(Seq2Seq.Settings.model_validate(settings))
    records = [
        Record({"source": source, "target": target}, data.name, line)
        for line, (source, target) in enumerate(data.pairs[:pairs], 1)
    ]
    task.fill_defaults(task.build_vocabularies(records))
    return Workload(task, encoded(task, records), data.sources[:sentences])


def fresh(task: Seq2Seq) -> models.Seq2Seq:
    """A new model, always the same."""
    torch.manual_seed(1)
    return task.build_model(fresh=True)


def trained(work: Workload, updates: int, kept: Path) -> models.Seq2Seq:
    """A model that has learned when to end, as a fresh one never does; read from ``kept`` if that exists."""
    model = fresh(work.task)
    if kept.exists():
        model.load_state_dict(torch.load(kept, weights_only=True))
        return model.eval()
    update = Training(model, partial(ours_loss, work.task, model))
    epoch = done = 0
    while done < updates:
        for batch in work.batches(updates - done, epoch):
            update(batch)
            done += 1
        epoch += 1
    kept.parent.mkdir(parents=True, exist_ok=True)
    torch.save(model.state_dict(), kept)
    return model.eval()


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


def ours_write(
    task: Seq2Seq, model: models.Seq2Seq, sources: Sequence[str], settings: DecodingSettings
) -> list[str]:
    return [one.line for one in Generation(task.writer).predict(model, sources, settings)]


def plain_loss(model: plain.Plain, batch: Any) -> Tensor:
    ids, source_lengths, previous, targets, *_ = batch
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


# ---- the same weights, both ways -----------------------------------------------------------------


@torch.no_grad()
def to_plain(ours: models.Seq2Seq) -> plain.Plain:
    """A new peer that computes what ours does."""
    V_source, E = ours.source.embedding.weight.shape
    before = isinstance(ours.attention, Additive)
    peer = plain.Plain(V_source, len(ours.bias), E, ours.rnn.output_size, before=before)
    for mine, its in pairs(ours, peer):
        its.copy_(mine)
    for rnn, module in ((ours.encoder.network, peer.encoder), (ours.rnn, peer.decoder)):
        module.load_state_dict(rnn.to_torch().state_dict())
    return peer.train(ours.training)


@torch.no_grad()
def from_plain(peer: plain.Plain, ours: models.Seq2Seq) -> None:
    """Give ours, which must have the same sizes, the weights of the peer."""
    for mine, its in pairs(ours, peer):
        mine.copy_(its)
    for rnn, module in ((ours.encoder.network, peer.encoder), (ours.rnn, peer.decoder)):
        rnn.load_state_dict(RNN.from_torch(module).state_dict())


def pairs(ours: models.Seq2Seq, peer: plain.Plain) -> Iterator[tuple[Tensor, Tensor]]:
    """Weights that mean the same, all but those of the recurrent networks."""
    attention = ours.attention
    assert isinstance(attention, (Additive, Bilinear))
    yield ours.source.embedding.weight, peer.source.weight
    yield ours.target.embedding.weight, peer.target.weight
    yield ours.weight, peer.output.weight
    yield ours.bias, peer.output.bias
    layers = [(ours.bridge.networks[0], peer.start), (ours.combine, peer.combine)]
    if isinstance(attention, Bilinear):
        yield attention.matrix.weight, peer.of_keys.weight
    else:
        layers.append((attention.of_keys, peer.of_keys))
        yield attention.of_query.weight, peer.of_query.weight
        yield attention.v, peer.v
    for mine, its in layers:
        yield mine.weight, its.weight
        yield mine.bias, its.bias
