"""Tensors as code sees them that goes by address: where their numbers lie, and that they all do."""

import ctypes
import mmap
from collections.abc import Callable
from functools import cache
from math import prod

import torch
from torch import Tensor

from elman.errors import ShapeError

HUGE = 1 << 21  # bytes of a large page


def dense(tensor: Tensor) -> Tensor:
    """The same numbers one after the other, as they are: torch may have put off turning their signs."""
    return tensor.resolve_neg().contiguous()


def check_memory(name: str, tensor: Tensor | None, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Check that a tensor is dense on the CPU, of this shape and type, with all the memory that takes.

    Others can change a tensor after it was checked (``set_``, ``.data``, a storage that is resized), so
    whoever hands out its address looks again.
    """
    if tensor is None or tensor.shape != shape:
        shown = None if tensor is None else tuple(tensor.shape)
        raise ShapeError(f"{name} has shape {shown}; the equations need {shape}")
    if tensor.dtype is not dtype or not is_dense(tensor):
        raise ShapeError(
            f"{name} is no dense memory of {dtype} on the CPU; it was changed while it was in use"
        )


def is_dense(tensor: Tensor) -> bool:
    """Whether all numbers of a tensor lie one after the other in the memory that it has on the CPU."""
    plain = not tensor.is_nested and tensor.is_cpu and tensor.layout is torch.strided
    if not plain or not tensor.is_contiguous() or tensor.is_neg() or tensor._is_zerotensor():
        return False
    return _reach(tensor) <= tensor.untyped_storage().nbytes()


def still_dense(tensor: Tensor, size: int, dtype: torch.dtype) -> bool:
    """Whether a plain tensor, which was dense, still is, with so many bytes: what can change in its place.

    The same as ``is_dense`` for those whose kind is known, at a third of the time, which a stream cares for.
    """
    if tensor.nbytes != size or tensor.dtype is not dtype or not tensor.is_contiguous():
        return False
    if tensor.is_neg() or not tensor.is_cpu or not tensor.data_ptr():
        return False
    return tensor.storage_offset() * tensor.itemsize + size <= tensor.untyped_storage().nbytes()


def check_room(*tensors: Tensor) -> None:
    """Check that all numbers of plain tensors on the CPU lie in memory; torch itself does not look."""
    for tensor in tensors:
        plain = type(tensor) is Tensor or type(tensor) is torch.nn.Parameter
        if plain and tensor.is_cpu and _reach(tensor) > tensor.untyped_storage().nbytes():
            raise ShapeError(f"a tensor of shape {tuple(tensor.shape)} has lost its memory: {tensor.dtype}")


def _reach(tensor: Tensor) -> int:
    """Bytes of its storage up to the end of its last number; none where there is no number."""
    if not tensor.numel():
        return 0
    if tensor.is_contiguous():
        last = tensor.numel()
    else:
        last = 1 + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    return int((tensor.storage_offset() + last) * tensor.element_size())


def new_memory(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A dense tensor on the CPU; what stands in it is anything.

    For a large one the system is advised to take large pages. New memory comes page by page, each filled
    with zeros: 256 MB take 80 ms in pages of 4 KB, on any number of threads, and 14 ms in large ones.
    """
    tensor = torch.empty(shape, dtype=dtype, device="cpu")
    if prod(shape) * dtype.itemsize >= 2 * HUGE and (madvise := _madvise()) is not None:
        begin = -(-tensor.data_ptr() // HUGE) * HUGE
        end = (tensor.data_ptr() + tensor.nbytes) // HUGE * HUGE
        madvise(begin, end - begin, mmap.MADV_HUGEPAGE)  # advice: where it is not taken, pages are small
    return tensor


@cache
def _madvise() -> Callable[[int, int, int], int] | None:
    """The call of the C library, where the system knows large pages."""
    function = getattr(ctypes.CDLL(None), "madvise", None) if hasattr(mmap, "MADV_HUGEPAGE") else None
    if function is not None:
        function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return function
