"""Equations are read as they stand; what cannot be read is named, with the way out."""

import numpy
import pytest
import torch
from torch import sigmoid, tanh
from torch.nn import functional as F

from comparison import assert_close, disturb, on
from elman import RNN, Cell
from elman.errors import ArgumentError, ElmanError, EquationError
from elman.recurrence.functions import norm, rms
from elman.recurrence.trace import derive
from elman.recurrence.triton.program import StepProgram


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
    "sum of everything": (lambda self, x, h, s: x.a - x.a.sum(), "'sum'", "dim=-1 and keepdim=True"),
    "sum without units": (lambda self, x, h, s: x.a - x.a.sum(-1), "'sum'", "dim=-1 and keepdim=True"),
    "sum over rows": (lambda self, x, h, s: x.a.sum(0, keepdim=True), "'sum'", "dim=-1"),
    "sum by number": (lambda self, x, h, s: torch.sum(x.a, 1, keepdim=True), "'sum'", "dim=-1"),
    "sum of a sum": (lambda self, x, h, s: norm(x.a.sum(-1, keepdim=True)), "'mean'", "one number"),
    "sum of truths": (lambda self, x, h, s: (x.a > 0).sum(-1, keepdim=True), "'sum'", "torch.where"),
    "sum of other numbers": (lambda self, x, h, s: x.a.sum(-1, True, dtype=torch.half), "'sum'", FREE_FORM),
    "mean": (lambda self, x, h, s: torch.mean(x.a), "'mean'", "dim=-1 and keepdim=True"),
    "amax": (lambda self, x, h, s: x.a.amax(-1), "'amax'", "dim=-1 and keepdim=True"),
    "maximum of one": (lambda self, x, h, s: x.a.max(-1), "'max'", FREE_FORM),
    "softmax over rows": (lambda self, x, h, s: torch.softmax(x.a, 0), "'softmax'", "dim=-1"),
    "softmax over anything": (lambda self, x, h, s: F.softmax(x.a), "'softmax'", "dim=-1"),
    "softmax in others": (lambda self, x, h, s: x.a.softmax(-1, dtype=torch.half), "'softmax'", "dtype"),
    "std": (lambda self, x, h, s: x.a.std(-1), "'std'", FREE_FORM),
    "cumsum": (lambda self, x, h, s: torch.cumsum(x.a, -1), "'cumsum'", FREE_FORM),
    "sort": (lambda self, x, h, s: x.a.sort(-1), "'sort'", FREE_FORM),
    "norm of nothing": (lambda self, x, h, s: norm(), "norm.*argument", "value"),
    "matrix of a number": (lambda self, x, h, s: self.n(2.0), r"self\.n\(…\)", "not 2.0"),
    "matrix of a whole": (lambda self, x, h, s: self.n(x), r"self\.n\(…\)", "not the whole of x"),
    "matrix of a truth": (lambda self, x, h, s: self.n(x.a > 0), r"self\.n\(…\)", "not a comparison"),
    "matrix of a sum": (lambda self, x, h, s: self.n(x.a.mean(-1, True)), r"self\.n\(…\)", "whole row"),
    "matrix of a tensor": (lambda self, x, h, s: self.n(torch.ones(5)), r"self\.n\(…\)", "not tensor"),
    "matrix of two": (lambda self, x, h, s: self.n(x.a, h.a), r"self\.n\(\) takes 1", "2 were given"),
    "matrix as a value": (lambda self, x, h, s: x.a * self.n, r"cannot use .*self\.n", "symbols"),
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
    "whole sum": (lambda self, x, h, s: tanh(x + h), "gate by gate", "x.a"),
    "whole function": (lambda self, x, h, s: tanh(x), "gate by gate", "x.a"),
    "whole list": (lambda self, x, h, s: torch.stack([x, h]), "gate by gate", "x.a"),
    "whole beside a gate": (lambda self, x, h, s: x.a + h, "the whole of h", "h.a"),
    "gate by index": (lambda self, x, h, s: x["a"], "gate by gate", "x.a"),
    "gates taken apart": (lambda self, x, h, s: sum(x), "gate by gate", "x.a"),
    "exclusive or": (lambda self, x, h, s: s.h * ((x.a > 0) ^ (x.b > 0)), r"'\^'", FREE_FORM),
    "shift": (lambda self, x, h, s: x.a << 1, "'<<'", FREE_FORM),
    "round": (lambda self, x, h, s: round(x.a), "'round'", FREE_FORM),
    "true and": (lambda self, x, h, s: s.h * (True & (x.a > 0)), "'and' joins", "comparisons"),
    "large": (lambda self, x, h, s: x.a * 10**400, "cannot use 1000", "numbers"),
    "relu in place": (lambda self, x, h, s: F.relu(x.a, inplace=True) + x.a, "in place", "leave out"),
    "module in place": (lambda self, x, h, s: torch.nn.SiLU(inplace=True)(x.a), "in place", "leave out"),
    "item": (lambda self, x, h, s: x.a * torch.ones(()).item(), "'item'", "a Python number"),
    "number of a tensor": (lambda self, x, h, s: x.a * float(torch.ones(())), "__float__", "a Python number"),
    "if of a tensor": (lambda self, x, h, s: x.a if torch.ones(()) else h.a, "__bool__", "a Python number"),
    "method of a condition": (lambda self, x, h, s: (x.a > 0).where(x.a, x.b), "comparison", "torch.where"),
    "number for a tensor": (lambda self, x, h, s: torch.maximum(x.a, 0.0), "must be Tensor", "not float"),
    "no method": (lambda self, x, h, s: (x.a + h.a).softplus(), "no method 'softplus'", "the function"),
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
        cell_of(R, matrices=("n",))(3, 5)
    assert str(caught.value).startswith("E201: ")
    assert remedy in str(caught.value)


ALLOWED = {
    "softmax": lambda self, x, h, s: torch.softmax(x.a, -1) + F.softmax(h.a, -1) + h.b.softmax(dim=-1),
    "module": lambda self, x, h, s: torch.nn.Softmax(-1)(x.a + h.a),
    "sum": lambda self, x, h, s: x.a + h.a.sum(-1, keepdim=True) / 5 - torch.sum(h.b, (-1,), True),
    "mean": lambda self, x, h, s: tanh(x.a - torch.mean(h.a, dim=-1, keepdim=True)) + x.b.mean([-1], True),
    "amax": lambda self, x, h, s: tanh(x.a + h.a) - torch.amax(h.b, -1, keepdim=True) * x.b.amax(-1, True),
    "norm": lambda self, x, h, s: tanh(norm(x.a) + rms(h.a, epsilon=0.1)) + norm(h.a, x.b)[1],
    "counted": lambda self, x, h, s: tanh(h.a) + torch.where(x.a > 0, 1.0, 0.0).sum(-1, keepdim=True),
    "matrix": lambda self, x, h, s: tanh(x.a + self.n(sigmoid(h.a) * s.h) - self.n(self.p + x.b)),
    "row as state": lambda self, x, h, s: (x.a + h.a).sum(-1, keepdim=True),
}


@pytest.mark.parametrize("case", ALLOWED)
def test_what_looks_at_all_units_means_what_torch_means(case):
    rnn = RNN(cell_of(ALLOWED[case], vectors=("p",), matrices=("n",)), 3, 5).double()
    disturb(rnn)
    x = torch.randn(3, 4, 3, dtype=torch.float64)
    assert not rnn.cells[0][0].equations.pointwise
    assert_close(on("cpu", rnn, x, [4, 1, 3]), on("loop", rnn, x, [4, 1, 3]), 1e-10)


@pytest.mark.parametrize("value", [None, "h", 0.5], ids=str)
def test_R_returns_a_state(value):
    with pytest.raises(EquationError, match=r"R must return self.State\(h=…, c=…\), not"):
        type("User", (Cell,), {"state": ("h", "c"), "gates": ("a",), "R": lambda self, x, h, s: value})(3, 5)


def returns_too_little(self, x, h, s):
    gate = sigmoid(x.a + h.a)
    return self.State(h=gate)


def takes_too_little(self, x, s):
    return self.State(h=x.a, c=s.c)


def asks_a_helper(self, x, h, s):
    return helped(x, s)


def helped(x, s):
    gate = sigmoid(x.a)
    return gate * s.cc


@pytest.mark.parametrize(
    ("R", "line", "message"),
    [
        (returns_too_little, (returns_too_little, 2), r"'c'; .* self.State\(h=…, c=…\)"),
        (takes_too_little, (takes_too_little, 0), r"4 were given; R\(self, x, h, s\) is"),
        (asks_a_helper, (helped, 2), "no attribute 'cc'; states, vectors and matrices: h, c"),
    ],
)
def test_the_line_that_cannot_be_read_is_named(R, line, message):
    function, further = line
    place = f"{__file__}:{function.__code__.co_firstlineno + further}"
    with pytest.raises(EquationError, match=message) as caught:
        type("User", (Cell,), {"state": ("h", "c"), "gates": ("a",), "R": R})(3, 5)
    assert str(caught.value).endswith(f"({place})")


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
        ("gates", {"a", "b"}),  # its order, and so that of the weights, is another one in every process
        ("vectors", ("b",)),
        ("vectors", ("W_x",)),
        ("vectors", ("bias",)),
        ("vectors", ("p", "p")),
        ("matrices", ("W_h",)),
        ("matrices", ("R",)),
        ("matrices", ("n", "n")),
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
    "where as a method": (ONE, lambda self, x, h, s: tanh(x.a + h.a).where(x.b > h.b, s.h)),
    "where of comparisons": (ONE, lambda self, x, h, s: x.a * (x.a > 0).where(x.b > 0, h.b > 0)),
    "plus": (ONE, lambda self, x, h, s: tanh(+x.a + +h.a)),
    "ties": (ONE, lambda self, x, h, s: tanh(torch.maximum(x.a, x.a) + torch.minimum(h.b, h.b * 1.0))),
    "kinks": (ONE, lambda self, x, h, s: abs(x.a - x.a) + F.relu(x.b - x.b) + tanh(x.a)),
    "matrix for nothing": (ONE, lambda self, x, h, s: tanh(x.a + h.a) * self.p),
    "far logarithm": (ONE, lambda self, x, h, s: torch.log(sigmoid(100 * x.a))),
}


@pytest.mark.parametrize("case", MEANINGS)
def test_what_is_read_means_what_torch_means(case):
    """The kernel equals the loop, or the equations are refused when the cell is made."""
    state, R = MEANINGS[case]
    try:
        matrices = ("n",) if case == "matrix for nothing" else ()
        rnn = RNN(cell_of(R, state=state, vectors=("p",), matrices=matrices), 3, 5).double()
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


class Names:
    state, gates, vectors = ["h", "c"], ("µ",), ("ﬁ",)  # letters that Python reads as others: μ, fi


class Mixed(Names, Cell):
    def R(self, x, h, s):
        return self.State(h=tanh(x.µ + h.µ + s.c), c=self.ﬁ * s.h)


def test_names_may_come_from_beside_and_in_any_letters():
    rnn, x = RNN(Mixed, 3, 5, zoneout={"c": 0.1}).double(), torch.randn(2, 4, 3, dtype=torch.float64)
    disturb(rnn)
    assert_close(on("cpu", rnn, x), on("loop", rnn, x), 1e-10)


class Plain(Cell):
    state = ("h",)
    gates = ("a",)


class Widened(Plain):
    gates = ("a", "b")


class Scaled(Plain):
    """It names nothing itself."""


class Both(Scaled, Widened):
    def R(self, x, h, s):
        return self.State(h=tanh(x.a + h.b))


def test_a_second_base_class_may_bring_the_names():
    assert Both.gates == ("a", "b")
    assert RNN(Both, 3, 5)(torch.randn(2, 4, 3)).outputs.shape == (2, 4, 5)


class Through(torch.autograd.Function):
    """A step whose gradient is taken to be one: nothing that equations could say."""

    @staticmethod
    def forward(ctx, a):
        return torch.where(a > 0, 1.0, 0.0) * a

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def without_gradient(self, x, h, s):
    with torch.no_grad():
        gate = sigmoid(x.a)
    return gate * tanh(x.b + h.b)


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad])
@pytest.mark.parametrize(
    "R",
    [
        lambda self, x, h, s: Through.apply(x.a + h.a),
        without_gradient,
        lambda self, x, h, s: torch.no_grad()(sigmoid)(x.a) * x.b,
    ],
)
def test_a_gradient_of_its_own_is_refused(R, mode):
    """The kernel would take the derivative of what it reads, whatever the user wants instead."""
    with mode(), pytest.raises(EquationError, match=r"stop or replace a gradient.*free-form cell"):
        cell_of(R)(3, 5)
    with mode():
        cell_of(lambda self, x, h, s: tanh(x.a + h.a))(3, 5)


class Counting(Cell):
    state, gates, t = ("h",), ("a",), 0

    def R(self, x, h, s):
        self.t += 1
        return self.State(h=tanh(x.a + h.a) / self.t)


def test_what_R_would_remember_is_a_state():
    """Read once, R would count to one."""
    with pytest.raises(EquationError, match=r"R assigns self\.t, .* is a state"):
        Counting(3, 5)


class Cooling(Cell):
    state, gates, _heat = ("h",), ("a",), 1.0

    def R(self, x, h, s):
        return self.State(h=tanh((x.a + h.a) / self._heat))


def test_a_private_option_that_changes_is_read_anew():
    rnn, x = RNN(Cooling, 3, 5).double(), torch.randn(2, 4, 3, dtype=torch.float64)
    before = on("cpu", rnn, x)
    rnn.cells[0][0]._heat = 0.25
    after = on("cpu", rnn, x)
    assert_close(after, on("loop", rnn, x), 1e-10)
    assert not torch.allclose(after["outputs"], before["outputs"])


def test_what_others_keep_at_a_cell_is_no_option(monkeypatch):
    """A hook that counts calls there would have the equations read at each of them."""
    rnn, x = RNN(Cooling, 3, 5), torch.randn(2, 4, 3)
    cell = rnn.cells[0][0]
    cell.register_forward_hook(lambda cell, given, found: setattr(cell, "_found", found))
    rnn(x)
    monkeypatch.setattr(Cell, "_trace", lambda cell: pytest.fail("the equations are read anew"))
    rnn(x)
    assert cell._found.outputs.shape == (2, 4, 5)


@pytest.mark.parametrize(
    ("name", "value"), [("b", 0.5), ("W_h", None), ("p", torch.nn.Parameter(torch.ones(5)))]
)
def test_what_the_cell_makes_is_not_set_beside_it(name, value):
    def __init__(self, input_size, hidden_size):
        super(cell, self).__init__(input_size, hidden_size)
        setattr(self, name, value)

    cell = cell_of(lambda self, x, h, s: tanh(x.a + self.p), vectors=("p",), __init__=__init__)
    with pytest.raises(ArgumentError, match=f"User sets '{name}', but .*reset_parameters"):
        cell(3, 5)


def test_a_cell_of_state_and_vectors_alone():
    """Without gates there is nothing that the input could reach."""
    cell = cell_of(lambda self, x, h, s: tanh(s.h + self.p), gates=(), vectors=("p",))
    rnn, x = RNN(cell, 3, 5).double(), torch.randn(2, 4, 3, dtype=torch.float64)
    torch.nn.init.normal_(rnn.cells[0][0].p)
    assert_close(on("cpu", rnn, x, [4, 2]), on("loop", rnn, x, [4, 2]), 1e-10)


OUTPUTS = {
    "tuple": (lambda self, s: (s.h, s.h), "tuple"),
    "nothing": (lambda self, s: None, "NoneType"),
    "one number": (lambda self, s: s.h.sum(), r"\(\)"),
    "one a row": (lambda self, s: s.h.sum(-1), r"\(2,\)"),
    "one row": (lambda self, s: s.h[:1], r"\(1, 5\)"),
}


@pytest.mark.parametrize("case", OUTPUTS)
def test_what_O_cannot_return(case):
    O, shown = OUTPUTS[case]
    with pytest.raises(EquationError, match=rf"O must return a tensor \(B, ·\).* returned {shown}"):
        cell_of(lambda self, x, h, s: tanh(x.a), O=O)(3, 5)


def test_a_free_form_step_that_returns_another_shape():
    wide = cell_of(None, step=lambda self, x, s, product: self.State(torch.cat([s.h, s.h], -1)))
    with pytest.raises(ElmanError, match=r"state 'h' the shape \(2, 10\), not \(2, 5\)"):
        RNN(wide, 3, 5)(torch.randn(2, 4, 3))


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


def test_an_option_that_is_deleted_is_read_anew():
    rnn, x = RNN(Cooling, 3, 5).double(), torch.randn(2, 4, 3, dtype=torch.float64)
    before = on("cpu", rnn, x)
    rnn.cells[0][0]._heat = 0.25
    on("cpu", rnn, x)
    del rnn.cells[0][0]._heat  # that of the class is back
    assert_close(on("cpu", rnn, x), before, 1e-10)


@pytest.mark.parametrize("text", ["0.5", b"0.5", numpy.str_("0.5")], ids=repr)
@pytest.mark.parametrize("use", [lambda x, k: x * k, lambda x, k: torch.clamp(x, max=k), lambda x, k: x**k])
def test_a_text_is_no_number(text, use):
    with pytest.raises(EquationError, match=r"equations cannot use .*0\.5|invalid combination of arguments"):
        cell_of(lambda self, x, h, s: tanh(use(x.a, text)))(3, 5)


def test_a_gradient_that_is_absent_is_not_zero():
    """Zero times infinity is not a number, so nothing may be multiplied where nothing arrives."""

    class Unread(Cell):
        state, gates = ("h", "d"), ("a",)

        def R(self, x, h, s):
            return self.State(h=tanh(x.a + h.a), d=torch.sqrt(s.h))

    class Late(Unread):
        def R(self, x, h, s):
            return self.State(h=tanh(x.a + h.a) + 0.1 * s.d, d=torch.sqrt(s.h + 0.4))

    class Swapped(Unread):
        def R(self, x, h, s):
            return self.State(h=s.d, d=torch.sqrt(x.a) + s.h)

    for kind in (Unread, Late, Swapped):
        torch.manual_seed(2)
        cell, x = kind(3, 5).double(), torch.randn(2, 4, 3, dtype=torch.float64)
        for loss in (
            lambda found: found.outputs.sum(),
            lambda found: found.last.sum(),
            lambda found: found.state.h.sum(),
            lambda found: found.state.d.sum(),
            lambda found: found.outputs.sum() + found.state.d.sum(),
        ):
            gradients = {}
            for backend in ("cpu", "loop"):
                cell.zero_grad()
                loss(cell(x, backend=backend)).backward()
                gradients[backend] = {
                    n: p.grad.clone() for n, p in cell.named_parameters() if p.grad is not None
                }
            for name, expected in gradients["loop"].items():
                torch.testing.assert_close(
                    gradients["cpu"][name], expected, rtol=1e-9, atol=1e-12, equal_nan=True
                )


def test_a_graph_that_shares_values_can_be_shown():
    """Every value is used twice: written out, the last of them would be 2^60 terms."""

    def R(self, x, h, s):
        y = x.a + h.a
        for _ in range(60):
            y = y * y
        return y

    assert len(repr(cell_of(R)(3, 5).equations)) < 20_000


def saved_of(name):
    """What the backward step of a cell reads of the forward one, and whether it reads input parts, too."""
    found = derive(RNN(name, 3, 4).cells[0][0].equations)
    return found.saved, found.reads_parts


def test_the_sum_of_both_parts_of_a_gate_is_saved_as_one():
    for name in ("slstm", "li_gru", "nas", "hard_gate"):
        saved, reads_parts = saved_of(name)
        assert "h" not in {node.op for node in saved}
        assert not reads_parts, name


def test_an_exponential_below_a_maximum_is_at_most_one():
    short = StepProgram(RNN("slstm", 3, 4).cells[0][0].equations).short
    assert [node.op for node in short].count("exp") == 2
    plain = cell_of(lambda self, x, h, s: torch.exp(x.a + h.a - torch.maximum(h.b, s.h)))
    assert not StepProgram(RNN(plain, 3, 4).cells[0][0].equations).short
