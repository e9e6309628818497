"""The arithmetic of one update, against sums written out by hand."""

from itertools import islice

import pytest
import torch

from elman.config import parse_settings, validate
from elman.config.reading import has_key
from elman.errors import ConfigError
from elman.tasks.classes import ClassField
from elman.training.preparing import prepare
from elman.training.run import build
from elman.training.settings import make_task, settings_class
from tiny import (
    RUNS,
    SMALL,
    elman,
    events,
    trainer_of,
    write,
    write_data,
)

CPU = torch.device("cpu")
PLAIN = {
    "training.optimizer": "incremental",
    "training.averaging": "none",
    "training.batch_size": 1,
    "training.learning_rate": 0.1,
    "training.class_weights": None,
    "training.momentum": 0.0,
    "training.schedule": "constant",
    "training.batch_tokens": None,
    "model.dropout": 0.0,
    "model.input_dropout": 0.0,
    "model.token_dropout": 0.0,
    "model.rare_dropout": 0.0,
    "model.initial_state": "zero",
    "model.backend": "loop",
}


def plain_trainer(name, data, changes=None, dtype=torch.float64):
    """No dropout, no averaging, no clipping: the bare update rule."""
    settings = {**PLAIN, **(changes or {})}
    task_name, own = RUNS[name]
    kind = settings_class(task_name)
    chosen = {key: value for key, value in {**SMALL, **own, **settings}.items() if value is not None}
    command = {key: value for key, value in chosen.items() if has_key(kind, key) and key != "text.vectors"}
    tables = parse_settings([f"{key}={value}" for key, value in command.items()])
    files = {part: str(data / f"{task_name}.{part}.txt") for part in ("train", "dev")}
    trainer = build(prepare(make_task(validate(kind, tables | {"task": task_name, "data": files}))))
    trainer.model.to(dtype)
    return trainer


def weights_of(trainer):
    return {name: weight.detach().clone() for name, weight in trainer.model.named_parameters()}


def outputs_of(trainer, batch):
    """Logits (N, V) and targets (N,) of a batch."""
    model = trainer.model
    match trainer.task.config.task:
        case "classify":
            words, labels, *_ = batch
            return model(words), labels
        case "lm":
            inputs, targets, lengths, _ = batch
            assert len(inputs) == 1  # nothing is padded
            return model.logits(model(inputs, lengths)[0])[0], targets[0]
        case "class2seq":
            x, previous, tokens, lengths, _ = batch
            return model(x.to(model.output.weight.dtype), previous, lengths)[0], tokens[0]


def loss_by_hand(logits, targets, *, kind="cross-entropy", smoothing=0.0):
    """Σ_t l(δ(t)) written out: −Σ_v q_v log y_v, or ½‖y − q‖²."""
    V = logits.shape[1]
    y = logits.exp() / logits.exp().sum(1, keepdim=True)
    q = torch.full_like(y, smoothing / V)
    q[torch.arange(len(targets)), targets] += 1 - smoothing
    return -(q * y.log()).sum() if kind == "cross-entropy" else ((y - q) ** 2).sum() / 2


@pytest.fixture
def vectors_like_weights(monkeypatch):
    """Class vectors of the type of the weights, for float64."""
    plain = ClassField.vectors
    monkeypatch.setattr(ClassField, "vectors", lambda field, *given: plain(field, *given).double())


@pytest.mark.usefixtures("vectors_like_weights")
@pytest.mark.parametrize("loss", ["cross-entropy", "squared"])
@pytest.mark.parametrize("regulariser", ["none", "l1", "l2"])
@pytest.mark.parametrize("name", ["class2seq", "classify", "lm-sentence"])
def test_incremental_descent_is_the_loop_of_the_lectures_G2(name, regulariser, loss, data):
    """One example, ℓ = Σ_t l(δ(t)) + (λ/n) R(w), W ← W − η ∇ℓ; and again."""
    strength, eta = 0.7, 0.1
    changes = {
        "training.loss": loss,
        "training.regulariser": regulariser,
        "training.regularisation": None if regulariser == "none" else strength,
    }
    trainer, other = (plain_trainer(name, data, changes) for _ in range(2))
    task, n = trainer.task, len(trainer.examples)
    weights = list(other.model.parameters())
    plan = task.epoch(trainer.examples, 0)
    assert sorted(int(key[0]) for key in plan) == list(range(n))
    for key, event in zip(plan, trainer.run(), strict=False):
        value = loss_by_hand(*outputs_of(other, task.collate(other.examples, key, CPU)), kind=loss)
        assert event.loss * event.numbers.count == pytest.approx(float(value.detach()), rel=1e-12)
        if regulariser != "none":
            R = sum(w.abs().sum() if regulariser == "l1" else (w**2).sum() / 2 for w in weights)
            value = value + strength / n * R
        gradients = torch.autograd.grad(value, weights)
        with torch.no_grad():
            for weight, gradient in zip(weights, gradients, strict=True):
                weight -= eta * gradient
        if trainer.position.update == 4:
            break
    for (weight_name, found), expected in zip(trainer.model.named_parameters(), weights, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-13, msg=weight_name)


@pytest.mark.parametrize("name", RUNS)
def test_a_pass_carries_the_regulariser_once(name, tmp_path):
    """Each example the n-th part; a stream knows no lines, and its examples are the segments of its rows."""
    data = write_data(tmp_path)
    write(data / "lm.train.txt", " ".join((data / "lm.train.txt").read_text().split()) + "\n")
    trainer = trainer_of(name, data)
    task, plan = trainer.task, trainer.task.epoch(trainer.examples, 0)
    batches = (task.collate(trainer.examples, key, CPU) for key in plan)
    assert sum(task.loss(trainer.model, batch).examples for batch in batches) == trainer.n


@pytest.mark.parametrize("name", ["class2seq", "classify", "lm-sentence", "tag"])
def test_incremental_descent_in_single_precision_is_exact_G2(name, data):
    """The same gradients, subtracted by hand: every bit of the weights after three examples."""
    trainer, other = (plain_trainer(name, data, dtype=torch.float32) for _ in range(2))
    task = trainer.task
    weights = list(other.model.parameters())
    for key in task.epoch(trainer.examples, 0)[:3]:
        gradients = torch.autograd.grad(
            task.loss(other.model, task.collate(other.examples, key, CPU)).total, weights
        )
        with torch.no_grad():
            for weight, gradient in zip(weights, gradients, strict=True):
                weight.sub_(gradient, alpha=0.1)
    assert len(list(islice(trainer.run(), 3))) == trainer.position.update == 3
    for found, expected in zip(trainer.model.parameters(), weights, strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize(
    "wrong",
    [
        {"training.batch_size": 4},
        {"training.batch_tokens": 50},
        {"training.accumulate": 2},
        {"training.clip": 1.0},
        {"training.schedule": "cosine"},
        {"training.averaging": "ema"},
        {"training.reduction": "mean"},
    ],
)
def test_incremental_descent_refuses_what_would_change_it_G2(wrong, data):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        plain_trainer("classify", data, wrong)


@pytest.mark.slow
def test_incremental_descent_is_the_default_of_the_worked_example_G2(tmp_path):
    answer = elman("train", "class2seq", "--train", "builtin:worked_example", "--out", tmp_path / "run")
    assert answer.code == 0, answer.err
    last = events(tmp_path / "run")[-1]
    assert (last["best"], last["metric"]) == (1.0, "exact_match")
    settings = (tmp_path / "run" / "config.toml").read_text()
    for line in (
        *('optimizer = "incremental"', "batch_size = 1", "accumulate = 1", 'schedule = "constant"'),
        *("clip = 0.0", 'reduction = "sum"', 'averaging = "none"', 'cell = "elman"'),
    ):
        assert f"\n{line}\n" in settings


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("name", ["lm-sentence", "tag", "classify"])
def test_accumulated_batches_are_one_big_batch(name, reduction, data):
    """Gradients of batches of unequal size and length, against those of all their examples at once."""
    settings = {
        "training.optimizer": "sgd",
        "training.batch_size": 8,
        "training.reduction": reduction,
        "training.clip": 0.0,
    }
    parts = [[3, 14, 15], [9, 26, 5, 35], [8]]
    accumulated = plain_trainer(name, data, settings | {"training.accumulate": 3})
    whole = plain_trainer(name, data, settings)
    start = weights_of(whole)
    first = accumulated.update([*parts, [0]])
    second = whole.update([[example for part in parts for example in part], [0]])
    assert first.numbers.count == second.numbers.count
    assert first.loss == pytest.approx(second.loss, rel=1e-12)
    assert first.gradient_norm == pytest.approx(second.gradient_norm, rel=1e-12)
    for weight_name, found in weights_of(accumulated).items():
        expected = weights_of(whole)[weight_name]
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
        assert not torch.equal(expected, start[weight_name])


@pytest.mark.parametrize("loss", ["cross-entropy", "squared"])
def test_label_smoothing_is_a_mixture_with_the_uniform_distribution(loss, data):
    changes = {"training.loss": loss, "training.label_smoothing": 0.3, "model.shortcut": False}
    changes |= {"training.repeats": "all"} if loss == "cross-entropy" else {}
    trainer = plain_trainer("classify", data, changes)
    batch = trainer.task.collate(trainer.examples, range(10), CPU)
    logits, labels = outputs_of(trainer, batch)
    found = trainer.task.loss(trainer.model, batch)
    assert found.count == found.examples == 10
    expected = loss_by_hand(logits, labels, kind=loss, smoothing=0.3)
    assert float(found.total.detach()) == pytest.approx(float(expected.detach()), rel=1e-12)
    figures = trainer.task.evaluate(trainer.model, trainer.dev)  # evaluation knows no smoothing
    batch = trainer.task.collate(trainer.dev, range(len(trainer.dev)), CPU)
    logits, labels = outputs_of(trainer, batch)
    hard = loss_by_hand(logits, labels) / len(labels)
    assert figures["loss"] == pytest.approx(float(hard.detach()), rel=1e-9)


def test_a_regulariser_counts_once_for_each_example_and_not_in_the_reported_loss(data):
    """For a batch of B examples and the mean of B losses: ∇ = (1/B) Σ ∇l + (λ/n) ∇R."""
    settings = {
        "training.optimizer": "sgd",
        "training.batch_size": 8,
        "training.reduction": "mean",
        "training.clip": 0.0,
        "training.repeats": "all",
    }
    strength, eta = 3.0, 0.1
    plain = plain_trainer("classify", data, settings)
    held = plain_trainer(
        "classify", data, settings | {"training.regulariser": "l2", "training.regularisation": strength}
    )
    start = weights_of(plain)
    keys = [list(range(8)), [0]]
    assert plain.update(keys).loss == held.update(keys).loss
    for name, weight in weights_of(held).items():
        expected = weights_of(plain)[name] - eta * strength / len(held.examples) * start[name]
        torch.testing.assert_close(weight, expected, rtol=1e-10, atol=1e-12)


def test_a_stream_carries_its_state_and_starts_each_pass_anew(data):
    """Each segment from the state after the one before, as a value without a gradient."""
    settings = {
        "training.optimizer": "sgd",
        "training.batch_size": 4,
        "training.truncate": 30,
        "training.accumulate": 1,
        "training.clip": 0.0,
        "training.reduction": "sum",
        "training.learning_rate": 0.01,
        "model.zoneout": 0.0,
    }
    trainer, other = (plain_trainer("lm-stream", data, settings) for _ in range(2))
    plan = list(trainer.task.epoch(trainer.examples, 0))
    assert len(plan) >= 3
    weights = list(other.model.parameters())
    updates = trainer.run()
    for inputs, targets in [*plan, *plan[:2]]:
        if inputs is plan[0][0]:
            state = None
        outputs, state = other.model(torch.from_numpy(inputs), None, state)
        state = tuple(type(layer)(*(part.detach() for part in layer)) for layer in state)
        targets = torch.from_numpy(targets).flatten()
        value = loss_by_hand(other.model.logits(outputs).flatten(0, 1), targets)
        assert next(updates).loss == pytest.approx(float(value.detach()) / len(targets), rel=1e-10)
        gradients = torch.autograd.grad(value, weights)
        with torch.no_grad():
            for weight, gradient in zip(weights, gradients, strict=True):
                weight -= 0.01 * gradient
