"""Cells as users write them: importable, so that they can be pickled."""

import math

import torch
from torch import sigmoid, tanh
from torch.nn import functional as F

from elman import Cell
from elman.recurrence.functions import norm, rms


class UserLSTM(Cell):
    """Four gates, typed in anew."""

    state = ("h", "c")
    gates = ("i", "f", "z", "o")

    def R(self, x, h, s):
        i, f, o = sigmoid(x.i + h.i), sigmoid(x.f + h.f), sigmoid(x.o + h.o)
        c = f * s.c + i * tanh(x.z + h.z)
        return self.State(h=o * tanh(c), c=c)


class Everything(Cell):
    """Every operation that equations may use, as operator, function or method."""

    state = ("h", "c", "d")
    gates = ("p", "q", "r", "t")
    vectors = ("u", "w")

    def R(self, x, h, s):
        p, q = x.p + h.p, x.q - h.q
        r, t = -x.r * h.r, x.t / (2.0 + abs(h.t))
        smooth = sigmoid(p) + tanh(q) * F.softplus(r) - F.softsign(t) + 0.1 * F.gelu(p) + F.relu(q) / 3
        more = (
            torch.exp(-(p**2)) + torch.log(1.5 + q**2) + torch.sqrt(1 + t * t) + torch.sin(r) * torch.cos(t)
        )
        powers = 0.1 * (p.clamp(-2, 2) ** 3 + (1 + q.abs()) ** -1.5 + (1 + abs(t)) ** self.u + 2 ** tanh(p))
        chosen = torch.where((p > q) & (r <= t), torch.minimum(p, q), torch.maximum(r, self.w * t))
        chosen = torch.where(~(p >= 0.1) | (q < -0.1), chosen, math.pi / 3 - s.d)
        counted = torch.where(r == t, 1.0, 0.5) * torch.where(r != t, s.d, 1.0)
        c = self.u * s.c + tanh(smooth + chosen)
        return self.State(h=tanh(0.3 * more + powers), c=0.5 * c, d=tanh(c - 0.2 * counted))


class Readout(Cell):
    """An output of its own, twice as wide as a state and made of all of them."""

    state = ("h", "c")
    gates = ("a", "g")

    def R(self, x, h, s):
        g = sigmoid(x.g + h.g)
        c = g * s.c + (1 - g) * tanh(x.a)
        return self.State(h=tanh(c + h.a), c=c)

    def O(self, s):
        return torch.cat([s.h * s.c, s.c.sin()], -1)


class Decay(Cell):
    """No recurrent product: a scan."""

    state = ("h",)
    gates = ("z",)
    vectors = ("a",)

    def R(self, x, h, s):
        return self.State(h=sigmoid(self.a) * s.h + x.z)


class Deaf(Cell):
    """Reads no input."""

    state = ("h",)
    gates = ("a",)

    def R(self, x, h, s):
        return self.State(h=tanh(h.a) + 0.1 * s.h)


class Unbiased(Cell):
    """No bias at all, whatever is asked."""

    state = ("h",)
    gates = ("a",)

    def __init__(self, input_size, hidden_size):
        super().__init__(input_size, hidden_size, bias=False)

    def R(self, x, h, s):
        return self.State(h=tanh(x.a + 0.5 * h.a) + 0.1 * s.h)


class Lopsided(Cell):
    """x and h read different gates, and more of them than fit in a processor's registers."""

    state = ("h", "c", "e")
    gates = tuple(f"g{i}" for i in range(12))

    def R(self, x, h, s):
        a = tanh(x.g0 + h.g1) * sigmoid(x.g2 - h.g3) + tanh(x.g4 * h.g5)
        b = sigmoid(h.g6 + h.g7) * tanh(h.g8 + h.g9) + 0.1 * tanh(x.g10 + h.g11)
        return self.State(h=tanh(a + s.e), c=b, e=0.5 * (s.c + s.e))


class Phased(Cell):
    """Looks at all units, and multiplies what it computed: a step of several phases."""

    state = ("h", "c", "d")
    gates = ("a", "b")
    vectors = ("gain",)
    matrices = ("n", "m")

    def R(self, x, h, s):
        a, b = norm(x.a + h.a, h.b, epsilon=0.1)
        r = sigmoid(x.b + b)
        z = tanh(self.gain * a + self.n(r * s.h) + self.m(torch.softmax(s.c, -1)))
        c = rms(s.c + self.n(z), epsilon=0.1) - 0.1 * z.mean(-1, keepdim=True)
        return self.State(h=r * s.h + (1 - r) * z, c=c, d=torch.amax(z * s.d, -1, keepdim=True))


class Ranked(Cell):
    """A free-form cell: what it multiplies are its units in the order of their size."""

    state = ("h",)
    gates = ("a",)

    def step(self, x, s, product):
        return self.State(tanh(x.a + product(s.h.sort(-1).values, "a")))


# Cells of the package whose steps differ in kind: what does not depend on equations is tried with these.
UNLIKE = (
    "elman",
    "gru",
    "hard_gate",
    "layer_norm_lstm",
    "lru",
    "lstm",
    "mogrifier",
    "peephole_lstm",
    "qrnn",
    "scrn",
    "slstm",
    "sru",
)
USER_CELLS = (UserLSTM, Everything, Readout, Decay, Deaf, Unbiased, Lopsided)
