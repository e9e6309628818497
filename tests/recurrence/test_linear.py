"""Which recurrences are recognised as linear, and what many of their steps are together."""

import pytest
import torch
from torch import Tensor, exp, sigmoid, tanh

from elman import Cell
from elman.recurrence.linear import linear_levels
from elman.recurrence.trace import add_zoneout
from elman.registry import CELLS


class Leaky(Cell):
    """Written in as many ways as there are rules."""

    state, gates, vectors = ("h", "c", "d"), ("a", "b"), ("u",)
    u: Tensor

    def R(self, x, h, s):
        c = -(-s.c * sigmoid(x.a) - x.b) / (1 + exp(self.u))
        d = torch.where(x.a > 0, s.d, 2 * x.b) - (x.a - s.d * 0.5)
        return self.State(h=tanh(c) * s.c + d, c=c, d=d)


class Delayed(Cell):
    """A state that others wait for."""

    state, gates = ("h", "p"), ("a",)

    def R(self, x, h, s):
        return self.State(h=sigmoid(s.p) * s.h + x.a, p=0.5 * s.p + x.a)


class Circle(Cell):
    """States that need each other."""

    state, gates = ("h", "p"), ("a",)

    def R(self, x, h, s):
        return self.State(h=0.5 * s.h + s.p, p=s.p + 0.1 * s.h + x.a)


class Squared(Cell):
    state, gates = ("h",), ("a",)

    def R(self, x, h, s):
        return self.State(h=s.h * (s.h + x.a))


class Branching(Cell):
    state, gates = ("h",), ("a",)

    def R(self, x, h, s):
        return self.State(h=torch.where(s.h > 0, 0.5 * s.h, x.a))


class Turned(Cell):
    state, gates = ("h",), ("a",)

    def R(self, x, h, s):
        return self.State(h=x.a / s.h)


class Memoryless(Cell):
    state, gates = ("h",), ("a",)

    def R(self, x, h, s):
        return self.State(h=tanh(x.a))


def levels_of(cell: type[Cell] | str) -> list[tuple[str, ...]]:
    found = CELLS.find(cell) if isinstance(cell, str) else cell
    return [level.states for level in linear_levels(found(3, 4).equations)]


@pytest.mark.parametrize(
    ("cell", "levels"),
    [
        ("min_gru", [("h",)]),
        ("min_lstm", [("h",)]),
        ("lru", [("h",)]),
        ("qrnn", [("p", "g", "q"), ("c",)]),
        (Leaky, [("c", "d")]),
        (Delayed, [("p",), ("h",)]),
        *((cell, []) for cell in (Circle, Squared, Branching, Turned, Memoryless)),
        *((cell, []) for cell in ("lstm", "elman", "ind_rnn", "sru", "layer_norm_lstm")),
    ],
)
def test_what_is_linear(cell, levels):
    assert levels_of(cell) == levels


def test_the_first_version_of_the_simple_unit_is_linear():
    cell = CELLS.find("sru")(3, 4, peepholes=False)
    assert [level.states for level in linear_levels(cell.equations)] == [("c",)]
    assert not {"v_f", "v_r"} & set(dict(cell.named_parameters()))


def test_zoneout_keeps_a_state_linear_that_no_other_makes():
    plain = CELLS.find("min_gru")(3, 4).equations
    assert [level.states for level in linear_levels(add_zoneout(plain, {"h": None}))] == [("h",)]
    output = CELLS.find("qrnn")(3, 4).equations  # h is made of c, and would be kept
    assert [level.states for level in linear_levels(add_zoneout(output, {"h": None}))][-1] == ("h",)


@pytest.mark.parametrize("name", ["min_gru", "min_lstm", "lru", "qrnn"])
def test_a_cell_is_its_published_equations(name):
    torch.manual_seed(0)
    cell = CELLS.find(name)(3, 4).double()
    x = torch.randn(2, 6, 3).double()
    parts = dict(zip(cell.gates, cell.project(x).chunk(len(cell.gates), -1), strict=True))
    h = c = torch.zeros(2, 4).double()
    for t in range(6):
        now = {gate: part[:, t] for gate, part in parts.items()}
        last = {gate: part[:, t - 1] if t else torch.zeros_like(h) for gate, part in parts.items()}
        if name == "min_gru":
            z = sigmoid(now["z"])
            h = (1 - z) * h + z * now["n"]
        elif name == "min_lstm":
            f, i = sigmoid(now["f"]), sigmoid(now["i"])
            h = f / (f + i) * h + i / (f + i) * now["n"]
        elif name == "lru":
            a = exp(-exp(cell.nu))
            h = a * h + (1 - a**2).sqrt() * now["u"]
        else:
            z, f = tanh(now["z"] + last["p"]), sigmoid(now["f"] + last["g"])
            c = f * c + (1 - f) * z
            h = sigmoid(now["o"] + last["q"]) * c
        torch.testing.assert_close(cell(x).outputs[:, t], h)


def test_a_linear_unit_starts_within_its_rates():
    a = exp(-exp(CELLS.find("lru")(3, 500, fastest=0.6, slowest=0.9).nu.detach()))
    assert 0.6 <= float(a.min()) < 0.65
    assert 0.88 < float(a.max()) <= 0.9
