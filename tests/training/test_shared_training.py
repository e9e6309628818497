"""Workers that share a training: masks and sums are those of one process, whoever computes which rows."""

import errno
import os
import socket
import sys
from contextlib import nullcontext

import pytest
import torch
from torch import nn

from elman.distributed.group import rows_of
from elman.distributed.sums import NetworkSums, SharedSums, make_sums
from elman.errors import WorkersError
from elman.tasks.buckets import Counts
from elman.tensors.draws import Share, bernoulli, dropout, guarded, rand, shared, step_dropout
from elman.training.checkpoint import load_checkpoint
from elman.training.shared_update import refuse_workers
from forked import Forked
from tiny import AWD, COMMAND, assert_code, events, timeless, train_command, write_data
from tiny_tasks import CPU, ready

ROUNDING = 2e-5  # of weights after a few updates in float32, about one

NOISY = {  # every way to draw random numbers
    "lm": [
        {
            "model.dropout": 0.4,
            "model.input_dropout": 0.3,
            "model.token_dropout": 0.2,
            "model.locked": True,
            "training.batch_size": 3,
        },
        {"model.hidden": [6, 5], "text.context": "sentence", "model.dropout": 0.4, "model.rare_dropout": 0.5},
        {
            "training.batch_size": 3,
            "model.hidden": [6, 5],
            "model.layer_dropout": 0.3,
            "model.embedding_dropout": 0.2,
            "model.weight_drop": 0.3,
            "model.recurrent_dropout": 0.2,
            "model.zoneout": 0.2,
            "training.activation_regularisation": 2.0,
            "training.temporal_regularisation": 1.0,
        },
    ],
    "tag": [
        {
            "model.crf": True,
            "model.rare_dropout": 0.5,
            "model.token_dropout": 0.3,
            "model.input_dropout": 0.4,
        },
        {"model.affixes": 4, "model.shortcut": True, "model.dropout": 0.4, "model.input_dropout": 0.4},
    ],
    "classify": [
        {"model.ngrams": 3, "model.head": 4, "model.dropout": 0.4, "model.characters": 3},
        {"model.zoneout": 0.3, "model.recurrent_dropout": 0.3, "training.class_weights": "balanced"},
    ],
    "class2seq": [{"model.dropout": 0.4, "model.layers": 2, "model.weight_drop": 0.2}],
    "seq2seq": [
        {"model.dropout": 0.5, "model.input_dropout": 0.3, "model.rare_dropout": 0.5, "model.locked": True},
        {"model.dropout": 0.5, "model.layers": 2, "model.zoneout": 0.2, "model.attention": "additive"},
        {"model.dropout": 0.5, "model.attention": "none", "model.recurrent_dropout": 0.3},
        {"text.shared": True, "model.copy_dropout": 0.4, "training.teacher_forcing": 0.5},
    ],
}
CASES = [(task, number) for task, cases in NOISY.items() for number in range(len(cases))]


def shares(size, B):
    return [Share(rows_of(rank, size, B), B) for rank in range(size)]


@pytest.mark.parametrize(
    "draw",
    [
        lambda x: rand(*x.shape, device=CPU),
        lambda x: dropout(x, 0.4),
        lambda x: bernoulli(x, 0.4),
        lambda x: x * rand(len(x), 1, 1, device=CPU),
    ],
    ids=["rand", "dropout", "bernoulli", "one a row"],
)
def test_a_share_of_what_is_drawn_for_all(draw):
    x = torch.randn(5, 3, 2)
    torch.manual_seed(1)
    whole, after = draw(x), torch.get_rng_state()
    for share in shares(2, 5):
        torch.manual_seed(1)
        with shared(share):
            own = draw(x[share.rows])
        assert own.equal(whole[share.rows])
        assert torch.get_rng_state().equal(after)


@pytest.mark.parametrize("lengths", [None, torch.tensor([3, 1, 2, 3])])
def test_steps_that_stand_side_by_side_keep_their_masks(lengths):
    T = 3
    real = torch.full((4,), T) if lengths is None else lengths
    owner = torch.arange(4).repeat_interleave(real)
    x = torch.randn(len(owner), 2)
    torch.manual_seed(1)
    whole = step_dropout(x, 0.5, True, T)
    for share in shares(3, 4):
        torch.manual_seed(1)
        mine = torch.isin(owner, share.rows)
        with shared(Share(share.rows, 4, lengths)):
            assert step_dropout(x[mine], 0.5, True, T).equal(whole[mine])


@pytest.mark.parametrize(("task", "number"), CASES)
def test_the_losses_and_gradients_of_all_shares_are_those_of_the_whole(task, number, tmp_path):
    one = ready(task, tmp_path, NOISY[task][number])
    one.model.train()

    def computed(batch, share):
        torch.manual_seed(3)
        one.model.zero_grad()
        with shared(share), nullcontext() if share is None else guarded(CPU):
            loss = one.task.loss(one.model, batch, progress=0.5)
        besides = 0.0 if loss.regularisation is None else loss.regularisation
        (loss.total + besides).backward()
        gradients = [
            torch.zeros_like(w) if w.grad is None else w.grad.clone() for w in one.model.parameters()
        ]
        state = torch.get_rng_state()
        return (
            (loss.total + besides).detach(),
            gradients,
            Counts(loss.count, loss.examples, loss.tokens),
            state,
        )

    batch = one.batch
    whole, gradients, counts, state = computed(batch, None)
    lengths = getattr(batch, "lengths", None)
    parts = [
        computed(batch.taken(share.rows), Share(share.rows, batch.size, lengths))
        for share in shares(2, batch.size)
    ]
    assert torch.allclose(sum(part[0] for part in parts), whole, rtol=1e-5)
    for name, expected, found in zip(
        dict(one.model.named_parameters()),
        gradients,
        zip(*(part[1] for part in parts), strict=True),
        strict=True,
    ):
        assert torch.allclose(sum(found), expected, atol=1e-5, rtol=1e-4), name
    assert Counts(*map(sum, zip(*(part[2] for part in parts), strict=True))) == counts
    assert all(part[3].equal(state) for part in parts)


def test_the_masks_matter(tmp_path):
    """Without the share, the same rows have other masks: the test above can fail."""
    one = ready("lm", tmp_path, NOISY["lm"][0])
    one.model.train()
    rows = rows_of(1, 2, one.batch.size)
    found = []
    for share in (None, Share(rows, one.batch.size)):
        torch.manual_seed(3)
        with shared(share):
            found.append(float(one.task.loss(one.model, one.batch.taken(rows)).total.detach()))
    assert found[0] != pytest.approx(found[1], rel=1e-3)


class OwnDropout(nn.Module):
    def forward(self, x):
        return dropout(x, 0.5)


def test_who_draws_by_itself_is_found_out():
    own, both = shared(Share(torch.tensor([0]), 2)), nn.Sequential(OwnDropout(), nn.Dropout(0.5))
    with pytest.raises(WorkersError, match=r"by itself.*elman\.tensors\.draws"), guarded(CPU), own:
        both(torch.ones(1, 3))


def test_what_workers_cannot_share_is_refused():
    with pytest.raises(WorkersError, match="'incremental', which changes the weights after every example"):
        refuse_workers("incremental", counted=False)
    with pytest.raises(WorkersError, match="counted in one pass by one process; leave out --workers"):
        refuse_workers("adamw", counted=True)


def test_a_batch_on_a_gpu_keeps_its_shapes(tmp_path):
    """Bucketed rows have the widths of the whole batch, and know their words among its words."""
    one = ready("tag", tmp_path)
    rows = rows_of(1, 2, one.batch.size)
    whole, own = one.batch.bucketed(), one.batch.taken(rows).bucketed()
    assert own.tags.equal(whole.tags[rows])
    assert own.words.tokens[own.words.places].equal(whole.words.tokens[whole.words.places[rows]])
    assert own.words.share.of == len(whole.words.tokens)
    assert own.words.tokens.equal(whole.words.tokens[own.words.share.rows])


# Processes.


def work(size, arguments):
    """So many workers, as torchrun starts them; what they said."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    shared = {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size)}
    shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    workers = [
        Forked(COMMAND[-1], arguments, {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(size)
    ]
    said = [worker.communicate(300)[1] for worker in workers]
    return [worker.returncode for worker in workers], said


FEW = {"training.max_steps": 12, "training.validate_every": 6, "training.save_seconds": 1000.0}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("data"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lm-stream", "tag", "classify", "class2seq", "seq2seq"])
def test_two_workers_train_as_one(name, data, tmp_path):
    changes = FEW | (AWD if name == "lm-stream" else {})
    one, two, again = (tmp_path / number for number in ("one", "two", "again"))
    assert_code(work(1, train_command(name, data, one, changes)))
    assert_code(work(2, train_command(name, data, two, changes)))
    expected, found = (load_checkpoint(run / "last") for run in (one, two))
    for weight, value in expected.model.items():
        assert torch.allclose(found.model[weight].double(), value.double(), rtol=0, atol=ROUNDING), weight
    assert found.extra["rng.cpu"].equal(expected.extra["rng.cpu"])
    assert tokens_of(one) == tokens_of(two)  # the same examples in the same order
    if name in ("lm-stream", "seq2seq"):
        assert_code(work(2, train_command(name, data, again, changes)))
        assert timeless(again) == timeless(two)


def tokens_of(run):
    return [event["tokens"] for event in events(run) if event["event"] == "update"]


@pytest.mark.slow
def test_more_workers_than_rows(data, tmp_path):
    """Of three streams, the fourth worker has none; a counted model has no workers."""
    changes = FEW | {"training.batch_size": 3}
    assert_code(work(4, train_command("lm-stream", data, tmp_path / "four", changes)))
    assert_code(work(1, train_command("lm-stream", data, tmp_path / "one", changes)))
    expected, found = (load_checkpoint(tmp_path / run / "last").model for run in ("one", "four"))
    assert all(torch.allclose(found[name], value, atol=ROUNDING) for name, value in expected.items())
    files = train_command("class2seq", data, tmp_path / "no")[:6]
    codes, said = work(2, [*files, "--out", str(tmp_path / "no"), "--baseline", "ngram"])
    assert codes[0] == WorkersError.exit_code, said
    assert "E602: a counted model is counted in one pass" in said[0]


class TwoWorkers:
    """The first of two workers, as far as room for sums needs it."""

    rank, size, on_one_machine, nccl = 0, 2, True, None

    def __init__(self, others_see_it):
        self.others_see_it = others_see_it

    def broadcast(self, data):
        return data

    def meet(self, numbers=()):
        return [list(numbers), [float(self.others_see_it)]]


@pytest.mark.skipif(sys.platform != "linux", reason="memory without a name is Linux's")
def test_sums_are_in_memory_that_goes_with_the_workers(monkeypatch):
    cpu, before = torch.device("cpu"), set(os.listdir("/dev/shm"))
    sums = make_sums(TwoWorkers(True), 5, cpu)
    assert isinstance(sums, SharedSums)
    assert set(os.listdir("/dev/shm")) == before
    for row, value in zip(sums.rows, (1.0, 2.0), strict=True):
        row.fill_(value)
    assert sums.total(3).tolist() == [3.0, 3.0, 3.0]
    assert isinstance(make_sums(TwoWorkers(False), 5, cpu), NetworkSums)
    monkeypatch.setattr(os, "posix_fallocate", no_room)
    assert isinstance(make_sums(TwoWorkers(True), 5, cpu), NetworkSums)


def no_room(*_):
    raise OSError(errno.ENOSPC, "no room")
