"""chrF (Popović 2015)."""

from elman.metrics.translation import TranslationMetric


class Chrf(TranslationMetric):
    """The F-score of n-grams of characters, up to n = 6."""

    name, scorer = "chrf", "CHRF"
