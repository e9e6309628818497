"""Recurrent weights in blocks: units in groups, the heads, that multiply within their group alone.

With ``k`` heads of ``d`` units each, a matrix (H, H) of which only the blocks on the diagonal are there is
kept as (H, d), a head below the other; recurrent weights of G gates are (H, G · d). So a shape tells the
heads, and one head is the whole matrix.
"""

from collections.abc import Callable

import torch
from torch import Tensor


def count_heads(weight: Tensor, count: int = 1) -> int:
    """How many heads the weights (H, count · d) of so many gates have."""
    return weight.shape[0] * count // weight.shape[1]


def multiply_by_heads(value: Tensor, weight: Tensor, count: int = 1) -> Tensor:
    """``value`` (B, H) times the weights of so many gates: (B, count · H), a gate beside the other."""
    heads = count_heads(weight, count)
    if heads == 1:
        return value @ weight
    groups: Tensor = value.unflatten(-1, (heads, -1)).movedim(-2, 0) @ weight.unflatten(0, (heads, -1))
    found: Tensor = groups.unflatten(-1, (count, -1)).movedim(0, -2)  # (k, B, G·d) → (B, G, k, d)
    return found.flatten(-3)


def learn_by_heads(
    operand: Tensor, gradients: Tensor, heads: int, multiply: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """The gradient (H, G · d) of weights that multiplied (N, H), from that of what came out, (N, G · H)."""
    if heads == 1:
        return multiply(operand.t(), gradients)
    N, H = operand.shape
    given = operand.view(N, heads, -1).permute(1, 2, 0)  # (k, d, N)
    found = gradients.view(N, -1, heads, H // heads).permute(2, 0, 1, 3).reshape(heads, N, -1)
    return torch.cat([multiply(a, b) for a, b in zip(given, found, strict=True)])


def whole_matrix(weight: Tensor, count: int = 1) -> Tensor:
    """The weights (H, count · d) as (H, count · H), with zeros between the heads; differentiable."""
    heads = count_heads(weight, count)
    if heads == 1:
        return weight
    d = weight.shape[0] // heads
    blocks = weight.view(heads, d, count, d).permute(1, 2, 3, 0)
    return torch.diag_embed(blocks).permute(3, 0, 1, 4, 2).reshape(heads * d, count * heads * d)
