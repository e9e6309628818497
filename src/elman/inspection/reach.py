"""This module tells how far back a gradient reaches: its norms by distance, and what they mean, in words."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from elman.errors import ArgumentError
from elman.tensors.checks import check_choice

NORMS = ("spectral", "frobenius", "loss")
LOST = 0.01  # share of what it is at step t below which a gradient no longer counts beside it
BURST = 1 / LOST  # and the factor beyond which that at step t no longer counts beside it


@dataclass(frozen=True, eq=False)
class GradientReach:
    """What ``measure_gradients`` found; all norms are float64 (B, T), indexed by k.

    Position ``[b, k]`` is about the state after step k (counted from 0) of row b, and about the
    output at the step ``steps[b]`` of that row. Where k lies after that step, padding included, there
    is no gradient: the norms are NaN there, and ``distance`` is negative.

    network: what the network is called, in ``sentence`` and in pictures.
    spectral: largest singular value of the Jacobian ``∂y_t/∂s_k``.
    frobenius: root of the sum of its squared entries.
    loss: length of the vector ``∂J_t/∂s_k``; None where no loss was given.
    distance: t - k.
    steps: t, one a row.
    """

    network: str
    spectral: Tensor
    frobenius: Tensor
    loss: Tensor | None
    distance: Tensor
    steps: Tensor

    def by_distance(self, norm: str = "spectral") -> Tensor:
        """Return the same norms (B, n) by how many steps back, 0 first; NaN past a row's first step."""
        values = self._norm(norm)
        distances = torch.arange(int(self.steps.max()) + 1, device=values.device)
        k = self.steps[:, None] - distances
        return values.gather(1, k.clamp(min=0)).where(k >= 0, math.nan)

    def curve(self, norm: str = "spectral") -> Tensor:
        """Return the median over the rows (n,), by how many steps back."""
        return self.by_distance(norm).nanmedian(0).values

    def rate(self, norm: str = "spectral") -> float:
        """Return the factor by which the norm changes with a step back: the median slope of its logarithm."""
        logs = self.curve(norm).log()
        n = torch.arange(len(logs), dtype=logs.dtype, device=logs.device)
        known = logs.isfinite()
        every = -(-len(logs) // 1000)  # a thousand points settle a slope
        logs, n = logs[known][::every], n[known][::every]
        first, second = torch.triu_indices(len(n), len(n), 1, device=n.device)
        if not len(first):
            return math.nan
        slopes = (logs[second] - logs[first]) / (n[second] - n[first])
        return math.exp(float(slopes.median()))

    def steps_until(self, share: float, norm: str = "spectral") -> int | None:
        """Count the steps back until the norm stays below this share of that at t; None: it never does."""
        curve = self.curve(norm)
        above = (curve > share * curve[0] * (1 + 1e-9)).nonzero()
        n = int(above.max()) + 1 if len(above) else 0
        return n if n < len(curve) else None

    def peak(self, norm: str = "spectral") -> tuple[float, int]:
        """Return the largest factor by which the norm exceeds that at t, and how many steps back it does."""
        curve = self.curve(norm).nan_to_num(nan=0.0, posinf=math.inf)
        most = int((curve == curve.max()).nonzero()[0])
        return _ratio(curve[most], curve[0]), most

    def verdict(self, norm: str = "spectral") -> str:
        """Say what a training would notice within the steps that were measured.

        A weight acts at every step, and its gradient is a sum with one term from each; the norms are the
        sizes of these terms.

        * ``"explodes"``: somewhere it is more than 100 times what it is at t. That step alone decides the
          update, and clipping leaves less than 1 % of it to what lies near.
        * ``"vanishes"``: otherwise, if it ends below 1 % of what it is at t. Terms from there no longer move
          a weight beside the near ones; what happened there is not learned.
        * ``"holds"``: otherwise. The same rate a step may hold over few steps and vanish over many.
        * ``"undefined"``: where a norm is not a number.
        """
        curve = self.curve(norm)
        if curve.isnan().any():
            return "undefined"
        if self.peak(norm)[0] > BURST:
            return "explodes"
        return "holds" if self.steps_until(LOST, norm) is None else "vanishes"

    def sentence(self, norm: str = "spectral") -> str:
        """Say what was found, in one plain sentence.

        >>> from elman import RNN
        >>> from elman.inspection.gradients import measure_gradients
        >>> rnn = RNN("elman", 2, 3)
        >>> _ = torch.nn.init.eye_(rnn.cells[0][0].W_h)
        >>> measure_gradients(rnn, torch.zeros(1, 40, 2)).sentence()
        'Elman: over 39 steps the gradient keeps its size (a factor of 1 a step); it holds.'
        """
        curve = self.curve(norm)
        span = len(curve) - 1
        if not span:
            return f"{self.network}: there is one step only, so no gradient travels through time."
        verdict = self.verdict(norm)
        if verdict == "undefined":
            return f"{self.network}: the gradient is not a number: an equation has no derivative somewhere."
        if not float(curve[0]):
            return f"{self.network}: the output does not depend on the state, so there is no gradient."
        factor, steps = self.peak(norm)
        if verdict == "explodes":
            found = f"grows {growth(factor)} within {_steps(steps)}"
        elif verdict == "vanishes":
            half, lost = self.steps_until(0.5, norm), self.steps_until(LOST, norm) or 0
            found = f"is halved after {half} and below {100 * LOST:g} % after {_steps(lost)}"
        else:
            low, high = f"{_ratio(curve.min(), curve[0]):.2g}", f"{factor:.2g}"
            found = "keeps its size" if low == high else f"stays between {low} and {high} times its size"
        rate = self.rate(norm)
        rated = "" if math.isnan(rate) else f" (a factor of {rate:.3g} a step)"
        return f"{self.network}: over {_steps(span)} the gradient {found}{rated}; it {verdict}."

    def _norm(self, norm: str) -> Tensor:
        check_choice("norm", norm, NORMS)
        values = {"spectral": self.spectral, "frobenius": self.frobenius, "loss": self.loss}[norm]
        if values is None:
            raise ArgumentError("norm is 'loss', but no loss was given to measure_gradients")
        return values


def _steps(n: int) -> str:
    return f"{n} step" if n == 1 else f"{n} steps"


def _ratio(value: Tensor, reference: Tensor) -> float:
    """Return the quotient; infinite where either is, and 1 between zeros."""
    if value.isinf() or reference.isinf():
        return math.inf
    return float(value / reference) if float(reference) else 1.0


def growth(factor: float) -> str:
    """Say a factor in words, as a power of ten where it is large."""
    if math.isinf(factor):
        return "beyond the range of numbers"
    return f"to {f'{factor:.3g}' if factor < 1000 else f'10^{math.log10(factor):.0f}'} times its size"
