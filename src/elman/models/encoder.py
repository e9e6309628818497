"""What stands between vectors and heads: a recurrent network with its dropout, or a comparator."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elman.config import ModelSettings, NetworkSettings
from elman.layers.rnn import RNN
from elman.models.comparators import Bag, Window
from elman.recurrence.contract import Unrolled


class Dropout(nn.Module):
    """Dropout on (B, T, ·): one mask a sequence if ``locked``, otherwise one a position."""

    def __init__(self, rate: float, locked: bool) -> None:
        super().__init__()
        self.rate, self.locked = rate, locked

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.rate:
            return x
        if not self.locked:
            return F.dropout(x, self.rate)
        keep = torch.empty_like(x[:, :1]).bernoulli_(1 - self.rate).div_(1 - self.rate)  # (B, 1, ·)
        return x * keep

    def extra_repr(self) -> str:
        return f"{self.rate}, {'one mask a sequence' if self.locked else 'one mask a position'}"


class Encoder(nn.Module):
    """Vectors (B, T, D) in, ``Unrolled(outputs, last, state)`` out, with dropout before, inside and after."""

    def __init__(self, input_size: int, settings: NetworkSettings, *, causal: bool) -> None:
        super().__init__()
        self.before = Dropout(settings.input_dropout or 0.0, settings.locked)
        self.after = Dropout(settings.dropout or 0.0, settings.locked)
        self.network = make_network(input_size, settings, causal=causal)
        self.output_size = int(self.network.output_size)

    def forward(self, x: Tensor, lengths: Tensor | None = None, state: Any = None) -> Unrolled:
        outputs, last, state = self.network(self.before(x), lengths, state)
        return Unrolled(self.after(outputs), self.after(last[:, None])[:, 0], state)

    def step(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """One step of a stream, without dropout."""
        y, state = self.network.step(x, state)
        return y, state


def make_network(input_size: int, settings: NetworkSettings, *, causal: bool) -> RNN | Window | Bag:
    """The network that the settings name; a comparator sees only the past if ``causal``."""
    width = settings.hidden if isinstance(settings.hidden, int) else (settings.hidden or [0])[-1]
    comparator = settings.encoder if isinstance(settings, ModelSettings) else "rnn"
    if isinstance(settings, ModelSettings) and comparator == "window":
        return Window(input_size, width, window=settings.window, causal=causal)
    if comparator == "bag":
        return Bag(input_size, width, causal=causal)
    return RNN(
        settings.cell,
        input_size,
        settings.hidden or 1,
        layers=settings.layers,
        bidirectional=settings.bidirectional,
        dropout=settings.dropout or 0.0,
        recurrent_dropout=settings.recurrent_dropout,
        zoneout=settings.zoneout,
        weight_drop=settings.weight_drop,
        cell_options=settings.cell_options,
        initial_state=settings.initial_state,
        backend=settings.backend,
    )
