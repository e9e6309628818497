"""A cell without recurrent product: its step is pointwise, so a sequence is one scan."""

from torch import Tensor, sigmoid

from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State
from elman.tensors.checks import check_flag


class SRU(Cell):
    """Simple recurrent unit (Lei et al. 2018); v_f and v_r are learned vectors.

        f = σ(x W^xf + v_f ⊙ c + b_f)       c' = f ⊙ c + (1 - f) ⊙ (x W^xz + b_z)
        r = σ(x W^xr + v_r ⊙ c + b_r)       h' = r ⊙ c' + (1 - r) ⊙ (x W^xk + b_k)

    The skip connection goes through W^xk, so that input and hidden size may differ. Without ``peepholes``
    there are no v_f and v_r, as in the first version (2017): then the unit is linear in its state, and time
    is scanned in parallel.
    """

    state = ("h", "c")
    gates = ("f", "r", "z", "k")
    vectors: tuple[str, ...] = ("v_f", "v_r")
    v_f: Tensor
    v_r: Tensor

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        peepholes: bool = True,
        bias: bool = True,
        initialisation: str = "orthogonal",
    ) -> None:
        super().__init__(input_size, hidden_size, bias=bias, initialisation=initialisation)
        self.peepholes = check_flag("peepholes", peepholes)
        if not peepholes:
            self.vectors = ()

    def R(self, x: Parts, h: Parts, s: State) -> State:
        f = sigmoid(x.f + self.v_f * s.c if self.peepholes else x.f)
        r = sigmoid(x.r + self.v_r * s.c if self.peepholes else x.r)
        c = x.z + f * (s.c - x.z)
        return self.State(h=x.k + r * (c - x.k), c=c)
