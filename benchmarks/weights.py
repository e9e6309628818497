"""The same weights in ``elman.models.seq2seq.Seq2Seq`` and in ``plain.Plain``, both ways."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from plain import Plain
from torch import Tensor

from elman.attention.additive import Additive
from elman.attention.bilinear import Bilinear
from elman.layers.rnn import RNN
from elman.models.seq2seq import Seq2Seq


@torch.no_grad()
def to_plain(ours: Seq2Seq) -> Plain:
    """A new peer that computes what ours does."""
    V_source, E = ours.source.embedding.weight.shape
    before = isinstance(ours.attention, Additive)
    plain = Plain(V_source, len(ours.bias), E, ours.rnn.output_size, before=before)
    for mine, its in pairs(ours, plain):
        its.copy_(mine)
    for rnn, module in ((ours.encoder.network, plain.encoder), (ours.rnn, plain.decoder)):
        module.load_state_dict(rnn.to_torch().state_dict())
    return plain.train(ours.training)


@torch.no_grad()
def from_plain(plain: Plain, ours: Seq2Seq) -> None:
    """Give ours, which must have the same sizes, the weights of the peer."""
    for mine, its in pairs(ours, plain):
        mine.copy_(its)
    for rnn, module in ((ours.encoder.network, plain.encoder), (ours.rnn, plain.decoder)):
        rnn.load_state_dict(RNN.from_torch(module).state_dict())


def pairs(ours: Seq2Seq, plain: Plain) -> Iterator[tuple[Tensor, Tensor]]:
    """Weights that mean the same, all but those of the recurrent networks."""
    attention = ours.attention
    assert isinstance(attention, (Additive, Bilinear))
    yield ours.source.embedding.weight, plain.source.weight
    yield ours.target.embedding.weight, plain.target.weight
    yield from linear(ours.bridge.networks[0], plain.start)
    yield from linear(ours.combine, plain.combine)
    yield ours.weight, plain.output.weight
    yield ours.bias, plain.output.bias
    if isinstance(attention, Bilinear):
        yield attention.matrix.weight, plain.of_keys.weight
    else:
        yield from linear(attention.of_keys, plain.of_keys)
        yield attention.of_query.weight, plain.of_query.weight
        yield attention.v, plain.v


def linear(mine: torch.nn.Linear, its: torch.nn.Linear) -> Iterator[tuple[Tensor, Tensor]]:
    yield mine.weight, its.weight
    yield mine.bias, its.bias
