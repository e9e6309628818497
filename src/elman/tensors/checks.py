"""Checks of arguments: each names the argument, its value and the rule."""

import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from keyword import iskeyword
from typing import Any
from unicodedata import normalize

import torch
from torch import Tensor

from elman.errors import ArgumentError, ShapeError
from elman.tensors.tracing import exporting

_known: ContextVar[bool] = ContextVar("_known", default=False)  # whether lengths on a GPU were looked at


def check_size(name: str, value: Any, *, least: int = 1) -> int:
    """Check that a value is a whole number of at least ``least``.

    >>> check_size("hidden_size", 0)
    Traceback (most recent call last):
    elman.errors.ArgumentError: E101: hidden_size is 0; it must be a whole number of at least 1
    """
    whole = operator.index(value) if hasattr(value, "__index__") and not isinstance(value, bool) else None
    if whole is None or whole < least:
        raise ArgumentError(f"{name} is {value!r}; it must be a whole number of at least {least}")
    return whole


def check_flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ArgumentError(f"{name} is {value!r}; it must be True or False")
    return value


def check_number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ArgumentError(f"{name} is {value!r}; it must be a number")
    return float(value)


def check_rate(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1:
        raise ArgumentError(f"{name} is {value!r}; it must be a probability: 0 or more, below 1")
    return float(value)


def check_choice(
    name: str, value: Any, known: Sequence[str], usable: Callable[[], Sequence[str]] | None = None
) -> str:
    """A word out of those that are known; ``usable`` tells which of them a message should list."""
    if value not in known:
        listed = known if usable is None else usable()
        raise ArgumentError(f"{name} is {value!r}; it must be one of {', '.join(map(repr, listed))}")
    return str(value)


def check_names(where: str, names: Iterable[str], taken: Collection[str]) -> tuple[str, ...]:
    if isinstance(names, (str, set, frozenset)) or not isinstance(names, Iterable):
        raise ArgumentError(f"{where} is {names!r}; it must be a tuple of plain words, as in ('h',)")
    words = tuple(normalize("NFKC", name) if isinstance(name, str) else name for name in names)  # as in code
    for name in words:
        plain = isinstance(name, str) and name.isidentifier() and not iskeyword(name) and name[0] != "_"
        if not plain or words.count(name) > 1 or name in taken:
            raise ArgumentError(
                f"{where} holds {name!r}; its names must be plain words, each once, "
                "without a leading underscore, and none that a cell already uses"
            )
    return words


def is_tuple(value: Any, count: int) -> bool:
    """Whether it is a tuple or a list of so many entries."""
    return isinstance(value, (tuple, list)) and len(value) == count


def is_plain(value: Any) -> bool:
    """Whether it is a tensor with rows and columns in memory: none that is sparse, nested or packed."""
    return isinstance(value, Tensor) and value.layout is torch.strided and not value.is_nested


def check_tensor(name: str, value: Any, shape: tuple[int | str, ...]) -> Tensor:
    """Check that a value is a tensor of this shape; a letter stands for any size of at least one."""
    if not isinstance(value, Tensor):
        raise ShapeError(f"{name} is a {type(value).__name__}; it must be a tensor of shape {_show(shape)}")
    if not is_plain(value):
        kind = "nested" if value.is_nested else value.layout
        raise ShapeError(f"{name} is a {kind} tensor; it must be a plain one of shape {_show(shape)}")
    sizes = value.shape
    if len(sizes) == len(shape):
        for rule, size in zip(shape, sizes, strict=True):
            if size != rule and (size < 1 or not isinstance(rule, str)):
                break
        else:
            return value
    raise ShapeError(f"{name} has shape {_show(sizes)}; it must be {_show(shape)}")


def check_like(name: str, value: Tensor, reference_name: str, reference: Tensor) -> None:
    """Check that two tensors have the same type of number on the same device."""
    if value.dtype != reference.dtype:
        raise ShapeError(
            f"{name} is {value.dtype} but {reference_name} is {reference.dtype}; "
            f"convert one of them, as in {name}.to({reference.dtype})"
        )
    if value.device != reference.device:
        where = f"{name} is on {value.device} but {reference_name} is on {reference.device}"
        raise ShapeError(f"{where}; move one")


def check_lengths(lengths: Any, B: int, T: int, device: torch.device) -> Tensor:
    """Check that lengths are whole numbers from 1 to T, one a row; return them as int64 on the device.

    A GPU is waited for where they come from there; the host checks its own by itself.
    """
    return look_at_lengths(lengths, B, T, device)[0]


@contextmanager
def known_lengths() -> Iterator[None]:
    """Inside, lengths that lie on a GPU were looked at before they got there, so it is not waited for."""
    before = _known.set(True)
    try:
        yield
    finally:
        _known.reset(before)


def look_at_lengths(lengths: Any, B: int, T: int, device: torch.device) -> tuple[Tensor, bool]:
    """Check lengths, and tell whether that is all that can be done about their values.

    Whoever compiles has none to look at, and whoever runs what was compiled must; a recorded graph never has.
    """
    if not isinstance(lengths, Tensor):
        try:
            lengths = torch.as_tensor(lengths)
        except (TypeError, ValueError, RuntimeError) as error:
            raise ShapeError(f"lengths is {lengths!r}; it must hold {B} whole numbers ({error})") from None
    if not is_plain(lengths):
        raise ShapeError("lengths is not a plain tensor; it must hold whole numbers, one a row of x")
    if lengths.dim() != 1 or len(lengths) != B:
        raise ShapeError(f"lengths has shape {_show(lengths.shape)}; it must be ({B}), one a row of x")
    if lengths.dtype.is_floating_point or lengths.dtype == torch.bool or lengths.dtype.is_complex:
        raise ShapeError(f"lengths is {lengths.dtype}; it must hold whole numbers")
    checked: Tensor = lengths.long()
    if checked.is_meta and device.type != "meta":
        raise ShapeError("lengths is a tensor without values (meta); it must hold whole numbers")
    known = checked.is_cuda and (_known.get() or torch.cuda.is_current_stream_capturing())
    recorded = checked.is_meta or known
    looked = not (recorded or torch.compiler.is_compiling())
    if exporting():  # the exported program looks for itself
        inside = ((checked >= 1) & (checked <= T)).all()
        torch._assert_async(inside, f"{ShapeError.number}: a length is at least 1 and at most the steps of x")
    elif looked:
        check_length_values(checked, T)
    return checked.to(device, non_blocking=device.type == "cuda"), looked or recorded


def check_length_values(lengths: Tensor, T: int) -> int:
    """Check that every length is from 1 to T, and return the smallest; a GPU is waited for."""
    low, high = torch.stack(torch.aminmax(lengths)).tolist()  # at once
    if low < 1 or high > T:
        row, wrong = (lengths.argmin(), low) if low < 1 else (lengths.argmax(), high)
        raise ShapeError(f"lengths[{row}] is {wrong}; a length is at least 1 and at most the {T} steps of x")
    return int(low)


def _show(shape: Sequence[int | str]) -> str:
    return f"({', '.join(map(str, shape))})"
