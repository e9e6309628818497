"""What the engine asks of a cell, the noise that regularisers bring in, and what an unrolled cell gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, TypeAlias, overload

from torch import Tensor

from elman.recurrence.trace import Equations
from elman.tensors.nested import NamedTensors

State: TypeAlias = NamedTensors  # (B, …) tensors by name, made by the cell's State
Parts: TypeAlias = NamedTensors  # input or recurrent parts by gate
StepInput: TypeAlias = Any  # the input parts by gate, side by side as one tensor, or the input itself
Shapes: TypeAlias = tuple[tuple[int, ...], ...]
# W_x, b, W_h, and the vectors with the matrices after them
Weights: TypeAlias = tuple[Tensor | None, Tensor | None, Tensor | None, tuple[Tensor, ...]]


class Product(Protocol):
    """The recurrent product of a step, with the noise that belongs into it.

    ``product(h)``: the parts of all gates by name; ``product(h, "z")``: of one gate, to which
    ``plus=x.z`` adds in the same operation; ``product.joined(h)``: all side by side, (B, G·H).
    """

    @overload
    def __call__(self, h: Tensor) -> Parts: ...
    @overload
    def __call__(self, h: Tensor, gate: str, *, plus: Tensor | None = None) -> Tensor: ...
    def joined(self, h: Tensor) -> Tensor: ...


class LoopCell(Protocol):
    """What the plain loop asks of a cell: one step."""

    @property
    def State(self) -> type[NamedTensors]: ...  # of the state
    @property
    def Inputs(self) -> type[Parts] | None: ...  # of the input parts that are read; None: side by side
    @property
    def Products(self) -> type[Parts]: ...  # of the recurrent parts that are read
    def learned_matrices(self) -> Mapping[str, Tensor]: ...  # those that its equations call, (H, H / heads)
    def at_hand(self, multiply: Mapping[str, Callable[[Tensor], Tensor]]) -> LoopCell:
        """The same cell for a loop: its parameters are found at once, its matrices multiply."""

    def step(self, x: StepInput, s: NamedTensors, product: Product) -> NamedTensors: ...


class RecurrentCell(LoopCell, Protocol):
    """A cell as the engine sees it."""

    input_size: int
    hidden_size: int
    heads: int
    W_h: Tensor | None

    @property
    def state_shapes(self) -> Shapes: ...  # of every state, without the batch
    @property
    def equations(self) -> Equations | None: ...  # the traced step; None for a free-form cell
    @property
    def projects_itself(self) -> bool: ...  # whether ``project`` is other than ``x W_x + b``
    @property
    def has_hooks(self) -> bool: ...  # whether something wants to know when the cell is called
    @property
    def reads_whole_state(self) -> bool: ...  # whether O needs more than the first entry of the state
    @property
    def starts_at_zero(self) -> bool: ...  # whether ``initial_state`` is zero
    def initial_state(self, batch_size: int, like: Tensor) -> NamedTensors: ...
    def project(self, x: Tensor) -> Tensor: ...
    def O(self, s: NamedTensors) -> Tensor: ...
    def weights(self) -> Weights: ...


class StreamingCell(Protocol):
    """A short way for steps of one cell without gradients, where all that can be is worked out before."""

    cell: RecurrentCell

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State] | None:
        """The output and the new state; None where the cell or a tensor has changed and the way is closed."""


@dataclass(frozen=True)
class Noise:
    """What regularisers do to one sequence of one cell; drawn by the layer, used by every backend.

    weight: the recurrent weights after weight drop, in place of the cell's own.
    matrices: the same for the cell's other matrices, by name.
    mask: (B, H), multiplies what recurrent weights and matrices multiply (variational dropout).
    zoneout: by state, either (B, T, H) truth values (True keeps the old state) or the rate itself,
        which stands for the expectation.
    factors: weight drop as factors of W_h and the matrices, by name, where a hook of the cell may compute
        these only when the cell is called.
    """

    weight: Tensor | None = None
    mask: Tensor | None = None
    zoneout: Mapping[str, Tensor | float] = field(default_factory=dict)
    factors: Mapping[str, Tensor] = field(default_factory=dict)
    matrices: Mapping[str, Tensor] = field(default_factory=dict)

    def applied(self, cell: RecurrentCell, weight: Tensor | None) -> Noise:
        """The same noise for a cell that has these recurrent weights now."""
        if not self.factors:
            return self
        dropped = {n: m * self.factors[n] for n, m in cell.learned_matrices().items()}
        weight = None if weight is None else weight * self.factors["W_h"]
        return replace(self, weight=weight, matrices=dropped, factors={})

    @property
    def rates(self) -> dict[str, float | None]:
        """The rates of zoneout by state, as equations take them; None: it follows a drawn mask."""
        return {name: z if isinstance(z, float) else None for name, z in self.zoneout.items()}

    def drawn(self, names: tuple[str, ...]) -> list[Tensor]:
        return [z for z in map(self.zoneout.__getitem__, names) if isinstance(z, Tensor)]


NO_NOISE = Noise()


class Unrolled(NamedTuple):
    """outputs (B, T, ·): RNN*, the transducer. last (B, ·): RNN, the acceptor. state: the final one.

    >>> import torch
    >>> outputs, last, state = Unrolled(torch.zeros(2, 3, 4), torch.zeros(2, 4), ())
    """

    outputs: Tensor
    last: Tensor
    state: Any
