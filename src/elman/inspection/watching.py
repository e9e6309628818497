"""A copy of a model whose cells run in the plain loop and write down what every equation gave."""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from inspect import unwrap
from types import CodeType, FrameType
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elman.cells.base import Cell
from elman.errors import ArgumentError, nearest
from elman.layers.rnn import RNN
from elman.models.embedding import Embedding, Words
from elman.recurrence.contract import NO_NOISE, LoopCell, Noise, Product, State, StepInput, Unrolled
from elman.recurrence.loop import unroll_parts
from elman.recurrence.replay import Replay
from elman.recurrence.symbols import Graph, Node, Symbol
from elman.recurrence.trace import Equations, nodes_of, trace
from elman.tensors.rows import fill_padding, zero_padding


class Clamp(NamedTuple):
    """A unit, counted from 1, of a named gate or state that is held at a value at every step.

    layer, counted from 1; None: in all layers.

    >>> Clamp.read("c:3=0"), Clamp.read("2.f:17=-0.5")
    (Clamp(name='c', unit=3, value=0.0, layer=None), Clamp(name='f', unit=17, value=-0.5, layer=2))
    """

    name: str
    unit: int
    value: float
    layer: int | None = None

    @classmethod
    def read(cls, text: str) -> Clamp:
        try:
            place, value = text.split("=")
            name, unit = place.split(":")
            layer, _, name = name.rpartition(".")
            found = cls(name, int(unit), float(value), int(layer) if layer else None)
        except ValueError:
            raise ArgumentError(
                f"clamp is {text!r}; it must be as c:3=0 (unit 3 of c), or 2.c:3=0 in the second layer alone"
            ) from None
        if not math.isfinite(found.value):
            raise ArgumentError(f"clamp is {text!r}; a unit is held at a finite number, as in c:3=0")
        return found

    def hold(self, value: Tensor) -> Tensor:
        held = value.expand(*value.shape[:-1], value.shape[-1]).clone()
        held[..., self.unit - 1] = self.value
        return held


@dataclass
class Track:
    """One cell on its way through time.

    gates: of every step, in the order of time's positions, the values (B, H) that equations name.
    states: after every step. start: before the first. inputs: (B, D) of every step.
    """

    inputs: list[Tensor] = field(default_factory=list)
    gates: list[dict[str, Tensor]] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    start: State | None = None

    def joined(self, other: Track) -> Track:
        start = other.start if self.start is None else self.start
        return Track(self.inputs + other.inputs, self.gates + other.gates, self.states + other.states, start)


class WatchedCell:
    """Stands in the loop for a cell, and writes down what its equations give."""

    def __init__(self, cell: Cell, clamps: Sequence[Clamp]) -> None:
        self.cell, self.clamps = cell, clamps
        self.State, self.Inputs, self.Products = cell.State, cell.Inputs, cell.Products
        self.replay: Replay | None = None
        self.named: dict[str, Node] = {}
        names = cell.state
        if cell.equations is not None:
            equations, self.named = named_equations(cell)
            vectors, matrices = (
                tuple(getattr(cell, name) for name in own) for own in (cell.vectors, cell.matrices)
            )
            self.replay = Replay(cell, equations, vectors, matrices)
            self.replay.held = _held(clamps, self.named)
            names = (*names, *(name for name in self.named if name not in names))
        for clamp in clamps:
            if clamp.name not in names:
                raise ArgumentError(
                    f"clamp: no gate or state is called {clamp.name!r}; {nearest(clamp.name, names)}"
                )
            if not 1 <= clamp.unit <= cell.hidden_size:
                raise ArgumentError(
                    f"clamp: there is no unit {clamp.unit}; there are 1 to {cell.hidden_size}"
                )
        self.codes = {
            unwrap(own).__code__ for kind in type(cell).__mro__ if (own := vars(kind).get("step")) is not None
        }
        self.step_of: LoopCell = cell
        self.incoming: list[State] = []
        self.gates: list[dict[str, Tensor]] = []

    def learned_matrices(self) -> Mapping[str, Tensor]:
        return self.cell.learned_matrices()

    def at_hand(self, multiply: Mapping[str, Callable[[Tensor], Tensor]]) -> WatchedCell:
        self.step_of = (self.replay or self.cell).at_hand(multiply)
        return self

    def step(self, x: StepInput, s: State, product: Product) -> State:
        self.incoming.append(s)
        if self.replay is not None:
            values = self.replay.values(x, s, product)
            new = self.State(*(values[self.named[name].index] for name in self.State._fields))
            found: dict[str, object] = {name: values[node.index] for name, node in self.named.items()}
        else:
            with _locals_of(self.codes) as found:
                new = self.step_of.step(x, s, product)
            for clamp in self.clamps:
                new = new._replace(**{clamp.name: clamp.hold(getattr(new, clamp.name))})
        shape, fields = (len(s[0]), self.cell.hidden_size), self.State._fields
        wide = {n: v for n, v in found.items() if isinstance(v, Tensor) and v.shape == shape}
        self.gates.append({n: v for n, v in wide.items() if v.is_floating_point() and n not in fields})
        return self.State(*(torch.as_tensor(part).clone() for part in new))  # what later steps read

    def unroll(
        self, x: Tensor, state: State, lengths: Tensor | None, *, reverse: bool, noise: Noise
    ) -> tuple[State, State, Track]:
        """The states of all steps, the final one, and the track."""
        self.incoming, self.gates = [], []
        cell = self.cell
        x = x if lengths is None else fill_padding(x, lengths)
        states, final = unroll_parts(
            self, cell.project(x), cell.W_h, state, lengths, reverse=reverse, noise=noise
        )
        after, gates = [*self.incoming[1:], final], self.gates
        order = slice(None, None, -1 if reverse else 1)
        return states, final, Track([*x.unbind(1)], gates[order], after[order], state)


class Watch:
    """A model to look into: a copy in float64 that runs as in evaluation, and what its cells did.

    >>> watch = Watch(RNN("lstm", 3, 4))
    >>> _ = watch.model(torch.randn(1, 5, 3).double())
    >>> [track] = watch.tracks(watch.model, steps=5)
    >>> sorted(track[0].gates[0]), len(track[0].states)
    (['f', 'i', 'o', 'z'], 5)
    """

    def __init__(self, model: nn.Module, clamps: Sequence[Clamp] = (), *, double: bool = True) -> None:
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        if double:
            self.model.double()
        self._calls: dict[int, list[Track]] = {}
        networks = [one for one in self.model.modules() if isinstance(one, RNN)]
        deepest = max((network.layers for network in networks), default=0)
        for clamp in clamps:
            if not deepest:
                raise ArgumentError("clamp: the network is not recurrent; it has no gate or state to hold")
            if clamp.layer is not None and not 1 <= clamp.layer <= deepest:
                raise ArgumentError(f"clamp: there is no layer {clamp.layer}; there are 1 to {deepest}")
        letters = [one.spelling for one in self.model.modules() if isinstance(one, Words)]
        for network in self.model.modules():
            if isinstance(network, Embedding) and network.weight is None and double:
                network.__dict__["forward"] = partial(_one_hot, network.V)
            if isinstance(network, RNN) and network not in letters:  # whatever reads the letters of words
                network.backend, network.piece = "loop", None
                for depth in range(network.layers):
                    own = [clamp for clamp in clamps if clamp.layer in (None, depth + 1)]
                    for cell in network.all_cells()[depth * network.directions :][: network.directions]:
                        self._watch(cell, own)

    def tracks(self, network: RNN, steps: int) -> list[list[Track]]:
        """By layer and direction what the cells of a network did in their next so many steps."""
        found = [self._next(cell, steps) for cell in network.all_cells()]
        return [
            found[first : first + network.directions] for first in range(0, len(found), network.directions)
        ]

    def clear(self) -> None:
        for calls in self._calls.values():
            calls.clear()

    def _next(self, cell: Cell, steps: int) -> Track:
        calls, found = self._calls[id(cell)], Track()
        while len(found.states) < steps:
            found = found.joined(calls.pop(0))
        return found

    def _watch(self, cell: Cell, clamps: Sequence[Clamp]) -> None:
        watched, calls = WatchedCell(cell, clamps), self._calls.setdefault(id(cell), [])

        def forward(
            x: Tensor,
            state: State | None = None,
            lengths: Tensor | None = None,
            *,
            reverse: bool = False,
            noise: Noise = NO_NOISE,
            backend: str = "loop",
        ) -> Unrolled:
            start = cell.initial_state(len(x), x) if state is None else cell.State(*state)
            if torch.is_grad_enabled() and not any(part.requires_grad for part in (x, *start)):
                start = cell.State(*(part.clone().requires_grad_() for part in start))
            noise = noise.applied(cell, cell.W_h)
            states, final, track = watched.unroll(x, start, lengths, reverse=reverse, noise=noise)
            calls.append(track)
            rows = cell.State(*(part.flatten(0, 1) for part in states))
            outputs = cell.O(rows).unflatten(0, x.shape[:2])
            return Unrolled(zero_padding(outputs, lengths), cell.O(final), final)

        cell.__dict__["forward"] = forward
        cell.register_forward_pre_hook(
            lambda *_: None
        )  # cells that somebody listens to are called one by one


def _one_hot(V: int, ids: Tensor) -> Tensor:
    return F.one_hot(ids, V).double()


def named_equations(cell: Cell) -> tuple[Equations, dict[str, Node]]:
    """The equations as R writes them, and the values in them that have a name there: states and variables."""
    graph = Graph()
    codes = {unwrap(own).__code__ for kind in type(cell).__mro__ if (own := vars(kind).get("R")) is not None}
    with _locals_of(codes) as found:
        equations = trace(
            cell.with_symbols(graph).R,
            graph=graph,
            state=cell.State,
            gates=cell.gates,
            vectors=cell.vectors,
            matrices=cell.matrices,
        )
    read = {node.index for node in nodes_of(equations)}
    named = dict(zip(cell.state, equations.results, strict=True))
    for name, value in found.items():
        if isinstance(value, Symbol) and value.value is None and value.node.index in read:
            if name not in named:
                named[name] = value.node
            elif named[name] is not value.node:  # a variable that is called as a state, and is not it
                named[f"{name}*"] = value.node
    return equations, named


def _held(clamps: Sequence[Clamp], named: Mapping[str, Node]) -> dict[int, Callable[[Tensor], Tensor]]:
    """By node what clamps make of its value, one after the other."""
    held: dict[int, Callable[[Tensor], Tensor]] = {}

    def then(first: Callable[[Tensor], Tensor] | None, clamp: Clamp) -> Callable[[Tensor], Tensor]:
        return clamp.hold if first is None else lambda value: clamp.hold(first(value))

    for clamp in clamps:
        if clamp.name in named:
            held[named[clamp.name].index] = then(held.get(named[clamp.name].index), clamp)
    return held


@contextmanager
def _locals_of(codes: set[CodeType]) -> Iterator[dict[str, object]]:
    """Collects the variables that these functions have when they return."""
    found: dict[str, object] = {}
    before = sys.getprofile()

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "return" and frame.f_code in codes:
            found.update(frame.f_locals)

    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(before)
