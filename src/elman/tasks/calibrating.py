"""What evaluation keeps of scores: for a temperature during training, for calibration errors afterwards."""

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from elman.metrics.calibration import Calibration, Reliability, ScoreSample
from elman.tasks.base import Measures


class Judgement:
    """Scores of labels and which are true, batch by batch.

    quick: a temperature is fitted, which is not in use yet; otherwise it is told how right the probabilities
    are with the temperature of the task, and how right they were without. several: each label is a sigmoid of
    its own, and every decision for or against one is judged.
    """

    def __init__(
        self,
        calibration: Calibration | None,
        *,
        quick: bool,
        several: bool = False,
        threshold: float | None = None,
    ) -> None:
        self.temperature = temperature_of(calibration)
        self.several = several
        self.sample = ScoreSample(several=several) if quick else None
        self.told, self.before = Reliability(threshold), Reliability()

    def add(self, scores: Tensor, gold: Tensor, chosen: Tensor | None = None) -> None:
        """Scores (N, K), and the true label (N,) of each row, −1 if it is unknown, or (N, K) of several.

        ``chosen`` (N,) are the labels that are said, where they are not the best of their rows.
        """
        if self.sample is not None:
            known = slice(None) if self.several else gold >= 0
            self.sample.add(array(scores[known]), array(gold[known]))
            return
        scores = scores.double()
        if self.several:
            true = array(gold > 0.5)
            for told, T in ((self.told, self.temperature), (self.before, 1.0)):
                chances = array((scores / T).sigmoid())
                right = (chances >= 0.5) == true
                told.add(np.maximum(chances, 1 - chances).ravel(), right.ravel())
            return
        best = scores.argmax(-1) if chosen is None else chosen
        for told, T in ((self.told, self.temperature), (self.before, 1.0)):
            said = (scores / T).softmax(-1).gather(-1, best[:, None]).squeeze(-1)
            told.add(array(said), array(best == gold))

    def measures(self) -> Measures:
        """What is told of it: the fit, as validation takes it, or the errors, with their bins."""
        if self.sample is not None:
            return {"calibration": self.sample.fit().as_json()}
        told = self.told
        found: Measures = {
            "calibration_error": told.error,
            "calibration_error_before": self.before.error,
            "calibration_count": told.count,
            "temperature": self.temperature,
            "calibration_bins": told.bins(),
        }
        if told.threshold is not None:
            found |= {"answered_accuracy": told.answered_accuracy, "coverage": told.coverage}
        return found


def temperature_of(calibration: Calibration | None) -> float:
    """What scores are divided by; 1 where nothing was fitted, as in runs of earlier versions."""
    return 1.0 if calibration is None else calibration.temperature


def array(values: Tensor) -> NDArray[np.float64]:
    """The values for numpy, of any type."""
    found: NDArray[np.float64] = values.cpu().numpy()
    return found
