"""Several models as one step function."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from elman.decoding.base import Step
from elman.decoding.rows import Nested
from elman.errors import ArgumentError


def ensemble(steps: Sequence[Step]) -> Step:
    """The mean of their probabilities; its state is the tuple of theirs, and it shows what the first shows.

    >>> def fixed(*p):
    ...     return lambda tokens, state: (torch.tensor([p]).log().expand(len(tokens), -1), state, None)
    >>> both = ensemble([fixed(0.5, 0.5), fixed(0.9, 0.1)])
    >>> both(torch.tensor([0]), (None, None))[0].exp()
    tensor([[0.7000, 0.3000]])
    """
    if not steps:
        raise ArgumentError("an ensemble of no models; give at least one step function")

    def step(tokens: Tensor, state: Nested) -> tuple[Tensor, Nested, Nested]:
        total, after, shown = steps[0](tokens, state[0])
        states = [after]
        for number, (member, own) in enumerate(zip(steps[1:], state[1:], strict=True), 1):
            log_probs, after, _ = member(tokens, own)
            if log_probs.shape != total.shape:
                known = f"{log_probs.shape[1]} tokens, the first {total.shape[1]}"
                same = "their vocabularies have to be the same"
                raise ArgumentError(f"model {number} of an ensemble knows {known}; {same}")
            total = torch.logaddexp(total, log_probs)
            states.append(after)
        return total - math.log(len(steps)), tuple(states), shown

    return step
