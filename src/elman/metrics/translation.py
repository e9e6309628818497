"""What metrics of translation share: outputs and references of a whole corpus, given to sacrebleu."""

from collections.abc import Sequence
from itertools import zip_longest
from typing import ClassVar

from elman.errors import ArgumentError
from elman.metrics.base import Metric, Output


class TranslationMetric(Metric):
    """A figure of a corpus as sacrebleu computes and prints it, from 0 to 100 (TER: upwards).

    ``signature`` must stand beside a figure that is published.

    >>> from elman.metrics.bleu import Bleu
    >>> metric = Bleu()
    >>> metric.add("the cat sat down", ["the cat sat", "the cat sat down."])
    >>> round(metric.value(), 1), metric.signature.split("|")[0]
    (100.0, 'nrefs:2')
    """

    scorer: ClassVar[str]  # what sacrebleu calls this metric
    signature = ""

    def __init__(self) -> None:
        self.outputs: list[str] = []
        self.references: list[Sequence[str]] = []

    def add(self, output: Output, references: Sequence[Output]) -> None:
        """A text, and one or several texts as people write them, not the same number for each."""
        if isinstance(references, str) or not references:
            found = f"references of output {len(self.outputs) + 1} are {references!r}"
            raise ArgumentError(f"{found}; give a list of at least one text")
        self.outputs.append(text_of(output))
        self.references.append([text_of(one) for one in references])

    def options(self) -> dict[str, str | bool]:
        """What sacrebleu is told to do otherwise than usual."""
        return {}

    def value(self) -> float:
        if not self.outputs:
            raise ArgumentError(f"{self.name} has no outputs to judge; add some")
        import sacrebleu.metrics  # when it is needed: no command needs it to start

        scorer = getattr(sacrebleu.metrics, self.scorer)(**self.options())
        # sacrebleu wants the first references of all outputs, then the second ones, None where there is none
        score = float(scorer.corpus_score(self.outputs, list(zip_longest(*self.references))).score)
        self.signature = str(scorer.get_signature())
        return score


def text_of(output: Output) -> str:
    return output if isinstance(output, str) else " ".join(output)
