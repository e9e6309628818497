"""What every task is: a small contract, and counts of what its training data hold."""

import inspect

import pytest

from elman.registry import TASKS
from elman.tasks.base import Task, chosen_metric
from elman.tasks.statistics import Statistics
from elman.training.settings import make_task
from tiny_tasks import TEXTS, ready, settings_of

WRITES = {"lm", "class2seq", "seq2seq"}


def public_methods(kind):
    return [name for name, _ in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")]


def test_the_contract_is_small():
    assert len(public_methods(Task)) <= 20


@pytest.mark.parametrize("name", TASKS.names())
def test_every_task_is_small_and_whole(name):
    kind = TASKS.find(name)
    assert len(public_methods(kind)) <= 20
    assert not inspect.isabstract(kind)
    assert {method for method in public_methods(kind) if method not in public_methods(Task)} <= {
        "score",
        "check_decoding",
    }


@pytest.mark.parametrize("name", TASKS.names())
def test_what_a_task_can_do_besides(name, tmp_path):
    task = make_task(settings_of(name))
    assert (task.generation is not None) == (name in WRITES)
    assert (task.scorer is not None) == (name == "lm")
    assert set(task.text_fields) == ({"source", "target"} if name == "seq2seq" else {""})


@pytest.mark.parametrize("name", TASKS.names())
@pytest.mark.slow
def test_what_was_learned_is_restored(name, tmp_path):
    one = ready(name, tmp_path)
    again = make_task(one.task.config)
    again.restore(one.task.state())
    assert again.state() == one.task.state()
    assert again.predict(one.model, TEXTS[name]) == one.task.predict(one.model, TEXTS[name])


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("lm", {"examples": 5, "tokens": 27, "types": 8, "longest": 8, "losses": 5 * 35}),
        ("tag", {"examples": 4, "tokens": 13, "types": 9, "longest": 5, "losses": 13}),
        ("classify", {"examples": 6, "tokens": 23, "types": 12, "longest": 7, "losses": 6}),
        ("class2seq", {"examples": 3, "tokens": 15, "types": 10, "longest": 6, "losses": 15}),
        ("seq2seq", {"examples": 5, "tokens": 43, "types": 18, "longest": 8, "losses": 24}),
    ],
)
def test_statistics_of_every_task(task, expected, tmp_path):
    found = ready(task, tmp_path).statistics
    assert {name: getattr(found, name) for name in expected} == expected
    assert any("entries" in note for note in found.notes)


def test_sentences_are_the_examples_where_there_is_no_stream(tmp_path):
    assert ready("lm", tmp_path, {"text.context": "sentence"}).statistics.losses == 27
    assert ready("lm", tmp_path, {"training.truncate": 7}).statistics.losses == 5 * 7


def test_statistics_by_hand():
    seen = Statistics()
    assert seen.losses_of_example == 1.0
    for length in (4, 9, 2):
        seen.add(tokens=length + 1, losses=length, length=length)
    assert (seen.examples, seen.tokens, seen.losses, seen.longest) == (3, 18, 15, 9)
    assert seen.losses_of_example == 5.0
    assert (seen.types, seen.notes) == (0, [])
    assert Statistics().notes is not Statistics().notes


@pytest.mark.parametrize(
    ("task", "metric", "higher"),
    [
        ("lm", "loss", False),
        ("tag", "accuracy", True),
        ("classify", "accuracy", True),
        ("class2seq", "exact_match", True),
        ("seq2seq", "error_rate", False),
    ],
)
def test_the_first_metric_is_a_tasks_own(task, metric, higher, tmp_path):
    one = ready(task, tmp_path).task
    assert chosen_metric(one) == (metric, higher)
    asked = ready(task, tmp_path, {"training.metric": "loss"}).task
    assert chosen_metric(asked) == ("loss", False)
