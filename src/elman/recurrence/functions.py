"""Functions for equations that look at all units at once; gain and shift are a cell's own vectors."""

from collections.abc import Sequence
from typing import Any

# A value of an equation: a tensor (B, H) where it is computed, a symbol while it is read.
Value = Any


def norm(value: Value, *others: Value, epsilon: float = 1e-5) -> Value:
    """``(a - mean) / sqrt(variance + epsilon)`` over the units; of several values, over all their units.

    >>> import torch
    >>> norm(torch.tensor([[1.0, 3.0]])).round(decimals=3)
    tensor([[-1.,  1.]])
    """
    values = value, *others
    mean = _average(values)
    return rms(*(a - mean for a in values), epsilon=epsilon)


def rms(value: Value, *others: Value, epsilon: float = 1e-5) -> Value:
    """``a / sqrt(mean(a²) + epsilon)`` over the units; of several values, over all their units.

    >>> import torch
    >>> a, b = rms(torch.tensor([[7.0]]), torch.tensor([[1.0]]), epsilon=0.0)
    >>> a.round(decimals=3), b.round(decimals=3)
    (tensor([[1.4000]]), tensor([[0.2000]]))
    """
    values = value, *others
    scale = (_average([a * a for a in values]) + epsilon).rsqrt()
    scaled = tuple(a * scale for a in values)
    return scaled if len(scaled) > 1 else scaled[0]


def _average(values: Sequence[Value]) -> Value:
    first, *rest = (a.mean(-1, keepdim=True) for a in values)
    return sum(rest, start=first) / len(values) if rest else first
