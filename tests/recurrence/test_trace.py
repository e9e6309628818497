"""Equations are read as they stand; what cannot be read is named, with the way out."""

import numpy
import pytest
import torch
from comparison import assert_close, on
from torch import sigmoid, tanh
from torch.nn import functional as F

from elman import RNN, Cell
from elman.errors import ArgumentError, ElmanError, EquationError


def cell_of(R, *, state=("h",), gates=("a", "b"), vectors=(), **more):
    """A cell class with this step: ``R(self, x, h, s)`` gives the value of each state."""

    def step(self, x, h, s):
        value = R(self, x, h, s)
        return self.State(*value) if isinstance(value, tuple) else self.State(value)

    return type("User", (Cell,), {"state": state, "gates": gates, "vectors": vectors, "R": step, **more})


FREE_FORM = "free-form cell"
REFUSED = {
    "@": (lambda self, x, h, s: x.a @ h.a, "'@'", FREE_FORM),
    "matmul": (lambda self, x, h, s: torch.matmul(x.a, h.a), "'matmul'", FREE_FORM),
    "softmax": (lambda self, x, h, s: torch.softmax(x.a, -1), "'softmax'", FREE_FORM),
    "method softmax": (lambda self, x, h, s: x.a.softmax(-1), "'softmax'", FREE_FORM),
    "sum": (lambda self, x, h, s: x.a - x.a.sum(-1), "'sum'", FREE_FORM),
    "mean": (lambda self, x, h, s: torch.mean(x.a), "'mean'", FREE_FORM),
    "cat": (lambda self, x, h, s: torch.cat([x.a, h.a]), "'cat'", FREE_FORM),
    "linear": (lambda self, x, h, s: F.linear(x.a, h.a), "'linear'", FREE_FORM),
    "dropout": (lambda self, x, h, s: F.dropout(x.a), "'dropout'", FREE_FORM),
    "layer_norm": (lambda self, x, h, s: F.layer_norm(x.a, (5,)), "'layer_norm'", FREE_FORM),
    "index": (lambda self, x, h, s: x.a[:, 0], "take a value apart", FREE_FORM),
    "shape": (lambda self, x, h, s: x.a * x.a.shape[0], "'shape'", FREE_FORM),
    "detach": (lambda self, x, h, s: x.a.detach(), "'detach'", FREE_FORM),
    "modulo": (lambda self, x, h, s: x.a % 2, "%|remainder", FREE_FORM),
    "floor division": (lambda self, x, h, s: x.a // 2, "//|floor", FREE_FORM),
    "numpy": (lambda self, x, h, s: numpy.sin(x.a), "sin|numpy|ufunc", FREE_FORM),
    "in place": (lambda self, x, h, s: x.a.add_(1), "'add_'", FREE_FORM),
    "if": (lambda self, x, h, s: x.a if x.a > 0 else h.a, "branch on a value", "torch.where"),
    "and": (lambda self, x, h, s: tanh(x.a) * (x.a > 0 and x.b > 0), "branch on a value", "torch.where"),
    "max": (lambda self, x, h, s: max(x.a, h.a), "branch on a value", "torch.where"),
    "float": (lambda self, x, h, s: x.a * float(x.b), "Python number", "torch functions"),
    "tensor": (lambda self, x, h, s: x.a * torch.ones(5), "hold a tensor", FREE_FORM),
    "tensor first": (lambda self, x, h, s: torch.ones(5) * x.a, "hold a tensor", FREE_FORM),
    "text": (lambda self, x, h, s: x.a + "one", "'one'", "numbers and symbols"),
    "condition": (lambda self, x, h, s: torch.where(x.a, x.a, x.b), "comparison", "torch.where"),
    "clamp": (lambda self, x, h, s: x.a.clamp(), "clamp", "min, max"),
    "clamp by value": (lambda self, x, h, s: x.a.clamp(h.a), "clamp", "torch.maximum"),
    "wrong options": (lambda self, x, h, s: x.a.div(h.a, rounding_mode="floor"), "'div'", FREE_FORM),
    "gate x": (lambda self, x, h, s: x.aa, "x.aa: no such gate", "did you mean 'a'"),
    "gate h": (lambda self, x, h, s: h.bb, "h.bb: no such gate", "did you mean 'b'"),
    "unknown state": (lambda self, x, h, s: s.cc, "cc", "h"),
    "unknown vector": (lambda self, x, h, s: x.a * self.p_i, "p_i", "User"),
    "truth as state": (lambda self, x, h, s: x.a > 0, "state 'h'", "real value"),
    "nothing": (lambda self, x, h, s: None, "state 'h'", "real value"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_equations_cannot_do_is_named(case):
    R, what, remedy = REFUSED[case]
    with pytest.raises(EquationError, match=what) as caught:
        cell_of(R)(3, 5)
    assert remedy in str(caught.value)


@pytest.mark.parametrize("value", [None, "h", 0.5], ids=str)
def test_R_returns_a_state(value):
    with pytest.raises(EquationError, match=r"R must return self.State\(h=…, c=…\), not"):
        type("User", (Cell,), {"state": ("h", "c"), "gates": ("a",), "R": lambda self, x, h, s: value})(3, 5)


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("state", ()),
        ("state", "h"),
        ("state", ("h", "h")),
        ("state", ("h", "in")),
        ("gates", "ab"),
        ("gates", ("a b",)),
        ("gates", ("a", "a")),
        ("gates", ("a", "in")),
        ("gates", ("_a",)),
        ("vectors", ("b",)),
        ("vectors", ("W_x",)),
        ("vectors", ("bias",)),
        ("vectors", ("p", "p")),
    ],
)
def test_names_that_cannot_be(kind, names):
    """Keywords, double names and names that the cell uses itself are refused with the name."""
    with pytest.raises(ArgumentError) as caught:
        cell_of(lambda self, x, h, s: tanh(s[0]), **{kind: names})(3, 5)
    assert kind in str(caught.value)


@pytest.mark.parametrize("name", ["read", "count", "index", "x", "h", "s", "W_x", "State"])
def test_a_gate_may_have_any_name(name):
    """x.read is the gate, whatever helpers the engine has."""
    cell = cell_of(lambda self, x, h, s: tanh(getattr(x, name) + getattr(h, name)), gates=(name,))
    x = torch.randn(2, 3, 3, dtype=torch.float64)
    rnn = RNN(cell, 3, 4).double()
    assert_close(on("cpu", rnn, x), on("loop", rnn, x), 1e-10)


def test_unread_blocks_are_not_allocated():
    cell = cell_of(lambda self, x, h, s: sigmoid(x.a) * s.h + tanh(x.c + h.b), gates=("a", "b", "c"))(3, 5)
    shapes = {name: tuple(p.shape) for name, p in cell.named_parameters()}
    assert shapes == {"W_x": (3, 10), "W_h": (5, 5), "b": (10,)}
    assert (cell.equations.inputs, cell.equations.products) == (("a", "c"), ("b",))
    with pytest.raises(ArgumentError, match="W_h has no block 'a'; it has b"):
        cell.block("W_h", "a")


DISAGREEMENTS = {
    "sum of comparisons": lambda self, x, h, s: tanh(x.a + h.a) * ((x.a > 0) + (x.b > 0)),
    "one minus a comparison": lambda self, x, h, s: tanh(x.a + h.a) * (1 - (x.b > 0)),
    "softplus threshold": lambda self, x, h, s: tanh(F.softplus(x.a + h.a, threshold=0.5)),
    "softplus beta": lambda self, x, h, s: tanh(F.softplus(x.a + h.a, beta=2.0)),
    "gelu tanh": lambda self, x, h, s: F.gelu(x.a + h.a, approximate="tanh"),
    "clamp with crossed bounds": lambda self, x, h, s: torch.clamp(x.a, 0.5, -0.5),
    "constant state": lambda self, x, h, s: (tanh(x.a), 0.0),
    "vector as state": lambda self, x, h, s: (tanh(x.a) + s[1], self.p * 2),
    "old state as state": lambda self, x, h, s: (tanh(x.a + h.a), s[0]),
    "choice of numbers": lambda self, x, h, s: torch.where(x.a + h.a > 0, 1.0, 0.25),
    "zero to a learned power": lambda self, x, h, s: tanh(F.relu(x.a + h.a) ** self.p),
    "zero to a zeroth power": lambda self, x, h, s: tanh(x.a) + F.relu(x.b) ** (self.p - self.p),
    "not of a number": lambda self, x, h, s: torch.where(torch.logical_not(x.a), x.a, h.a),
    "add alpha": lambda self, x, h, s: tanh(torch.add(x.a, h.a, alpha=0.5) - torch.sub(x.b, h.b, alpha=2)),
    "tie of maximum": lambda self, x, h, s: torch.maximum(x.a, x.a) + torch.minimum(h.b, h.b * 1.0),
    "kinks at zero": lambda self, x, h, s: abs(x.a - x.a) + F.relu(x.b - x.b) + tanh(x.a),
}


@pytest.mark.parametrize("case", DISAGREEMENTS)
def test_what_is_read_means_what_torch_means(case):
    """The kernel equals the loop, or the equations are refused when the cell is made."""
    R = DISAGREEMENTS[case]
    count = 2 if isinstance(R(*[_Anything()] * 4), tuple) else 1
    vectors = ("p",) if "self.p" in _source(case) else ()
    cell = cell_of(R, state=("h", "c")[:count], vectors=vectors)
    try:
        rnn = RNN(cell, 3, 5).double()
    except EquationError:
        return
    for name, parameter in rnn.named_parameters():
        if name.endswith("p"):
            torch.nn.init.uniform_(parameter, 0.5, 2)
    x = torch.randn(3, 4, 3, dtype=torch.float64)
    assert_close(on("cpu", rnn, x, [4, 1, 3]), on("loop", rnn, x, [4, 1, 3]), 1e-10)
