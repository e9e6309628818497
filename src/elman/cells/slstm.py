"""The scalar LSTM of xLSTM, with exponential gates."""

from torch import exp, maximum, sigmoid, tanh
from torch.nn.functional import softplus

from elman.cells.base import Cell
from elman.recurrence.contract import Parts, State
from elman.tensors.checks import check_flag


class SLSTM(Cell):
    """sLSTM (Beck et al. 2024): the input gate is exponential, and n counts what went in.

        ĩ = x W^xi + h W^hi + b_i           m' = max(log f + m, ĩ)
        f̃ = x W^xf + h W^hf + b_f           i = exp(ĩ - m')
        z = tanh(x W^xz + h W^hz + b_z)     c' = exp(log f + m - m') ⊙ c + i ⊙ z
        o = σ(x W^xo + h W^ho + b_o)        n' = exp(log f + m - m') ⊙ n + i
        log f = log σ(f̃)                    h' = o ⊙ c' / n'

    m keeps the exponentials small and changes nothing else. With ``exponential_forget`` log f is f̃
    itself. Published with recurrent weights in blocks: ``heads``.
    """

    state = ("h", "c", "n", "m")
    gates = ("i", "f", "z", "o")

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        exponential_forget: bool = False,
        bias: bool = True,
        initialisation: str = "orthogonal",
    ) -> None:
        super().__init__(input_size, hidden_size, bias=bias, initialisation=initialisation)
        self.exponential_forget = check_flag("exponential_forget", exponential_forget)

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if self.bias:
            self.block("b", "f").fill_(1.0)

    def R(self, x: Parts, h: Parts, s: State) -> State:
        i, f = x.i + h.i, x.f + h.f
        kept = s.m + (f if self.exponential_forget else -softplus(-f))
        m = maximum(kept, i)
        i, f = exp(i - m), exp(kept - m)
        c = f * s.c + i * tanh(x.z + h.z)
        n = f * s.n + i
        return self.State(h=sigmoid(x.o + h.o) * c / n, c=c, n=n, m=m)
