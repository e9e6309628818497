"""Probes: the chain rule decides, bins and errors are right, a guesser guesses, memory shows."""

import math

import pytest

from elman.corpora.agreement import Agreement
from elman.corpora.base import ProbeItem
from elman.corpora.recall import Recall
from elman.errors import ArgumentError
from elman.inspection.probes import Tally, measure, preferences, probe_figure, readable, table
from elman.text.vocabulary import MARKERS, Vocabulary


def item(prefix="the flights", right="were", wrong="was", distance=0, attractors=0):
    return ProbeItem(prefix, right, wrong, distance, attractors)


def remembering(reach):
    """Scores of a model that knows the answers to recall as far back as it sees, and nothing else."""

    def score(texts):
        return [
            [*((word, -1.0) for word in words[:-1]), (words[-1], bonus(words)), ("</s>", -1.0)]
            for words in map(str.split, texts)
        ]

    def bonus(words):
        return -1.0 if words[-1] in words[-1 - reach : -1] else -2.0

    return score


def test_only_the_word_decides_by_the_chain_rule_L5():
    """Neither what the prefix costs nor what the end marker costs; a word of several tokens is their sum."""

    def score(texts):
        costs = {"were": [("we", -1.0), ("re", -2.5)], "was": [("was", -3.0)]}
        return [[("the", -9.0), *costs[text.split()[-1]], ("</s>", -float(len(text)))] for text in texts]

    assert preferences(score, [item(), item(right="was", wrong="were")]) == [-0.5, 0.5]


def test_tokens_that_both_words_begin_with_cancel_L5():
    def score(texts):
        return [[(letter, -float(place)) for place, letter in enumerate(f"{text}$")] for text in texts]

    [gain] = preferences(score, [item(prefix="a", right="bcd", wrong="bx")])
    assert gain == (-3 - 4) - (-3)


def test_a_tie_is_half_an_answer_L5():
    result = measure(remembering(0), Recall().probe(1, 10))
    assert result.all == Tally(5.0, 10)


@pytest.mark.parametrize(("right", "items"), [(50, 100), (100, 100), (0, 3)])
def test_the_error_is_that_of_a_share_and_never_zero(right, items):
    tally = Tally(right, items)
    assert tally.accuracy == right / items
    share = (right + 1) / (items + 2)
    assert tally.error == pytest.approx(math.sqrt(share * (1 - share) / (items + 2)))
    assert tally.error > 0


def test_accuracy_falls_where_memory_ends_L5():
    result = measure(remembering(20), Recall().probe(1, 1000))
    for place, tally in result.by_distance.items():
        assert tally.accuracy == (1.0 if place.last < 20 else 0.5), place
    assert list(result.by_distance) == sorted(result.by_distance)
    assert sum(tally.items for tally in result.by_distance.values()) == result.all.items == 1000


def test_answers_are_sorted_by_attractors_L5():
    """A model that agrees with the noun before the verb is right where no attractor comes between."""
    plurals = {"were", "are"}

    def score(texts):
        rows = []
        for words in map(str.split, texts):
            noun = [word for word in words if word in nouns][-1]
            agrees = (noun[-1] == "s") == (words[-1] in plurals)
            rows.append([(words[-1], -1.0 if agrees else -2.0), ("</s>", 0.0)])
        return rows

    from elman.corpora.agreement import NOUNS

    nouns = {noun for pair in NOUNS for noun in pair}
    result = measure(score, Agreement().probe(1, 2000))
    assert list(result.by_attractors) == [0, 1, 2, 3, 4]
    assert result.by_attractors[0].accuracy == 1
    assert result.by_attractors[4].accuracy == 0
    shares = [tally.accuracy for tally in result.by_attractors.values()]
    assert shares == sorted(shares, reverse=True)


def test_the_last_range_takes_in_what_would_be_too_few():
    items = [item(distance=d) for d in [3] * 40 + [7] * 40 + [12] * 5 + [31]]
    ranges = [str(place) for place in measure(remembering(0), items).by_distance]
    assert ranges == ["0–4", "5–34"]
    assert [str(place) for place in measure(remembering(0), items[:1]).by_distance] == ["0–4"]


def test_items_with_unknown_words_are_left_out_L5():
    words = Vocabulary([*MARKERS, "the", "flights", "were", "was"])
    items = [item(), item(prefix="the trains"), item(right="are")]
    known, missing = readable(items, str.split, words)
    assert known == items[:1]
    assert missing == {"trains", "are"}


def test_no_question_is_an_error():
    with pytest.raises(ArgumentError, match="items is empty"):
        measure(remembering(0), [])


def test_table_and_picture_show_every_model_L5():
    items = Recall().probe(1, 300)
    results = {"Elman": measure(remembering(15), items), "LSTM": measure(remembering(60), items)}
    lines = table(results).split("\n")
    assert lines[0].split() == ["words", "between", "questions", "Elman", "LSTM"]
    assert len({len(line) for line in lines}) == 1
    assert "attractors" not in table(results)
    assert "attractors" in table({"a": measure(remembering(15), Agreement().probe(1, 50))})
    [axes] = probe_figure(results, title="Recall").axes
    drawn = {line.get_label(): list(line.get_ydata()) for line in axes.get_lines()}
    for label, result in results.items():
        assert drawn[label] == [100 * tally.accuracy for tally in result.by_distance.values()]
