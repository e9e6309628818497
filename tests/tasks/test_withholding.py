"""What is not probable enough is a question mark, and what it would have been is kept."""

import pytest

from elman.metrics.spans import Span
from elman.tasks.predictions import Prediction
from elman.tasks.withholding import withhold

ONE = Prediction("spam", "buy now", "text", {"ham": 0.2, "spam": 0.8}, read=2)
SEVERAL = Prediction(["red", "round"], "ball", "text", {"blue": 0.05, "red": 0.95, "round": 0.7}, between="|")
TAGS = Prediction(
    ["B-person", "I-person", "O", "B-place"],
    ["Vera", "Stone", "sees", "Rome"],
    "words",
    probabilities=[0.95, 0.6, 0.8, 0.97],
    spans=[Span("person", 0, 2), Span("place", 3, 4)],
)


def test_one_label_is_said_or_not():
    said, unsaid = withhold(ONE, 0.8), withhold(ONE, 0.81)
    assert (said.value, said["withheld"], said.withheld.count) == ("spam", None, 0)
    assert (unsaid.value, unsaid["withheld"], unsaid.withheld.count) == ("?", "spam", 1)
    assert unsaid.confidence == said.confidence == 0.8
    assert unsaid["probabilities"] == ONE["probabilities"]
    assert unsaid.best(2) == [("?", 0.8), ("ham", 0.2)]
    assert said.best(2) == [("spam", 0.8), ("ham", 0.2)]
    assert "withheld" not in ONE


def test_of_several_labels_those_remain_that_are_probable():
    part, none = withhold(SEVERAL, 0.9), withhold(SEVERAL, 0.99)
    assert (part.value, part["withheld"], part.withheld.count) == (["red"], ["round"], 0)
    assert (none.value, none["withheld"], none.withheld.count, none.line) == (["?"], ["red", "round"], 1, "?")
    assert none.confidence == part.confidence == SEVERAL.confidence
    assert none.several


@pytest.mark.parametrize(("chance", "value"), [(0.05, []), (0.3, ["?"])])
def test_that_there_is_no_label_can_be_an_answer(chance, value):
    empty = Prediction([], "stone", "text", {"red": chance, "round": 0.02})
    assert withhold(empty, 0.9).value == value


def test_a_span_is_said_whole_or_not_at_all():
    found = withhold(TAGS, 0.75)
    assert found.value == ["?", "?", "O", "B-place"]
    assert found["withheld"] == ["B-person", "I-person", None, None]
    assert [one["text"] for one in found["spans"]] == ["Rome"]
    assert (found.withheld.count, found.withheld.total) == (2, 4)
    assert found.tags[0] == [("?", 0.95)]
    assert withhold(TAGS, 0.9).value == ["?", "?", "?", "B-place"]


def test_the_first_of_alternatives_is_the_answer():
    shown = [[("A", 0.6), ("B", 0.4)], [("B", 0.9), ("A", 0.1)]]
    tags = Prediction(["A", "B"], ["x", "y"], "words", probabilities=[0.6, 0.9], alternatives=shown)
    assert withhold(tags, 0.8).alternatives == [[("?", 0.6), ("B", 0.4)], [("B", 0.9), ("A", 0.1)]]


@pytest.mark.parametrize("value", ["", []])
def test_a_text_without_a_word_is_not_withheld(value):
    empty = withhold(Prediction(value, "", "text", {}, read=0), 0.9)
    assert (empty.value, empty.withheld.count, empty.withheld.total) == (value, 0, 0)
    assert withhold(Prediction([], [], "words", probabilities=[]), 0.9).value == []
