"""A linear-chain conditional random field: tags that are scored together with their neighbours."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from elman.errors import ShapeError
from elman.tensors.checks import check_lengths, check_size, check_tensor
from elman.tensors.rows import length_mask

FORBIDDEN = -1e300  # below every sum of scores, and finite: it weighs nothing, and its gradient is no NaN
FURTHEST = 600.0  # nats below the best at which a weight of float64, and its inverse, are still exact
SMALLEST = 1e-290  # of a sum of weights: further below than FURTHEST, and no NaN for a gradient
WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


class CRF(nn.Module):
    """A distribution over the tag sequences y of a sentence, given a score of every tag at every word:

        p(y) = exp(s(y)) / Σ_{y'} exp(s(y')),
        s(y) = start[y_1] + Σ_t scores[t, y_t] + Σ_{t>1} transitions[y_{t-1}, y_t] + end[y_n]

    (Lafferty, McCallum and Pereira 2001.) K is the number of tags. Padding may hold anything. Everything is
    counted in float64, whatever the scores are: exact to its rounding while no s(y) passes 1e299.

    >>> crf = CRF(3)
    >>> scores, lengths = torch.randn(2, 5, 3), torch.tensor([5, 2])
    >>> crf.log_likelihood(scores, torch.zeros(2, 5, dtype=torch.long), lengths).shape
    torch.Size([2])
    >>> [len(tags) for tags in crf.decode(scores, lengths)]
    [5, 2]
    """

    allowed: Tensor
    bias: Tensor | None  # of the tags, where they are decoded

    def __init__(self, tags: int, *, biased: bool = False) -> None:
        """``biased``: what is decoded may prefer some tags; it begins with no preference."""
        super().__init__()
        self.tags = check_size("tags", tags)
        self.start = nn.Parameter(torch.zeros(tags))
        self.transitions = nn.Parameter(torch.zeros(tags, tags))
        self.end = nn.Parameter(torch.zeros(tags))
        self.register_buffer("allowed", torch.ones(tags + 1, tags + 1, dtype=torch.bool))
        self.register_buffer("bias", torch.zeros(tags) if biased else None)

    def constrain(self, allowed: Any) -> None:
        """Leave only some transitions possible: they alone are decoded, and share the probability.

        Args:
            allowed: (K+1, K+1) truth values, [before, after]; the last row says which tags may begin
                a sentence, the last column which may end it. It is kept in the state dict. True tags
                that break it have the log-likelihood -inf: ``permits`` tells them before. Where no tags
                of some length keep to it, those that break it least often are decoded.
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
        if check_tensor("tags", tags, (B, T)).dtype not in WHOLE or tags.device != scores.device:
            found = f"{tags.dtype} on {tags.device}"
            raise ShapeError(f"tags is {found}; it must hold whole numbers beside scores")
        tags = tags.long().where(real, 0)
        if tags.is_cpu:  # a GPU would be waited for; there, gather refuses a wrong one
            low, high = int(tags.min()), int(tags.max())
            if low < 0 or high >= self.tags:
                wrong = low if low < 0 else high
                raise ShapeError(f"tags holds {wrong}; there are tags 0 to {self.tags - 1}")
        scores = _relative(scores, real)
        start, transitions, end = self.constrained()
        last = tags.gather(1, lengths[:, None] - 1).squeeze(1)  # (B,)
        own = scores.gather(2, tags[..., None]).squeeze(2)  # (B, T)
        into = torch.cat([start[tags[:, :1]], transitions[tags[:, :-1], tags[:, 1:]]], 1)
        tops, rest = _log_partition(scores, lengths, start, transitions, end)
        # Step by step: the difference of two large sums would have lost what matters.
        ahead = (into + own - tops).masked_fill(~real, 0.0).sum(1) + (end[last] - rest)
        return ahead.masked_fill(~self.permits(tags, lengths), -torch.inf).to(self.start.dtype)

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

        It is the gradient of log Z by the scores.
        """
        scores, lengths, real = self._check(scores, lengths)
        with torch.enable_grad():
            scores = scores.detach().requires_grad_()
            _, rest = _log_partition(_relative(scores, real), lengths, *self.constrained())
            [gradient] = torch.autograd.grad(rest.sum(), scores)
        return gradient

    def decode(self, scores: Tensor, lengths: Any) -> list[list[int]]:
        """The most probable tags of every row, without its padding (Viterbi), as if scores had the bias."""
        scores, lengths, real = self._check(scores, lengths)
        scores = scores if self.bias is None else scores + self.bias
        scores = _relative(scores, real)
        start, transitions, end = self.constrained()
        stay = torch.arange(self.tags, device=scores.device)
        best = start + scores[:, 0]  # (B, K)
        pointers = []
        for t in range(1, scores.shape[1]):
            value, origin = (best[:, :, None] - best.amax(1)[:, None, None] + transitions).max(1)
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
        if not scores.dtype.is_floating_point or scores.device != self.start.device:
            own = f"real numbers on {self.start.device}"
            raise ShapeError(f"scores is {scores.dtype} on {scores.device}; it must hold {own}")
        lengths = check_lengths(lengths, B, T, scores.device)
        return scores, lengths, length_mask(lengths, T)

    def constrained(self) -> tuple[Tensor, Tensor, Tensor]:
        """start (K,), transitions (K, K) and end (K,), each by what it is below its largest possible one.

        That changes no probability. What is forbidden has no gradient.
        """
        forbidden = ~self.allowed

        def relative(part: Tensor, no: Tensor) -> Tensor:
            largest = part.detach().double().masked_fill(no, FORBIDDEN).max()
            return (part.double() - largest).masked_fill(no, FORBIDDEN)

        transitions = relative(self.transitions, forbidden[:-1, :-1])
        return relative(self.start, forbidden[-1, :-1]), transitions, relative(self.end, forbidden[:-1, -1])


def _relative(scores: Tensor, real: Tensor) -> Tensor:
    """How far each score is below the largest of its step, which changes no probability; 0 at padding."""
    scores = scores.double().masked_fill(~real[..., None], 0.0)
    return scores - scores.detach().amax(2, keepdim=True)


def _log_partition(
    scores: Tensor, lengths: Tensor, start: Tensor, transitions: Tensor, end: Tensor
) -> tuple[Tensor, Tensor]:
    """log Z = log Σ_y exp(s(y)) in parts: tops (B, T), to be summed up to the length, and the rest (B,).

    Forward: α_t = log(exp(α_{t-1}) exp(transitions)) + scores_t. While nothing possible is too far below the
    top for float64, a product of matrices stands for the K² exponentials of a step. Whether that held is
    seen afterwards; a GPU would have to be waited for to see it, and there K² exponentials cost little.
    """
    if scores.is_cpu:
        weights = transitions.exp()  # (K, K), at most 1
        alphas, tops = _walk(scores, start, lambda alpha: (alpha.exp() @ weights).clamp_min(SMALLEST).log())
        if _furthest(alphas) + _furthest(transitions) < FURTHEST:
            return tops, _rest(alphas, lengths, end)
    alphas, tops = _walk(scores, start, lambda alpha: (alpha[:, :, None] + transitions).logsumexp(1))
    return tops, _rest(alphas, lengths, end)


def _walk(scores: Tensor, start: Tensor, advance: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """(B, T, K) how far every α_t is below its top, and (B, T) how far each top is above the one before."""
    first, *others = scores.unbind(1)
    alpha = start + first
    tops = [alpha.detach().amax(1, keepdim=True)]
    alphas = [alpha - tops[0]]
    for score in others:
        alpha = advance(alphas[-1]) + score
        tops.append(alpha.detach().amax(1, keepdim=True))
        alphas.append(alpha - tops[-1])
    return torch.stack(alphas, 1), torch.cat(tops, 1)


def _rest(alphas: Tensor, lengths: Tensor, end: Tensor) -> Tensor:
    rows = torch.arange(len(alphas), device=alphas.device)
    return (alphas[rows, lengths - 1] + end).logsumexp(1)


def _furthest(values: Tensor) -> float:
    """How far below 0 the lowest is; what is forbidden does not count."""
    values = values.detach()
    return -float(values.masked_fill(values < FORBIDDEN / 2, 0.0).min())
