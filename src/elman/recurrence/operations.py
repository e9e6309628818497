"""The pointwise operations that equations may use: one row each, with its meaning, text and derivative.

A derivative is written in the symbols of the equations themselves: given ``g`` (the gradient of the
result), ``y`` (the result) and the arguments, it returns the gradient of each argument, or None for
one that takes no gradient. The text is C and Triton alike: it calls the functions of
``cpu/mathematics.c`` and ``triton/mathematics.py``, which have the same names. The meaning is torch's
function, whose values and derivatives the other two must have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import gt, lt
from typing import TYPE_CHECKING, TypeAlias, Union

import torch
from torch.nn import functional as F

if TYPE_CHECKING:  # which imports this table
    from elman.recurrence.symbols import Symbol

Gradient: TypeAlias = tuple[Union["Symbol", float, None], ...]  # of the arguments, in their order


@dataclass(frozen=True)
class Operation:
    """What an operation is: its meaning in torch, its text, its derivative, and how it behaves.

    dear: if the backward pass needs the result it is saved; a cheap one is computed again.
    bounded: the result is between -1 and 1, so that few bits hold it.
    boolean: the result is a truth value.
    passing: the derivative multiplies by nothing, so that of a gradient of zero there remains zero.
    """

    meaning: Callable[..., torch.Tensor]
    text: str
    derivative: Callable[..., Gradient]
    dear: bool = False
    bounded: bool = False
    boolean: bool = False
    passing: bool = False


def _no_gradient(g: Symbol, y: Symbol, *arguments: Symbol) -> Gradient:
    return (None,) * len(arguments)


def _softplus(a: torch.Tensor) -> torch.Tensor:
    return -F.logsigmoid(-a)  # finite for every finite a, and so is its derivative


def _softplus_gradient(g: Symbol, y: Symbol, a: Symbol) -> Gradient:
    small = a.exp()  # where the sigmoid has become zero, this has some digits left
    return (g * (a > 0.0).choose(a.sigmoid(), small / (1.0 + small)),)


def _pow(g: Symbol, y: Symbol, a: Symbol, b: Symbol) -> Gradient:
    if b.value == 0:
        return 0.0, None
    base = g * b * a ** (b - 1.0)
    if b.value is not None:
        return base, None
    return (b == 0).choose(0.0, base), g * ((a == 0) & (b >= 0)).choose(0.0, y * a.log())


def _gelu(g: Symbol, y: Symbol, a: Symbol) -> Gradient:
    area = 0.5 + 0.5 * (a * 0.7071067811865476).erf()
    return (g * (area + a * (-0.5 * a * a).exp() * 0.3989422804014327),)


def _erf(g: Symbol, y: Symbol, a: Symbol) -> Gradient:
    return (g * (1.1283791670955126 * (-(a * a)).exp()),)


def _clamp(g: Symbol, y: Symbol, a: Symbol, low: Symbol, high: Symbol) -> Gradient:
    return ((a >= low) & (a <= high)).choose(g, 0.0), None, None


def _where(g: Symbol, y: Symbol, condition: Symbol, a: Symbol, b: Symbol) -> Gradient:
    return None, condition.choose(g, 0.0), condition.choose(0.0, g)


def _extreme(loses: Callable[..., Symbol], g: Symbol, y: Symbol, a: Symbol, b: Symbol) -> Gradient:
    share = (a == b).choose(0.5 * g, g)  # torch shares the gradient at a tie, and gives it to both at NaN
    return loses(a, b).choose(0.0, share), loses(b, a).choose(0.0, share)


@dataclass(frozen=True)
class Reduction:
    """What makes one number of all units: its meaning in torch and its derivative."""

    meaning: Callable[[torch.Tensor], torch.Tensor]
    derivative: Callable[..., Gradient]


def _largest(g: Symbol, y: Symbol, a: Symbol) -> Gradient:
    share = (a == y).choose(1.0, 0.0)  # torch's amax shares the gradient among equals
    return (share * (g / a.graph.reduce("sum", share)),)


REDUCTIONS: dict[str, Reduction] = {
    "sum": Reduction(lambda a: a.sum(-1, keepdim=True), lambda g, y, a: (g,)),
    "max": Reduction(lambda a: a.amax(-1, keepdim=True), _largest),
    "top": Reduction(lambda a: a.detach().amax(-1, keepdim=True), lambda g, y, a: (None,)),
}

OPERATIONS: dict[str, Operation] = {
    "add": Operation(torch.add, "({0} + {1})", lambda g, y, a, b: (g, g), passing=True),
    "sub": Operation(torch.sub, "({0} - {1})", lambda g, y, a, b: (g, -g), passing=True),
    "mul": Operation(torch.mul, "({0} * {1})", lambda g, y, a, b: (g * b, g * a)),
    "div": Operation(torch.div, "({0} / {1})", lambda g, y, a, b: (g / b, -g * y / b), dear=True),
    "neg": Operation(torch.neg, "(-{0})", lambda g, y, a: (-g,), passing=True),
    "pow": Operation(torch.pow, "power({0}, {1})", _pow, dear=True),
    "sigmoid": Operation(
        torch.sigmoid, "sigmoid({0})", lambda g, y, a: (g * (y * (1.0 - y)),), dear=True, bounded=True
    ),
    "tanh": Operation(
        torch.tanh, "hyperbolic_tangent({0})", lambda g, y, a: (g * (1.0 - y * y),), dear=True, bounded=True
    ),
    "relu": Operation(torch.relu, "rectify({0})", lambda g, y, a: ((a <= 0.0).choose(0.0, g),), passing=True),
    "softplus": Operation(_softplus, "softplus({0})", _softplus_gradient, dear=True),
    "gelu": Operation(F.gelu, "gelu({0})", _gelu, dear=True),
    "exp": Operation(torch.exp, "exponential({0})", lambda g, y, a: (g * y,), dear=True),
    "log": Operation(torch.log, "logarithm({0})", lambda g, y, a: (g / a,), dear=True),
    "sqrt": Operation(torch.sqrt, "square_root({0})", lambda g, y, a: (0.5 * g / y,), dear=True),
    "abs": Operation(torch.abs, "magnitude({0})", lambda g, y, a: (g * a.sign(),)),
    "sign": Operation(torch.sign, "sign({0})", lambda g, y, a: (0.0,)),
    "erf": Operation(torch.erf, "error_function({0})", _erf, dear=True, bounded=True),
    "sin": Operation(torch.sin, "sine({0})", lambda g, y, a: (g * a.cos(),), dear=True, bounded=True),
    "cos": Operation(torch.cos, "cosine({0})", lambda g, y, a: (-g * a.sin(),), dear=True, bounded=True),
    "maximum": Operation(torch.maximum, "larger({0}, {1})", partial(_extreme, lt), passing=True),
    "minimum": Operation(torch.minimum, "smaller({0}, {1})", partial(_extreme, gt), passing=True),
    "clamp": Operation(torch.clamp, "clamp({0}, {1}, {2})", _clamp, passing=True),
    "where": Operation(torch.where, "choose({0}, {1}, {2})", _where, passing=True),
    "lt": Operation(torch.lt, "({0} < {1})", _no_gradient, boolean=True),
    "le": Operation(torch.le, "({0} <= {1})", _no_gradient, boolean=True),
    "gt": Operation(torch.gt, "({0} > {1})", _no_gradient, boolean=True),
    "ge": Operation(torch.ge, "({0} >= {1})", _no_gradient, boolean=True),
    "eq": Operation(torch.eq, "({0} == {1})", _no_gradient, boolean=True),
    "ne": Operation(torch.ne, "({0} != {1})", _no_gradient, boolean=True),
    "and": Operation(torch.logical_and, "({0} & {1})", _no_gradient, boolean=True),
    "or": Operation(torch.logical_or, "({0} | {1})", _no_gradient, boolean=True),
    "not": Operation(torch.logical_not, "(~{0})", _no_gradient, boolean=True),
}
