"""Decoders with attention, all steps with the truth fed: ours, and one as it is written in plain PyTorch.

Embedding and readout belong to both, the layer of outputs to neither. Sources are as long as targets, and no
row is padded: a plain decoder would gain nothing by it.
"""

from __future__ import annotations

from copy import deepcopy
from typing import NamedTuple

import torch
from torch import Tensor, nn

from elman.attention.additive import Additive
from elman.attention.bilinear import Bilinear
from elman.attention.dot import Dot
from elman.attention.location import Location
from elman.bench.cases import OUR_LOOP, Case
from elman.bench.contenders import DTYPES, Values
from elman.bench.runs import COMPARED, Errors, worst_error
from elman.config import ModelSettings
from elman.models.embedding import Tokens
from elman.models.seq2seq import Seq2Seq, Source
from elman.recurrence.unroll import walk_backend
from elman.tensors.nested import map_tensors

VOCABULARY = 50
USED = ("source.embedding.", "_rnn.", "attention.", "combine.")  # parameters of what is timed


class Given(NamedTuple):
    """What a decoder is given; rows on axis 0: tokens (B, T), source (B, S, 2H) and start (B, H) each.

    Lengths (B,) are on the host, as batches have them; padding (B, S) is where the source lies.
    """

    ids: Tensor
    lengths: Tensor
    padding: Tensor
    values: Tensor
    h: Tensor
    c: Tensor
    d_readouts: Tensor  # (B, T, H)


class OurDecoder(nn.Module):
    """Seq2Seq without its encoder."""

    def __init__(self, model: Seq2Seq) -> None:
        super().__init__()
        self.model = model

    def forward(self, given: Given) -> Tensor:
        """Readouts (B, T, H)."""
        model, attention = self.model, self.model.attention
        assert attention is not None
        memory = attention.remember(given.values, given.lengths)
        start = model.rnn.cell_class.State(given.h, given.c)
        readouts: Tensor = model(Source(memory, None, (start,)), given.ids, given.lengths)
        return readouts.view(*given.ids.shape, -1)

    def leaves(self) -> Values:
        named = self.model.named_parameters()
        return {name.removeprefix("_"): p for name, p in named if name.startswith(USED)}

    def translate(self, gradients: Values) -> Values:
        return gradients


class PlainDecoder(nn.Module):
    """The same with an ``nn.LSTMCell``: keys are made once a source, and what no step waits for, at the end.

    Its linear layers are copies of ours; what it does with them is its own.
    """

    def __init__(self, model: Seq2Seq) -> None:
        super().__init__()
        lstm = model.rnn.to_torch()
        self.cell = nn.LSTMCell(lstm.input_size, lstm.hidden_size)
        own = {name.removesuffix("_l0"): t for name, t in lstm.state_dict().items()}
        self.cell.load_state_dict(own)
        self.cell.to(next(lstm.parameters()))
        vectors = model.source.embedding.weight
        assert vectors is not None
        self.embedding = nn.Embedding.from_pretrained(vectors.detach().clone(), freeze=False)
        self.attention, self.combine = deepcopy(model.attention), deepcopy(model.combine)
        self.feeding = model.feeding

    def forward(self, given: Given) -> Tensor:
        """Readouts (B, T, H)."""
        combine, values, h, c = self.combine, given.values, given.h, given.c
        assert combine is not None
        keys, weights, readout = self._keys(values), None, h.new_zeros(len(h), combine.out_features)
        found, contexts = [], []
        for x_t in self.embedding(given.ids).unbind(1):
            scores = self._scores(h, keys, weights)
            weights = scores.masked_fill(given.padding, -torch.inf).softmax(-1)
            context = torch.bmm(weights[:, None], values)[:, 0]
            entering = [x_t, context, readout] if self.feeding else [x_t, context]
            h, c = self.cell(torch.cat(entering, -1), (h, c))
            if self.feeding:
                readout = torch.tanh(combine(torch.cat([h, context], -1)))
            found.append(readout if self.feeding else h)
            contexts.append(context)
        y = torch.stack(found, 1)
        return y if self.feeding else torch.tanh(combine(torch.cat([y, torch.stack(contexts, 1)], -1)))

    def _keys(self, values: Tensor) -> Tensor:
        """What the score needs of the source, once."""
        score, keys = self.attention, values
        if isinstance(score, Additive):
            keys = score.of_keys(values)
        elif isinstance(score, Bilinear):
            keys = score.matrix(values)
        return keys

    def _scores(self, h: Tensor, keys: Tensor, last: Tensor | None) -> Tensor:
        """(B, S), of where it looked last if that counts."""
        score, query = self.attention, h
        if isinstance(score, Additive):
            if isinstance(score, Location) and last is not None:
                keys = keys + score.of_filters(score.filters(last[:, None]).mT)
            return torch.tanh(score.of_query(h)[:, None] + keys) @ score.v
        if isinstance(score, Dot) and score.projection is not None:
            query = score.projection(h)
        return torch.bmm(keys, query[:, :, None])[:, :, 0]

    def leaves(self) -> Values:
        return dict(self.named_parameters())

    def translate(self, gradients: Values) -> Values:
        own = {name: t for name, t in gradients.items() if name.startswith(USED)}
        cell = {"W_x": "weight_ih", "W_h": "weight_hh", "b": "bias_ih"}
        own |= {f"rnn.cells.0.0.{name}": gradients[f"cell.{theirs}"].t() for name, theirs in cell.items()}
        return own | {"source.embedding.weight": gradients["embedding.weight"]}


class DecoderRun:
    """A decoder on one batch; calling it runs it once, forward and backward."""

    def __init__(self, decoder: OurDecoder | PlainDecoder, given: Given) -> None:
        values, h, c = (t.clone().requires_grad_() for t in (given.values, given.h, given.c))
        self.decoder, self.given = decoder, given._replace(values=values, h=h, c=c)
        self.parameters = decoder.leaves()
        self.leaves = (values, h, c, *self.parameters.values())

    def __call__(self) -> tuple[Tensor, tuple[Tensor, ...]]:
        readouts = self.decoder(self.given)
        arriving = self.given.d_readouts
        return readouts, torch.autograd.grad(readouts, self.leaves, arriving, materialize_grads=True)

    def values(self) -> Values:
        """All that it computes, under Elman's names."""
        readouts, (d_values, d_h, d_c, *others) = self()
        own = self.decoder.translate(dict(zip(self.parameters, others, strict=True)))
        found = {"readouts": readouts, "d_values": d_values, "d_h": d_h, "d_c": d_c}
        return {name: t.detach() for name, t in (found | {f"d {n}": t for n, t in own.items()}).items()}


class Decoders(NamedTuple):
    """Ours and the peer on the same numbers, and ours as the definition has it, still to be run."""

    ours: DecoderRun
    peer: DecoderRun
    reference: OurDecoder


def make_model(case: Case) -> Seq2Seq:
    """A fresh model of which the decoder is one that a case names."""
    score, _, fed = case.ours.partition(" with ")
    settings = ModelSettings(cell="lstm", hidden=case.H)
    encoder = ModelSettings(cell="lstm", hidden=case.H, bidirectional=True)
    tokens = Tokens(VOCABULARY, case.H)
    return Seq2Seq(tokens, None, encoder, settings, attention=score, feeding=bool(fed)).eval()


def build_decoders(case: Case, device: str = "cpu") -> Decoders:
    torch.manual_seed(1)
    dtype = DTYPES[case.precision]
    model = make_model(case).to(device, dtype)
    exact, looped = deepcopy(model).double(), deepcopy(model)
    exact.rnn.backend = looped.rnn.backend = "loop"
    peer = OurDecoder(looped) if case.peer == OUR_LOOP else PlainDecoder(model)
    B, T, H = case.B, case.T, case.H
    ids, lengths = torch.randint(VOCABULARY, (B, T)), torch.full((B,), T)
    shapes = ((B, T, 2 * H), (B, H), (B, H), (B, T, H))
    floats = (0.5 * torch.randn(shape) for shape in shapes)
    padding = torch.zeros(B, T, dtype=torch.bool, device=device)
    given = Given(ids.to(device), lengths, padding, *(t.to(device, dtype) for t in floats))
    ours = OurDecoder(model)
    return Decoders(DecoderRun(ours, given), DecoderRun(peer, given), OurDecoder(exact))


def compare_decoders(case: Case, decoders: Decoders) -> Errors:
    """As ``runs.compare`` does it: gradients arrive at the few rows that the float64 loop computes."""
    ours, peer, reference = decoders
    which = [b for b in range(case.B) if b < COMPARED // 2 or b >= case.B - COMPARED // 2]
    given = map_tensors(torch.Tensor.detach, ours.given)
    few = map_tensors(lambda t: t[which].double() if t.is_floating_point() else t[which], given)
    alone = torch.zeros_like(given.d_readouts)
    alone[which] = given.d_readouts[which]
    expected = DecoderRun(reference, few).values()

    def error(run: DecoderRun) -> float:
        found = DecoderRun(run.decoder, given._replace(d_readouts=alone)).values()
        return worst_error({n: t if n.startswith("d ") else t[which] for n, t in found.items()}, expected)

    beside = None if case.precision else worst_error(ours.values(), peer.values())
    return Errors(beside, error(ours), error(peer))


def count_products(case: Case, decoder: OurDecoder) -> tuple[int, int]:
    """Multiplications of a step in one row, and the weights that every step has to read.

    Matrices multiply every position of target or source once; then there are scores and contexts of all
    positions of the source, which are T as well.
    """
    model = decoder.model
    matrices = [p for name, p in decoder.leaves().items() if p.dim() == 2 and "embedding" not in name]
    assert model.attention is not None
    keys = model.attention.keys(model.bias.new_zeros(1, 1, 2 * case.H)).shape[-1]
    recurrent = sum(p.numel() for name, p in decoder.leaves().items() if name.endswith("W_h"))
    return sum(p.numel() for p in matrices) + case.T * (keys + 2 * case.H), recurrent


def explain_decoder(case: Case, device: str) -> list[str]:
    """Which way a decoder takes, and why no faster one."""
    decoder = make_model(case).to(device, DTYPES[case.precision]).decoder
    obstacle = decoder.obstacle()
    like = torch.empty(0, device=device, dtype=DTYPES[case.precision])
    backend = walk_backend("auto", like)
    if obstacle is None and backend is not None:
        return [f"taken: one walk over all of time, backend {backend.name}"]
    return [f"taken: step by step: {obstacle or f'no backend walks a composed step on {device}'}"]
