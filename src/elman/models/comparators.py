"""Networks without recurrence, where an RNN would stand: does the recurrence pay? (row L6)"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn, tanh

from elman.recurrence.contract import Unrolled
from elman.tensors.rows import length_mask
from elman.tensors.transfer import moved


class Window(nn.Module):
    """``y_i = tanh(W [x_{i-k+1}; …; x_i] + b)``: a feed-forward network over a fixed window of k inputs.

    ``causal``: the window ends at i, as a language model needs; otherwise i stands in its middle. Beyond the
    ends of the sequence the inputs are zero. The state is the last k - 1 inputs.
    """

    def __init__(self, input_size: int, hidden_size: int, *, window: int, causal: bool) -> None:
        super().__init__()
        self.before = window - 1 if causal else window // 2
        self.after = 0 if causal else window - 1 - window // 2
        self.input_size, self.output_size = input_size, hidden_size
        self.map = nn.Linear(window * input_size, hidden_size)

    def forward(self, x: Tensor, lengths: Tensor | None = None, state: Any = None) -> Unrolled:
        B, T, D = x.shape
        past = x.new_zeros(B, self.before, D) if state is None else state[0]
        ends = torch.full((B,), T, device=x.device) if lengths is None else moved(lengths, x.device)
        wide = torch.cat([past, without_padding(x, ends), x.new_zeros(B, self.after, D)], 1)
        windows = torch.cat(
            [wide[:, k : k + T] for k in range(self.before + self.after + 1)], -1
        )  # (B, T, k·D)
        outputs = without_padding(tanh(self.map(windows)), ends)
        return Unrolled(outputs, at(outputs, ends - 1), (self._recent(wide, ends),))

    def step(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        _, last, state = self(x[:, None], None, state)
        return last, state

    def _recent(self, wide: Tensor, ends: Tensor) -> Tensor:
        places = ends[:, None] + torch.arange(self.before, device=wide.device)  # (B, k - 1)
        return wide.gather(1, places[..., None].expand(-1, -1, wide.shape[-1]))


class Bag(nn.Module):
    """``y_i = tanh(W · mean(x_1 … x_i) + b)``: what was said so far, without its order.

    Not ``causal``: the mean is over the whole sequence, and a position adds its own input, ``+ U x_i``;
    ``last`` is the bag alone. The state is the sum of the inputs and their number.
    """

    def __init__(self, input_size: int, hidden_size: int, *, causal: bool) -> None:
        super().__init__()
        self.causal, self.input_size, self.output_size = causal, input_size, hidden_size
        self.bag = nn.Linear(input_size, hidden_size)
        self.own = None if causal else nn.Linear(input_size, hidden_size, bias=False)

    def forward(self, x: Tensor, lengths: Tensor | None = None, state: Any = None) -> Unrolled:
        B, T, D = x.shape
        ends = torch.full((B,), T, device=x.device) if lengths is None else moved(lengths, x.device)
        x = without_padding(x, ends)
        total, count = (x.new_zeros(B, D), x.new_zeros(B, 1)) if state is None else state
        sums = total[:, None] + x.cumsum(1)  # (B, T, D)
        counts = count[:, None] + torch.arange(1, T + 1, device=x.device, dtype=x.dtype)[:, None]  # (B, T, 1)
        final = at(sums, ends - 1), at(counts.expand(B, T, 1), ends - 1)
        if self.own is None:
            outputs = tanh(self.bag(sums / counts))
            last = at(outputs, ends - 1)
        else:
            whole = self.bag(final[0] / final[1])
            outputs, last = tanh(whole[:, None] + self.own(x)), tanh(whole)
        return Unrolled(without_padding(outputs, ends), last, final)

    def step(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        _, last, state = self(x[:, None], None, state)
        return last, state


def without_padding(x: Tensor, lengths: Tensor) -> Tensor:
    """Zero at padding: (B, T, ·)."""
    return x.masked_fill(~length_mask(lengths, x.shape[1])[..., None], 0)


def at(x: Tensor, index: Tensor) -> Tensor:
    """One step of each row: (B, T, ·) → (B, ·)."""
    return x[torch.arange(len(x), device=x.device), index]
