"""Odd numbers and odd sizes: NaN, infinities, large values, short types, sizes of one."""

import itertools
import math

import pytest
import torch
from comparison import assert_close, disturb, distance, everything_of, on
from torch import sigmoid, tanh
from torch.nn import functional as F

from elman import RNN, Cell

CELLS = ["elman", "lstm", "gru", "sru", "peephole_lstm"]


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf], ids=str)
@pytest.mark.parametrize("backend", ["cpu", "loop"])
@pytest.mark.parametrize("cell", CELLS)
def test_an_odd_number_stays_in_its_row(cell, backend, odd):
    rnn = RNN(cell, 3, 21, layers=2, bidirectional=True, backend=backend)
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
    "cube": lambda a: a**3,
    "inverse": lambda a: a**-1,
    "root": lambda a: a**0.5,
    "odd power": lambda a: a**1.7,
    "power of two": lambda a: 2**a,
    "clamp": lambda a: a.clamp(-3, 4),
    "at least": lambda a: a.clamp(min=0.5),
    "maximum": lambda a: torch.maximum(a, -a),
    "minimum": lambda a: torch.minimum(a, a * a),
    "where": lambda a: torch.where((a > 1) | (a <= -2), a, 2 * a),
    "quotient": lambda a: 1 / a,
}


class AllFunctions(Cell):
    """One state a function, none of them recurrent: one kernel for the whole table."""

    state = tuple(f"y{i}" for i in range(len(FUNCTIONS)))
    gates = ("a",)

    def project(self, x):
        return x

    def R(self, x, h, s):
        return self.State(*(function(x.a) for function in FUNCTIONS.values()))

    def O(self, s):
        return torch.stack(s, -1).flatten(-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_every_function_over_the_whole_range(dtype):
    """Values and derivatives beside torch's, by relative error, and NaN or infinite where torch's are."""
    sizes = torch.logspace(-20, 2.2, 400, dtype=torch.float64)
    odd = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan], dtype=torch.float64)
    points = torch.cat([sizes, -sizes, odd]).to(dtype)
    H = len(points)
    cell = AllFunctions(H, H).to(dtype)
    x = points[None, None].clone().requires_grad_()
    found = RNN(AllFunctions, 1, 1).to(dtype)
    found.cells[0][0], found.input_size = cell, H
    found.backend = "cpu"
    outputs = found(x).outputs.view(H, len(FUNCTIONS))
    bad = {}
    for place, (name, function) in enumerate(FUNCTIONS.items()):
        point = points.clone().requires_grad_()
        expected = function(point)
        (slope,) = torch.autograd.grad(expected.sum(), point)
        (ours,) = torch.autograd.grad(outputs[:, place].sum(), x, retain_graph=True)
        pairs = {name: (outputs[:, place].detach(), expected.detach()), f"d {name}": (ours.flatten(), slope)}
        for what, (a, b) in pairs.items():
            error = relative(a, b)
            if not error <= (3e-6 if dtype == torch.float32 else 1e-11):
                bad[what] = (error, points[worst(a, b)].item())
    assert not bad, f"name: (relative error, where): {bad}"


def errors(a, b):
    """|a − b| / |b|, not smaller numbers than normal ones being told apart; equal odd numbers are equal."""
    same = (a == b) | (a.isnan() & b.isnan())
    tiny = torch.finfo(a.dtype).tiny
    return torch.where(same, 0.0, (a - b).abs() / (b.abs() + tiny / torch.finfo(a.dtype).eps))


def relative(a, b):
    return float(errors(a, b).max())


def worst(a, b):
    found = errors(a, b)
    return int(torch.where(found.isnan(), math.inf, found).argmax())


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
