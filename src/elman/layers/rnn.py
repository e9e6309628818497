"""``RNN``: any cell over any batch of sequences; stacked, in one or both directions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elman.cells.base import Cell
from elman.errors import ArgumentError, ShapeError
from elman.layers.dropout import Regularisers, keep_mask
from elman.layers.stream import Stream
from elman.recurrence.contract import Noise, Unrolled
from elman.recurrence.unroll import BACKENDS, check_state, streams, unroll_layer
from elman.registry import CELLS, construct
from elman.tensors.checks import (
    check_choice,
    check_flag,
    check_like,
    check_rate,
    check_size,
    check_tensor,
    look_at_lengths,
)
from elman.tensors.tracing import in_autocast, own_precision

if TYPE_CHECKING:
    Torch = nn.RNN | nn.LSTM | nn.GRU


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
        recurrent_dropout: float = 0.0,
        zoneout: float | Mapping[str, float] = 0.0,
        weight_drop: float = 0.0,
        cell_options: Mapping[str, Any] | None = None,
        initial_state: str = "zero",
        backend: str = "auto",
    ) -> None:
        """
        Args:
            cell: a cell's name or class.
            hidden_size: one width for all layers, or one per layer.
            dropout: on the outputs between layers, drawn anew at every position.
            input_dropout, recurrent_dropout, zoneout, weight_drop: see ``Regularisers``.
            cell_options: keyword arguments of the cell's constructor.
            initial_state: ``"zero"``, or ``"learned"``: one learned start for all sequences.
            backend: ``"auto"`` takes the fastest that can serve; a named one that cannot is an error.
        """
        super().__init__()
        self.cell_class = find_cell(cell)
        self.input_size = check_size("input_size", input_size)
        self.hidden_sizes = _widths(hidden_size, layers)
        self.bidirectional = check_flag("bidirectional", bidirectional)
        self.dropout = check_rate("dropout", dropout)
        self.regularisers = Regularisers(input_dropout, recurrent_dropout, zoneout, weight_drop)
        self.regularisers.zoneout_rates(self.cell_class.state)
        self.initial_state = check_choice("initial_state", initial_state, ("zero", "learned"))
        self.backend = check_choice("backend", backend, BACKENDS)
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
                nn.Parameter(torch.zeros(shape)) for cell in self._all_cells() for shape in cell.state_shapes
            )

    @property
    def layers(self) -> int:
        return len(self.hidden_sizes)

    @property
    def state_shapes(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """By layer, the shape of every state of a direction, without the batch."""
        return tuple(self._directions(depth)[0].state_shapes for depth in range(self.layers))

    @property
    def directions(self) -> int:
        return 2 if self.bidirectional else 1

    def forward(self, x: Tensor, lengths: Any = None, state: Any = None) -> Unrolled:
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
        x, looked = self._check_type(x), True
        if lengths is not None:
            _refuse_state(lengths)
            lengths, looked = look_at_lengths(lengths, B, T, x.device)
        if state is None and self.initial_state == "zero":  # made by the engine, if at all
            starts: list[Any] = [(None,) * self.directions] * self.layers
        else:
            starts = self._start(state, B, x)
        last = x
        for depth in range(self.layers):
            x = F.dropout(x, self.dropout, self.training) if depth else x
            x = self._drop_input(x)
            cells = self._directions(depth)
            noises = [self._noise(cell, B, T, x) for cell in cells]
            x, last, starts[depth] = self._walk(cells, x, starts[depth], lengths, noises, looked)
        return Unrolled(x, last, self._nest(starts))

    def _walk(
        self, cells: list[Cell], x: Tensor, states: Any, lengths: Any, noises: list[Noise], looked: bool
    ) -> Unrolled:
        """One layer; where somebody listens to the calls of a cell, its cells are called one by one."""
        if not any(cell.has_hooks for cell in cells):
            return unroll_layer(
                cells, x, states, lengths, noises=noises, backend=self.backend, checked=looked
            )
        results = [
            cell(x, states[d], lengths, reverse=d == 1, noise=noises[d], backend=self.backend)
            for d, cell in enumerate(cells)
        ]
        outputs, lasts, finals = zip(*results, strict=True)
        return Unrolled(torch.cat(outputs, -1), torch.cat(lasts, -1), finals)

    def step(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """One step of a stream: ``y, state = rnn.step(x, state)`` for x (B, D); equals the sequence form."""
        if type(state) is Stream and not torch.is_grad_enabled():
            advanced = state.advance(self, x)
            if advanced is not None:
                return advanced
        if self.bidirectional:
            raise ArgumentError("a bidirectional RNN has no step(): its second direction starts at the end")
        r = self.regularisers
        if self.training and (r.input_dropout or r.recurrent_dropout or r.weight_drop):
            raise ArgumentError(
                "step() in training mode has no sequence whose dropout mask it could keep; "
                "call eval(), or give whole sequences to the RNN"
            )
        B, _ = check_tensor("x", x, ("B", self.input_size)).shape
        given = x = self._check_type(x)
        starts = [pair[0] for pair in self._start(state, B, x)]
        ways = []
        with own_precision(x):
            for depth in range(self.layers):
                x = F.dropout(x, self.dropout, self.training) if depth else x
                cell = self._directions(depth)[0]
                noise = self._noise(cell, B, 1, x)
                if not (self.training or torch.is_grad_enabled()):
                    ways.append(streams(cell, x, starts[depth], noise=noise, backend=self.backend))
                _, x, starts[depth] = cell(x[:, None], starts[depth], noise=noise, backend=self.backend)
        short = [way for way in ways if way is not None]
        if len(short) < self.layers:  # nothing to remember: a plain tuple, which transforms know
            return x, tuple(starts)
        return x, Stream(starts, self, given, short)

    def start(self, batch_size: int) -> Any:
        """The state before the first step: zero or learned, for a batch of this size."""
        like = next(self.parameters(), torch.zeros(()))
        return self._nest(self._start(None, check_size("batch_size", batch_size), like))

    @staticmethod
    def from_torch(module: Torch) -> RNN:
        """The same network as an ``nn.RNN``, ``nn.LSTM`` or ``nn.GRU``, with equal outputs."""
        from elman.layers.convert import from_torch

        return from_torch(module)

    def to_torch(self) -> Torch:
        """The same network as a module of torch (batch first), where torch has its cell."""
        from elman.layers.convert import to_torch

        return to_torch(self)

    def extra_repr(self) -> str:
        widths = " → ".join(map(str, (self.input_size, *self.hidden_sizes)))
        both = ", bidirectional" if self.bidirectional else ""
        return f"{self.cell_class.__name__}, {widths}{both}, backend={self.backend}"

    def _directions(self, depth: int) -> list[Cell]:
        layer = self.cells._modules[str(depth)]  # as self.cells[depth], which a stream finds slow
        return cast(list[Cell], list(cast(nn.ModuleList, layer)._modules.values()))

    def _all_cells(self) -> list[Cell]:
        return [cell for depth in range(self.layers) for cell in self._directions(depth)]

    def _noise(self, cell: Cell, B: int, T: int, like: Tensor) -> Noise:
        return self.regularisers.draw(cell, B, T, like, training=self.training)

    def _drop_input(self, x: Tensor) -> Tensor:
        rate = self.regularisers.input_dropout if self.training else 0.0
        mask = keep_mask(x, x.shape[0], x.shape[-1], rate)
        return x if mask is None else x * mask[:, None]

    def _check_type(self, x: Tensor) -> Tensor:
        """Numbers of the weights' own type; under autocast others are converted."""
        weight = self._directions(0)[0].weights()[0]
        if weight is None:
            weight = next(self.parameters(), x)
        if in_autocast(x):
            x = x.to(weight.dtype)
        check_like("x", x, "the RNN", weight)
        return x

    def _start(self, state: Any, B: int, like: Tensor) -> list[Any]:
        """By layer, the states of its directions; a given state is checked against the cells."""
        if state is None:
            if self.initial_state == "zero":
                return [
                    tuple(cell.initial_state(B, like) for cell in self._directions(depth))
                    for depth in range(self.layers)
                ]
            fields = iter(self.starts)
            return [
                tuple(
                    cell.State(*(next(fields).expand(B, *shape) for shape in cell.state_shapes))
                    for cell in self._directions(depth)
                )
                for depth in range(self.layers)
            ]
        if not isinstance(state, (tuple, list)) or len(state) != self.layers:
            raise ShapeError(f"state is not a tuple of {self.layers}, one entry a layer; {self._nesting()}")
        starts = []
        for depth, given in enumerate(state):
            cells = self._directions(depth)
            pair = given if self.bidirectional else (given,)
            if not isinstance(pair, (tuple, list)) or len(pair) != len(cells):
                raise ShapeError(f"state[{depth}] is not a pair of states; {self._nesting()}")
            checked = []
            for direction, (cell, fields_given) in enumerate(zip(cells, pair, strict=True)):
                place = f"state[{depth}][{direction}]" if self.bidirectional else f"state[{depth}]"
                if in_autocast(like) and isinstance(fields_given, (tuple, list)):
                    fields_given = [_converted(field, like) for field in fields_given]
                checked.append(check_state(place, cell, fields_given, B, like))
            starts.append(tuple(checked))
        return starts

    def _nest(self, starts: list[Any]) -> Any:
        return tuple(pair if self.bidirectional else pair[0] for pair in starts)

    def _nesting(self) -> str:
        one = f"State({', '.join(self.cell_class.state)})"
        layer = f"({one}, {one})" if self.bidirectional else one
        return f"its form is a tuple of {self.layers} × {layer}"


def find_cell(cell: str | type[Cell]) -> type[Cell]:
    """The class of a name, or the class itself."""
    if isinstance(cell, str):
        return cast(type[Cell], CELLS.find(cell))
    if isinstance(cell, type) and issubclass(cell, Cell):
        return cell
    raise ArgumentError(
        f"cell is {cell!r}; it must be a cell's name ({', '.join(CELLS.names())}) or a Cell class"
    )


def _widths(hidden_size: int | Sequence[int], layers: int | None) -> tuple[int, ...]:
    if hasattr(hidden_size, "__index__"):
        return (check_size("hidden_size", hidden_size),) * check_size(
            "layers", 1 if layers is None else layers
        )
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


def _converted(field: Any, like: Tensor) -> Any:
    return field.to(like.dtype) if isinstance(field, Tensor) else field
