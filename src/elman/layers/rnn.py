"""``RNN``: any cell over any batch of sequences; stacked, in one or both directions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor, nn

from elman.cells.base import Cell
from elman.errors import ArgumentError, ShapeError
from elman.layers import convert
from elman.layers.convert import TorchNetwork
from elman.layers.dropout import Regularisers, keep_mask
from elman.layers.pieces import unroll_in_pieces
from elman.layers.stream import StreamState, begin_stream
from elman.recurrence.contract import Noise, Shapes, State, Unrolled
from elman.recurrence.unroll import BACKENDS, check_state, unroll_layer, usable_backends
from elman.registry import CELLS, construct
from elman.tensors.checks import (
    check_choice,
    check_flag,
    check_like,
    check_rate,
    check_size,
    check_tensor,
    is_tuple,
    look_at_lengths,
)
from elman.tensors.draws import dropout
from elman.tensors.nested import map_tensors
from elman.tensors.tracing import in_autocast, own_precision

NetworkState: TypeAlias = tuple[Any, ...]  # by layer, a State or a pair of them
LayerState: TypeAlias = tuple[State | None, ...]  # by direction; None: zero
INITIAL_STATES = ("zero", "learned")


class RNN(nn.Module):
    """A recurrent network: ``y_{1:n} = RNN*(x_{1:n}, s_0)`` and ``y_n = RNN(x_{1:n}, s_0)`` in one call.

    >>> rnn = RNN("lstm", 8, 16, layers=2, bidirectional=True)
    >>> x, lengths = torch.randn(3, 7, 8), torch.tensor([7, 2, 5])
    >>> outputs, last, state = rnn(x, lengths)
    >>> outputs.shape, last.shape            # transducer and acceptor; both directions side by side
    (torch.Size([3, 7, 32]), torch.Size([3, 32]))
    >>> state[1][0].c.shape                  # second layer, forward direction, memory cells
    torch.Size([3, 16])

    A stream is read step by step, with the state as a value:

    >>> rnn, state = RNN("gru", 8, 16), None
    >>> for x_t in torch.randn(5, 1, 8):
    ...     y, state = rnn.step(x_t, state)
    """

    def __init__(
        self,
        cell: str | type[Cell],
        input_size: int,
        hidden_size: int | Sequence[int],
        *,
        layers: int | None = None,
        bidirectional: bool = False,
        dropout: float = 0.0,
        input_dropout: float = 0.0,
        layer_dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        zoneout: float | Mapping[str, float] = 0.0,
        weight_drop: float = 0.0,
        cell_options: Mapping[str, Any] | None = None,
        initial_state: str = "zero",
        backend: str = "auto",
        piece: int | None = None,
    ) -> None:
        """
        Args:
            cell: a cell's name or class.
            hidden_size: one width for all layers, or one per layer.
            dropout: on the outputs between layers, drawn anew at every position.
            input_dropout, layer_dropout, recurrent_dropout, zoneout, weight_drop: see ``Regularisers``.
            cell_options: keyword arguments of the cell's constructor.
            initial_state: ``"zero"``, or ``"learned"``: one learned start for all sequences.
            backend: ``"auto"`` takes the fastest that can serve; a named one that cannot is an error.
            piece: steps of a single sequence that are computed at once; a longer one is read in pieces with
                the state carried on, for its memory's sake. None: all of it at once.
        """
        super().__init__()
        self.piece = None if piece is None else check_size("piece", piece)
        self.cell_class = find_cell(cell)
        self.input_size = check_size("input_size", input_size)
        self.hidden_sizes = _widths(hidden_size, layers)
        self.bidirectional = check_flag("bidirectional", bidirectional)
        self.dropout = check_rate("dropout", dropout)
        self.regularisers = Regularisers(
            input_dropout, recurrent_dropout, zoneout, weight_drop, layer_dropout
        )
        self.regularisers.zoneout_rates(self.cell_class.state)
        self.initial_state = check_choice("initial_state", initial_state, INITIAL_STATES)
        self.backend = check_choice("backend", backend, BACKENDS, usable_backends)
        self.cells = nn.ModuleList()
        width = self.input_size
        for H in self.hidden_sizes:
            directions: list[Cell] = [
                construct(self.cell_class, width, H, options=cell_options, named="cell_options")
                for _ in range(self.directions)
            ]
            self.cells.append(nn.ModuleList(directions))
            width = self.directions * directions[0].output_size
        self.output_size = width
        if self.initial_state == "learned":
            self.starts = nn.ParameterList(
                nn.Parameter(torch.zeros(shape)) for cell in self.all_cells() for shape in cell.state_shapes
            )

    @property
    def layers(self) -> int:
        return len(self.hidden_sizes)

    @property
    def state_shapes(self) -> tuple[Shapes, ...]:
        """By layer, the shape of every state of a direction, without the batch."""
        return tuple(self._directions(depth)[0].state_shapes for depth in range(self.layers))

    @property
    def directions(self) -> int:
        return 2 if self.bidirectional else 1

    def forward(self, x: Tensor, lengths: Any = None, state: NetworkState | None = None) -> Unrolled:
        """
        Args:
            x: (B, T, D).
            lengths: (B,) real steps of each row; padding is on the right. None: all are real.
            state: the start, as ``state`` of an earlier result; None: zero or learned.

        Returns:
            ``outputs`` (B, T, ·), zero at padding; ``last`` (B, ·), the output after each row's last
            real step (backward direction: its first); ``state``: one State a layer, or a pair of
            them where the layer is bidirectional.
        """
        B, T, _ = check_tensor("x", x, ("B", "T", self.input_size)).shape
        x, looked = self.check_input(x), True
        if lengths is not None:
            _refuse_state(lengths)
            lengths, looked = look_at_lengths(lengths, B, T, x.device)
        if state is None and self.initial_state == "zero":  # made by the engine, if at all
            starts: list[LayerState] = [(None,) * self.directions] * self.layers
        else:
            starts = [*self.start_states(state, B, x)]
        last, finals = x, []
        for depth in range(self.layers):
            x = dropout(x, self.dropout, self.training) if depth else x
            x, last, final = self._unroll(depth, x, starts[depth], lengths, looked)
            finals.append(final)
        return Unrolled(x, last, self._nest(finals))

    def _unroll(
        self, depth: int, x: Tensor, states: LayerState, lengths: Tensor | None, looked: bool
    ) -> Unrolled:
        """One layer; where somebody listens to the calls of a cell, its cells are called one by one."""
        cells, (B, T, D), backend = self._directions(depth), x.shape, self.backend
        mask = keep_mask(x, B, D, self.regularisers.before(depth) if self.training else 0.0)
        x = x if mask is None else x * mask[:, None]
        noises = [self._noise(cell, B, T, x) for cell in cells]
        if not any(cell.has_hooks for cell in cells):
            if (
                self.piece is not None
                and self.piece < T
                and B == 1
                and (lengths is None or int(lengths) == T)
            ):
                return unroll_in_pieces(cells, x, states, noises=noises, backend=backend, piece=self.piece)
            return unroll_layer(cells, x, states, lengths, noises=noises, backend=backend, checked=looked)
        results = [
            cell(x, states[d], lengths, reverse=d == 1, noise=noises[d], backend=backend)
            for d, cell in enumerate(cells)
        ]
        outputs, lasts, finals = zip(*results, strict=True)
        return Unrolled(torch.cat(outputs, -1), torch.cat(lasts, -1), finals)

    def step(self, x: Tensor, state: NetworkState | None = None) -> tuple[Tensor, NetworkState]:
        """One step of a stream: ``y, state = rnn.step(x, state)`` for x (B, D); equals the sequence form."""
        stream = not torch.is_grad_enabled()
        if stream and type(state) is StreamState:
            advanced = state.advance(self, x)
            if advanced is not None:
                return advanced
        if self.bidirectional:
            raise ArgumentError("a bidirectional RNN has no step(): its second direction starts at the end")
        r = self.regularisers
        if self.training and (r.input_dropout or r.layer_dropout or r.recurrent_dropout or r.weight_drop):
            raise ArgumentError(
                "step() in training mode has no sequence whose dropout mask it could keep; "
                "call eval(), or give whole sequences to the RNN"
            )
        B, _ = check_tensor("x", x, ("B", self.input_size)).shape
        x = self.check_input(x)
        states = [pair[0] for pair in self.start_states(state, B, x)]
        begun = begin_stream(self, x, states) if stream else None
        if begun is not None:
            return begun
        with own_precision(x):
            for depth in range(self.layers):
                x = dropout(x, self.dropout, self.training) if depth else x
                cell = self._directions(depth)[0]
                noise = self._noise(cell, B, 1, x)
                _, x, states[depth] = cell(x[:, None], states[depth], noise=noise, backend=self.backend)
        return x, tuple(states)  # a plain tuple, which transforms know

    @property
    def draws_noise(self) -> bool:
        """Whether its present mode and rates make a step random."""
        between = self.dropout and self.layers > 1
        return self.training and (bool(between) or self.regularisers.any(self.cell_class.state))

    def start(self, batch_size: int) -> NetworkState:
        """The state before the first step: zero or learned, for a batch of this size."""
        like = next(self.parameters(), torch.zeros(()))
        return self.check_state(None, check_size("batch_size", batch_size), like)

    @staticmethod
    def from_torch(module: TorchNetwork) -> RNN:
        """The same network as an ``nn.RNN``, ``nn.LSTM`` or ``nn.GRU``, with equal outputs."""
        return convert.from_torch(RNN, module)

    def to_torch(self) -> TorchNetwork:
        """The same network as a module of torch (batch first), where torch has its cell."""
        return convert.to_torch(self)

    def extra_repr(self) -> str:
        widths = " → ".join(map(str, (self.input_size, *self.hidden_sizes)))
        both = ", bidirectional" if self.bidirectional else ""
        return f"{self.cell_class.__name__}, {widths}{both}, backend={self.backend}"

    def _directions(self, depth: int) -> list[Cell]:
        layers = self._modules["cells"]  # as self.cells[depth], which a stream finds slow
        assert layers is not None
        return cast(list[Cell], [*cast(nn.Module, layers._modules[str(depth)])._modules.values()])

    def all_cells(self) -> list[Cell]:
        """The cells of all layers, of a layer the forward direction first."""
        return [cell for depth in range(self.layers) for cell in self._directions(depth)]

    def _noise(self, cell: Cell, B: int, T: int, like: Tensor) -> Noise:
        return self.regularisers.draw(cell, B, T, like, training=self.training)

    def check_input(self, x: Tensor) -> Tensor:
        """An input in the numbers of the weights, and where they are; under autocast others are converted."""
        weight = self._directions(0)[0].weights()[0]
        if weight is None:
            weight = next(self.parameters(), x)
        if in_autocast(x):
            x = x.to(weight.dtype)
        check_like("x", x, "the RNN", weight)
        return x

    def check_state(self, state: NetworkState | None, B: int, like: Tensor) -> NetworkState:
        """A state for B rows that fits the cells: the given one, or where there is none the first."""
        return self._nest(self.start_states(state, B, like))

    def start_states(self, state: NetworkState | None, B: int, like: Tensor) -> list[tuple[State, ...]]:
        """By layer, the states of its directions; a given state is checked against the cells."""
        layers = [self._directions(depth) for depth in range(self.layers)]
        if state is None and self.initial_state == "zero":
            return [tuple(cell.initial_state(B, like) for cell in cells) for cells in layers]
        if state is None:
            each = iter([start.expand(B, *start.shape) for start in self.starts])
            return [tuple(cell.State(*islice(each, len(cell.state))) for cell in cells) for cells in layers]
        if not is_tuple(state, self.layers):
            raise ShapeError(f"state is not a tuple of {self.layers}, one entry a layer; {self._nesting()}")
        starts = []
        for depth, (cells, given) in enumerate(zip(layers, state, strict=True)):
            pair = given if self.bidirectional else (given,)
            if not is_tuple(pair, len(cells)):
                raise ShapeError(f"state[{depth}] is not a pair of states; {self._nesting()}")
            checked = []
            for direction, (cell, fields_given) in enumerate(zip(cells, pair, strict=True)):
                place = f"state[{depth}][{direction}]" if self.bidirectional else f"state[{depth}]"
                if in_autocast(like):
                    fields_given = map_tensors(lambda field: field.to(like.dtype), fields_given)
                checked.append(check_state(place, cell, fields_given, B, like))
            starts.append(tuple(checked))
        return starts

    def _nest(self, states: Sequence[tuple[State, ...]]) -> NetworkState:
        return tuple(pair if self.bidirectional else pair[0] for pair in states)

    def _nesting(self) -> str:
        one = f"State({', '.join(self.cell_class.state)})"
        layer = f"({one}, {one})" if self.bidirectional else one
        return f"its form is a tuple of {self.layers} × {layer}"


def find_cell(cell: str | type[Cell]) -> type[Cell]:
    if isinstance(cell, str):
        return cast(type[Cell], CELLS.find(cell))
    if isinstance(cell, type) and issubclass(cell, Cell):
        return cell
    raise ArgumentError(
        f"cell is {cell!r}; it must be a cell's name ({', '.join(CELLS.names())}) or a Cell class"
    )


def _widths(hidden_size: int | Sequence[int], layers: int | None) -> tuple[int, ...]:
    if hasattr(hidden_size, "__index__"):
        count = check_size("layers", 1 if layers is None else layers)
        return (check_size("hidden_size", hidden_size),) * count
    if not isinstance(hidden_size, (list, tuple)):
        raise ArgumentError(f"hidden_size is {hidden_size!r}; it must be a whole number, or one a layer")
    widths = tuple(check_size(f"hidden_size[{i}]", width) for i, width in enumerate(hidden_size))
    if not widths or (layers is not None and layers != len(widths)):
        raise ArgumentError(f"hidden_size has {len(widths)} widths and layers is {layers}; they must agree")
    return widths


def _refuse_state(lengths: Any) -> None:
    """A state comes second in torch's networks, and third here."""
    first = lengths
    while isinstance(first, (tuple, list)) and first:
        first = first[0]
    if first is not lengths and isinstance(first, Tensor) and first.dim() > 1:
        raise ShapeError("lengths is a state; give a state by its name, as in rnn(x, state=state)")
