"""What else torch may be doing with an operation: transforms, forward mode, compilation."""

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad

P = ParamSpec("P")
T = TypeVar("T")
_NOTHING = nullcontext()


def opaque(function: Callable[P, T]) -> Callable[P, T]:
    """``torch.compile`` leaves this function alone and compiles around it; an export looks into it.

    ``torch.compiler.disable`` alone would import the compiler at once, a second of start-up.
    """

    @functools.wraps(function)
    def undisturbed(*args: P.args, **kwargs: P.kwargs) -> T:
        if torch.compiler.is_dynamo_compiling() and not exporting():
            return torch.compiler.disable(function)(*args, **kwargs)  # type: ignore[no-any-return]
        return function(*args, **kwargs)

    return undisturbed


def exporting() -> bool:
    """Whether a program is exported; while it compiles, torch 2.11 says that of everything."""
    return torch.compiler._is_exporting_flag


def in_autocast(x: Tensor) -> bool:
    """Whether autocast would change operations on this tensor."""
    device = x.device.type
    known = device in ("cpu", "cuda") or torch.amp.is_autocast_available(device)  # an export cannot ask
    return known and torch.is_autocast_enabled(device)


def own_precision(x: Tensor) -> AbstractContextManager[Any]:
    """Inside autocast, keep the precision of the weights: errors add up over time."""
    return torch.autocast(x.device.type, enabled=False) if in_autocast(x) else _NOTHING


def extraordinary(*tensors: Tensor | None) -> str | None:
    """Why these are not plain tensors of one memory, or None if they are.

    Code that reads memory by address, or that is differentiated by hand, serves plain tensors only.
    """
    reason = observed()
    if reason is not None:
        return reason
    present = [tensor for tensor in tensors if tensor is not None]
    for tensor in present:
        if tensor.device != present[0].device or tensor.device.type not in ("cpu", "cuda"):
            return f"a tensor is on {tensor.device}"
        if type(tensor) is not Tensor and type(tensor) is not torch.nn.Parameter:
            return f"a tensor is of the kind {type(tensor).__name__}"
        if tensor._is_zerotensor():
            return "a tensor has no memory, but stands for zeros"
    return None


def observed(*tensors: Tensor | None) -> str | None:
    """Why torch must see every operation just now (on these tensors), or None."""
    if any(t is not None and torch._C._functorch.is_legacy_batchedtensor(t) for t in tensors):
        return "a batch of gradients is taken at once"
    if torch.compiler.is_compiling():
        return "torch is exporting or compiling"
    if torch._C._get_tracing_state() is not None or torch._C._len_torch_dispatch_stack():
        return "torch is noting down every operation"
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return "a torch.func transform is at work"
    if forward_ad._current_level >= 0:
        return "forward-mode differentiation is at work"
    return None
