"""The confusion matrix and what is computed from it."""

import json
import random
import tracemalloc

import numpy as np
import pytest

from elman.errors import ArgumentError, UnknownNameError
from elman.metrics.classification import Agreement, Confusion, abbreviated


def counted(labels, pairs):
    confusion = Confusion(labels)
    for gold, predicted, times in pairs:
        confusion.add([gold] * times, [predicted] * times)
    return confusion


def test_by_hand():
    confusion = counted("abc", [("a", "a", 5), ("a", "b", 1), ("b", "b", 2), ("b", "c", 2), ("c", "c", 10)])
    assert confusion.matrix.tolist() == [[5, 1, 0], [0, 2, 2], [0, 0, 10]]
    assert confusion.total == 20
    assert confusion.accuracy == 17 / 20
    classes = confusion.by_class()
    assert classes == {"a": Agreement(5, 5, 6), "b": Agreement(2, 3, 4), "c": Agreement(10, 12, 10)}
    assert (classes["b"].precision, classes["b"].recall) == (2 / 3, 0.5)
    assert confusion.macro_f1 == pytest.approx((10 / 11 + 4 / 7 + 20 / 22) / 3)
    assert confusion.worst() == [("b", "c", 2), ("a", "b", 1)]
    assert confusion.worst(1) == [("b", "c", 2)]


def test_macro_f1_is_over_labels_that_occur_on_either_side():
    only_gold = counted(["a", "b", "never"], [("a", "a", 3), ("b", "a", 1)])
    assert only_gold.macro_f1 == pytest.approx((6 / 7 + 0) / 2)
    only_predicted = counted(["a", "b", "never"], [("a", "a", 3), ("a", "b", 1)])
    assert only_predicted.macro_f1 == pytest.approx((6 / 7 + 0) / 2)
    assert list(only_predicted.by_class()) == ["a", "b"]


def test_one_pair_or_many():
    one, many = Confusion(["yes", "no"]), Confusion(["yes", "no"])
    one.add("yes", "no")
    one.add("no", "no")
    many.add(["yes", "no"], ("no", "no"))
    assert (one.matrix == many.matrix).all()


def test_nothing_counted_is_zero():
    for confusion in (Confusion([]), Confusion(["a"])):
        assert (confusion.accuracy, confusion.macro_f1, confusion.worst()) == (0, 0, [])
        assert "accuracy" in confusion.table()


def test_mistakes_are_explained():
    confusion = Confusion(["yes", "no"])
    with pytest.raises(UnknownNameError, match=r"no label named 'yess'; did you mean 'yes'\?"):
        confusion.add(["no", "yess"], ["no", "no"])
    assert confusion.total == 0
    with pytest.raises(ArgumentError, match="2 gold labels and 1 predicted"):
        confusion.add(["no", "yes"], ["no"])
    with pytest.raises(ArgumentError, match="labels has 'a' twice"):
        Confusion(["a", "b", "a"])


def test_machines_get_plain_json():
    confusion = counted("ab", [("a", "b", 1), ("b", "b", 2)])
    found = json.loads(json.dumps(confusion.as_json(), allow_nan=False))
    assert found["labels"] == ["a", "b"]
    assert found["matrix"] == [[0, 1], [0, 2]]
    assert found["classes"]["b"] == {"precision": 2 / 3, "recall": 1.0, "f1": 0.8, "support": 2}
    assert (found["accuracy"], found["macro_f1"]) == (2 / 3, 0.4)


def test_many_labels_need_no_matrix():
    """Fifty thousand labels, as where columns were swapped: what is counted is what takes memory."""
    labels = [f"label {number}" for number in range(50_000)]
    confusion = counted(
        labels, [(labels[7], labels[9], 2), (labels[3], labels[3], 1), (labels[2], labels[1], 2)]
    )
    tracemalloc.start()
    found, shown = confusion.as_json(), confusion.table()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**20
    assert shown.count("\nlabel ") == 10  # five labels occur, in the report and in the grid
    assert "matrix" not in found
    assert found["counts"] == [
        ["label 2", "label 1", 2],
        ["label 3", "label 3", 1],
        ["label 7", "label 9", 2],
    ]
    assert (found["accuracy"], found["macro_f1"]) == (0.2, 0.2)
    assert confusion.worst() == [("label 2", "label 1", 2), ("label 7", "label 9", 2)]


def test_one_long_label_does_not_make_every_line_long():
    labels = ["x" * 5000, *map(str, range(30))]
    report = counted(labels, [(label, label, 1) for label in labels]).table()
    assert sorted(map(len, report.split("\n")))[-2:] == [105, 5045]
    assert "\n" + "x" * 5000 + "      100.00 " in report


def test_what_is_counted_is_the_matrix():
    draw = random.Random(1)
    labels = [f"{number}" for number in range(6)]
    confusion, matrix = Confusion(labels), np.zeros((6, 6), int)
    for _ in range(300):
        i, j = draw.randrange(5), draw.randrange(4)  # one label never occurs
        confusion.add(labels[i], labels[j])
        matrix[i, j] += 1
    assert (confusion.matrix == matrix).all()
    assert (confusion.total, confusion.accuracy) == (300, matrix.trace() / 300)
    assert confusion.by_class() == {
        labels[i]: Agreement(matrix[i, i], matrix[:, i].sum(), matrix[i].sum()) for i in range(5)
    }
    wrong = sorted((-matrix[i, j], i, j) for i in range(6) for j in range(6) if i != j and matrix[i, j])
    assert confusion.worst(99) == [(labels[i], labels[j], -often) for often, i, j in wrong]


NAMES = """
    Arabic Chinese Czech Dutch English French German Greek Irish
    Italian Japanese Korean Polish Portuguese Russian Scottish Spanish Vietnamese
"""
LANGUAGES = NAMES.split()


def test_eighteen_classes_fit_a_screen():
    confusion = counted(LANGUAGES, [(label, label, 100) for label in LANGUAGES])
    confusion.add(["Polish"] * 12, ["Portuguese"] * 12)
    *_, grid = confusion.table().split("\n\n")
    lines = grid.split("\n")
    assert len(lines) == 19
    assert max(map(len, lines)) <= 110
    heads = lines[0].split()[2:]
    assert heads[:4] == ["Arab", "Chin", "Czec", "Dutc"]
    assert len(set(heads)) == 18
    assert lines[13].split() == ["Polish", *"·" * 12, "100", "12", *"·" * 4]
    assert len({len(line) for line in lines}) == 1


def test_many_labels_give_the_worst_mistakes_instead():
    labels = [f"tag{number}" for number in range(40)]
    confusion = counted(labels, [(label, label, 1) for label in labels])
    confusion.add(["tag3"] * 7, ["tag4"] * 7)
    *_, shown = confusion.table().split("\n\n")
    assert shown == "most frequent mistakes (gold → predicted)\n       7  tag3 → tag4"


def test_large_counts_keep_their_columns():
    confusion = counted(["long label", "b"], [("b", "b", 1)])
    confusion.counts[0, 0] = 12_345_678
    *_, grid = confusion.table().split("\n\n")
    assert grid == (
        "gold ↓      long lab        b\n"  #
        "long label  12345678        ·\n"
        "b                  ·        1"
    )


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["NOUN", "PROPN", "PRON"], ["NOUN", "PROP", "PRON"]),
        (["class 1", "class 2", "class 3"], ["clas", "cl…2", "cl…3"]),
        (["abcd1z", "abcd2z", "abcd3z", "abcd4z"], ["abcd", "ab…z", "a…3z", "a…4z"]),
        (["aaaaaaaa", "aaaaaaaaa", "aaaaaaaaaa", "aaaaaaaaaaa"], ["aaaa", "aa…a", "a…aa", "#4"]),
        (["", "a"], ["", "a"]),
    ],
)
def test_abbreviations_are_all_different(labels, expected):
    assert abbreviated(labels, 4) == expected
