"""Scores of sequences by their definitions."""

import json
import random
import time

import pytest

from elman.errors import ArgumentError
from elman.metrics.sequences import LengthBucket, SequenceScores, edit_distance


def plain_distance(found, gold):
    """The table of Levenshtein distances, cell by cell."""
    above = list(range(len(gold) + 1))
    for number, one in enumerate(found, 1):
        row = [number]
        for place, other in enumerate(gold, 1):
            row.append(min(row[-1] + 1, above[place] + 1, above[place - 1] + (one != other)))
        above = row
    return above[-1]


def tokens(draw, length, kinds):
    return [draw.randrange(kinds) for _ in range(length)]


@pytest.mark.parametrize("kinds", [1, 2, 4, 100])
def test_edit_distance_is_that_of_the_table(kinds):
    draw = random.Random(kinds)
    for longest in [8] * 400 + [40] * 20 + [130] * 4:
        found, gold = (tokens(draw, draw.randrange(longest + 1), kinds) for _ in range(2))
        assert edit_distance(found, gold) == plain_distance(found, gold), (found, gold)


@pytest.mark.parametrize(
    ("found", "gold", "expected"),
    [
        ([], [], 0),
        ([], ["a", "b"], 2),
        (["a", "b"], [], 2),
        (("a", "b"), ["a", "b"], 0),
        ("intention", "execution", 5),
        ([("a", 1), None], [None], 1),
        (["ab", "c"], ["a", "bc"], 2),
    ],
)
def test_edit_distance_of_all_kinds(found, gold, expected):
    assert edit_distance(found, gold) == edit_distance(gold, found) == expected


def test_edit_distance_of_long_sequences_takes_no_quadratic_time():
    draw = random.Random(1)
    found = tokens(draw, 10_000, 1000)
    gold = found[:3000] + tokens(draw, 10, 5) + found[3100:]
    start = time.process_time()
    assert 90 <= edit_distance(found, gold) <= 110
    taken, start = time.process_time() - start, time.process_time()
    plain_distance(found[:1000], gold[:1000])
    assert taken < 10 * (time.process_time() - start)  # less than once; the whole table takes 100 times


def scored(*pairs):
    """Of (output, reference, …), all as words."""
    scores = SequenceScores()
    for output, *references in pairs:
        scores.add(output.split(), [reference.split() for reference in references])
    return scores


def test_the_scores_by_their_definitions():
    scores = scored(("a b c", "a b c"), ("a x c d", "a b c"), ("", "a b"), ("p q", "p q r s", "p x"))
    assert [one.edits for one in scores.outcomes] == [0, 2, 2, 1]
    assert scores.count == 4
    assert scores.exact_match == 1 / 4
    assert scores.sequence_error_rate == 3 / 4
    assert scores.edit_distance == 5 / 4
    assert scores.error_rate == 5 / (3 + 3 + 2 + 2)
    assert scores.length_ratio == 9 / 10


def test_any_reference_may_be_met_and_their_order_does_not_matter():
    references = ["a b", "a b c d", "a b c"]
    for first in range(3):
        turned = references[first:] + references[:first]
        assert scored(("a b c", *turned)).exact_match == 1
        scores = scored(("a b c d e", *turned))
        assert (scores.exact_match, scores.error_rate) == (0, 1 / 4)
    tied = scored(("a x", "a", "a b"))  # one edit from both: counted against the longer
    assert tied.error_rate == scored(("a x", "a b", "a")).error_rate == 1 / 2


@pytest.mark.parametrize(
    ("pair", "exact", "error_rate", "length_ratio"),
    [
        (("", ""), 1, 0, 0),
        (("a b", ""), 0, 2, 2),
        (("", "a b c", "a b"), 0, 1, 0),
        (("a", "", "a b c"), 0, 1, 1),
    ],
)
def test_empty_sequences(pair, exact, error_rate, length_ratio):
    scores = scored(pair)
    assert (scores.exact_match, scores.error_rate, scores.length_ratio) == (exact, error_rate, length_ratio)
    assert scores.sequence_error_rate == 1 - exact
    full = scored(("a b c d", "a b c d"), pair)
    assert full.error_rate == scores.outcomes[0].edits / (4 + scores.outcomes[0].reference_length)


def test_nothing_scores_nothing():
    assert SequenceScores().as_json() == {
        "exact_match": 0,
        "error_rate": 0,
        "edit_distance": 0,
        "sequence_error_rate": 0,
        "length_ratio": 0,
        "by_length": [],
    }


def test_texts_are_counted_by_characters():
    scores = SequenceScores()
    scores.add("2024-01-31", ["2024-01-30"])
    assert (scores.exact_match, scores.error_rate) == (0, 0.1)


@pytest.mark.parametrize(
    ("output", "references", "said"),
    [
        (["a"], [], "at least one reference"),
        ("a", "a", "must be a list"),
        (["a", "b"], ["a", "b"], "both must be texts, or both tokens"),
        ("a b", [["a", "b"]], "both must be texts, or both tokens"),
    ],
)
def test_references_that_cannot_be_meant(output, references, said):
    scores = SequenceScores()
    with pytest.raises(ArgumentError, match=said):
        scores.add(output, references)
    assert scores.count == 0


def by_length(lengths, wrong=lambda length: False):
    """The buckets of outputs of four tokens, one of them wrong where it is said."""
    scores = SequenceScores()
    for length in lengths:
        scores.add([*"abc", "x" if wrong(length) else "d"], [[*"abcd"]], source_length=length)
    return scores.by_length()


def test_scores_by_the_length_of_the_source_A6():
    lengths = [length for length in range(1, 61) for _ in range(3)]
    random.Random(1).shuffle(lengths)
    buckets = by_length(lengths, wrong=lambda length: length > 40 and length % 2)
    assert [(one.shortest, one.longest) for one in buckets] == [
        (1, 10), (11, 20), (21, 30), (31, 40), (41, 50), (51, 60)
    ]  # fmt: skip
    assert [one.count for one in buckets] == [30] * 6
    assert [one.exact_match for one in buckets] == [1, 1, 1, 1, 0.5, 0.5]
    assert [one.error_rate for one in buckets] == [0, 0, 0, 0, 0.125, 0.125]


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([], []),
        ([7], [(7, 7, 1)]),
        ([5] * 90 + [2], [(2, 2, 1), (5, 5, 90)]),
        ([0, 0, 3], [(0, 0, 2), (3, 3, 1)]),
        ([1, 2, 3, 4, 5, 6, 9], [(1, 1, 1), (2, 2, 1), (3, 3, 1), (4, 4, 1), (5, 5, 1), (6, 9, 2)]),
        ([4] * 90 + [1, 2, 3, 5, 6, 7], [(1, 4, 93), (5, 7, 3)]),
    ],
)
def test_the_buckets_cover_every_length_once(lengths, expected):
    assert [(one.shortest, one.longest, one.count) for one in by_length(lengths)] == expected


def test_outputs_without_a_source_length_are_in_no_bucket():
    scores = scored(("a", "a"))
    scores.add(["a"], [["b"]], source_length=3)
    assert scores.by_length() == [LengthBucket(3, 3, 1, 0.0, 1.0)]
    assert scores.as_json()["by_length"] == [
        {"shortest": 3, "longest": 3, "count": 1, "exact_match": 0.0, "error_rate": 1.0}
    ]
    json.dumps(scores.as_json(), allow_nan=False)
