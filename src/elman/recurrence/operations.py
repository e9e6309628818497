"""The pointwise operations that equations may use: one row each, with its text and its derivative.

A derivative is written in the symbols of the equations themselves: given ``g`` (the gradient of the
result), ``y`` (the result) and the arguments, it returns the gradient of each argument, or None for
one that takes no gradient. The text is C and Triton alike: it calls the functions of
``cpu/mathematics.c`` and ``triton/mathematics.py``, which have the same names.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

# The arguments are symbols of elman.recurrence.symbols, which imports this table.
Derivative = Callable[..., tuple[Any, ...]]


@dataclass(frozen=True)
class Operation:
    """What an operation is: its text, its derivative, and how it behaves.

    dear: if the backward pass needs the result it is saved; a cheap one is computed again.
    bounded: the result is between -1 and 1, so that few bits hold it.
    boolean: the result is a truth value.
    """

    text: str
    derivative: Derivative
    dear: bool = False
    bounded: bool = False
    boolean: bool = False


def _no_gradient(g: Any, y: Any, *arguments: Any) -> tuple[Any, ...]:
    return (None,) * len(arguments)


def _pow(g: Any, y: Any, a: Any, b: Any) -> tuple[Any, ...]:
    base = g * b * a ** (b - 1.0)
    if b.value is not None:
        return base, None
    return (b == 0).choose(0.0, base), ((a == 0) & (b >= 0)).choose(0.0, g * y * a.log())


def _gelu(g: Any, y: Any, a: Any) -> tuple[Any, ...]:
    area = 0.5 + 0.5 * (a * 0.7071067811865476).erf()
    return (g * (area + a * (-0.5 * a * a).exp() * 0.3989422804014327),)


def _maximum(g: Any, y: Any, a: Any, b: Any) -> tuple[Any, ...]:
    tie = (a == b).choose(0.5 * g, 0.0)  # torch shares the gradient at a tie
    return (a > b).choose(g, tie), (b > a).choose(g, tie)


def _minimum(g: Any, y: Any, a: Any, b: Any) -> tuple[Any, ...]:
    tie = (a == b).choose(0.5 * g, 0.0)
    return (a < b).choose(g, tie), (b < a).choose(g, tie)


OPERATIONS: dict[str, Operation] = {
    "add": Operation("({0} + {1})", lambda g, y, a, b: (g, g)),
    "sub": Operation("({0} - {1})", lambda g, y, a, b: (g, -g)),
    "mul": Operation("({0} * {1})", lambda g, y, a, b: (g * b, g * a)),
    "div": Operation("({0} / {1})", lambda g, y, a, b: (g / b, -g * y / b), dear=True),
    "neg": Operation("(-{0})", lambda g, y, a: (-g,)),
    "pow": Operation("power({0}, {1})", _pow, dear=True),
    "sigmoid": Operation("sigmoid({0})", lambda g, y, a: (g * (y * (1.0 - y)),), dear=True, bounded=True),
    "tanh": Operation(
        "hyperbolic_tangent({0})", lambda g, y, a: (g * (1.0 - y * y),), dear=True, bounded=True
    ),
    "relu": Operation("rectify({0})", lambda g, y, a: ((a > 0.0).choose(g, 0.0),)),
    "softplus": Operation("softplus({0})", lambda g, y, a: (g * a.sigmoid(),), dear=True),
    "gelu": Operation("gelu({0})", _gelu, dear=True),
    "exp": Operation("exponential({0})", lambda g, y, a: (g * y,), dear=True),
    "log": Operation("logarithm({0})", lambda g, y, a: (g / a,), dear=True),
    "sqrt": Operation("square_root({0})", lambda g, y, a: (0.5 * g / y,), dear=True),
    "abs": Operation("magnitude({0})", lambda g, y, a: (g * a.sign(),)),
    "sign": Operation("sign({0})", _no_gradient),
    "erf": Operation(
        "error_function({0})",
        lambda g, y, a: (g * (1.1283791670955126 * (-(a * a)).exp()),),
        dear=True,
        bounded=True,
    ),
    "sin": Operation("sine({0})", lambda g, y, a: (g * a.cos(),), dear=True, bounded=True),
    "cos": Operation("cosine({0})", lambda g, y, a: (-g * a.sin(),), dear=True, bounded=True),
    "maximum": Operation("larger({0}, {1})", _maximum),
    "minimum": Operation("smaller({0}, {1})", _minimum),
    "clamp": Operation(
        "clamp({0}, {1}, {2})",
        lambda g, y, a, low, high: (((a >= low) & (a <= high)).choose(g, 0.0), None, None),
    ),
    "where": Operation(
        "choose({0}, {1}, {2})",
        lambda g, y, c, a, b: (None, c.choose(g, 0.0), c.choose(0.0, g)),
    ),
    "lt": Operation("({0} < {1})", _no_gradient, boolean=True),
    "le": Operation("({0} <= {1})", _no_gradient, boolean=True),
    "gt": Operation("({0} > {1})", _no_gradient, boolean=True),
    "ge": Operation("({0} >= {1})", _no_gradient, boolean=True),
    "eq": Operation("({0} == {1})", _no_gradient, boolean=True),
    "ne": Operation("({0} != {1})", _no_gradient, boolean=True),
    "and": Operation("({0} & {1})", _no_gradient, boolean=True),
    "or": Operation("({0} | {1})", _no_gradient, boolean=True),
    "not": Operation("(~{0})", _no_gradient, boolean=True),
}
