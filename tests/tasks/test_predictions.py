"""What a model says about one input: typed values, and the objects that they are for programs."""

import json

import numpy as np
import pytest

from elman.decoding.results import Node
from elman.registry import TASKS
from elman.tasks.predictions import Alternative, Looked, Prediction, Step, Written, named_nodes
from tiny_tasks import TEXTS, ready

KEYS = {  # of the object of each task, in order
    "lm": ["prediction", "prompt", "read", "unknown", "text", "tokens", "log_probability", "stopped"],
    "tag": ["prediction", "words", "read", "unknown", "probabilities"],
    "classify": ["prediction", "text", "read", "unknown", "probabilities"],
    "class2seq": ["prediction", "class", "text", "tokens", "log_probability", "stopped", "trace"],
    "seq2seq": [
        "prediction",
        "source",
        "read",
        "unknown",
        "text",
        "tokens",
        "log_probability",
        "score",
        "stopped",
    ],
}
TRACED = {
    "lm": ["trace"],
    "class2seq": [],  # which is always traced
    "seq2seq": ["source_tokens", "output_tokens", "attention", "tree", "trace"],
}


@pytest.mark.parametrize("task", TASKS.names())
@pytest.mark.slow
def test_the_object_of_every_task(task, tmp_path):
    one = ready(task, tmp_path)
    found = one.task.predict(one.model, TEXTS[task])
    for text, answer in zip(TEXTS[task], found, strict=True):
        made = answer.as_json()
        assert list(made) == KEYS[task]
        assert json.loads(json.dumps(made)) == made
        assert made[answer.role] == answer.asked == (text.split() if task == "tag" else text)
        assert made["prediction"] == answer.value
        assert answer.line == (" ".join(answer.value) if task == "tag" else answer.value)
        if answer.written is not None:
            assert made["text"] == answer.value
        assert dict(answer) == made
        assert all(answer[key] == value for key, value in made.items())
        assert all(key in answer for key in made)
        assert "line" not in answer


@pytest.mark.parametrize("task", TRACED)
def test_a_trace_adds_to_the_object(task, tmp_path):
    one = ready(task, tmp_path)
    texts = [text for text in TEXTS[task] if text]
    plain = one.task.predict(one.model, texts)
    for answer, other in zip(one.task.predict(one.model, texts, trace=2), plain, strict=True):
        made = answer.as_json()
        assert list(made) == [*KEYS[task], *TRACED[task]]
        assert json.loads(json.dumps(made)) == made
        added = {"trace", "source_tokens", "output_tokens", "attention", "tree"}
        assert answer.as_json(traced=False) == {
            key: value for key, value in other.as_json().items() if key not in added
        }
        first = made["trace"][0]
        assert list(first) == ["t", "fed", "output", "probability", "entropy", "top"]
        assert [list(other) for other in first["top"]] == [["token", "probability"]] * 2


@pytest.mark.parametrize("task", TRACED)
def test_alternatives_stand_in_the_object(task, tmp_path):
    one = ready(task, tmp_path, {"decoding.beam": 3, "decoding.n_best": 2})
    for answer in one.task.predict(one.model, [text for text in TEXTS[task] if text]):
        assert [list(other) for other in answer["n_best"]] == [["text", "log_probability", "score"]] * 2
        assert answer["n_best"][0]["text"] == answer.value
        assert answer.written.n_best[0] == Alternative(**answer["n_best"][0])


def test_nothing_to_write_from_is_told_as_nothing(tmp_path):
    one = ready("seq2seq", tmp_path)
    [answer] = one.task.predict(one.model, [" "])
    assert answer.as_json() == {
        "prediction": "",
        "source": " ",
        "read": 0,
        "unknown": 0,
        "text": "",
        "tokens": [],
        "log_probability": None,
        "score": None,
        "stopped": None,
    }


def test_an_object_by_hand():
    steps = [Step(1, "<s>", "ein", 0.5, 0.7, [("ein", 0.5), ("der", 0.25)]), Step(2, "ein", "</s>", 1.0, 0.0)]
    looked = Looked(["a"], ["ein", "</s>"], np.array([[1.0], [1.0]], np.float32))
    written = Written(["ein"], -0.7, "end", score=-0.35, scored=True, steps=steps, looked=looked)
    assert Prediction("ein", "a", "source", written=written).as_json() == {
        "prediction": "ein",
        "source": "a",
        "text": "ein",
        "tokens": ["ein"],
        "log_probability": -0.7,
        "score": -0.35,
        "stopped": "end",
        "source_tokens": ["a"],
        "output_tokens": ["ein", "</s>"],
        "attention": [[1.0], [1.0]],
        "trace": [
            {
                "t": 1,
                "fed": "<s>",
                "output": "ein",
                "probability": 0.5,
                "entropy": 0.7,
                "top": [{"token": "ein", "probability": 0.5}, {"token": "der", "probability": 0.25}],
            },
            {"t": 2, "fed": "ein", "output": "</s>", "probability": 1.0, "entropy": 0.0},
        ],
    }
    tags = Prediction(["DET", "NOUN"], ["a", "dog"], "words", probabilities=[0.5, 0.75])
    assert tags.line == "DET NOUN"
    assert tags.as_json() == {
        "prediction": ["DET", "NOUN"],
        "words": ["a", "dog"],
        "probabilities": [0.5, 0.75],
    }


def test_a_key_that_is_not_there_is_an_error():
    answer = Prediction("x", "a b", "text", probabilities={"x": 1.0})
    with pytest.raises(KeyError, match="trace"):
        answer["trace"]
    assert "trace" not in answer


def test_nodes_of_a_search_have_the_names_of_their_tokens():
    node = Node(**dict.fromkeys(Node._fields, 0) | {"token": 1})
    [named] = named_nodes([node], ["a", "b"])
    assert named == node._asdict() | {"token": "b"}
    assert named_nodes(None, ["a"]) is None


def test_a_prediction_is_gone_through_like_its_object():
    one = Prediction("Polish", "Kowalski", "text", probabilities={"Polish": 1.0})
    assert list(one) == list(one.keys()) == list(one.as_json())
    assert dict(one) == one.as_json()
