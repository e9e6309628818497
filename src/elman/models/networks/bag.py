"""A bag of vectors, where an RNN would stand: does the order matter? (row L6)"""

from typing import Any

import torch
from torch import Tensor, nn, tanh

from elman.models.networks.base import Network, at, row_ends
from elman.recurrence.contract import Unrolled
from elman.tensors.rows import zero_padding


class Bag(Network):
    """``y_i = tanh(W · mean(x_1 … x_i) + b)``: what was said so far, without its order.

    Not ``causal``: the mean is over the whole sequence, and a position adds its own input, ``+ U x_i``;
    ``last`` is the bag alone. The state is the sum of the inputs and their number.
    """

    def __init__(self, input_size: int, hidden: int, *, causal: bool) -> None:
        super().__init__()
        self.causal, self.input_size, self.output_size = causal, input_size, hidden
        self.bag = nn.Linear(input_size, hidden)
        self.own = None if causal else nn.Linear(input_size, hidden, bias=False)

    def forward(self, x: Tensor, lengths: Tensor | None = None, state: Any = None) -> Unrolled:
        B, T, D = x.shape
        ends = row_ends(x, lengths)
        x = zero_padding(x, ends)
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
        return Unrolled(zero_padding(outputs, ends), last, final)

    def step(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        _, last, state = self(x[:, None], None, state)
        return last, state
