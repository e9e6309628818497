"""Updates as CUDA graphs: which shapes there are, why none is recorded, and that nothing else changes.

Without a GPU, a stand-in records by keeping nothing: every replay computes as an update would.
"""

import math
import warnings
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from elman.errors import BackendNotice
from elman.models.losses import NO_TARGET, output_loss
from elman.recurrence import notices
from elman.registry import TASKS
from elman.tasks.buckets import Counts, bucket
from elman.tasks.lm import Lm
from elman.tensors.checks import known_lengths
from elman.tensors.nested import map_tensors, tensors_in
from elman.training import recorded, update
from elman.training.averaging import Averaging
from elman.training.optim import at_rate, capturable, make_optimizer
from elman.training.position import Update
from elman.training.recorded import WARM, RecordedUpdates, find_obstacle, shape_of
from tiny import AWD, RUNS, figures, trainer_of, write_data
from tiny_tasks import ready

NEEDS_ONE = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
SENTENCES = {"text.context": "sentence"}
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(autouse=True)
def nothing_said_yet(monkeypatch):
    monkeypatch.setattr(notices, "_noticed", set())


# ---- shapes ----------------------------------------------------------------------------------------


def test_sizes_come_again_and_waste_little():
    sizes = [bucket(size) for size in range(1, 2000)]
    assert all(0 <= wide - size < max(4, size / 7) for size, wide in enumerate(sizes, 1))
    assert all(bucket(wide) == wide for wide in sizes)
    assert sizes == sorted(sizes)
    assert len(set(sizes)) < 60


@pytest.mark.parametrize(
    ("task", "settings"),
    [
        ("lm", {}),
        ("lm", SENTENCES),
        ("lm", {**SENTENCES, "training.loss": "squared", "training.label_smoothing": 0.1}),
        ("lm", {**SENTENCES, "model.network": "window"}),
        ("lm", {**SENTENCES, "model.network": "bag"}),
        ("tag", {"model.crf": False, "training.label_smoothing": 0.1}),
        ("tag", {"model.crf": True}),
        *(("classify", {"model.pooling": pooling}) for pooling in ("last", "mean", "max", "attention")),
        ("classify", {"training.class_weights": "balanced", "model.characters": 3}),
        ("class2seq", {}),
        ("seq2seq", {"model.attention": "none"}),
        ("seq2seq", {"model.attention": "additive", "training.label_smoothing": 0.1}),
        ("seq2seq", {"model.attention": "dot", "model.placement": "after"}),
        ("seq2seq", {"model.attention": "location", "model.input_feeding": True}),
        ("seq2seq", {"training.teacher_forcing": 0.0}),
    ],
)
def test_a_bucketed_batch_has_the_same_loss_and_gradients(task, settings, tmp_path):
    one = ready(task, tmp_path, settings)
    wide = one.batch.bucketed()
    found = []
    for batch in (one.batch, wide):
        one.model.zero_grad()
        loss = one.task.loss(one.model, batch)
        loss.total.backward()
        gradients = {name: weight.grad for name, weight in one.model.named_parameters()}
        found.append((loss.total.detach(), gradients, (loss.count, loss.examples, loss.tokens)))
    (total, gradients, counts), (wide_total, wide_gradients, wide_counts) = found
    torch.testing.assert_close(wide_total, total, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(wide_gradients, gradients, rtol=1e-4, atol=1e-5)
    assert wide_counts == counts == tuple(wide.counts)


@pytest.mark.parametrize("task", TASKS.names())
def test_every_task_has_buckets(task, tmp_path):
    one = ready(task, tmp_path, SENTENCES if task == "lm" else {})
    assert one.task.buckets
    assert one.task.unrecordable is None
    first, second = (
        one.task.collate(one.examples, key, CPU).bucketed() for key in one.task.epoch(one.examples, 0)[:1] * 2
    )
    assert shape_of(first) == shape_of(second)
    for tensor in tensors_in(first):
        assert tensor.is_cpu


def test_who_derives_from_a_task_says_anew_that_it_has_buckets():
    class Other(Lm):
        pass

    class Same(Lm):
        buckets = True

    assert (Other.buckets, Same.buckets) == (False, True)


def test_a_shape_knows_everything_but_values_and_counts():
    batch = (torch.zeros(2, 3), None, ("a",), Counts(5, 2, 5))
    same = (torch.ones(2, 3), None, ("a",), Counts(6, 2, 9))
    assert shape_of(batch) == shape_of(same)
    for other in (
        (torch.zeros(2, 4), None, ("a",), Counts(5, 2, 5)),
        (torch.zeros(2, 3, dtype=torch.int64), None, ("a",), Counts(5, 2, 5)),
        (torch.zeros(2, 3), torch.zeros(1), ("a",), Counts(5, 2, 5)),
        (torch.zeros(2, 3), None, ("b",), Counts(5, 2, 5)),
    ):
        assert shape_of(other) != shape_of(batch)


def test_a_row_without_a_target_has_no_loss():
    logits, targets = torch.randn(3, 4), torch.tensor([1, NO_TARGET, 2])
    for kind in ("cross-entropy", "squared"):
        for weights in (None, torch.rand(4)):
            given = {"kind": kind, "smoothing": 0.2, "weights": weights}
            expected = output_loss(logits[[0, 2]], targets[[0, 2]], **given)
            torch.testing.assert_close(output_loss(logits, targets, **given), expected)


# ---- reasons ---------------------------------------------------------------------------------------


class FusedOnAGpu(torch.optim.SGD):
    """Looks as our optimisers do on a GPU."""


FusedOnAGpu.__module__ = "torch.optim.sgd"


def computation(model=None, **changes):
    settings = SimpleNamespace(graphs="auto", precision="float32")
    task = SimpleNamespace(unrecordable=None)
    model = nn.Linear(2, 2) if model is None else model
    given = {
        "task": task,
        "model": model,
        "optimizer": FusedOnAGpu(model.parameters(), 0.1),
        "settings": settings,
        "device": torch.device("cuda"),
        "scaler": SimpleNamespace(is_enabled=lambda: False),
        "rate_there": True,
        "bucketed": True,
        "shared": False,
    }
    return SimpleNamespace(**{**given, **changes})


def hooked(kind):
    model = nn.Linear(2, 2)
    if kind == "weight":
        model.weight.register_hook(lambda gradient: gradient)
    else:
        getattr(model, f"register_{kind}_hook")(lambda *given: None)
    return model


class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))


class Promised(Own):
    recordable = True


OFF, HALF = SimpleNamespace(graphs="off"), SimpleNamespace(graphs="auto", precision="float16")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"device": CPU}, "the device is cpu"),
        ({"settings": OFF}, "training.graphs is 'off'"),
        ({"shared": True}, "several workers share them"),
        ({"settings": HALF, "scaler": SimpleNamespace(is_enabled=lambda: True)}, "scale of float16"),
        ({"rate_there": False}, "the optimiser FusedOnAGpu is no fused kernel"),
        ({"task": SimpleNamespace(unrecordable="it says so")}, "it says so"),
        ({"bucketed": False}, "batches of SimpleNamespace have no bucketed"),
        ({"model": Own()}, "Own is code of its own, which does not say recordable"),
        ({"model": Promised()}, None),
        ({"model": hooked("forward")}, "Linear has hooks"),
        ({"model": hooked("full_backward")}, "Linear has hooks"),
        ({"model": hooked("weight")}, "a weight has hooks"),
    ],
)
def test_why_nothing_is_recorded(changes, reason):
    found = find_obstacle(computation(**changes))
    assert (found is None) == (reason is None)
    assert reason is None or reason in found


def test_teacher_forcing_that_changes_is_not_recorded(tmp_path):
    changing = {"training.teacher_forcing": 0.5, "training.teacher_forcing_schedule": "linear"}
    assert "teacher_forcing" in ready("seq2seq", tmp_path, changing).task.unrecordable
    constant = {"training.teacher_forcing": 0.5}
    assert ready("seq2seq", tmp_path, constant).task.unrecordable is None


def test_a_trainer_says_how_its_updates_run(data):
    assert trainer_of("lm-stream", data).recorded.summary == "one by one, since the device is cpu"


# ---- numbers on the device -------------------------------------------------------------------------


def test_a_rate_on_the_device_is_that_of_the_step_alone():
    model = nn.Linear(3, 2)
    optimizer = make_optimizer(model, "adamw", 0.5)
    with at_rate(optimizer, torch.tensor(0.25)), capturable(optimizer):
        assert {group["lr"].item() for group in optimizer.param_groups} == {0.25}
        assert all(group["capturable"] for group in optimizer.param_groups)
    assert {group["lr"] for group in optimizer.param_groups} == {0.5}
    assert not any(group["capturable"] for group in optimizer.param_groups)
    with at_rate(optimizer, None):
        assert {group["lr"] for group in optimizer.param_groups} == {0.5}


@pytest.mark.parametrize("kind", ["ema", "tail"])
def test_a_share_on_the_device_averages_alike(kind):
    averages = []
    for there in (False, True):
        torch.manual_seed(3)
        model, averaging = nn.Linear(4, 3), Averaging(kind, decay=0.9)
        averaging.start()
        for _ in range(30):
            with torch.no_grad():
                model.weight.add_(torch.randn(3, 4))
            averaging.take(model, torch.tensor(averaging.share) if there else None)
            averaging.advance()
        averages.append(averaging.tensors())
    torch.testing.assert_close(averages[0], averages[1], rtol=1e-5, atol=1e-6)


def test_lengths_are_known_only_inside():
    from elman.tensors.checks import _known

    assert not _known.get()
    with known_lengths():
        assert _known.get()
    assert not _known.get()


# ---- the life of a recording, without a GPU --------------------------------------------------------


class Kept:
    """A generator whose state is set back where it was."""

    def clone_state(self):
        return torch.get_rng_state()

    def graphsafe_set_state(self, state):
        torch.set_rng_state(state)


class StandIn:
    """Records an update by noting how to compute it, without computing it."""

    def __init__(self, monkeypatch, fails=False):
        self.captured = self.replayed = 0
        self.fails = fails
        monkeypatch.setattr(recorded, "find_obstacle", lambda update: None)
        monkeypatch.setattr(recorded, "_generator", lambda device: Kept())
        monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
        monkeypatch.setattr(RecordedUpdates, "_capture", lambda own, *given: self.capture(own.update, *given))

    def capture(self, computation, batches, carry):
        self.captured += 1
        if self.fails:
            computation.optimizer.zero_grad()
            computation.optimizer.state.clear()
            raise RuntimeError("operation not permitted when stream is capturing")
        left = Left()

        def replay():
            self.replayed += 1
            left.found = computation.compute(batches, carry)

        return recorded.Recording(SimpleNamespace(replay=replay), batches, carry, left)


class Left:
    """What the last replay left, as if it lay where the one before had left it."""

    def __getattr__(self, name):
        return getattr(self.found, name)


def as_on_a_gpu(trainer):
    """A trainer that treats the CPU as a device of its own."""
    trainer.deferred = True
    trainer.computation.bucketed = True
    trainer.computation.scalars = update.DeviceScalars(trainer.settings.accumulate, CPU)
    return trainer


CHANGES = {
    "training.max_steps": 40,
    "training.validate_every": 15,
    "training.optimizer": "adamw",
    "training.schedule": "cosine",
    "training.learning_rate": 0.01,
    "training.momentum": 0.0,
    "training.clip": 0.5,
    "training.averaging": "ema",
}


def trained(trainer):
    found = [figures(event) for event in trainer.run()]
    logged = trainer.cut_log()
    snapshot = trainer.snapshot()
    tensors = {**snapshot["model"], **snapshot["optimizer"], **snapshot["extra"]}
    return (
        found,
        logged,
        {name: tensor.detach().clone() for name, tensor in tensors.items()},
        snapshot["state"],
    )


def assert_same(found, expected):
    assert found[0] == expected[0]
    assert found[1] == expected[1]
    torch.testing.assert_close(found[2], expected[2], rtol=0, atol=0)
    assert found[3] == expected[3]


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.slow
def test_replays_are_updates(name, data, monkeypatch):
    changes = {**CHANGES, **({"training.teacher_forcing_schedule": "constant"} if name == "seq2seq" else {})}
    expected = trained(as_on_a_gpu(trainer_of(name, data, changes)))
    stand_in = StandIn(monkeypatch)
    trainer = as_on_a_gpu(trainer_of(name, data, changes))
    assert_same(trained(trainer), expected)
    assert stand_in.captured == len(trainer.recorded.recordings) > 0
    assert stand_in.replayed > stand_in.captured
    assert max(trainer.recorded.seen.values()) <= WARM + 1


def test_a_recording_that_fails_changes_nothing(data, monkeypatch):
    expected = trained(as_on_a_gpu(trainer_of("lm-stream", data, CHANGES)))
    stand_in = StandIn(monkeypatch, fails=True)
    trainer = as_on_a_gpu(trainer_of("lm-stream", data, CHANGES))
    with pytest.warns(BackendNotice, match="one by one, since recording failed: operation not permitted"):
        found = trained(trainer)
    assert_same(found, expected)
    assert stand_in.captured == 1
    assert trainer.recorded.summary.startswith("one by one, since recording failed")


def test_a_restored_trainer_forgets_its_recordings(data, monkeypatch):
    StandIn(monkeypatch)
    trainer = as_on_a_gpu(trainer_of("lm-stream", data, CHANGES))
    updates = trainer.run()
    for _ in range(12):
        next(updates)
    assert trainer.recorded.recordings
    trainer.restore(**trainer.snapshot())
    assert not trainer.recorded.recordings


# ---- on a GPU --------------------------------------------------------------------------------------


GPU = {
    "lm-stream": {},
    "lm-stream alone": {"training.accumulate": 1},
    "lm-stream awd": {"training.accumulate": 1, **AWD},
    "lm-stream adaptive": {"model.adaptive_softmax": True},
    "lm-stream tail": {"training.averaging": "tail", "training.validate_every": 5},
    "lm-sentence": {"training.optimizer": "sgd", "training.momentum": 0.9},
    "tag": {},
    "classify": {"training.optimizer": "asgd"},
    "class2seq": {},
    "seq2seq": {"training.teacher_forcing": 1.0, "training.teacher_forcing_schedule": "constant"},
    "seq2seq mixed": {"training.teacher_forcing_schedule": "constant"},
    "seq2seq plain": {
        "training.teacher_forcing": 1.0,
        "training.teacher_forcing_schedule": "constant",
        "model.attention": "dot",
        "model.placement": "after",
    },
}


def on_gpu(name, data, changes):
    return trainer_of(name.split()[0], data, {**CHANGES, "training.device": "cuda", **GPU[name], **changes})


@pytest.mark.gpu
@NEEDS_ONE
@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
@pytest.mark.parametrize("name", GPU)
def test_graphs_change_no_bit(name, precision, data):
    changes = {"training.precision": precision}
    expected = trained(on_gpu(name, data, {**changes, "training.graphs": "off"}))
    trainer = on_gpu(name, data, changes)
    found = trained(trainer)
    assert trainer.recorded.obstacle is None, trainer.recorded.summary
    assert trainer.recorded.recordings
    assert_same(found, expected)


@pytest.mark.gpu
@NEEDS_ONE
@pytest.mark.parametrize("name", ["lm-stream alone", "lm-sentence", "seq2seq"])
def test_a_training_with_graphs_goes_on_exactly(name, data):
    expected = trained(on_gpu(name, data, {}))
    trainer = on_gpu(name, data, {})
    events, seen = trainer.run(), []
    while trainer.position.update < 23:
        seen.append(figures(next(events)))
    saved = trainer.snapshot()
    saved = {part: map_tensors(Tensor.clone, saved[part]) for part in saved}
    for _ in range(5):
        next(events)  # which are lost
    other = on_gpu(name, data, {})
    other.restore(**saved)
    found = trained(other)
    assert [*seen, *found[0]] == expected[0]
    assert_same((expected[0], *found[1:]), expected)


@pytest.mark.gpu
@NEEDS_ONE
@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("tag", {"training.graphs": "off"}, "training.graphs is 'off'"),
        ("tag", {"training.precision": "float16"}, "scale of float16"),
        ("tag", {"training.optimizer": "torch.optim:RMSprop"}, "RMSprop is no fused kernel"),
        ("seq2seq mixed", {"training.teacher_forcing_schedule": "linear"}, "teacher_forcing changes"),
    ],
)
def test_what_is_not_recorded_trains_one_by_one(name, changes, reason, data):
    trainer = on_gpu(name, data, {**changes, "training.max_steps": 6})
    assert reason in trainer.recorded.summary
    losses = [event.loss for event in trainer.run() if isinstance(event, Update)]
    assert len(losses) == 6
    assert all(map(math.isfinite, losses))
    assert not trainer.recorded.recordings


@pytest.mark.gpu
@NEEDS_ONE
@pytest.mark.filterwarnings("ignore:The AccumulateGrad node")  # which the error of the capture keeps alive
def test_a_recording_that_waits_for_the_gpu_leaves_everything_as_it_was(data, monkeypatch):
    """The capture fails inside torch; the training goes on as if nobody had tried."""
    changes = {"model.dropout": 0.3}
    expected = trained(on_gpu("lm-stream alone", data, {**changes, "training.graphs": "off"}))
    trainer = on_gpu("lm-stream alone", data, changes)
    loss = trainer.task.loss

    def waiting(*given, **named):
        found = loss(*given, **named)
        assert math.isfinite(float(found.total.detach()))
        return found

    monkeypatch.setattr(trainer.task, "loss", waiting)
    with pytest.warns(BackendNotice, match="one by one, since recording failed"):
        found = trained(trainer)
    assert_same(found, expected)


@pytest.mark.gpu
@NEEDS_ONE
def test_a_replay_waits_for_nothing(data):
    trainer = on_gpu("lm-stream alone", data, {"training.validate_every": 1000, "training.epochs": 100})
    updates = trainer.run()
    while not trainer.recorded.recordings:
        next(updates)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that the mode does not see everything
        torch.cuda.set_sync_debug_mode("error")
    try:
        next(updates)
    finally:
        torch.cuda.set_sync_debug_mode("default")
