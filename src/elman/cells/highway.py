"""The recurrent highway network: several layers within a step."""

from torch import sigmoid, tanh
from torch.nn import init

from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State
from elman.tensors.checks import check_number, check_size


class Highway(Cell):
    """Recurrent highway network (Zilly et al. 2017), carry and transform gate coupled.

        z = tanh(x W^xz + h W^hz + b_z)     t = σ(x W^xt + h W^ht + b_t)        a = h + t ⊙ (z - h)

    and then, for k = 2, …, ``depth``,

        z = tanh(a Z_k + y_k)               t = σ(a T_k + u_k)                  a ← a + t ⊙ (z - a)

    with h' = a in the end. Z_k and T_k are learned matrices, y_k and u_k learned vectors, which there
    are only with ``bias``. Biases of t start at ``transform_bias``, so that much is carried.
    """

    state = ("h",)
    gates = ("z", "t")

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        depth: int = 3,
        transform_bias: float = -2.0,
        bias: bool = True,
        initialisation: str = "orthogonal",
    ) -> None:
        super().__init__(input_size, hidden_size, bias=bias, initialisation=initialisation)
        self.depth = check_size("depth", depth)
        self.transform_bias = check_number("transform_bias", transform_bias)
        further = range(2, self.depth + 1)
        self.matrices = tuple(f"{name}_{k}" for k in further for name in ("Z", "T"))
        self.vectors = tuple(f"{name}_{k}" for k in further for name in ("y", "u")) if bias else ()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if self.bias:
            self.block("b", "t").fill_(self.transform_bias)
            for k in range(2, self.depth + 1):
                init.constant_(getattr(self, f"u_{k}"), self.transform_bias)

    def R(self, x: Parts, h: Parts, s: State) -> State:
        a = s.h + sigmoid(x.t + h.t) * (tanh(x.z + h.z) - s.h)
        for k in range(2, self.depth + 1):
            z, t = getattr(self, f"Z_{k}")(a), getattr(self, f"T_{k}")(a)
            if self.bias:
                z, t = z + getattr(self, f"y_{k}"), t + getattr(self, f"u_{k}")
            a = a + sigmoid(t) * (tanh(z) - a)
        return self.State(h=a)
