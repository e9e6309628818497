"""Answers that are not probable enough: ``?`` stands in their place."""

from dataclasses import replace

from elman.metrics.spans import Span
from elman.tasks.predictions import Prediction, Withheld

UNSURE = "?"


def withhold(answer: Prediction, threshold: float) -> Prediction:
    """The answer, with ``?`` where it is less probable than the threshold; what it would have been is kept.

    Of several labels those that are probable enough remain; ``?`` stands where none does, unless all are as
    improbable, for that is an answer. Tags are judged word by word, but a span is said whole or not at all. A
    text without a word has no answer that could be withheld.

    >>> one = withhold(Prediction("spam", "buy now", "text", {"spam": 0.6, "ham": 0.4}), 0.9)
    >>> one.value, one["withheld"], one.confidence
    ('?', 'spam', 0.6)
    """
    if isinstance(answer.probabilities, list):
        return _withhold_tags(answer, answer.probabilities, threshold)
    chances = answer.probabilities or {}
    if isinstance(answer.value, list):
        return _withhold_labels(answer, answer.value, chances, threshold)
    if not chances or chances[answer.value] >= threshold:
        return replace(answer, withheld=Withheld(answer.value, None, 0, len(chances) > 0))
    return replace(answer, value=UNSURE, withheld=Withheld(answer.value, answer.value, 1, 1))


def _withhold_labels(
    answer: Prediction, labels: list[str], chances: dict[str, float], threshold: float
) -> Prediction:
    said = [name for name in labels if chances[name] >= threshold]
    left_out = [name for name in labels if name not in said]
    sure = said or all(1 - chance >= threshold for chance in chances.values())
    withheld = Withheld(labels, left_out, 0 if sure else 1, len(chances) > 0)
    return replace(answer, value=said if sure else [UNSURE], withheld=withheld)


def _withhold_tags(answer: Prediction, chances: list[float], threshold: float) -> Prediction:
    tags, alternatives = list(answer.value), answer.alternatives
    unsure = {place for place, chance in enumerate(chances) if chance < threshold}

    def doubtful(span: Span) -> bool:
        return not unsure.isdisjoint(range(span.start, span.end))

    spans = None if answer.spans is None else [one for one in answer.spans if not doubtful(one)]
    unsure |= {place for one in answer.spans or () if doubtful(one) for place in range(one.start, one.end)}
    if alternatives is not None:
        alternatives = [
            [(UNSURE, best[0][1]), *best[1:]] if place in unsure else best
            for place, best in enumerate(alternatives)
        ]
    left_out = [tag if place in unsure else None for place, tag in enumerate(tags)]
    return replace(
        answer,
        value=[UNSURE if place in unsure else tag for place, tag in enumerate(tags)],
        spans=spans,
        alternatives=alternatives,
        withheld=Withheld(tags, left_out, len(unsure), len(tags)),
    )
