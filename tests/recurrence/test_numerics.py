"""Odd numbers and odd sizes: NaN, infinities, large values, short types, sizes of one."""

import itertools
import math

import pytest
import torch
from torch import sigmoid, tanh
from torch.nn import functional as F

from comparison import assert_close, distance, disturb, everything_of, on
from elman import RNN, Cell

CELLS = ["elman", "lstm", "gru", "sru", "peephole_lstm"]


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf], ids=str)
@pytest.mark.parametrize("backend", ["cpu", "loop"])
@pytest.mark.parametrize("cell", CELLS)
def test_an_odd_number_stays_in_its_row(cell, backend, odd):
    rnn = RNN(cell, 3, 21, bidirectional=True, backend=backend)
    x = torch.randn(9, 5, 3)
    clean = rnn(x)
    x[4, 2, 1] = odd
    spoilt = rnn(x)
    others = [row for row in range(9) if row != 4]
    assert_close({"y": spoilt.outputs[others]}, {"y": clean.outputs[others]}, 1e-6)
    if odd != odd:
        assert spoilt.outputs[4].isnan().any()
        assert not spoilt.outputs[4, :2, :21].isnan().all()  # the forward direction has not seen it yet


@pytest.mark.parametrize("junk", [math.nan, math.inf, 1e30], ids=str)
@pytest.mark.parametrize("backend", ["cpu", "loop"])
@pytest.mark.parametrize("cell", CELLS)
def test_odd_numbers_in_the_padding_reach_nothing(cell, backend, junk):
    rnn = RNN(cell, 3, 5, bidirectional=True, backend=backend)
    x, lengths = torch.randn(3, 4, 3), torch.tensor([2, 4, 1])
    expected = everything_of(rnn, x, lengths)
    x[0, 2:], x[2, 1:] = junk, junk
    assert_close(everything_of(rnn, x, lengths), expected, 1e-6)


@pytest.mark.parametrize("scale", [1e-30, 1e3, 1e10, 1e30])
@pytest.mark.parametrize("cell", CELLS)
def test_large_and_tiny_inputs(cell, scale):
    rnn = RNN(cell, 4, 6).double()
    disturb(rnn)
    x = scale * torch.randn(3, 5, 4, dtype=torch.float64)
    assert_close(on("cpu", rnn, x), on("loop", rnn, x), 1e-10)


FUNCTIONS = {
    "sigmoid": sigmoid,
    "tanh": tanh,
    "relu": torch.relu,
    "softplus": F.softplus,
    "softsign": F.softsign,
    "gelu": F.gelu,
    "silu": F.silu,
    "exp": torch.exp,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "abs": torch.abs,
    "sin": torch.sin,
    "cos": torch.cos,
    "erf": torch.erf,
    "square": lambda a: a**2,
    "odd power": lambda a: a**1.7,
    "clamp": lambda a: a.clamp(-3, 4),
    "at least": lambda a: a.clamp(min=0.5),
    "maximum": lambda a: torch.maximum(a, -a),
    "minimum": lambda a: torch.minimum(a, a * a),
    "where": lambda a: torch.where((a > 1) | (a <= -2), a, 2 * a),
    "quotient": lambda a: 1 / a,
}


class AllFunctions(Cell):
    """One gate and one state a function, none of them recurrent: one kernel for the whole table."""

    state = tuple(f"y{i}" for i in range(len(FUNCTIONS)))
    gates = tuple(f"a{i}" for i in range(len(FUNCTIONS)))

    def project(self, x):
        return x

    def R(self, x, h, s):
        functions = enumerate(FUNCTIONS.values())
        return self.State(*(function(getattr(x, f"a{i}")) for i, function in functions))

    def O(self, s):
        return torch.cat(s, -1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_every_function_over_the_whole_range(dtype):
    """Values and slopes beside torch's: |a − b| / (|b| + 1), and NaN where torch's are NaN."""
    sizes = torch.logspace(-20, 2.2, 400, dtype=torch.float64)
    odd = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan], dtype=torch.float64)
    points = torch.cat([sizes, -sizes, odd]).to(dtype)
    H, count = len(points), len(FUNCTIONS)
    rnn = RNN(AllFunctions, H * count, H, backend="cpu").to(dtype)
    x = points.repeat(count)[None, None].requires_grad_()
    outputs = rnn(x).outputs
    (slopes,) = torch.autograd.grad(outputs.sum(), x)
    ours = zip(outputs.detach().view(count, H), slopes.view(count, H), strict=True)
    wrong = {}
    for (name, function), (value, slope) in zip(FUNCTIONS.items(), ours, strict=True):
        point = points.clone().requires_grad_()
        expected = function(point)
        (rise,) = torch.autograd.grad(expected.sum(), point)
        for what, a, b in ((name, value, expected.detach()), (f"d {name}", slope, rise)):
            same = (a == b) | (a.isnan() & b.isnan()) | (points.isinf() & ~b.isfinite())
            same |= points.isnan() & (what != name)  # a slope there means nothing
            errors = torch.where(same, 0.0, (a - b).abs() / (b.abs() + 1)).nan_to_num(math.inf)
            if errors.max() > (1e-6 if dtype == torch.float32 else 1e-11):
                wrong[what] = (errors.max().item(), points[errors.argmax()].item())
        signs = torch.signbit(value) == torch.signbit(expected)
        if name not in ("maximum", "minimum") and not signs[points == 0].all():  # of 0 and -0 either
            wrong[f"sign of {name}"] = (0.0, -0.0)
    assert not wrong, f"name: (error, where): {wrong}"


SMALL = {
    "exp": torch.exp,
    "sigmoid": sigmoid,
    "log of sigmoid": lambda a: torch.log(sigmoid(a)),
    "silu": F.silu,
    "softplus": F.softplus,
    "large and small": lambda a: 1e30 * torch.exp(a),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", SMALL)
def test_results_below_the_normal_range(name, dtype):
    """They keep the digits that there are: within some units of the smallest number, as torch has them."""
    function, limits = SMALL[name], torch.finfo(dtype)

    class Small(Cell):
        state, gates = ("h",), ("a",)

        def project(self, x):
            return x

        def R(self, x, h, s):
            return self.State(h=function(x.a))

    low = -110 if dtype == torch.float32 else -760
    points = torch.linspace(low, 0.8 * low, 801, dtype=torch.float64).to(dtype)
    cell, found = Small(len(points), len(points)).to(dtype), []
    for backend in ("cpu", "loop"):
        x = points[None, None].clone().requires_grad_()
        y = cell(x, backend=backend).outputs
        (slope,) = torch.autograd.grad(y.sum(), x)
        found.append((y.detach(), slope))
    assert (found[1][0] != 0).any()
    for a, b in zip(*found, strict=True):
        rounding = limits.smallest_normal * limits.eps
        large = 1e30 if name == "large and small" else points.abs().max().item()
        room = 8 * limits.eps * b.abs() + 4 * rounding * large
        room = torch.where(b.isfinite(), room, 0.0)
        same = (a == b) | (a.isnan() & b.isnan()) | ((a - b).abs() <= room)
        assert same.all(), points[~same[0, 0]][:5]


@pytest.mark.parametrize("backend", ["cpu", "loop"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("cell", [*CELLS, "hard_gate"])
def test_short_types_are_right_to_their_precision(cell, dtype, backend):
    """Values and gradients near those of the same weights in float64."""
    rnn = RNN(cell, 4, 6, backend=backend).to(dtype)
    x = torch.randn(3, 5, 4).to(dtype)
    found = everything_of(rnn, x, [5, 1, 3])
    assert {value.dtype for value in found.values()} == {dtype}
    if cell == "hard_gate":
        return  # a rounded sum may open another gate
    expected = everything_of(rnn.double(), x.double(), [5, 1, 3])
    tolerance = 8 * torch.finfo(dtype).eps
    far = {n: distance(found[n].double(), expected[n]) for n in expected}
    assert max(far.values()) <= tolerance, far


@pytest.mark.parametrize(("B", "T", "D", "H"), [*itertools.product([1, 3], [1, 3], [1, 17], [1, 16, 17])])
def test_sizes_of_one_and_around_a_vector(B, T, D, H):
    for cell in ("lstm", "gru"):
        rnn = RNN(cell, D, H, bidirectional=True)
        disturb(rnn)
        x = torch.randn(B, T, D)
        assert_close(on("cpu", rnn, x), on("loop", rnn, x), 1e-5)
