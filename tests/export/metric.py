"""A metric as a user writes it."""

from typing import Any

from elman.metrics.base import Metric


class Own(Metric):
    """Answers that are right."""

    name = "own"
    higher_is_better = True

    def __init__(self) -> None:
        self.right = 0

    def add(self, output: Any, references: Any) -> None:
        self.right += output in references

    def value(self) -> float:
        return float(self.right)
