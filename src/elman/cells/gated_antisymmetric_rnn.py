"""The network that is a stable differential equation, with a gate."""

from torch import sigmoid, tanh

from elman.cells.antisymmetric_rnn import AntisymmetricRNN
from elman.recurrence.contract import Parts, State


class GatedAntisymmetricRNN(AntisymmetricRNN):
    """Antisymmetric RNN with gating (Chang et al. 2019): gate and candidate share a product.

        z = σ(x W^xz + h A + b_z)       h' = h + ε z ⊙ tanh(x W^xa + h A + b_a)
        A = U - Uᵀ - γ I

    ε is ``epsilon``, the length of a step of time, and γ is ``gamma``, a damping. U is learned.
    """

    gates = ("z", "a")

    def R(self, x: Parts, h: Parts, s: State) -> State:
        a = self.U(s.h)
        return self.State(h=s.h + self.epsilon * sigmoid(x.z + a) * tanh(x.a + a))
