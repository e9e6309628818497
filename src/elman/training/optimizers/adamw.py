"""Adam with its weight decay beside the step."""

from torch import optim

from elman.training.optim import Betas, Groups


class AdamW(optim.AdamW):
    """As Adam, but ``W ← W − η λ W`` beside the step (Loshchilov and Hutter, 2019)."""

    def __init__(
        self, groups: Groups, lr: float, *, betas: Betas = (0.9, 0.999), weight_decay: float = 0.0
    ) -> None:
        super().__init__(groups, lr=lr, betas=betas, weight_decay=weight_decay, fused=True)
