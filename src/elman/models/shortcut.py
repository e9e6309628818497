"""Linear models beside the network: n-grams straight to the labels, and how much each of them counts.

Logistic regression has an optimum and naive Bayes is counted: both are there before the network is trained.
The network is trained by itself, since beside a model that fits the training data there would be nothing
left to learn. What all three say is added up with weights that validation data decide.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from elman.models.backoff import Counted
from elman.text.ngram_index import NgramIndex, ngram_values
from elman.text.ngrams import Numbers

STRENGTH = 1000.0  # of the losses of a text, over √N, against half the square of the weights
MOST_WEIGHTS = 4_000_000
ITERATIONS = 100
CPU = torch.device("cpu")
SMOOTHING = 0.3  # of naive Bayes: how much all texts count for a label, against those of a usual label
UNSEEN = 0.1  # texts that each label has beforehand
MANY = 3000  # training texts from which on a network may be expected to be worth as much
TRUST = 20.0  # validation examples that outweigh what is expected


class LinearShortcut(Counted):
    """Logistic regression, ``softmax(v W + b)``, and naive Bayes, ``softmax(v log P + log p)``, of n-grams.

    hashes (F,), rising: the n-grams that training texts have; rarity (F,): ``1 + log((1 + N) / (1 + n_f))``.
    v are ``(1 + log count) · rarity``, of length one for words and for letters. weight (F, 2 K), bias (2 K):
    both models side by side. weights (3,): of the log-probabilities of the network and of these two in the
    sum. texts: that it was fitted to.
    """

    hashes: Tensor
    rarity: Tensor
    weight: Tensor
    bias: Tensor
    weights: Tensor
    texts: Tensor

    def __init__(self, K: int) -> None:
        super().__init__()
        self.register_buffer("hashes", torch.zeros(0, dtype=torch.int64))
        self.register_buffer("rarity", torch.zeros(0))
        self.register_buffer("weight", torch.zeros(0, 2 * K))
        self.register_buffer("bias", torch.zeros(2 * K))
        self.register_buffer("weights", expected_weights(0).float())
        self.register_buffer("texts", torch.zeros((), dtype=torch.int64))
        self._index: NgramIndex | None = None

    def forward(self, ngrams: tuple[Numbers, Numbers]) -> Tensor:
        """Log-probabilities (B, 2, K) by both models, of texts whose n-grams stand one after the other."""
        if self._index is None or self._index.of is not self.hashes:
            self._index = NgramIndex(self.hashes, self.hashes.cpu().numpy())
        places, values, offsets = ngram_values(*ngrams, self._index, self.rarity.cpu().numpy())
        sums = _Bags(places, offsets, values, self.weight.device).times(self.weight) + self.bias
        return F.log_softmax(sums.unflatten(-1, (2, -1)), -1)

    def mix(self, scores: Tensor, ngrams: tuple[Numbers, Numbers]) -> Tensor:
        """The network's scores (B, K) and these models', as log-probabilities of all together."""
        experts = self.experts(scores, ngrams)
        return F.log_softmax(torch.einsum("bek,e->bk", experts, self.weights.to(experts.dtype)), -1)

    def experts(self, scores: Tensor, ngrams: tuple[Numbers, Numbers]) -> Tensor:
        """(B, 3, K): the log-probabilities of the network and of both models."""
        return torch.cat([F.log_softmax(scores, -1)[:, None], self(ngrams).to(scores.dtype)], 1)

    def fit(
        self,
        ngrams: tuple[Numbers, Numbers],
        labels: Sequence[int],
        weighing: Tensor | None = None,
        shift: Tensor | None = None,
    ) -> None:
        """Take the n-grams that occur and find the best weights.

        ``weighing`` (K,): how much a text of each label counts, where not all count the same. ``shift``
        (K,): how much more probable each label is than these texts say, as a logarithm.
        """
        found, counts = ngrams
        K = len(self.bias) // 2
        truth = torch.as_tensor(labels, dtype=torch.int64)
        hashes, rarity = self._choose(found, counts)
        known = torch.from_numpy(hashes)
        places, values, offsets = ngram_values(found, counts, NgramIndex(known, hashes), rarity)
        matrix = places, offsets, values
        models = (
            _regress(*matrix, (len(hashes), K), truth, weighing),
            _count(*matrix, (len(hashes), K), truth),
        )
        weight, bias = (torch.cat(parts, -1) for parts in zip(*models, strict=True))
        bias = bias if shift is None else bias + shift.cpu().repeat(2)
        device = self.bias.device
        self.hashes, self.rarity = known.to(device), torch.from_numpy(rarity).to(device)
        self.weight, self.bias = weight.to(device), bias.to(device)
        self.texts.fill_(len(truth))
        self.weights.copy_(expected_weights(len(truth)))

    def _choose(self, found: Numbers, counts: Numbers) -> tuple[Numbers, NDArray[np.float32]]:
        """The n-grams that most texts have, as many as there is room for, and how rare they are."""
        rows = np.repeat(np.arange(len(counts)), counts)
        hashes, places = np.unique(found, return_inverse=True)
        distinct = np.unique(places.astype(np.int64) * len(counts) + rows)
        texts = np.bincount(distinct // max(1, len(counts)), minlength=len(hashes))
        most = MOST_WEIGHTS // len(self.bias)
        if len(hashes) > most:
            common = np.sort(np.argsort(-texts, kind="stable")[:most])
            hashes, texts = hashes[common], texts[common]
        rarity = 1 + np.log((1 + len(counts)) / (1 + texts))
        return hashes, rarity.astype(np.float32)

    def weigh(self, experts: Tensor, labels: Tensor) -> None:
        """Choose how much each model counts, from log-probabilities (N, 3, K) of texts with known labels."""
        self.weights.copy_(weighed(experts, labels, expected_weights(int(self.texts))))


def weighed(experts: Tensor, labels: Tensor, expected: Tensor) -> Tensor:
    """How much each of E models should count, from the log-probabilities (N, E, K) of known labels (N,).

    ``min_w Σ -log softmax(Σ_e w_e log p_e)[label] + TRUST/2 ‖w - expected‖²``, by Newton's method.
    """
    logs, labels = experts.double().cpu().mT, labels.cpu()  # (N, K, E)
    weights, each = expected.clone(), torch.arange(len(labels))

    def cost(weights: Tensor) -> float:
        loss = F.cross_entropy(logs @ weights, labels, reduction="sum")
        return float(loss + TRUST / 2 * (weights - expected).square().sum())

    for _ in range(30):
        chances = (logs @ weights).softmax(-1)
        means = (chances[..., None] * logs).sum(1)
        slope = (means - logs[each, labels]).sum(0) + TRUST * (weights - expected)
        spread = logs - means[:, None]
        curve = torch.einsum("nk,nki,nkj->ij", chances, spread, spread)
        curve += TRUST * torch.eye(len(expected), dtype=torch.float64)
        free = (weights > 0) | (slope < 0)  # others would become negative
        change = torch.zeros_like(weights)
        change[free] = torch.linalg.solve(curve[free][:, free], slope[free])
        steps = ((weights - change * 0.5**n).clamp(min=0.0) for n in range(20))
        better = next((one for one in steps if cost(one) < cost(weights)), None)
        if better is None:
            break
        weights = better
    return weights


def expected_weights(texts: int) -> Tensor:
    """Of network, regression and naive Bayes, after so many training texts: few teach a network little."""
    share = texts / (texts + MANY)
    return torch.tensor([0.1 + 0.5 * share, 0.5 - 0.1 * share, 0.25], dtype=torch.float64)


class _Bags:
    """A sparse matrix, row by row: the places of what it has, their values, and where each row begins."""

    def __init__(
        self, places: Numbers, offsets: Numbers, values: NDArray[np.float32], device: torch.device = CPU
    ) -> None:
        there = (torch.from_numpy(one).to(device) for one in (places, offsets, values))
        self.places, self.offsets, self.values = there

    def times(self, matrix: Tensor) -> Tensor:
        if not len(self.places):
            return matrix.new_zeros(len(self.offsets), matrix.shape[1])
        weights = self.values
        return F.embedding_bag(self.places, matrix, self.offsets, mode="sum", per_sample_weights=weights)


def _regress(
    places: Numbers,
    offsets: Numbers,
    values: NDArray[np.float32],
    shape: tuple[int, int],
    labels: Tensor,
    weighing: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Weights and bias of the regression, by L-BFGS over all texts at once: the same every time."""
    N, (width, K) = len(labels), shape
    penalty = 1 / (STRENGTH * math.sqrt(N))
    rows = np.repeat(np.arange(N), np.diff(np.concatenate([offsets, [len(places)]])))
    by_ngram = np.argsort(places, kind="stable")
    texts = _Bags(places, offsets, values)
    ngrams = _Bags(rows[by_ngram], np.searchsorted(places[by_ngram], np.arange(width)), values[by_ngram])
    counted = torch.ones(N) if weighing is None else weighing.cpu()[labels]
    truth, each = F.one_hot(labels, K).float(), torch.arange(N)
    weights = torch.zeros(width + 1, K)  # the bias comes last
    weights.grad = torch.zeros_like(weights)

    def objective() -> Tensor:
        """The mean over texts of their loss and their share of the penalty; its gradient is left behind."""
        weight, bias = weights[:-1], weights[-1]
        logs = F.log_softmax(texts.times(weight) + bias, -1)
        wrong = (logs.exp() - truth) * counted[:, None] / N
        weights.grad[:-1] = ngrams.times(wrong) + weight * penalty  # type: ignore[index]
        weights.grad[-1] = wrong.sum(0)  # type: ignore[index]
        loss: Tensor = -(counted * logs[each, labels]).mean()
        return loss + weight.square().sum() * (penalty / 2)

    optimizer = torch.optim.LBFGS(
        [weights], max_iter=ITERATIONS, history_size=6, tolerance_grad=1e-5, line_search_fn="strong_wolfe"
    )
    optimizer.step(objective)
    return weights[:-1].clone(), weights[-1].clone()


def _count(
    places: Numbers, offsets: Numbers, values: NDArray[np.float32], shape: tuple[int, int], labels: Tensor
) -> tuple[Tensor, Tensor]:
    """``log P(n-gram | label)`` and ``log P(label)``, smoothed.

    An n-gram has beforehand what its share in all texts says, so that it means nothing where it was not seen.
    The former less its mean over the labels: the softmax is the same, and sums over a long text stay small.
    """
    K = shape[1]
    each = np.repeat(labels.numpy(), np.diff(np.concatenate([offsets, [len(places)]])))
    flat = np.bincount(places * K + each, values, minlength=shape[0] * K)
    sums = torch.from_numpy(flat).view(shape)
    sums = sums + SMOOTHING / K * sums.sum(1, keepdim=True)
    often = torch.bincount(labels, minlength=K).double() + UNSEEN
    logs = (sums / sums.sum(0)).log()
    return (logs - logs.mean(1, keepdim=True)).float(), (often / often.sum()).log().float()
