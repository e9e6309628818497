"""Pointwise functions for the equations of a cell, in Triton; the names are those of ``cpu/mathematics.c``.

NaN goes in, NaN comes out (but of ``sign``, as in torch). Importing this module needs Triton.
"""

# Triton reads the source of these functions itself; Python never runs their bodies.
# mypy: ignore-errors

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def choose(condition, a, b):
    return tl.where(condition, a, b)


@triton.jit
def larger(a, b):
    return tl.where((a > b) | (a != a), a, b)


@triton.jit
def smaller(a, b):
    return tl.where((a < b) | (a != a), a, b)


@triton.jit
def rectify(a):
    return tl.where(a < 0.0, 0.0, a)


@triton.jit
def magnitude(a):
    return tl.abs(a)


@triton.jit
def sign(a):
    return tl.where(a > 0.0, 1.0, tl.where(a < 0.0, -1.0, 0.0))


@triton.jit
def clamp(a, low, high):
    return tl.where(a < low, low, tl.where(a > high, high, a))


@triton.jit
def exponential(a):
    return tl.exp(a)


@triton.jit
def logarithm(a):
    return tl.log(a)


@triton.jit
def square_root(a):
    return tl.sqrt(a)


@triton.jit
def sine(a):
    return tl.sin(a)


@triton.jit
def cosine(a):
    return tl.cos(a)


@triton.jit
def error_function(a):
    return tl.erf(a)


@triton.jit
def gelu(a):
    return 0.5 * a * (1.0 + tl.erf(a * 0.7071067811865476))


@triton.jit
def sigmoid(a):
    return 1.0 / (1.0 + tl.exp(-a))


@triton.jit
def hyperbolic_tangent(a):
    """Exact near zero too, where the quotient would lose its digits: there a series takes its place.

    Both are computed of |a|; the sign is put back as a bit, so that -0 keeps its own.
    """
    m = magnitude(a)
    e = tl.exp(-2.0 * m)
    q = m * m
    series = m + m * q * (-0.33333333 + q * (0.13333333 + q * (-0.053968254 + q * 0.021869488)))
    size = tl.where(q < 0.04, series, (1.0 - e) / (1.0 + e))
    sign_bit = a.to(tl.int32, bitcast=True) & -2147483648
    return (size.to(tl.int32, bitcast=True) | sign_bit).to(tl.float32, bitcast=True)


@triton.jit
def softplus(a):
    """log(1 + e^a); what rounding takes from 1 + e is given back by the quotient."""
    e = tl.exp(a)
    u = 1.0 + e
    return tl.where(u == 1.0, e, tl.where(e > 1.0e30, a, tl.log(u) * (e / (u - 1.0))))


@triton.jit
def power(a, b):
    """|a|^b by logarithms; a negative base takes the sign of a whole exponent, or is not a number."""
    size = tl.where(magnitude(a) == 1.0, 1.0, tl.exp2(b * tl.log2(magnitude(a))))
    whole = tl.floor(b) == b
    odd = whole & (tl.floor(b * 0.5) * 2.0 != b)
    signed = tl.where(whole | (a == float("-inf")), tl.where(odd, -size, size), float("nan"))
    below = tl.where(odd, 1.0 / a, float("inf"))
    at_zero = tl.where(b > 0.0, 0.0, tl.where(b < 0.0, below, b))
    found = tl.where(a < 0.0, signed, tl.where(a == 0.0, at_zero, size))
    return tl.where((b == 0.0) | (a == 1.0), 1.0, found)


# ---- exchange between programs -------------------------------------------------------------------


@triton.jit
def absent(tile):
    """Whether any value of the tile still has all bits set, which no published value has."""
    if tile.dtype.primitive_bitwidth == 32:
        missing = tile.to(tl.int32, bitcast=True) == -1
    else:
        missing = tile.to(tl.int16, bitcast=True) == -1
    return tl.max(missing.to(tl.int32)) > 0


@triton.jit
def publishable(value):
    """The value, and of all that is not a number the one that has not all bits set."""
    return tl.where(value == value, value, float("nan"))


@triton.jit
def stamped(value, stamp):
    """The value with its last bit replaced: by it the reader knows the round."""
    return ((value.to(tl.int32, bitcast=True) & -2) | stamp).to(tl.float32, bitcast=True)


@triton.jit
def paired(one, other, stamp):
    """Two values as bfloat16 in one word, whose last bit is replaced."""
    high = one.to(tl.bfloat16).to(tl.int16, bitcast=True).to(tl.int32) << 16
    low = other.to(tl.bfloat16).to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFE
    return high | low | stamp


@triton.jit
def upper(word):
    return (word & -65536).to(tl.float32, bitcast=True)


@triton.jit
def lower(word):
    return (word << 16).to(tl.float32, bitcast=True)


@triton.jit
def both(a, b, c, d):
    """Two sums at once."""
    return a + c, b + d


@triton.jit
def stale(tile, expected, stamp):
    """Whether any expected value of the tile is of another round."""
    return tl.max(tl.where(expected, (tile.to(tl.int32, bitcast=True) & 1) ^ stamp, 0)) > 0


@triton.jit
def follow():
    """Wait until the kernel before has ended, and let the one after begin."""
    gdc_wait()
    gdc_launch_dependents()
