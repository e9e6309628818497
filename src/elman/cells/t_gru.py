"""The strongly typed GRU: a pointwise scan over pairs of inputs."""

from torch import sigmoid, tanh

from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State


class TGRU(Cell):
    """Strongly typed GRU (Balduzzi & Ghifary 2016): gates see this input and the one before it.

        f = σ(x W^xf + p_f + b_f)           p_f' = x W^xv_f
        z = x W^xz + p_z + b_z              p_z' = x W^xv_z
        o = tanh(x W^xo + p_o + b_o)        p_o' = x W^xv_o
        h' = f ⊙ h + z ⊙ o

    p is the part of the previous input, zero before the first; with ``bias`` it has one, too.
    """

    state = ("h", "p_f", "p_z", "p_o")
    gates = ("f", "z", "o", "v_f", "v_z", "v_o")

    def R(self, x: Parts, h: Parts, s: State) -> State:
        f, z, o = sigmoid(x.f + s.p_f), x.z + s.p_z, tanh(x.o + s.p_o)
        return self.State(h=f * s.h + z * o, p_f=x.v_f, p_z=x.v_z, p_o=x.v_o)
