"""Recurrent regularisers, drawn once for a sequence and handed to the engine as noise."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from elman.errors import ArgumentError, nearest
from elman.recurrence.contract import NO_NOISE, Noise
from elman.tensors.checks import check_rate
from elman.tensors.draws import dropout, rand, weight_dropout


@dataclass(frozen=True)
class Regularisers:
    """Rates of what disturbs a cell in training; all work with every cell and on every backend.

    input_dropout: one mask for the whole sequence on the input (variational, Gal & Ghahramani 2016).
    layer_dropout: the same on what layers after the first read, in place of that of the input.
    recurrent_dropout: one mask for the whole sequence on the state that the recurrent weights multiply.
    zoneout: every unit of a state keeps its old value with this probability (Krueger et al. 2017);
        one rate for all states, or one by name, as in ``{"h": 0.05, "c": 0.3}``. Evaluation uses the
        expectation.
    weight_drop: every recurrent weight is zero for a whole sequence with this probability
        (DropConnect; Merity et al. 2018).
    """

    input_dropout: float = 0.0
    recurrent_dropout: float = 0.0
    zoneout: float | Mapping[str, float] = 0.0
    weight_drop: float = 0.0
    layer_dropout: float = 0.0

    def __post_init__(self) -> None:
        check_rate("input_dropout", self.input_dropout)
        check_rate("recurrent_dropout", self.recurrent_dropout)
        check_rate("weight_drop", self.weight_drop)
        check_rate("layer_dropout", self.layer_dropout)
        rates = self.zoneout if isinstance(self.zoneout, Mapping) else {"zoneout": self.zoneout}
        for name, rate in rates.items():
            check_rate(f"zoneout[{name!r}]" if isinstance(self.zoneout, Mapping) else "zoneout", rate)

    def any(self, states: tuple[str, ...]) -> bool:
        rates = (self.input_dropout, self.layer_dropout, self.recurrent_dropout, self.weight_drop)
        return any(rates) or bool(self.zoneout_rates(states))

    def before(self, depth: int) -> float:
        """The rate of the mask on what a layer reads."""
        return self.layer_dropout if depth and self.layer_dropout else self.input_dropout

    def zoneout_rates(self, states: tuple[str, ...]) -> dict[str, float]:
        if not isinstance(self.zoneout, Mapping):
            return {name: float(self.zoneout) for name in states} if self.zoneout else {}
        for name in self.zoneout:
            if name not in states:
                raise ArgumentError(f"zoneout names the state {name!r}; {nearest(name, states)}")
        return {name: float(rate) for name, rate in self.zoneout.items() if rate}

    def draw(self, cell: Any, B: int, T: int, like: Tensor, *, training: bool) -> Noise:
        if not training and not self.zoneout:
            return NO_NOISE
        zoneout: dict[str, Tensor | float] = dict(self.zoneout_rates(cell.state))
        if not training:
            return Noise(zoneout=zoneout)
        for name, rate in zoneout.items():
            shape = cell.state_shapes[cell.state.index(name)]
            zoneout[name] = rand(B, T, *shape, device=like.device) < rate
        dropped: dict[str, Tensor] = {}
        if self.weight_drop:
            first = {} if cell.W_h is None else {"W_h": cell.W_h}
            own = {**first, **cell.learned_matrices()}
            if cell.has_hooks:  # one of them may compute these when the cell is called
                own = {name: torch.ones_like(matrix) for name, matrix in own.items()}
            dropped = {name: weight_dropout(matrix, self.weight_drop) for name, matrix in own.items()}
        mask = keep_mask(like, B, cell.hidden_size, self.recurrent_dropout)
        if cell.has_hooks:
            return Noise(None, mask, zoneout, factors=dropped)
        return Noise(dropped.pop("W_h", None), mask, zoneout, matrices=dropped)


def keep_mask(like: Tensor, B: int, features: int, rate: float) -> Tensor | None:
    """(B, features): zero with this probability, else 1 / (1 - rate); None where the rate is zero."""
    return dropout(like.new_ones(B, features), rate) if rate else None
