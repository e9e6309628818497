"""The contract of a metric: outputs beside references, one number for all of them."""

from collections.abc import Sequence
from typing import ClassVar

Output = str | Sequence[str]  # a label or a text; or the tags of a sentence


class Metric:
    """Compares what a model puts out with what is right, example by example; a new one for every evaluation.

    A class writes ``add`` and ``value``; its options are keywords of its constructor. It is known by its
    ``name``, and ``higher_is_better`` tells early stopping which way to look.

    >>> class Shouting(Metric):
    ...     name, shouted = "shouting", 0
    ...     def add(self, output, references):
    ...         self.shouted += output.isupper()
    ...     def value(self):
    ...         return float(self.shouted)
    >>> metric = Shouting()
    >>> metric.add("STOP", ["stop"])
    >>> metric.value()
    1.0
    """

    name: ClassVar[str]
    higher_is_better: ClassVar[bool] = True

    def add(self, output: Output, references: Sequence[Output]) -> None:
        """One more example: the output, and all that would have been right."""
        raise NotImplementedError

    def value(self) -> float:
        raise NotImplementedError
