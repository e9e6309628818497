"""The contract of a network: vectors and lengths in, ``Unrolled(outputs, last, state)`` out."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from elman.config import RecurrentSettings
from elman.recurrence.contract import Unrolled
from elman.tensors.rows import zero_padding
from elman.tensors.transfer import moved


class Network(nn.Module):
    """What reads a sequence of vectors: a recurrent network, a convolution, a layer of torch's transformer.

    The constructor begins ``__init__(self, input_size, hidden)``, sets ``output_size``, and has options as
    keywords. An option ``causal`` is told whether outputs must not know of later inputs; a language model
    takes only networks that have it. A class writes ``outputs``; one with a state writes ``forward`` and
    ``step``.

    counted: the task counts n-grams instead, and there is no network.

    >>> class Doubled(Network):
    ...     def __init__(self, input_size, hidden):
    ...         super().__init__()
    ...         self.output_size = input_size
    ...     def outputs(self, x, lengths):
    ...         return 2 * x
    >>> outputs, last, _ = Doubled(1, 1)(torch.ones(2, 3, 1), torch.tensor([3, 1]))
    >>> outputs[..., 0].tolist(), last.tolist()
    ([[2.0, 2.0, 2.0], [2.0, 0.0, 0.0]], [[2.0], [2.0]])
    """

    output_size: int
    counted: ClassVar[bool] = False
    stacked: ClassVar[bool] = False  # it takes one width a layer; others get the last of them
    reads_forward: ClassVar[bool] = False  # outputs never know of later inputs

    @classmethod
    def summary(cls, name: str, settings: RecurrentSettings) -> str:
        """The network in a few words, with its width."""
        return f"{name} {settings.hidden}"

    def outputs(self, x: Tensor, lengths: Tensor) -> Tensor:
        """(B, T, output_size) for vectors (B, T, D), of which lengths (B,) are real; padding is zero."""
        raise NotImplementedError(f"{type(self).__name__} writes neither outputs nor forward")

    def forward(self, x: Tensor, lengths: Tensor | None = None, state: Any = None) -> Unrolled:
        """The outputs, zero at padding, the last real one of each row, and the state after it.

        A network that only writes ``outputs`` begins anew with every sequence: it has no state.
        """
        ends = row_ends(x, lengths)
        outputs = zero_padding(self.outputs(zero_padding(x, ends), ends), ends)
        return Unrolled(outputs, at(outputs, ends - 1), ())

    def step(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """The output (B, ·) after one more vector (B, D), and the state then: here all vectors so far."""
        so_far = x[:, None] if not state else torch.cat([state[0], x[:, None]], 1)
        return self(so_far).last, (so_far,)


def row_ends(x: Tensor, lengths: Tensor | None) -> Tensor:
    """(B,) the number of real steps of each row, where x is."""
    if lengths is None:
        return torch.full((x.shape[0],), x.shape[1], device=x.device)
    return moved(lengths, x.device)


def at(x: Tensor, index: Tensor) -> Tensor:
    """One step of each row: (B, T, ·) → (B, ·)."""
    return x[torch.arange(len(x), device=x.device), index]
