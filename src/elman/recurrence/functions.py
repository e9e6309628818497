"""Functions for equations that look at all units at once; gain and shift are a cell's own vectors.

>>> import torch
>>> norm(torch.tensor([[1.0, 3.0]])).round(decimals=3)
tensor([[-1.,  1.]])
>>> a, b = rms(torch.tensor([[3.0]]), torch.tensor([[1.0]]), epsilon=0.0)  # of both together
"""

from typing import Any

# A value of an equation: a tensor (B, H) where it is computed, a symbol while it is read.
Value = Any


def norm(value: Value, *others: Value, epsilon: float = 1e-5) -> Value:
    """``(a - mean) / sqrt(variance + epsilon)`` over the units; of several values, over all their units."""
    values = value, *others
    mean = sum(a.mean(-1, keepdim=True) for a in values) / len(values)
    return rms(*(a - mean for a in values), epsilon=epsilon)


def rms(value: Value, *others: Value, epsilon: float = 1e-5) -> Value:
    """``a / sqrt(mean(a²) + epsilon)`` over the units; of several values, over all their units."""
    values = value, *others
    square = sum((a * a).mean(-1, keepdim=True) for a in values) / len(values)
    scale = (square + epsilon).rsqrt()
    scaled = tuple(a * scale for a in values)
    return scaled if len(scaled) > 1 else scaled[0]
