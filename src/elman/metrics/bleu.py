"""BLEU (Papineni et al. 2002)."""

from collections.abc import Sequence

from elman.errors import UnknownNameError, nearest
from elman.metrics.translation import TranslationMetric

TOKENIZERS = ("13a", "intl", "char", "zh", "none")  # sacrebleu's others need a download or another package


def has_ngrams(references: Sequence[Sequence[str]], tokenize: str) -> bool:
    """Is any reference longer than one token? Of answers that are one number or word, BLEU tells nothing."""
    from sacrebleu.metrics.bleu import BLEU

    split = BLEU(tokenize=tokenize).tokenizer
    return any(len(split(text).split()) > 1 for texts in references for text in texts)


class Bleu(TranslationMetric):
    """The share of n-grams that a reference has, too, up to n = 4; texts are split by ``tokenize``."""

    name, scorer = "bleu", "BLEU"

    def __init__(self, *, tokenize: str = "13a") -> None:
        super().__init__()
        if tokenize not in TOKENIZERS:
            raise UnknownNameError(f"no tokenizer named {tokenize!r}; {nearest(tokenize, TOKENIZERS)}")
        self.tokenize = tokenize

    def options(self) -> dict[str, str | bool]:
        return {"tokenize": self.tokenize, "force": True}  # forced, it keeps what notes says off the log

    def notes(self) -> list[str]:
        """What should be known before a figure is published: sacrebleu warns of it on stderr."""
        split_off = sum(output.endswith(" .") for output in self.outputs)
        if self.tokenize == "none" or 2 * split_off < len(self.outputs):
            return []
        return [
            f"{split_off} of {len(self.outputs)} outputs end in ' .': BLEU of texts that are split already "
            "cannot be compared with BLEU of texts as people write them"
        ]
