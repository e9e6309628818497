"""A decoder as one recurrence: cells, the attention between their steps and what is fed back, in one step.

The step is composed of the equations of its parts, so that it is one walk over all of time on any backend
that serves it. Values of the source that attention finds enter the first layer through weights, so these
multiply the source once, before the walk: what a step adds up is already parts of gates.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from elman.attention.base import Attention, Memory
from elman.cells.base import Cell
from elman.errors import EquationError
from elman.layers.dropout import keep_mask
from elman.layers.rnn import RNN
from elman.recurrence.contract import Noise
from elman.recurrence.heads import whole_matrix
from elman.recurrence.looks import POSITIONS
from elman.recurrence.phases import rebuild
from elman.recurrence.scores import KEYS, TracedScore, tensors_of, trace_score
from elman.recurrence.symbols import Graph, Node, Symbol
from elman.recurrence.trace import Equations, add_zoneout, whole
from elman.recurrence.unroll import walk_backend
from elman.recurrence.walk import Walk, walk_by_torch
from elman.tensors.draws import step_dropout
from elman.tensors.products import affine
from elman.tensors.rows import RealSteps
from elman.tensors.tracing import extraordinary
from elman.tensors.transfer import moved

VALUES, WEIGHTS, READOUT = "V", "weights", "readout"


class Decoded(NamedTuple):
    """Of all real steps: outputs (N, ·), weights of attention (N, S), and the readouts that were fed back."""

    outputs: Tensor
    weights: Tensor | None
    readouts: Tensor | None


@dataclass
class Composition:
    """A decoder's step: its equations, where the parts of its tensors lie, and what its score reads."""

    equations: Equations
    blocks: dict[str, tuple[str, int, int]]
    dims: dict[str, int]
    score: TracedScore | None


@dataclass
class Decoder:
    """The recurrence of a decoder.

    before: the previous output asks, and what is found enters the first layer; otherwise the new output asks.
    combine: makes a readout of output and context, which is fed back where ``feeding``.
    """

    rnn: RNN
    attention: Attention | None
    before: bool
    feeding: bool
    combine: nn.Linear | None
    _composed: dict[Hashable, Composition] = field(default_factory=dict)

    @property
    def parts(self) -> tuple[Any, ...]:
        return self.rnn, self.attention, self.before, self.feeding, self.combine

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_composed": {}}  # kernels stay where they were made

    def obstacle(self) -> str | None:
        """Why this decoder is no single walk, or None."""
        for cell in self.rnn.all_cells():
            if cell.equations is None:
                return f"{type(cell).__name__} is a free-form cell"
            if cell.projects_itself or cell.reads_whole_state:
                return f"{type(cell).__name__} has a project or an O of its own"
            if cell.has_hooks:
                return f"{type(cell).__name__} has hooks"
        if self.attention is not None and any(map(_has_hooks, self.attention.modules())):
            return f"{type(self.attention).__name__} has hooks"
        try:
            self._compose([Noise()] * self.rnn.layers, [None] * self.rnn.layers)
        except EquationError as error:
            return f"the attention {type(self.attention).__name__} cannot be read: {error.args[0]}"
        return None

    def run(
        self,
        x: Tensor,
        lengths: Tensor | None,
        steps: RealSteps,
        state: Any,
        memory: Memory | None,
        sources: Tensor | None,
    ) -> Decoded | None:
        """All steps, or None where nobody serves.

        x (B, T, ·) is what the first layer reads besides context and readout; ``lengths`` (B,), where they
        differ, and ``steps`` say which steps are real; ``sources`` (B,) are the real positions of the memory.
        """
        B, T, _ = x.shape
        rnn, cells, training = self.rnn, self.rnn.all_cells(), self.rnn.training
        backend = walk_backend(rnn.backend, x)
        if backend is None:  # before anything is drawn
            return None
        noises = [rnn.regularisers.draw(cell, B, T, x, training=training) for cell in cells]
        rates = [rnn.regularisers.before(depth) if training else 0.0 for depth in range(rnn.layers)]
        masks = [keep_mask(x, B, cell.input_size, rate) for cell, rate in zip(cells, rates, strict=True)]
        dropped = rnn.dropout if training else 0.0
        made = self._compose(noises, masks, dropped)
        tensors = self._tensors(made, x, steps, state, memory, noises, masks, dropped)
        dims = made.dims | ({} if memory is None else {POSITIONS: memory.mask.shape[1]})
        top = f"{len(cells) - 1}.{cells[-1].state[0]}"
        shown = tuple(n for n in (top, WEIGHTS, READOUT) if n in made.equations.states)
        lengths = None if lengths is None else moved(lengths, x.device)
        walk = Walk(steps, dims, shown, False, lengths, sources)
        plain = extraordinary(*tensors.values()) is None
        run = backend.walk if plain else walk_by_torch
        found = dict(zip(shown, run(made.equations, made.blocks, walk, tensors), strict=False))
        return Decoded(found[top], found.get(WEIGHTS), found.get(READOUT))

    # ---- the step --------------------------------------------------------------------------------

    def _compose(
        self, noises: Sequence[Noise], masks: Sequence[Tensor | None], dropped: float = 0.0
    ) -> Composition:
        cells = self.rnn.all_cells()
        masked = tuple(mask is not None for mask in masks)
        kinds = tuple((tuple(noise.rates.items()), noise.mask is not None) for noise in noises)
        options = [] if self.attention is None else [(self.attention, *_options(self.attention))]
        key = (*(cell.equations for cell in cells), kinds, masked, dropped > 0, *options)
        if key not in self._composed:
            self._composed[key] = _Composer(self, noises, masked, dropped > 0).compose()
        return self._composed[key]

    def _tensors(
        self,
        made: Composition,
        x: Tensor,
        steps: RealSteps,
        state: Any,
        memory: Memory | None,
        noises: Sequence[Noise],
        masks: list[Tensor | None],
        dropped: float,
    ) -> dict[str, Tensor | None]:
        """All that a walk reads, by name."""
        cells = self.rnn.all_cells()
        B, _, E = x.shape
        C = 0 if memory is None or not self.before else memory.values.shape[-1]
        R = self._readout_size() if self.feeding else 0
        W_x, mask = cells[0].W_x, masks[0]
        assert W_x is not None
        own = x if mask is None else x * mask[:, None, :E]
        rows, (of_x, of_context, of_readout) = steps.rows(own), W_x.split((E, C, R))
        tensors: dict[str, Tensor | None] = {"x": affine(rows, of_x, cells[0].b)}
        if memory is not None:
            tensors[KEYS] = memory.keys
        if C and memory is not None:
            values = memory.values if mask is None else memory.values * mask[:, None, E : E + C]
            tensors[VALUES] = _by_position(values, of_context)
        if R:
            tensors["fed"] = of_readout
            tensors["k fed"] = None if mask is None else mask[:, E + C :]
            tensors[f"initial {READOUT}"] = x.new_zeros(B, R)
            tensors |= self._readout_tensors(memory)
        if memory is not None:
            tensors[f"initial {WEIGHTS}"] = x.new_zeros(B, memory.mask.shape[1])
        for depth, (cell, noise) in enumerate(zip(cells, noises, strict=True)):
            tensors |= _of_cell(cell, noise, depth, steps, x)
            tensors |= {f"initial {depth}.{n}": t for n, t in zip(cell.state, state[depth], strict=True)}
            if depth:
                tensors[f"k {depth}.in"] = masks[depth]
                if dropped:
                    tensors[f"n {depth}.in"] = step_dropout(
                        x.new_ones(steps.N, cell.input_size), dropped, True, steps.T
                    )
        if made.score is not None:
            assert self.attention is not None
            tensors |= tensors_of(made.score, self.attention)
        return {name: t for name, t in tensors.items() if t is not None}

    def _readout_tensors(self, memory: Memory | None) -> dict[str, Tensor | None]:
        if self.combine is None:
            return {}
        H, weight = self.rnn.output_size, self.combine.weight.t()
        found: dict[str, Tensor | None] = {"combine": weight[:H], "v combine": self.combine.bias}
        return found if memory is None else found | {"read": _by_position(memory.values, weight[H:])}

    def _readout_size(self) -> int:
        return self.rnn.output_size if self.combine is None else self.combine.out_features


def _by_position(values: Tensor, weight: Tensor) -> Tensor:
    """Values (B, S, ·) times weights, as one large product."""
    return affine(values.flatten(0, 1), weight).view(*values.shape[:2], weight.shape[1])


def _options(attention: Attention) -> list[tuple[str, bool | float | str]]:
    """The plain numbers and words of an attention: when one changes, its score is read anew."""
    return [(n, v) for n, v in vars(attention).items() if isinstance(v, (bool, int, float, str))]


def _has_hooks(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks or module._backward_hooks)


def _of_cell(
    cell: Cell, noise: Noise, depth: int, steps: RealSteps, like: Tensor
) -> dict[str, Tensor | None]:
    """The tensors of one layer, by the names that they have in the step."""
    e, (W_x, b, W_h, others) = cell.equations, cell.weights()
    assert e is not None
    W_h = W_h if noise.weight is None else noise.weight
    found: dict[str, Tensor | None] = {
        f"{depth}.W_h": None if W_h is None else whole_matrix(W_h, len(e.products))
    }
    found |= {f"v {depth}.{name}": t for name, t in zip(e.vectors, others, strict=False)}
    matrices = dict(zip(e.matrices, others[len(e.vectors) :], strict=True)) | dict(noise.matrices)
    found |= {f"{depth}.{name}": whole_matrix(t) for name, t in matrices.items()}
    found[f"k {depth}.h"] = noise.mask
    drawn = {name: z for name, z in noise.zoneout.items() if isinstance(z, Tensor)}
    found |= {f"n {depth}.{name}": steps.rows(z).to(like.dtype) for name, z in drawn.items()}
    if depth:
        found[f"{depth}.W_x"] = W_x
        parts = [] if b is None else b.chunk(len(e.inputs))
        found |= {f"v {depth}.b.{gate}": part for gate, part in zip(e.inputs, parts, strict=False)}
    return found


class _Composer:
    """Writes the step of a decoder out of the steps of its cells."""

    def __init__(
        self, decoder: Decoder, noises: Sequence[Noise], masked: tuple[bool, ...], dropped: bool
    ) -> None:
        self.d, self.noises, self.dropped = decoder, noises, dropped
        self.masked = masked
        self.graph = Graph()
        self.cells = decoder.rnn.all_cells()
        self.blocks: dict[str, tuple[str, int, int]] = {}
        self.dims = {str(cell.hidden_size): cell.hidden_size for cell in self.cells}
        self.score: TracedScore | None = None
        self.vectors: list[str] = []
        self.noise: list[str] = []

    def compose(self) -> Composition:
        d, graph, cells = self.d, self.graph, self.cells
        top, width = len(cells) - 1, str(cells[-1].hidden_size)
        before = graph.leaf("s", f"{top}.{cells[-1].state[0]}", width)
        weights = self._weights(before) if d.attention is not None and d.before else None
        states: dict[str, Node] = {}
        value: Symbol | None = None
        for depth, cell in enumerate(cells):
            new = self._layer(depth, cell, value, weights)
            states |= {f"{depth}.{name}": s.node for name, s in zip(cell.state, new, strict=True)}
            value = new[0]
        assert value is not None
        if d.attention is not None:
            weights = self._weights(value) if weights is None else weights
            states[WEIGHTS] = weights.node
        if d.feeding:
            states[READOUT] = self._readout(value, weights).node
        first = cells[0].equations
        assert first is not None
        names = tuple(states), first.inputs, (), tuple(self.vectors), tuple(self.noise)
        scores = {} if self.score is None else self.score.scores
        equations = Equations(graph, *names, tuple(states.values()), scores=scores)
        return Composition(equations, self.blocks, self.dims, self.score)

    def _vector(self, name: str, dim: str) -> Symbol:
        self.vectors += [name] if name not in self.vectors else []
        return self.graph.leaf("v", name, dim)

    def _noisy(self, name: str, dim: str) -> Symbol:
        self.noise += [name] if name not in self.noise else []
        return self.graph.leaf("n", name, dim)

    def _block(self, tensor: str, parts: tuple[str, ...]) -> None:
        self.blocks |= {f"{tensor}.{part}": (tensor, i, len(parts)) for i, part in enumerate(parts)}

    def _weights(self, query: Symbol) -> Symbol:
        """Where a query looks: the softmax of its scores."""
        attention = self.d.attention
        assert attention is not None
        like = next(attention.parameters(), torch.zeros(()))
        with torch.no_grad():
            width = attention.keys(like.new_zeros(1, 1, attention.key_size)).shape[-1]
        last = self.graph.leaf("s", WEIGHTS, POSITIONS) if attention.sequential else None
        found = trace_score(self.graph, attention, attention.plain_score, query, width, last)
        assert found.result is not None
        self.score, self.dims = found, self.dims | found.dims | {str(width): width}
        self.blocks |= {name: (name, 0, 1) for name in (KEYS, *found.matrices)}
        taps = [f"{name}.{c}" for name, (_, count) in found.filters.items() for c in range(count)]
        self.vectors += [name for name in (*found.vectors, *taps) if name not in self.vectors]
        return found.result.softmax(-1)

    def _readout(self, y: Symbol, weights: Symbol | None) -> Symbol:
        combine = self.d.combine
        if combine is None:
            return y
        dim = str(combine.out_features)
        self.dims[dim] = combine.out_features
        self.blocks |= {"combine": ("combine", 0, 1), "read": ("read", 0, 1)}
        found = self.graph.product([(y, "combine")], dim) + self._vector("combine", dim)
        if weights is None:
            return found
        return (found + self.graph.look("context", [weights], "read", dim)).tanh()

    def _layer(self, depth: int, cell: Cell, below: Symbol | None, weights: Symbol | None) -> list[Symbol]:
        """The new state of a layer, of what the layer below gives."""
        graph, noise, dim, d = self.graph, self.noises[depth], str(cell.hidden_size), self.d
        plain = cell.equations
        assert plain is not None
        e = add_zoneout(plain, noise.rates) if noise.rates else plain
        self._block(f"{depth}.W_h", e.products)
        self.blocks |= {f"{depth}.{name}": (f"{depth}.{name}", 0, 1) for name in e.matrices}
        if depth:
            self._block(f"{depth}.W_x", e.inputs)
        elif weights is not None:
            self._block(VALUES, e.inputs)
        if not depth and d.feeding:
            self._block("fed", e.inputs)

        def kept(value: Symbol, name: str, there: bool) -> Symbol:
            return value * graph.leaf("k", name, value.node.dim) if there else value

        def part(gate: str) -> Symbol:
            if below is not None:
                entering = kept(below, f"{depth}.in", self.masked[depth])
                entering = entering * self._noisy(f"{depth}.in", below.node.dim) if self.dropped else entering
                found = graph.product([(entering, f"{depth}.W_x.{gate}")], dim)
                return found if cell.b is None else found + self._vector(f"{depth}.b.{gate}", dim)
            found = graph.leaf("x", gate, dim)
            if weights is not None:
                found = found + graph.look("context", [weights], f"{VALUES}.{gate}", dim)
            if d.feeding:
                size = d._readout_size()
                self.dims[str(size)] = size
                last = kept(graph.leaf("s", READOUT, str(size)), "fed", self.masked[0])
                found = found + graph.product([(last, f"fed.{gate}")], dim)
            return found

        def leaf(node: Node) -> Symbol:
            if node.op == "x":
                return part(node.name)
            if node.op == "v":
                return self._vector(f"{depth}.{node.name}", dim)
            if node.op == "n":
                return self._noisy(f"{depth}.{node.name}", dim)
            if node.op == "size":
                return graph.size(dim)
            return graph.leaf(node.op, f"{depth}.{node.name}", dim)

        def product(node: Node, args: list[Symbol]) -> Symbol:
            state = graph.leaf("s", f"{depth}.{cell.state[0]}", dim)
            names = [f"W_h.{node.name}"] if node.op == "h" else node.name.split()
            operands = [kept(a, f"{depth}.h", noise.mask is not None) for a in args or [state]]
            return graph.product([(a, f"{depth}.{n}") for a, n in zip(operands, names, strict=True)], dim)

        for name in e.vectors:
            self._vector(f"{depth}.{name}", dim)
        return [whole(new, dim) for new in rebuild(e, graph, leaf, product)]
