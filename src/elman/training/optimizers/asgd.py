"""Stochastic gradient descent whose weights are averaged."""

from torch import optim

from elman.training.optim import Groups, on_a_gpu


class Asgd(optim.SGD):
    """``W ← W − η (g + λ W)``, without momentum, to be averaged by ``Averaging("tail")``."""

    def __init__(self, groups: Groups, lr: float, *, weight_decay: float = 0.0) -> None:
        super().__init__(groups, lr=lr, weight_decay=weight_decay, fused=on_a_gpu(groups))
