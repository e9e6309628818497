"""Tensors as code sees them that goes by address: where their numbers lie, and that they all do."""

import torch
from torch import Tensor

from elman.errors import ShapeError


def dense(tensor: Tensor) -> Tensor:
    """The same numbers one after the other, as they are: torch may have put off turning their signs."""
    return tensor.resolve_neg().contiguous()


def check_memory(name: str, tensor: Tensor | None, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """A dense tensor on the CPU of this shape and type, with as much memory as that takes.

    Others can change a tensor after it was checked (``set_``, ``.data``, a storage that is resized), so
    whoever hands out its address looks again.
    """
    if tensor is None or tensor.shape != shape:
        shown = None if tensor is None else tuple(tensor.shape)
        raise ShapeError(f"{name} has shape {shown}; the equations need {shape}")
    if tensor.dtype is not dtype or not whole(tensor):
        raise ShapeError(
            f"{name} is no dense memory of {dtype} on the CPU; it was changed while it was in use"
        )


def whole(tensor: Tensor) -> bool:
    """Whether all numbers of a tensor lie one after the other in the memory that it has on the CPU."""
    if tensor.is_nested or not tensor.is_cpu or tensor.layout is not torch.strided:
        return False
    if not tensor.is_contiguous() or tensor.is_neg():
        return False
    end = tensor.storage_offset() + tensor.numel()
    return end * tensor.element_size() <= tensor.untyped_storage().nbytes()
