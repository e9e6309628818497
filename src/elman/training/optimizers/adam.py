"""Adam."""

from torch import optim

from elman.training.optim import Betas, Groups


class Adam(optim.Adam):
    """Kingma and Ba (2015), with ``λ W`` added to the gradient.

    The fused kernels of torch take a third of the time of its plain Adam on a CPU; on a GPU they serve, too.
    """

    def __init__(
        self, groups: Groups, lr: float, *, betas: Betas = (0.9, 0.999), weight_decay: float = 0.0
    ) -> None:
        super().__init__(groups, lr=lr, betas=betas, weight_decay=weight_decay, fused=True)
