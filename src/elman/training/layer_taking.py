"""Layers of a recurrent network that start from those of another one, direction by direction."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from elman.cells.base import Cell
from elman.layers.rnn import RNN

INPUTS = "W_x"  # weights of a cell whose rows are its inputs


class Span(NamedTuple):
    """Inputs of an old network that are inputs of a new one: which of them go where."""

    old: Tensor
    new: Tensor
    known: Tensor  # inputs of the new one that stand for the same kind of thing, some of them new


def take_layers(new: RNN, old: RNN, spans: Sequence[Span], *, backwards: bool) -> list[tuple[int, int]]:
    """Copy the layers that fit, from the first one up; which they are, as (depth, direction).

    ``spans`` tell which inputs of the first layers are the same. An input that the old network did not have
    starts with weights of zero: at first, a layer computes what it did. ``backwards``: the old network, of
    one direction, becomes the second one of the new.
    """
    if new.cell_class.__qualname__ != old.cell_class.__qualname__:  # a user's may have been read twice
        return []
    taken: list[tuple[int, int]] = []
    for theirs, ours in _directions(new, old, backwards=backwards):
        for depth in range(min(new.layers, old.layers)):
            inputs = spans if depth == 0 else _outputs_of(new, old, depth - 1, ours)
            cells = _cell(new, depth, ours), _cell(old, depth, theirs)
            if inputs is None or not _take_cell(*cells, inputs):
                break
            _take_start(new, old, (depth, ours), (depth, theirs))
            taken.append((depth, ours))
    return taken


def _directions(new: RNN, old: RNN, *, backwards: bool) -> Iterator[tuple[int, int]]:
    """Pairs of directions, of the old network and of the new."""
    if old.bidirectional:
        yield from zip(range(2), range(new.directions), strict=False)
    elif new.bidirectional or not backwards:
        yield 0, int(backwards)


def _outputs_of(new: RNN, old: RNN, depth: int, direction: int) -> list[Span] | None:
    """Which outputs of a layer are the same; None where the layer above needs one that is not there."""
    widths = [_cell(one, depth, 0).output_size for one in (new, old)]
    if widths[0] != widths[1] or (old.bidirectional and not new.bidirectional):
        return None
    count = old.directions * widths[0]
    place = torch.arange(count) + (direction * widths[0] if not old.bidirectional else 0)
    return [Span(torch.arange(count), place, place)]


def _cell(rnn: RNN, depth: int, direction: int) -> Cell:
    return rnn.all_cells()[depth * rnn.directions + direction]


def _take_cell(new: Cell, old: Cell, spans: Sequence[Span]) -> bool:
    """Copy all weights of a cell, or none."""
    ours, theirs = dict(new.named_parameters()), dict(old.named_parameters())
    moved = new.input_size != old.input_size or any(not torch.equal(one.old, one.new) for one in spans)
    for name, weight in ours.items():
        shape, other = weight.shape, theirs[name].shape if name in theirs else None
        if other is None or (shape != other and (name != INPUTS or shape[1:] != other[1:])):
            return False
    if ours.keys() != theirs.keys() or (moved and INPUTS not in ours):
        return False
    for name, weight in ours.items():
        if name != INPUTS:
            weight.copy_(theirs[name])
            continue
        strange = torch.ones(len(weight), dtype=torch.bool)
        for span in spans:
            weight[span.new] = theirs[name][span.old]
            strange[span.known] = False
        weight[strange] = 0.0
    return True


def _take_start(new: RNN, old: RNN, ours: tuple[int, int], theirs: tuple[int, int]) -> None:
    """The learned first state, where both have one."""
    if new.initial_state != "learned" or old.initial_state != "learned":
        return
    count = len(new.cell_class.state)
    first, other = (
        (depth * rnn.directions + direction) * count
        for rnn, (depth, direction) in ((new, ours), (old, theirs))
    )
    for number in range(count):
        new.starts[first + number].copy_(old.starts[other + number])
