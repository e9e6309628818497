"""Incremental gradient descent, example by example (row G2)."""

from torch import optim

from elman.training.optim import Groups, on_a_gpu


class Incremental(optim.SGD):
    """``W ← W − η g`` and nothing else."""

    def __init__(self, groups: Groups, lr: float) -> None:
        super().__init__(groups, lr=lr, fused=on_a_gpu(groups))
