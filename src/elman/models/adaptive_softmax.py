"""The adaptive softmax: a large vocabulary in clusters, of which rare tokens have narrower weights."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elman.models.losses import NO_TARGET, output_loss

NARROWER = 4  # are the weights of each cluster than those of the one before


class AdaptiveSoftmax(nn.Module):
    """``P(w) = P_0(w)`` for a frequent token; ``P_0(cluster) P_cluster(w)`` for others (Grave et al. 2017b).

    The head, P_0, has the first twentieth of the vocabulary, which comes by falling count, and an entry for
    each of two clusters: what follows up to a fourth of it, and the rest. A cluster projects the output to a
    fourth, the second to a sixteenth, of its width. Weights and probabilities are those of torch's
    ``AdaptiveLogSoftmaxWithLoss``.
    """

    def __init__(self, H: int, V: int) -> None:
        super().__init__()
        self.cutoffs = cutoffs(V)
        narrower = min(NARROWER, math.isqrt(H))
        self.softmax = nn.AdaptiveLogSoftmaxWithLoss(H, V, self.cutoffs[:-1], div_value=narrower)

    def forward(self, outputs: Tensor) -> Tensor:
        """Log-probabilities (…, V) of all tokens for outputs (…, H)."""
        flat: Tensor = self.softmax.log_prob(outputs.flatten(0, -2))
        return flat.view(*outputs.shape[:-1], -1)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """``Σ −log P(target)`` of outputs (N, H) and targets (N,); one that is ``NO_TARGET`` has no loss.

        On the CPU a cluster sees only the rows whose targets it has. On a GPU it sees all of them, so that
        nothing depends on what the targets are and an update can be recorded.
        """
        first = targets
        parts = []
        for number, tail in enumerate(self.softmax.tail):
            start, end = self.cutoffs[number : number + 2]
            inside = (targets >= start) & (targets < end)
            first = first.where(~inside, self.cutoffs[0] + number)
            own = (targets - start).where(inside, NO_TARGET)
            if outputs.is_cpu:
                parts.append(output_loss(tail(outputs[inside]), own[inside]))
            else:
                parts.append(output_loss(tail(outputs), own))
        head: Tensor = self.softmax.head(outputs)
        return torch.stack(
            [F.cross_entropy(head, first, reduction="sum", ignore_index=NO_TARGET), *parts]
        ).sum()


def cutoffs(V: int) -> list[int]:
    """Where the head ends, and each of the two clusters.

    >>> cutoffs(80_000)
    [4000, 20000, 80000]
    """
    first = max(1, V // 20)
    return [first, max(first + 1, V // 4), V]


def cluster_names(tokens: Sequence[str]) -> dict[str, list[str]]:
    """What the rows of the weights stand for, by their names."""
    first, second, _ = cutoffs(len(tokens))
    head = [*tokens[:first], "first cluster", "second cluster"]
    tails = {0: tokens[first:second], 1: tokens[second:]}
    return {"softmax.head.weight": head} | {
        f"softmax.tail.{number}.1.weight": list(own) for number, own in tails.items()
    }
