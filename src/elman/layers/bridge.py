"""From the final state of one RNN to the initial state of another, whatever their shapes."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elman.errors import ArgumentError, ShapeError
from elman.layers.rnn import RNN, NetworkState
from elman.recurrence.contract import Shapes, State
from elman.tensors.checks import check_choice, check_like, is_plain, is_tuple
from elman.tensors.tracing import in_autocast

POLICIES = ("copy", "transform", "zero")


class Bridge(nn.Module):
    """Starts ``target`` from where ``source`` ended; it fits every pair of networks.

    Layers are matched from the top: the target's last layer looks at the source's last one, and
    where the target is deeper its lower layers look at the source's first. From what the matched
    layer offers, every state of the target's layer (and of each of its directions) is made by

    * ``copy``: the state of the same name, or the source's first state where there is none of that
      name. Two directions are put side by side if that gives the width, else added. A narrower
      target takes the first units, a wider one gets zeros for the rest. Nothing is learned.
    * ``transform``: a learned network, ``tanh(W s + b)`` of all states of the layer side by side.
    * ``zero``: zeros; the source does not matter.

    >>> encoder, decoder = RNN("lstm", 4, 8, bidirectional=True), RNN("gru", 4, 10, layers=2)
    >>> bridge = Bridge(encoder, decoder, policy="copy")
    >>> [tuple(s.h.shape) for s in bridge(encoder(torch.randn(3, 5, 4)).state)]
    [(3, 10), (3, 10)]
    """

    def __init__(self, source: RNN, target: RNN, *, policy: str = "transform") -> None:
        super().__init__()
        for name, network in (("source", source), ("target", target)):
            if not isinstance(network, RNN):
                raise ArgumentError(f"{name} is {network!r}; it must be an RNN")
            shapes = network.state_shapes
            if [set(own) for own in shapes] != [{(width,)} for width in network.hidden_sizes]:
                raise ArgumentError(f"{name} has states that are not (B, H), {shapes}; no bridge fits")
        self.policy = check_choice("policy", policy, POLICIES)
        self.source_class, self.source_shapes = source.cell_class, source.state_shapes
        self.source_directions, self.target_directions = source.directions, target.directions
        self.target_states, self.widths = target.cell_class.State, target.hidden_sizes
        self.sources = [max(0, source.layers - target.layers + depth) for depth in range(target.layers)]
        if self.policy == "transform":
            given = source.directions * len(source.cell_class.state)
            wanted = target.directions * len(target.cell_class.state)
            self.networks = nn.ModuleList(
                nn.Linear(given * source.hidden_sizes[place], wanted * width)
                for place, width in zip(self.sources, self.widths, strict=True)
            )

    def forward(self, state: NetworkState) -> NetworkState:
        given, count, layers = self._check(state), len(self.target_states._fields), []
        for depth, (place, width) in enumerate(zip(self.sources, self.widths, strict=True)):
            fields = self._fields(depth, given[place], width)
            starts = range(0, len(fields), count)
            both = tuple(self.target_states(*fields[first : first + count]) for first in starts)
            layers.append(both if self.target_directions == 2 else both[0])
        return tuple(layers)

    def _check(self, state: NetworkState) -> list[list[State]]:
        """By layer, the source's directions; each state must be one of the source's."""
        layers = []
        fits = is_tuple(state, len(self.source_shapes))
        for given, shapes in zip(state, self.source_shapes, strict=True) if fits else ():
            directions = given if self.source_directions == 2 else (given,)
            fits = fits and is_tuple(directions, self.source_directions)
            fits = fits and all(_has_shapes(one, shapes) for one in directions)
            layers.append([self.source_class.State(*one) for one in directions] if fits else [])
        if not fits:
            raise ShapeError(
                f"state is not one of the source, which has {len(self.source_shapes)} layers of "
                f"{self.source_directions} × State({', '.join(self.source_class.state)}) "
                f"in the shapes {self.source_shapes} after the batch"
            )
        fields = [field for directions in layers for one in directions for field in one]
        own = next(self.parameters(), None)  # only a transformation has any
        for field in fields if not in_autocast(fields[0]) else ():
            check_like("state", field, "the bridge", fields[0] if own is None else own)
        for field in fields:
            if len(field) != len(fields[0]):
                raise ShapeError(f"state has {len(fields[0])} rows here and {len(field)} there")
        return layers

    def describe(self) -> list[str]:
        """One line a layer of the target: where its start comes from."""
        if self.policy == "zero":
            return [f"layer {depth}: zero ({width})" for depth, width in enumerate(self.widths)]
        return [
            f"layer {depth}: {self.policy} of source layer {place}, {self.source_directions} × "
            f"({', '.join(self.source_class.state)}) → {self.target_directions} × "
            f"({', '.join(self.target_states._fields)}) of width {width}"
            for depth, (place, width) in enumerate(zip(self.sources, self.widths, strict=True))
        ]

    def _fields(self, depth: int, given: list[State], width: int) -> list[Tensor]:
        names = self.target_states._fields
        first = given[0][0]
        if self.policy == "zero":
            count = self.target_directions * len(names)
            return [first.new_zeros(len(first), width) for _ in range(count)]
        if self.policy == "transform":
            joined = torch.cat([field for direction in given for field in direction], -1)
            return list(torch.tanh(self.networks[depth](joined)).split(width, -1))
        return [_copy(given, name, width) for name in names] * self.target_directions


def _has_shapes(state: Any, shapes: Shapes) -> bool:
    fits = is_tuple(state, len(shapes))
    return fits and all(is_plain(f) and f.shape[1:] == shape for f, shape in zip(state, shapes, strict=True))


def _copy(given: list[State], name: str, width: int) -> Tensor:
    names = given[0]._fields  # not getattr: a tuple has a count and an index of its own
    parts = [direction[names.index(name) if name in names else 0] for direction in given]
    H = parts[0].shape[-1]
    value = torch.cat(parts, -1) if H * len(parts) == width else torch.stack(parts).sum(0)
    return F.pad(value[..., :width], (0, max(0, width - value.shape[-1])))
