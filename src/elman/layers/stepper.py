"""A network step by step over one batch of sequences, with gradients and the noise of training."""

from dataclasses import replace

from torch import Tensor

from elman.errors import ArgumentError
from elman.layers.dropout import keep_mask
from elman.layers.rnn import RNN, NetworkState
from elman.tensors.draws import dropout
from elman.tensors.tracing import own_precision


class Stepper:
    """What ``RNN.forward`` does, for whoever knows the next input only after the last output.

    Regularisers that keep one mask for a sequence keep it over all its steps.

    >>> import torch
    >>> rnn = RNN("gru", 3, 5, recurrent_dropout=0.2)
    >>> stepper, state = Stepper(rnn, torch.zeros(2, 3), steps=4), rnn.start(2)
    >>> for _ in range(4):
    ...     y, state = stepper.step(torch.randn(2, 3), state)
    """

    def __init__(self, rnn: RNN, like: Tensor, *, steps: int) -> None:
        """
        Args:
            like: (B, D), an input.
            steps: how many there will be at most.
        """
        if rnn.bidirectional:
            raise ArgumentError("a bidirectional RNN has no Stepper: its second direction starts at the end")
        self.rnn, self.t, self.steps = rnn, 0, steps
        like = rnn.check_input(like)
        B, training = len(like), rnn.training
        self.cells = rnn.all_cells()
        self.noises = [rnn.regularisers.draw(cell, B, steps, like, training=training) for cell in self.cells]
        rates = [rnn.regularisers.before(depth) if training else 0.0 for depth in range(rnn.layers)]
        self.masks = [
            keep_mask(like, B, cell.input_size, r) for cell, r in zip(self.cells, rates, strict=True)
        ]

    def step(self, x: Tensor, state: NetworkState | None) -> tuple[Tensor, NetworkState]:
        """Output (B, ·) and state after one more input (B, D)."""
        t, states = self.t, []
        if t == self.steps:
            raise ArgumentError(f"all {t} steps are taken; give Stepper more of them")
        self.t += 1
        x = self.rnn.check_input(x)
        if not t:  # a state that came out of a step fits
            state = self.rnn.check_state(state, len(x), x)
        elif state is None:
            raise ArgumentError("state is None; after the first step it is what the last step returned")
        each = zip(self.cells, self.noises, self.masks, strict=True)
        with own_precision(x):
            for depth, (cell, noise, mask) in enumerate(each):
                x = dropout(x, self.rnn.dropout, self.rnn.training) if depth else x
                x = x if mask is None else x * mask
                if noise.zoneout:
                    zoneout = noise.zoneout.items()
                    at_t = {n: z[:, t : t + 1] if isinstance(z, Tensor) else z for n, z in zoneout}
                    noise = replace(noise, zoneout=at_t)
                _, x, new = cell(x[:, None], state[depth], noise=noise, backend=self.rnn.backend)
                states.append(new)
        return x, tuple(states)
