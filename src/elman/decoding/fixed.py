"""Step functions that can be recorded: all that changes from step to step is an argument of theirs."""

import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

from torch import Tensor, nn

from elman.decoding.ensemble import ensemble
from elman.decoding.rows import Nested

StepResult = tuple[Tensor, Nested, Nested]
StepFunction = Callable[[Tensor, Nested, Nested], StepResult]


class FixedStep(NamedTuple):
    """A step function to which all that changes is an argument, so that it can be recorded.

    function: ``log_probs, state, shown = function(tokens (N,), state, given)`` for equally many rows, side by
        side, of each row of ``given``. It must not look at values on the device.
    model: whose weights it reads; in evaluation it is a function of its arguments.
    state: before the first token, one row an example.
    given: what stays the same at all steps, one row an example; nested tensors or None.
    """

    function: StepFunction
    model: nn.Module
    state: Nested
    given: Nested = None


def join(steps: Sequence[FixedStep]) -> FixedStep:
    """Several models as one, as in ``ensemble``."""
    if len(steps) == 1:
        return steps[0]

    def function(tokens: Tensor, state: Nested, given: Nested) -> StepResult:
        members = [_bound(one.function, own) for one, own in zip(steps, given, strict=True)]
        return ensemble(members)(tokens, state)

    models = nn.ModuleList(one.model for one in steps)
    return FixedStep(function, models, tuple(one.state for one in steps), tuple(one.given for one in steps))


def _bound(function: StepFunction, given: Nested) -> Callable[[Tensor, Nested], StepResult]:
    return lambda tokens, state: function(tokens, state, given)


def signature(model: nn.Module) -> Hashable | None:
    """What a recording of the model's step has fixed; None where a step is more than its kernels.

    That is so in training, which draws, and where somebody listens to the calls of a module.
    """
    found: list[Hashable] = []
    for module in model.modules():
        if module.training or module._forward_hooks or module._forward_pre_hooks:
            return None
        for value in (*vars(module).values(), *module._parameters.values(), *module._buffers.values()):
            if isinstance(value, Tensor):
                found.append((value.data_ptr(), value.shape, value.dtype))
            else:
                found.append(value if isinstance(value, (bool, int, float, str)) else id(value))
    return (weakref.ref(model), *found)
