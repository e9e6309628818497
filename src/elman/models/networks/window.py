"""A feed-forward network over a fixed window, where an RNN would stand: does the recurrence pay? (row L6)"""

from typing import Any

import torch
from torch import Tensor, nn, tanh

from elman.models.networks.base import Network, at, row_ends
from elman.recurrence.contract import Unrolled
from elman.tensors.rows import zero_padding


class Window(Network):
    """``y_i = tanh(W [x_{i-k+1}; …; x_i] + b)``: a feed-forward network over a fixed window of k inputs.

    ``causal``: the window ends at i, as a language model needs; otherwise i stands in its middle. Beyond the
    ends of the sequence the inputs are zero. The state is the last k - 1 inputs.
    """

    def __init__(self, input_size: int, hidden: int, *, window: int = 5, causal: bool) -> None:
        super().__init__()
        self.before = window - 1 if causal else window // 2
        self.after = 0 if causal else window - 1 - window // 2
        self.input_size, self.output_size = input_size, hidden
        self.map = nn.Linear(window * input_size, hidden)

    def forward(self, x: Tensor, lengths: Tensor | None = None, state: Any = None) -> Unrolled:
        B, T, D = x.shape
        past = x.new_zeros(B, self.before, D) if state is None else state[0]
        ends = row_ends(x, lengths)
        wide = torch.cat([past, zero_padding(x, ends), x.new_zeros(B, self.after, D)], 1)
        windows = [wide[:, k : k + T] for k in range(self.before + self.after + 1)]
        outputs = zero_padding(tanh(self.map(torch.cat(windows, -1))), ends)
        places = ends[:, None] + torch.arange(self.before, device=x.device)  # (B, k - 1)
        recent = wide.gather(1, places[..., None].expand(-1, -1, D))
        return Unrolled(outputs, at(outputs, ends - 1), (recent,))

    def step(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        _, last, state = self(x[:, None], None, state)
        return last, state
