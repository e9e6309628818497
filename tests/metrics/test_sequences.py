"""Scores of sequences by their definitions, and of translations beside sacrebleu's own command."""

import json
import random
import subprocess
import sys
import time

import pytest

from elman.errors import ArgumentError, UnknownNameError
from elman.metrics.sequences import (
    METRICS,
    TOKENIZERS,
    LengthBucket,
    SequenceScores,
    edit_distance,
    quickly_edited,
    translation_scores,
)


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


OUTPUTS = ["Ein Hund läuft, schnell.", "Two men are sitting there", "", "Ja!", "the the the the"]
FIRST = ["Ein Hund läuft schnell.", "There, two men are sitting.", "Nothing here.", "Ja!", "the cat"]
SECOND = ["Der Hund rennt.", "Two men sit there", "Nothing", "Nein.", "a cat, the cat & the dog"]


def command_scores(folder, *references, tokenize):
    """What sacrebleu itself prints for files with these lines."""
    paths = []
    for number, lines in enumerate([OUTPUTS, *references]):
        paths.append(folder / f"{number}.txt")
        paths[-1].write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    output, *paths = map(str, paths)
    command = [*paths, "--input", output, "--metrics", *METRICS, "--tokenize", tokenize, "--width", "9"]
    run = subprocess.run(
        [sys.executable, "-m", "sacrebleu", *command], capture_output=True, check=True, text=True
    )
    names = ("BLEU", "chrF2", "TER")
    found = {one["name"]: one for one in json.loads(run.stdout)}
    return [(found[name]["score"], found[name]["signature"]) for name in names]


@pytest.mark.parametrize("tokenize", TOKENIZERS)
@pytest.mark.parametrize("several", [False, True])
def test_translation_scores_are_those_of_sacrebleus_command(tmp_path, several, tokenize):
    references = [FIRST, SECOND] if several else [FIRST]
    scores = translation_scores(OUTPUTS, list(zip(*references, strict=True)), tokenize=tokenize)
    assert scores["notes"] == []
    for name, (score, signature) in zip(
        METRICS, command_scores(tmp_path, *references, tokenize=tokenize), strict=True
    ):
        assert scores[name] == pytest.approx(score, abs=1e-8)
        assert scores["signatures"][name] == signature


def test_outputs_may_have_unequal_numbers_of_references():
    outputs = ["a b c d e", "p q r s"]
    references = [["a b c d x"], ["p q r s t", "p q r x t u v"]]
    scores = translation_scores(outputs, references)
    padded = translation_scores(outputs, [references[0] * 2, references[1]])
    # n-grams, closest length and best match do not change when a reference is repeated
    assert (scores["bleu"], scores["chrf"]) == (padded["bleu"], padded["chrf"])
    # TER: one edit each, over the mean lengths 5 and (5 + 7) / 2
    assert scores["ter"] == pytest.approx(100 * 2 / 11)
    assert all(signature.startswith("nrefs:var|") for signature in scores["signatures"].values())
    swapped = translation_scores(outputs[::-1], references[::-1])  # the first output has more
    assert [swapped[name] for name in METRICS] == pytest.approx([scores[name] for name in METRICS])


def test_an_empty_reference_is_one():
    scores = translation_scores(["a b", "c d"], [["a b"], [""]])
    assert scores["ter"] == 100
    assert scores["signatures"]["ter"].startswith("nrefs:1|")


def test_only_the_metrics_asked_for():
    scores = translation_scores(["a b c d"], [["a b c d"]], metrics=["chrf"])
    assert set(scores) == {"chrf", "signatures", "notes"}
    assert set(scores["signatures"]) == {"chrf"}


def test_texts_that_are_split_already_are_noted_and_nothing_is_logged(caplog, capfd):
    split = ["a man sits ."] * 120
    references = [[text] for text in split]
    (note,) = translation_scores(split, references)["notes"]
    assert note.startswith("120 of 120 outputs end in ' .'")
    assert translation_scores(split, references, tokenize="none")["notes"] == []
    assert translation_scores(split, references, metrics=["ter"])["notes"] == []
    assert translation_scores(["It stops."] * 121 + split, [["It stops."]] * 121 + references)["notes"] == []
    assert caplog.records == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("outputs", "references", "options", "kind", "said"),
    [
        ([], [], {}, ArgumentError, "0 outputs and references for 0"),
        (["a", "b"], [["a"]], {}, ArgumentError, "2 outputs and references for 1"),
        (["a", "b"], [["a"], []], {}, ArgumentError, "references of output 2 are"),
        (["a"], ["a"], {}, ArgumentError, "references of output 1 are 'a'"),
        (["a"], [["a"]], {"tokenize": "13"}, UnknownNameError, "did you mean '13a'"),
        (["a"], [["a"]], {"tokenize": "spm"}, UnknownNameError, "13a, char, intl, none, zh"),
        (["a"], [["a"]], {"metrics": ["bleu", "chrf++"]}, UnknownNameError, "did you mean 'chrf'"),
    ],
)
def test_translations_that_cannot_be_scored(outputs, references, options, kind, said):
    with pytest.raises(kind, match=said):
        translation_scores(outputs, references, **options)


def test_sacrebleu_is_imported_only_when_it_is_needed():
    code = "import sys, elman.metrics.sequences; print({'sacrebleu', 'torch'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert run.stdout == "set()\n"


def test_long_texts_of_few_words_are_not_edited_quickly():
    few, many = " ".join(["run", "jump"] * 20), " ".join(map(str, range(40)))
    assert quickly_edited([["a b c"], ["run jump"]])
    assert not quickly_edited([[few]])
    spread = [[many], [" ".join(map(str, range(100, 200)))], [" ".join(map(str, range(400, 480)))]]
    assert quickly_edited(spread)
    assert not quickly_edited([[" ".join(map(str, range(500)))]])
