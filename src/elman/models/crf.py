"""A linear-chain conditional random field: tags that are scored together with their neighbours."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elman.errors import ShapeError
from elman.tensors.checks import check_lengths, check_size, check_tensor
from elman.tensors.rows import length_mask

FORBIDDEN = -1e4  # finite: the weight of such a path is zero, its gradient is no NaN
SMALLEST = 1e-290  # below it a sum counts as this much; its inverse leaves room for a scaled gradient


class CRF(nn.Module):
    """A distribution over the tag sequences y of a sentence, given a score of every tag at every word:

        p(y) = exp(s(y)) / Σ_{y'} exp(s(y')),
        s(y) = start[y_1] + Σ_t scores[t, y_t] + Σ_{t>1} transitions[y_{t-1}, y_t] + end[y_n]

    (Lafferty, McCallum and Pereira 2001.) K is the number of tags. Padding may hold anything.

    >>> crf = CRF(3)
    >>> scores, lengths = torch.randn(2, 5, 3), torch.tensor([5, 2])
    >>> crf.log_likelihood(scores, torch.zeros(2, 5, dtype=torch.long), lengths).shape
    torch.Size([2])
    >>> [len(tags) for tags in crf.decode(scores, lengths)]
    [5, 2]
    """

    allowed: Tensor

    def __init__(self, tags: int) -> None:
        super().__init__()
        self.tags = check_size("tags", tags)
        self.start = nn.Parameter(torch.zeros(tags))
        self.transitions = nn.Parameter(torch.zeros(tags, tags))
        self.end = nn.Parameter(torch.zeros(tags))
        self.register_buffer("allowed", torch.ones(tags + 1, tags + 1, dtype=torch.bool))

    def constrain(self, allowed: Any) -> None:
        """Leave only some transitions possible: they alone are decoded, and share the probability.

        Args:
            allowed: (K+1, K+1) truth values, [before, after]; the last row says which tags may begin
                a sentence, the last column which may end it. It is kept in the state dict. True tags
                that break it get a log-likelihood near ``FORBIDDEN``: look for them before.
        """
        K = self.tags
        table = check_tensor("allowed", torch.as_tensor(allowed), (K + 1, K + 1))
        if table.dtype != torch.bool:
            raise ShapeError(f"allowed is {table.dtype}; it must hold truth values")
        self.allowed.copy_(table)

    def log_likelihood(self, scores: Tensor, tags: Tensor, lengths: Any) -> Tensor:
        """(B,) log p(tags) of every row, from scores (B, T, K), tags (B, T) and lengths (B,)."""
        scores, lengths, real = self._check(scores, lengths)
        B, T, _ = scores.shape
        tags = check_tensor("tags", tags, (B, T)).where(real, 0)
        if tags.is_cpu:  # a GPU would be waited for; there, gather refuses a wrong one
            low, high = int(tags.min()), int(tags.max())
            if low < 0 or high >= self.tags:
                wrong = low if low < 0 else high
                raise ShapeError(f"tags holds {wrong}; there are tags 0 to {self.tags - 1}")
        # In float64 sums of weights hold 600 nats between the best tag and the worst, so that a
        # product of matrices may stand for the logarithm of K² sums of exponentials.
        scores = scores.double().masked_fill(~real[..., None], 0.0)
        start, transitions, end = (part.double() for part in self._constrained())
        total = _log_partition(scores, lengths, start, transitions, end)
        own = scores.gather(2, tags[..., None]).squeeze(2)  # (B, T)
        between = transitions[tags[:, :-1], tags[:, 1:]] * real[:, 1:]
        last = tags.gather(1, lengths[:, None] - 1).squeeze(1)  # (B,)
        score = start[tags[:, 0]] + own.sum(1) + between.sum(1) + end[last]
        return (score - total).to(self.start.dtype)

    def permits(self, tags: Tensor, lengths: Tensor) -> Tensor:
        """(B,) whether the tags (B, T) of every row keep to the possible transitions, its edges included."""
        B, T = tags.shape
        lengths = lengths.to(tags.device)
        edge = tags.new_full((B, 1), self.tags)
        padded = torch.cat([edge, tags.where(length_mask(lengths, T), self.tags), edge], 1)  # (B, T + 2)
        possible = self.allowed[padded[:, :-1], padded[:, 1:]]  # (B, T + 1)
        return (possible | ~length_mask(lengths + 1, T + 1)).all(1)

    @torch.no_grad()
    def marginals(self, scores: Tensor, lengths: Any) -> Tensor:
        """(B, T, K) how probable each tag is at each position, whatever the others are; zero at padding.

        The gradient of log Z by the scores, which is what the gradient of a log-likelihood lacks of its tags.
        """
        with torch.enable_grad():
            scores = scores.detach().requires_grad_()
            tags = torch.zeros(scores.shape[:2], dtype=torch.long, device=scores.device)
            [gradient] = torch.autograd.grad(self.log_likelihood(scores, tags, lengths).sum(), scores)
        real = length_mask(torch.as_tensor(lengths, device=scores.device), scores.shape[1])
        return (F.one_hot(tags, scores.shape[2]) * real[..., None] - gradient).detach()

    def decode(self, scores: Tensor, lengths: Any) -> list[list[int]]:
        """The most probable tags of every row, without its padding (Viterbi)."""
        scores, lengths, real = self._check(scores, lengths)
        start, transitions, end = self._constrained()
        stay = torch.arange(self.tags, device=scores.device)
        best = start + scores[:, 0]  # (B, K)
        pointers = []
        for t in range(1, scores.shape[1]):
            value, origin = (best[:, :, None] + transitions).max(1)
            here = real[:, t, None]
            best = torch.where(here, value + scores[:, t], best)
            pointers.append(torch.where(here, origin, stay))
        tag = (best + end).argmax(1)  # (B,)
        path = [tag]
        for origin in reversed(pointers):
            tag = origin.gather(1, tag[:, None]).squeeze(1)
            path.append(tag)
        rows = torch.stack(path[::-1], 1).tolist()
        return [row[:length] for row, length in zip(rows, lengths.tolist(), strict=True)]

    def extra_repr(self) -> str:
        return f"{self.tags} tags, {int((~self.allowed).sum())} transitions forbidden"

    def _check(self, scores: Tensor, lengths: Any) -> tuple[Tensor, Tensor, Tensor]:
        B, T, _ = check_tensor("scores", scores, ("B", "T", self.tags)).shape
        lengths = check_lengths(lengths, B, T, scores.device)
        return scores, lengths, length_mask(lengths, T)

    def _constrained(self) -> tuple[Tensor, Tensor, Tensor]:
        """start (K,), transitions (K, K) and end (K,) as they count; what is forbidden has no gradient."""
        forbidden = ~self.allowed
        return (
            self.start.masked_fill(forbidden[-1, :-1], FORBIDDEN),
            self.transitions.masked_fill(forbidden[:-1, :-1], FORBIDDEN),
            self.end.masked_fill(forbidden[:-1, -1], FORBIDDEN),
        )


def _log_partition(
    scores: Tensor, lengths: Tensor, start: Tensor, transitions: Tensor, end: Tensor
) -> Tensor:
    """(B,) log Σ_y exp(s(y)), forward: α_t = log(exp(α_{t-1}) exp(transitions)) + scores_t."""
    first, *others = scores.unbind(1)
    peak = transitions.max().detach()
    weights = (transitions - peak).exp()  # (K, K), at most 1
    alpha = start + first
    alphas = [alpha]
    for score in others:
        top = alpha.detach().amax(1, keepdim=True)
        sums = (alpha - top).exp() @ weights  # (B, K)
        alpha = sums.clamp_min(SMALLEST).log() + (score + top + peak)
        alphas.append(alpha)
    rows = torch.arange(len(scores), device=scores.device)
    return (torch.stack(alphas)[lengths - 1, rows] + end).logsumexp(1)
