"""Memory for what does not outlive a call, used again by the next one: new pages are dear.

What a C library frees it may give back to the system, which then fills every page with zeros when it is
asked for again; a call that needs a megabyte takes some hundred such faults.
"""

import threading
from math import prod

import torch
from torch import Tensor

from elman.tensors.memory import new_memory

KEPT = 32 << 20  # bytes that a thread keeps at most
_ALIGNED = 64  # bytes of the longest vectors


class _ThreadsOwn(threading.local):
    """The block of one thread: how much of it is taken, and was at most, also beyond its end."""

    block: Tensor | None = None
    size = taken = most = 0


_own = _ThreadsOwn()


class Scratch:
    """Tensors that are gone after the ``with``: parts of the thread's block, or new ones where it is full.

    A block grows at the end to what was asked for. Uses may stand inside each other.

    >>> with Scratch(torch.float32) as scratch:
    ...     scratch.empty(2, 3).shape
    torch.Size([2, 3])
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype

    def __enter__(self) -> "Scratch":
        self._begin = _own.taken
        return self

    def __exit__(self, *_: object) -> None:
        _own.taken = self._begin
        if self._begin:
            return
        asked, _own.most = _own.most, 0
        if _own.size < asked <= KEPT:
            _own.block = None  # first, so that two are never there
            with torch.inference_mode(False):  # or others could not write there
                _own.block = new_memory((asked,), torch.uint8)
            _own.size = asked

    def empty(self, *shape: int) -> Tensor:
        """A dense tensor of this shape; what stands in it is anything."""
        begin, size = _own.taken, prod(shape) * self.dtype.itemsize
        end = _own.taken = -(-(begin + size) // _ALIGNED) * _ALIGNED
        _own.most = max(_own.most, end)
        if _own.block is None or end > _own.size or not size:
            return new_memory(shape, self.dtype)
        found: Tensor = _own.block[begin : begin + size].view(self.dtype).view(shape)
        return found

    def zeros(self, *shape: int) -> Tensor:
        return self.empty(*shape).zero_()
