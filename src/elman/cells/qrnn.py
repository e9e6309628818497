"""The network of convolutions, and a pooling that is recurrent."""

from torch import sigmoid, tanh

from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State


class QRNN(Cell):
    """Quasi-recurrent network (Bradbury et al. 2017): a convolution of two steps, then gated pooling ("fo").

        z = tanh(x W^xz + p + b_z)      c' = f ⊙ c + (1 - f) ⊙ z
        f = σ(x W^xf + g + b_f)         h' = o ⊙ c'
        o = σ(x W^xo + q + b_o)         p' = x W^xp + b_p,  g' = x W^xg + b_g,  q' = x W^xq + b_q

    The convolution is over this input and the one before, of which p, g and q are what its weights made: as
    states, so that a stream needs no more than its state. Linear in c, so time is scanned in parallel.
    """

    state = ("h", "c", "p", "g", "q")
    gates = ("z", "f", "o", "p", "g", "q")

    def R(self, x: Parts, h: Parts, s: State) -> State:
        z, f, o = tanh(x.z + s.p), sigmoid(x.f + s.g), sigmoid(x.o + s.q)
        c = z + f * (s.c - z)
        return self.State(h=o * c, c=c, p=x.p, g=x.g, q=x.q)
