"""Spans read as conlleval reads them, counted as conlleval counts them, and what is well formed."""

import itertools
import json

import numpy as np
import pytest

from elman.errors import ArgumentError
from elman.metrics.spans import SpanCounts, legal, legal_transitions, scheme, spans, well_formed


def read(text):
    return spans(text.split())


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("", set()),
        ("O O O", set()),
        ("B-x", {("x", 0, 1)}),
        ("B-x I-x I-x", {("x", 0, 3)}),
        ("O B-x I-x O", {("x", 1, 3)}),
        ("B-x B-x", {("x", 0, 1), ("x", 1, 2)}),
        ("B-x I-x B-x I-x", {("x", 0, 2), ("x", 2, 4)}),
        ("B-x B-y O B-x", {("x", 0, 1), ("y", 1, 2), ("x", 3, 4)}),
        ("B-creative-work I-creative-work", {("creative-work", 0, 2)}),
        # ill formed: nothing is dropped, what cannot continue begins anew
        ("I-x", {("x", 0, 1)}),
        ("I-x I-x", {("x", 0, 2)}),
        ("O I-x I-x O", {("x", 1, 3)}),
        ("B-x I-y", {("x", 0, 1), ("y", 1, 2)}),
        ("B-x I-y I-x", {("x", 0, 1), ("y", 1, 2), ("x", 2, 3)}),
        ("I-x I-y I-y", {("x", 0, 1), ("y", 1, 3)}),
        ("I-x B-x", {("x", 0, 1), ("x", 1, 2)}),  # IOB1: two that touch
        ("I-x I-x B-x I-x O I-y", {("x", 0, 2), ("x", 2, 4), ("y", 5, 6)}),
        # BIOES
        ("S-x", {("x", 0, 1)}),
        ("S-x S-x", {("x", 0, 1), ("x", 1, 2)}),
        ("B-x E-x", {("x", 0, 2)}),
        ("B-x I-x E-x S-x O B-y E-y", {("x", 0, 3), ("x", 3, 4), ("y", 5, 7)}),
        ("B-x E-x B-x E-x", {("x", 0, 2), ("x", 2, 4)}),
        # ill-formed BIOES
        ("E-x", {("x", 0, 1)}),
        ("E-x E-x", {("x", 0, 1), ("x", 1, 2)}),
        ("O E-x O", {("x", 1, 2)}),
        ("I-x E-x", {("x", 0, 2)}),
        ("B-x O", {("x", 0, 1)}),
        ("B-x I-x", {("x", 0, 2)}),
        ("B-x E-y", {("x", 0, 1), ("y", 1, 2)}),
        ("B-x S-x", {("x", 0, 1), ("x", 1, 2)}),
        ("B-x E-x I-x", {("x", 0, 2), ("x", 2, 3)}),
        ("B-x E-x E-x", {("x", 0, 2), ("x", 2, 3)}),
        ("S-x I-x E-x", {("x", 0, 1), ("x", 1, 3)}),
        ("S-x E-x", {("x", 0, 1), ("x", 1, 2)}),
        # BILOU
        ("B-x I-x L-x U-x", {("x", 0, 3), ("x", 3, 4)}),
        ("U-x L-x", {("x", 0, 1), ("x", 1, 2)}),
    ],
)
def test_spans(tags, expected):
    assert read(tags) == expected


def conlleval_chunks(tags):
    """startOfChunk and endOfChunk, rule by rule, with S added as the usual ports of conlleval add it."""

    def ends(before, here):
        (tag, kind), (next_tag, next_kind) = before, here
        rules = {
            "BB",
            "BO",
            "IB",
            "IO",
            "EE",
            "EI",
            "EO",
            "EB",
            "BS",
            "IS",
            "ES",
            "SB",
            "SI",
            "SE",
            "SS",
            "SO",
        }
        return tag + next_tag in rules or (tag != "O" and kind != next_kind)

    def starts(before, here):
        (tag, kind), (next_tag, next_kind) = before, here
        rules = {
            "BB",
            "IB",
            "OB",
            "OI",
            "EE",
            "EI",
            "OE",
            "EB",
            "SB",
            "SI",
            "SE",
            "OS",
            "BS",
            "IS",
            "ES",
            "SS",
        }
        return tag + next_tag in rules or (next_tag != "O" and kind != next_kind)

    found, start, before = set(), None, ("O", "")
    for place, tag in enumerate([*tags, "O"]):
        letter, _, kind = tag.partition("-")
        here = (letter, kind)
        if start is not None and ends(before, here):
            found.add((before[1], start, place))
            start = None
        if starts(before, here):
            start = place
        before = here
    return found


@pytest.mark.parametrize("letters", ["BI", "BIES"])
def test_every_short_sequence_is_read_by_the_rules_of_conlleval(letters):
    tags = ["O", *(f"{letter}-{kind}" for letter in letters for kind in "xy")]
    for length in range(5):
        for sentence in itertools.product(tags, repeat=length):
            assert spans(sentence) == conlleval_chunks(sentence), sentence


@pytest.mark.parametrize("tag", ["NN", "B", "I", "", "B-", "-x", "X-x", "o", "b-x", "M-x"])
def test_a_tag_without_a_span_is_explained(tag):
    with pytest.raises(ArgumentError, match="is neither O nor one of B I E S L U"):
        spans(["O", tag])


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("O B-x I-x", "BIO"),
        ("B-x", "BIO"),
        ("B-x I-x B-y", "BIO"),
        ("O O B-x", "BIO"),
        ("O B-x I-x E-x S-x", "BIOES"),
        ("S-x O", "BIOES"),
        ("B-x E-x", "BIOES"),
        ("B-x I-x L-x U-x O", "BIOES"),
        ("U-x", "BIOES"),
        ("", None),
        ("O", None),
        ("O I-x", None),
        ("NOUN VERB", None),
        ("O B-x NOUN", None),
        ("B I O", None),
        ("B- O", None),
        ("-LRB- -RRB- B-x", None),
        ("B-x E-x L-x", None),
        ("S-x U-x", None),
        ("B-x M-x E-x S-x", None),
        ("b-x i-x", None),
        ("WP-x B-x", None),
    ],
)
def test_scheme(tags, expected):
    assert scheme(tags.split()) == expected
    assert scheme(iter(tags.split() * 3)) == expected


BIO = ["O", "B-x", "I-x", "B-y", "I-y"]
BIOES = ["O", "B-x", "I-x", "E-x", "S-x", "B-y", "I-y", "E-y", "S-y"]


def encode(name, found, length):
    """The one well-formed sequence of these spans."""
    tags = ["O"] * length
    for kind, start, end in found:
        tags[start:end] = [f"B-{kind}", *[f"I-{kind}"] * (end - start - 1)]
        if name == "BIOES":
            tags[end - 1] = f"{'S' if end - start == 1 else 'E'}-{kind}"
    return tuple(tags)


@pytest.mark.parametrize(("name", "tags"), [("BIO", BIO), ("BIOES", BIOES)])
def test_what_is_legal_is_what_spans_are_written_as(name, tags):
    """A sequence is well formed exactly if writing its spans down gives the sequence again."""
    for length in range(5):
        for sentence in itertools.product(tags, repeat=length):
            assert well_formed(sentence, name) == (encode(name, spans(sentence), length) == sentence), (
                sentence
            )


@pytest.mark.parametrize(("name", "tags"), [("BIO", BIO), ("BIOES", BIOES)])
def test_the_table_of_transitions(name, tags):
    table = legal_transitions(tags)
    assert table.shape == (len(tags) + 1, len(tags) + 1)
    assert table.dtype == np.bool_
    for (i, before), (j, after) in itertools.product(enumerate([*tags, None]), repeat=2):
        assert table[i, j] == legal(before, after, name)
    assert table[-1].tolist() == [tag[0] in "OBS" for tag in tags] + [True]
    assert table[:, -1].tolist() == [name == "BIO" or tag[0] in "OES" for tag in tags] + [True]


def test_bilou_has_the_rules_of_bioes():
    bilou = [tag.replace("E-", "L-").replace("S-", "U-") for tag in BIOES]
    assert (legal_transitions(bilou) == legal_transitions(BIOES)).all()


def test_rules_need_a_scheme():
    with pytest.raises(ArgumentError, match="the tags NOUN, VERB encode no spans"):
        legal_transitions(["NOUN", "VERB"])
    with pytest.raises(ArgumentError, match="scheme is 'IOB1'; it must be one of 'BIO', 'BIOES'"):
        legal("O", "O", "IOB1")


@pytest.mark.parametrize(
    ("gold", "predicted", "counts"),
    [
        ("B-x I-x O", "B-x I-x O", (1, 1, 1)),
        ("B-x I-x O", "B-x O O", (0, 1, 1)),  # too short
        ("B-x O O", "B-x I-x O", (0, 1, 1)),  # too long
        ("B-x I-x", "B-y I-y", (0, 1, 1)),  # wrong type
        ("B-x I-x", "I-x I-x", (1, 1, 1)),  # ill formed, but the same span
        ("B-x I-x", "B-x B-x", (0, 2, 1)),  # cut in two
        ("B-x B-x", "B-x I-x", (0, 1, 2)),  # run together
        ("O O", "O I-x", (0, 1, 0)),
        ("B-x O", "O O", (0, 0, 1)),
        ("O O", "O O", (0, 0, 0)),
        ("", "", (0, 0, 0)),
        ("B-x I-x I-x B-y", "B-x I-x I-y B-y", (1, 3, 2)),
        ("B-x E-x S-y", "B-x I-x S-y", (2, 2, 2)),  # no E, but the same span
    ],
)
def test_counting(gold, predicted, counts):
    counted = SpanCounts()
    counted.add(gold.split(), predicted.split())
    overall = counted.overall
    assert (overall.correct, overall.predicted, overall.gold) == counts


def test_scores_over_sentences_and_types():
    counts = SpanCounts()
    counts.add(["B-per", "I-per", "O", "B-loc"], ["B-per", "I-per", "O", "B-per"])
    counts.add(["B-per", "O", "B-org"], ["B-per", "O", "O"])
    counts.add(["O", "O"], ["B-misc", "O"])
    # 2 of 4 predicted spans are right, of 4 gold ones
    assert (counts.precision, counts.recall, counts.f1) == (0.5, 0.5, 0.5)
    types = counts.by_type()
    assert list(types) == ["loc", "misc", "org", "per"]
    assert (types["per"].precision, types["per"].recall, types["per"].f1) == (2 / 3, 1.0, 0.8)
    assert (types["loc"].precision, types["loc"].recall, types["loc"].f1) == (0, 0, 0)
    assert json.loads(json.dumps(counts.as_json()))["types"]["per"]["support"] == 2
    assert counts.table() == (
        "            precision     recall         f1    support\n"
        "loc              0.00       0.00       0.00          1\n"
        "misc             0.00       0.00       0.00          0\n"
        "org              0.00       0.00       0.00          1\n"
        "per             66.67     100.00      80.00          2\n"
        "all spans       50.00      50.00      50.00          4"
    )


def test_nothing_counted_is_zero():
    counts = SpanCounts()
    assert (counts.precision, counts.recall, counts.f1) == (0, 0, 0)
    assert "all spans" in counts.table()


def test_sides_of_unequal_length():
    with pytest.raises(ArgumentError, match="1 gold tags and 2 predicted"):
        SpanCounts().add(["O"], ["O", "O"])
