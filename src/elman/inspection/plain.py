"""Values of an inspection as plain numbers, lists and objects, rounded as a page shows them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Plain: TypeAlias = "bool | int | float | str | list[Plain] | dict[str, Plain] | None"
DIGITS = 4  # that count
MANY = 3  # decimals of the values of gates and states, of which there are many


def plain(value: object) -> Plain:
    """A value of dataclasses, arrays, lists and numbers as JSON has it; what is no number is null.

    >>> plain([0.123456, float("nan"), (1, "a")])
    [0.1235, None, [1, 'a']]
    """
    if is_dataclass(value) and not isinstance(value, type):
        shown = {
            one.name: getattr(value, one.name) for one in fields(value) if one.metadata.get("shown", True)
        }
        return {name: plain(part) for name, part in shown.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    raise TypeError(f"{type(value).__name__} is no part of an inspection")


def many(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Values of gates and states, rounded to so many decimals that they fit into 16 bits together."""
    return np.round(values, decimals_of(values))


def decimals_of(values: NDArray[np.float64]) -> int:
    """Below zero where they are so large: hundreds, say, at -2."""
    largest = float(np.abs(values).max(initial=0.0))
    return MANY - max(0, math.ceil(math.log10(max(largest, 1e-9) / 32.7)))
