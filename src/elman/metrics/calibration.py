"""Probabilities that mean something: how wrong confidence is, and the temperature that mends it."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

BINS = 15  # of equal width
FEWEST = 50  # examples that a temperature is fitted to, at least
KEPT = 1 << 21  # scores that it is fitted to, at most
FARTHEST = -1e4  # nats below the best; a label so far away weighs nothing
NARROWEST, WIDEST = 1e-4, 1e4  # of 1 / T
ROUNDS = 200  # of Newton's method, which takes about ten


@dataclass(frozen=True)
class Calibration:
    """The temperature T that scores z are divided by: P = softmax(z / T), of several labels σ(z / T).

    examples: what it was fitted to. before, after: the mean of −log P there, with T = 1 and with this one.
    reason: why it stayed 1, if it did.
    """

    temperature: float = 1.0
    examples: int = 0
    before: float | None = None
    after: float | None = None
    reason: str | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Self:
        return cls(**found)

    @property
    def sentence(self) -> str:
        """
        >>> Calibration(1.5, 2083, 0.3342, 0.3217).sentence
        'calibrated on 2,083 labels of the validation data: temperature 1.5, −log P 0.3342 → 0.3217'
        >>> Calibration(examples=12, reason="12 labels of the validation data are too few").sentence
        'probabilities are not calibrated: 12 labels of the validation data are too few'
        """
        if self.before is None or self.after is None or self.reason is not None:
            return f"probabilities are not calibrated: {self.reason}"
        where = f"calibrated on {self.examples:,} labels of the validation data"
        return f"{where}: temperature {self.temperature:.4g}, −log P {self.before:.4f} → {self.after:.4f}"


class ScoreSample:
    """Scores of labels beside the true ones, from which a temperature is fitted.

    Of more than 2 million scores every second row is kept, or every fourth, …, whatever order they come in.

    >>> sample = ScoreSample()
    >>> sample.add(np.array([[4.0, 0.0], [0.0, 4.0]] * 50), np.array([0, 1] * 45 + [1, 0] * 5))
    >>> round(sample.fit().temperature, 1)  # 90 of 100 are right, not 98
    1.8
    """

    def __init__(self, *, several: bool = False) -> None:
        """``several``: each label is a sigmoid of its own."""
        self.several = several
        self._scores: list[NDArray[Any]] = []
        self._gold: list[NDArray[Any]] = []
        self._every, self._seen, self._size = 1, 0, 0

    def add(self, scores: NDArray[Any], gold: NDArray[Any]) -> None:
        """Scores (N, K), and the true label (N,) of each row, or (N, K) which labels are true."""
        rows = slice(-self._seen % self._every, None, self._every)
        self._seen += len(scores)
        self._keep(scores[rows], gold[rows])
        while self._size > KEPT and sum(map(len, self._scores)) > 1:
            both = np.concatenate(self._scores), np.concatenate(self._gold)
            self._every, self._size, self._scores, self._gold = 2 * self._every, 0, [], []
            self._keep(*(one[::2] for one in both))

    def fit(self) -> Calibration:
        """The temperature with the least −log P of the true labels, by Newton's method in float64.

        −log P is convex in 1 / T. A temperature below 1 makes a model more sure of itself: for that, caution
        takes one more example for a mistake of the usual margin, so that 1 / (n + 1) of the truth is the next
        best label. Without it T would be 0 where all examples are right.
        """
        if not self._scores or self._seen < FEWEST:
            said = f"{self._seen} labels of the validation data are too few, {FEWEST} are needed"
            return Calibration(examples=self._seen, reason=said)
        curve = _Sigmoids if self.several else _Softmax
        likelihood = curve(np.concatenate(self._scores).astype(np.float64), np.concatenate(self._gold))
        before = likelihood.loss(1.0)
        if not math.isfinite(before):
            return Calibration(examples=self._seen, reason="−log P of the validation data is not finite")
        temperature = 1 / _least(likelihood)
        if temperature < 1:
            temperature = min(1.0, 1 / _least(likelihood, cautious=True))
        after = likelihood.loss(1 / temperature)
        if not after < before:
            return Calibration(1.0, self._seen, before, before, "a temperature makes −log P hardly smaller")
        return Calibration(temperature, self._seen, before, after)

    def _keep(self, scores: NDArray[Any], gold: NDArray[Any]) -> None:
        self._scores.append(scores)
        self._gold.append(gold)
        self._size += scores.size


class _Softmax:
    """−log P of the true labels as a function of β = 1 / T; P = softmax(β z)."""

    def __init__(self, scores: Floats, gold: NDArray[Any]) -> None:
        z = np.maximum(scores - scores.max(-1, keepdims=True), FARTHEST)
        true = np.take_along_axis(z, gold[:, None].astype(np.int64), -1)[:, 0]
        possible = true > FARTHEST  # no temperature helps where it is ruled out
        self.z, self.true = z[possible], true[possible]
        second = np.partition(self.z, -2, -1)[:, -2] if z.shape[-1] > 1 else self.true
        n = max(1, len(self.true))
        self.aim = _mean(self.true)
        self.cautious_aim = (n * self.aim + _mean(second)) / (n + 1)

    def loss(self, beta: float) -> float:
        return _mean(np.log(np.exp(beta * self.z).sum(-1)) - beta * self.true)

    def slopes(self, beta: float, *, cautious: bool) -> tuple[float, float]:
        """The first and the second derivative by β; ``cautious``: with one more mistake."""
        p = np.exp(beta * self.z)
        p /= p.sum(-1, keepdims=True)
        mean = (p * self.z).sum(-1)
        aim = self.cautious_aim if cautious else self.aim
        return _mean(mean) - aim, _mean((p * self.z**2).sum(-1) - mean**2)


class _Sigmoids:
    """The same for several labels, each by itself: P = σ(β z), summed over the labels of a row."""

    def __init__(self, scores: Floats, gold: NDArray[Any]) -> None:
        self.z = np.clip(np.where(gold > 0.5, scores, -scores), FARTHEST, -FARTHEST)  # of what is true
        self.n = len(scores)

    def loss(self, beta: float) -> float:
        return _mean(np.logaddexp(0.0, -beta * self.z).sum(-1))

    def slopes(self, beta: float, *, cautious: bool) -> tuple[float, float]:
        wrong = 1 / (self.n + 1) if cautious else 0.0
        p = np.exp(-np.logaddexp(0.0, beta * self.z))  # σ(−β z)
        return _mean((self.z * (wrong - p)).sum(-1)), _mean((self.z**2 * p * (1 - p)).sum(-1))


def _mean(values: Floats) -> float:
    return float(values.mean()) if values.size else 0.0


def _least(curve: _Softmax | _Sigmoids, *, cautious: bool = False) -> float:
    """The minimum of a convex curve: by Newton's method, or by halving where that leaves the bounds."""
    low, high, beta = NARROWEST, WIDEST, 1.0
    for _ in range(ROUNDS):
        first, second = curve.slopes(beta, cautious=cautious)
        low, high = (low, beta) if first > 0 else (beta, high)
        new = beta - first / second if second > 0 else 0.0
        new = new if low < new < high else math.sqrt(low * high)
        if abs(new - beta) <= 1e-12 * beta:
            break
        beta = new
    return beta


class Reliability:
    """Confidence and how often it is right: what is said, with how much probability, and whether it is true.

        ECE = Σ_b (n_b / n) |share of right answers in b − mean confidence in b|

    over 15 bins of equal width; a bin has its lower edge, the last one both (Naeini, Cooper and Hauskrecht
    2015; Guo et al. 2017).

    >>> told = Reliability(threshold=0.9)
    >>> told.add(np.array([0.95, 0.95, 0.6, 0.6]), np.array([True, True, True, False]))
    >>> round(told.error, 4)  # half of |1 − 0.95| and half of |0.5 − 0.6|
    0.075
    >>> told.coverage, told.answered_accuracy
    (0.5, 1.0)
    """

    def __init__(self, threshold: float | None = None) -> None:
        self.threshold = threshold
        self.counts = np.zeros(BINS, dtype=np.int64)
        self.right = np.zeros(BINS, dtype=np.int64)
        self.confidence = np.zeros(BINS)
        self._answered = self._answered_right = 0

    def add(self, confidence: NDArray[Any], right: NDArray[Any]) -> None:
        """How probable each answer is (N,), and whether it is right (N,)."""
        places = np.clip((confidence * BINS).astype(np.int64), 0, BINS - 1)
        self.counts += np.bincount(places, minlength=BINS)
        self.right += np.bincount(places[right], minlength=BINS)
        self.confidence += np.bincount(places, weights=confidence, minlength=BINS)
        if self.threshold is not None:
            answered = confidence >= self.threshold
            self._answered += int(answered.sum())
            self._answered_right += int((answered & right).sum())

    @property
    def count(self) -> int:
        return int(self.counts.sum())

    @property
    def error(self) -> float:
        """The expected calibration error; 0 of nothing."""
        return float(np.abs(self.right - self.confidence).sum() / max(1, self.count))

    @property
    def coverage(self) -> float:
        """The share of answers that are at least as probable as the threshold."""
        return self._answered / max(1, self.count)

    @property
    def answered_accuracy(self) -> float | None:
        """The share of right ones among these; None where there are none."""
        return self._answered_right / self._answered if self._answered else None

    def bins(self) -> list[dict[str, float]]:
        """Those with an answer: from where to where, how many, their mean confidence, how many are right."""
        return [
            {
                "from": place / BINS,
                "to": (place + 1) / BINS,
                "count": int(self.counts[place]),
                "confidence": float(self.confidence[place] / self.counts[place]),
                "accuracy": float(self.right[place] / self.counts[place]),
            }
            for place in np.flatnonzero(self.counts).tolist()
        ]
