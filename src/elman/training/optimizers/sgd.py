"""Stochastic gradient descent with momentum."""

from torch import optim

from elman.training.optim import Groups, begin_momentum, on_a_gpu


class Sgd(optim.SGD):
    """``v ← μ v + g + λ W``, ``W ← W − η v``."""

    def __init__(
        self, groups: Groups, lr: float, *, momentum: float = 0.0, weight_decay: float = 0.0
    ) -> None:
        super().__init__(groups, lr=lr, momentum=momentum, weight_decay=weight_decay, fused=on_a_gpu(groups))
        begin_momentum(self)
