"""A network step by step over one batch of sequences, with gradients and the noise of training."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from elman.errors import ArgumentError
from elman.layers.dropout import keep_mask
from elman.layers.rnn import RNN
from elman.tensors.tracing import own_precision


class Walk:
    """What ``RNN.forward`` does, for whoever knows the next input only after the last output.

    Regularisers that keep one mask for a sequence keep it over all steps of the walk.

    >>> import torch
    >>> rnn = RNN("gru", 3, 5, recurrent_dropout=0.2)
    >>> walk, state = Walk(rnn, torch.zeros(2, 3), steps=4), rnn.start(2)
    >>> for _ in range(4):
    ...     y, state = walk.step(torch.randn(2, 3), state)
    """

    def __init__(self, rnn: RNN, like: Tensor, *, steps: int) -> None:
        """
        Args:
            like: (B, D), an input.
            steps: how many there will be at most.
        """
        if rnn.bidirectional:
            raise ArgumentError("a bidirectional RNN cannot walk: its second direction starts at the end")
        self.rnn, self.t, self.steps = rnn, 0, steps
        like = rnn._check_type(like)
        B, training = len(like), rnn.training
        rate = rnn.regularisers.input_dropout if training else 0.0
        self.cells = [rnn.cells[depth][0] for depth in range(rnn.layers)]  # type: ignore[index]
        self.noises = [rnn.regularisers.draw(cell, B, steps, like, training=training) for cell in self.cells]
        self.masks = [keep_mask(like, B, cell.input_size, rate) for cell in self.cells]

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Output (B, ·) and state after one more input (B, D)."""
        t, states = self.t, []
        if t == self.steps:
            raise ArgumentError(f"a walk of {t} steps is over; give Walk more of them")
        self.t += 1
        x = self.rnn._check_type(x)
        if not t:  # what a walk makes of it fits
            state = self.rnn._nest(self.rnn._start(state, len(x), x))
        with own_precision(x):
            for depth, (cell, noise, mask) in enumerate(
                zip(self.cells, self.noises, self.masks, strict=True)
            ):
                x = F.dropout(x, self.rnn.dropout, self.rnn.training) if depth else x
                x = x if mask is None else x * mask
                if noise.zoneout:
                    now = {name: _at(drawn, t) for name, drawn in noise.zoneout.items()}
                    noise = replace(noise, zoneout=now)
                _, x, new = cell(x[:, None], state[depth], noise=noise, backend=self.rnn.backend)
                states.append(new)
        return x, tuple(states)


def _at(drawn: Tensor | float, t: int) -> Tensor | float:
    return drawn[:, t : t + 1] if isinstance(drawn, Tensor) else drawn
