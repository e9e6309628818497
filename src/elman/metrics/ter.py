"""The translation edit rate (Snover et al. 2006)."""

from collections.abc import Sequence

from elman.metrics.translation import TranslationMetric

SHORT, LONG, DIVERSE = 12, 120, 200  # words of a text, and different words of all


class Ter(TranslationMetric):
    """Edits and shifts of words that make an output its nearest reference, in 100 words of it."""

    name, scorer = "ter", "TER"
    higher_is_better = False


def quickly_edited(references: Sequence[Sequence[str]]) -> bool:
    """Can the translation edit rate be computed soon? It tries every shift of words that occur elsewhere, so
    long outputs of few different words take seconds each.
    """
    words = [text.split() for texts in references for text in texts]
    longest = max(map(len, words), default=0)
    return longest <= SHORT or (longest <= LONG and len(set().union(*words)) >= DIVERSE)
