"""Equations are read as they stand; what cannot be read is named, with the way out."""

import numpy
import pytest
import torch
from torch import sigmoid, tanh
from torch.nn import functional as F

from comparison import assert_close, on
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


ONE, TWO = ("h",), ("h", "c")
MEANINGS = {
    "sum of comparisons": (ONE, lambda self, x, h, s: tanh(x.a + h.a) * ((x.a > 0) + (x.b > 0))),
    "one minus a comparison": (ONE, lambda self, x, h, s: tanh(x.a + h.a) * (1 - (x.b > 0))),
    "softplus threshold": (ONE, lambda self, x, h, s: tanh(F.softplus(x.a + h.a, threshold=0.5))),
    "softplus far out": (ONE, lambda self, x, h, s: F.softplus(19.5 + x.a)),
    "softplus beta": (ONE, lambda self, x, h, s: tanh(F.softplus(x.a + h.a, beta=2.0))),
    "gelu by tanh": (ONE, lambda self, x, h, s: F.gelu(x.a + h.a, approximate="tanh")),
    "crossed bounds": (ONE, lambda self, x, h, s: torch.clamp(x.a, 0.5, -0.5)),
    "constant state": (TWO, lambda self, x, h, s: (tanh(x.a), 0.0)),
    "vector as state": (TWO, lambda self, x, h, s: (tanh(x.a) + s.c, self.p * 2)),
    "old state as state": (TWO, lambda self, x, h, s: (tanh(x.a + h.a), s.h)),
    "choice of numbers": (ONE, lambda self, x, h, s: torch.where(x.a + h.a > 0, 1.0, 0.25)),
    "zero to a learned power": (ONE, lambda self, x, h, s: tanh(F.relu(x.a + h.a) ** self.p)),
    "zero to a zeroth power": (ONE, lambda self, x, h, s: tanh(x.a) + F.relu(x.b) ** (self.p - self.p)),
    "not of a number": (ONE, lambda self, x, h, s: torch.where(torch.logical_not(x.a), x.a, h.a)),
    "alpha": (ONE, lambda self, x, h, s: tanh(x.a.add(h.a, alpha=0.5) - torch.sub(x.b, h.b, alpha=2))),
    "ties": (ONE, lambda self, x, h, s: tanh(torch.maximum(x.a, x.a) + torch.minimum(h.b, h.b * 1.0))),
    "kinks": (ONE, lambda self, x, h, s: abs(x.a - x.a) + F.relu(x.b - x.b) + tanh(x.a)),
    "far logarithm": (ONE, lambda self, x, h, s: torch.log(sigmoid(100 * x.a))),
}


@pytest.mark.parametrize("case", MEANINGS)
def test_what_is_read_means_what_torch_means(case):
    """The kernel equals the loop, or the equations are refused when the cell is made."""
    state, R = MEANINGS[case]
    try:
        rnn = RNN(cell_of(R, state=state, vectors=("p",)), 3, 5).double()
    except EquationError:
        return
    torch.nn.init.uniform_(rnn.cells[0][0].p, 0.5, 2)
    x = torch.randn(3, 4, 3, dtype=torch.float64)
    assert_close(on("cpu", rnn, x, [4, 1, 3]), on("loop", rnn, x, [4, 1, 3]), 1e-10)


class Augmented(Cell):
    """c *= f changes the old state in place on the loop, and nothing in a kernel."""

    state, gates = ("h",), ("a",)

    def R(self, x, h, s):
        c = s.h
        c *= 0.5
        return self.State(c + tanh(x.a + h.a))


def test_augmented_assignment_never_changes_a_state():
    try:
        rnn = RNN(Augmented, 3, 5)
    except EquationError:
        return
    x, found = torch.randn(2, 4, 3), {}
    with torch.no_grad():
        for backend in ("cpu", "loop"):
            rnn.backend = backend
            state = rnn.start(2)
            found[backend] = {"y": rnn(x, state=state).outputs, "start": state[0].h}
    assert_close(found["cpu"], found["loop"], 1e-5)


class Optional(Cell):
    """An option decides how many gates are read."""

    state, gates = ("h",), ("a", "b")

    def __init__(self, input_size, hidden_size, *, two=True):
        super().__init__(input_size, hidden_size)
        self.two = two

    def R(self, x, h, s):
        first = tanh(x.b + h.b)
        return self.State(first + tanh(x.a + h.a) if self.two else first)


class InTraining(Optional):
    def R(self, x, h, s):
        first = tanh(x.b + h.b)
        return self.State(first + tanh(x.a + h.a) if self.training else first)


@pytest.mark.parametrize("kind", [Optional, InTraining])
def test_an_option_that_changes_which_gates_are_read(kind):
    """Weights allocated for two gates are not misread by equations for one."""
    rnn = RNN(kind, 3, 5).double()
    if kind is Optional:
        rnn.cells[0][0].two = False
    rnn.eval()
    x = torch.randn(2, 4, 3, dtype=torch.float64)
    try:
        found = on("cpu", rnn, x)
    except ElmanError:
        return
    assert_close(found, on("loop", rnn, x), 1e-10)


def test_an_option_that_changes_is_read_anew():
    rnn = RNN("elman", 3, 5).double()
    x = torch.randn(2, 4, 3, dtype=torch.float64)
    for activation in ("tanh", "relu", "logistic", "tanh"):
        rnn.cells[0][0].activation = activation
        assert_close(on("cpu", rnn, x), on("loop", rnn, x), 1e-10)


def test_a_start_of_the_wrong_width_is_refused():
    """The kernel reads (B, H): a narrower start would be read beyond its end."""
    narrow = cell_of(
        lambda self, x, h, s: tanh(x.a + h.a),
        initial_state=lambda self, B, like: self.State(like.new_zeros(B, self.hidden_size - 2)),
    )
    with pytest.raises(ElmanError):
        RNN(narrow, 3, 5)(torch.randn(2, 4, 3))


def test_a_cell_without_equations_is_refused():
    with pytest.raises(EquationError, match="Cell is a contract"):
        Cell(3, 5)
    with pytest.raises(EquationError, match=r"write R\(self, x, h, s\) or step"):
        type("Empty", (Cell,), {"state": ("h",), "gates": ("a",)})(3, 5)
    free = cell_of(None, step=lambda self, x, s, product: self.State(product(s.h, "aa")))
    with pytest.raises(EquationError, match="no such gate; did you mean 'a'"):
        free(3, 5)
