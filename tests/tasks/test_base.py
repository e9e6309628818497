"""What every task is: a small contract, and counts of what its training data hold."""

import inspect

import pytest
import torch

from elman.registry import TASKS
from elman.tasks.base import Task, chosen_metric
from elman.tasks.defaults import Choice, filled, usual_limit
from elman.tasks.statistics import Statistics
from elman.training.settings import make_task
from tiny_tasks import DATA, TEXTS, ready, settings_of

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
        "chances",
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


def test_a_batch_with_one_very_long_text_is_cut():
    seen = Statistics()
    for tokens in (10, 20, 20, 30, 50_000):
        seen.add(tokens=tokens, losses=1, length=tokens)
    assert (seen.typical, usual_limit(seen, 32)) == (20, 16_384)
    for _ in range(10):
        seen.add(tokens=1000, losses=1, length=1000)
    assert usual_limit(seen, 32) == 4 * 32 * 1000


@pytest.mark.parametrize("task", ["classify", "tag", "seq2seq"])
def test_a_very_long_example_is_alone_in_its_batch(task, tmp_path):
    words = ["the", "dog"] * 10_000
    long = {
        "tag": "".join(f"{word}\tNOUN\n" for word in words) + "\n",
        "classify": f"{' '.join(words)}\tthing\n",
        "seq2seq": f"{' '.join(words)}\tder Hund\n",
    }[task]
    one = ready(
        task, tmp_path, {"training.batch_size": 8}, data=DATA[task] + ("\n" if task == "tag" else "") + long
    )
    assert one.task.config.training.batch_tokens >= 16_384
    sizes = sorted(len(key) for key in one.task.epoch(one.examples, 0))
    assert sizes == [1, len(one.examples) - 1]


def test_a_long_text_is_read_in_pieces_with_the_same_answer(tmp_path):
    text = "the dog sees a cat and " * 20
    answers = []
    for piece in (8, 8192):
        one = ready("classify", tmp_path, {"model.piece": piece, "model.bidirectional": True})
        torch.manual_seed(1)
        one.model = one.task.build_model().eval()
        answers.append(one.task.predict(one.model, [text, "a dog"]))
    for found, expected in zip(*answers, strict=True):
        assert found.probabilities == pytest.approx(expected.probabilities, rel=1e-5)


def test_reasons_are_kept_of_what_is_chosen_and_of_nothing_that_was_said():
    config, seen = settings_of("lm", settings={"model.hidden": 8}), Statistics()
    choices = {"model.hidden": Choice(64, "said otherwise"), "training.clip": Choice(0.2, "short lines")}
    assert filled(config, choices, seen).training.clip == 0.2
    assert seen.reasons == {"training.clip": "short lines"}


CYCLE = {"training.schedule": "one-cycle", "training.epochs": 20}


def test_patience_is_chosen_where_the_length_of_training_is_open():
    seen = Statistics()
    training = filled(settings_of("lm"), CYCLE, seen).training
    assert (training.patience, training.cooldown, training.epochs) == (5, 0.25, 20)
    assert "training.patience" in seen.reasons
    for said in (
        {"training.epochs": 20},
        {"training.max_steps": 9},
        {"training.schedule": "constant"},
        {"training.schedule": "plateau"},
    ):
        training = filled(settings_of("lm", settings=said), CYCLE, Statistics()).training
        assert (training.patience, training.cooldown) == (None, None), said


@pytest.mark.parametrize(("tokens", "epochs"), [(10_000, 20), (3_000_000, 10), (10**9, 4)])
def test_long_examples_are_not_read_for_hours(tokens, epochs):
    seen = Statistics(tokens=tokens)
    assert filled(settings_of("lm"), CYCLE, seen).training.epochs == epochs
    assert ("training.epochs" in seen.reasons) == (epochs < 20)
    for said in ({"training.device": "cuda"}, {"training.epochs": 20}):
        assert (
            filled(settings_of("lm", settings=said), CYCLE, Statistics(tokens=tokens)).training.epochs == 20
        )
