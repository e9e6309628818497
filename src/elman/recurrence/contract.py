"""What the engine asks of a cell, and the noise that regularisers bring into a sequence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from elman.recurrence.trace import Equations

State = tuple[Tensor, ...]  # a named tuple of (B, …) tensors, made by the cell's State


class Product(Protocol):
    """The recurrent product of a step, with the noise that belongs into it.

    ``product(h)``: the parts of all gates by name; ``product(h, "z")``: of one gate, to which
    ``plus=x.z`` adds in the same operation; ``product.joined(h)``: all side by side, (B, G·H).
    """

    def __call__(self, h: Tensor, gate: str | None = None, *, plus: Tensor | None = None) -> Any: ...
    def joined(self, h: Tensor) -> Tensor: ...


class Steps(Protocol):
    """What the loop asks of a cell: one step."""

    @property
    def State(self) -> Any:
        """The named tuple of the state."""

    @property
    def Inputs(self) -> Any:
        """The named tuple of the input parts that are read; None: a step gets them side by side."""

    @property
    def Products(self) -> Any:
        """The named tuple of the recurrent parts that are read."""

    def at_hand(self) -> Steps:
        """The same for a loop: parameters are found at once, without torch's detour."""

    def step(self, x: Any, s: Any, product: Product) -> Any: ...


class Walkable(Steps, Protocol):
    """A cell as the engine sees it."""

    @property
    def input_size(self) -> int: ...
    @property
    def hidden_size(self) -> int: ...
    @property
    def state_shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shape of every state, without the batch."""

    @property
    def W_x(self) -> Tensor | None: ...
    @property
    def W_h(self) -> Tensor | None: ...
    @property
    def b(self) -> Tensor | None: ...
    @property
    def equations(self) -> Equations | None:
        """The traced step, or None for a free-form cell."""

    @property
    def projects_itself(self) -> bool:
        """Whether ``project`` is other than ``x W_x + b``."""

    @property
    def has_hooks(self) -> bool:
        """Whether something wants to know when the cell is called."""

    @property
    def reads_whole_state(self) -> bool:
        """Whether O needs more than the first entry of the state."""

    @property
    def starts_at_zero(self) -> bool:
        """Whether ``initial_state`` is zero."""

    def initial_state(self, batch_size: int, like: Tensor) -> Any: ...
    def project(self, x: Tensor) -> Tensor: ...
    def O(self, s: Any) -> Tensor: ...
    def weights(self) -> tuple[Tensor | None, Tensor | None, Tensor | None, tuple[Tensor, ...]]: ...
    def vector_values(self) -> tuple[Tensor, ...]: ...


@dataclass(frozen=True)
class Noise:
    """What regularisers do to one sequence of one cell; drawn by the layer, used by every backend.

    weight: the recurrent weights after weight drop, in place of the cell's own.
    mask: (B, H), multiplies the state before the recurrent product (variational dropout).
    zoneout: by state, either (B, T, H) truth values (True keeps the old state) or the rate itself,
        which stands for the expectation.
    factors: weight drop as factors of the recurrent weights, in place of ``weight``, where a hook of the
        cell may compute these only when the cell is called.
    """

    weight: Tensor | None = None
    mask: Tensor | None = None
    zoneout: Mapping[str, Tensor | float] = field(default_factory=dict)
    factors: Tensor | None = None

    def applied(self, weight: Tensor | None) -> Noise:
        """The same noise for a cell that has these recurrent weights now."""
        if self.factors is None or weight is None:
            return self
        return replace(self, weight=weight * self.factors, factors=None)


SILENCE = Noise()


class Unrolled(NamedTuple):
    """outputs (B, T, ·): RNN*, the transducer. last (B, ·): RNN, the acceptor. state: the final one."""

    outputs: Tensor
    last: Tensor
    state: Any
