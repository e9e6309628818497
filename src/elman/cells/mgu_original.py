"""The minimal gated unit as it was published: an example of a free-form cell."""

from torch import lerp, sigmoid, tanh

from elman.cells.base import Cell
from elman.recurrence.contract import Product, State, StepInput


class OriginalMGU(Cell):
    """Minimal gated unit (Zhou et al. 2016): the state is gated before it is multiplied.

        f = σ(x W^xf + h W^hf + b_f)        z = tanh(x W^xz + (f ⊙ h) W^hz + b_z)
                                            h' = (1 - f) ⊙ h + f ⊙ z

    Two products that follow each other make a step, so this is a free-form cell on the plain loop.
    """

    state = ("h",)
    gates = ("f", "z")

    def step(self, x: StepInput, s: State, product: Product) -> State:
        f = sigmoid(product(s.h, "f", plus=x.f))
        z = tanh(product(f * s.h, "z", plus=x.z))
        return self.State(h=lerp(s.h, z, f))
