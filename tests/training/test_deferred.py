"""A GPU is not waited for, sees the same numbers and lets nothing through that is not finite.

The CPU can be treated as one: only the fused kernels of SGD and the transfers are the GPU's own.
"""

import math
import sys
import warnings
from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from elman.errors import DivergedError
from elman.tensors.transfer import moved
from elman.training.numbers import UpdateNumbers
from elman.training.position import Update
from tiny import RUNS, figures, trainer_of, write_data

NEEDS_ONE = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("data"))


def deferred(name, data, changes):
    trainer = trainer_of(name, data, changes)
    trainer.deferred = True
    return trainer


def weights_of(trainer):
    return {name: weight.detach().clone() for name, weight in trainer.model.named_parameters()}


class Waits(TorchDispatchMode):
    """Counts what makes the host wait for a GPU: numbers that it reads, and results of unknown size.

    Only of what would lie there: ``held`` tensors, and all that comes of them. Under a mode of torch, cells
    take the plain loop.
    """

    NAMES = ("_local_scalar_dense", "nonzero", "masked_select", "unique_consecutive", "equal")

    def __init__(self, held, monkeypatch):
        super().__init__()
        self.count = 0
        for tensor in held:
            tensor.held = True
        for name, module in list(sys.modules.items()):
            if name.startswith("elman.") and hasattr(module, "moved"):
                monkeypatch.setattr(module, "moved", self.hold)
        read = torch.Tensor.tolist
        monkeypatch.setattr(torch.Tensor, "tolist", lambda tensor: read(self.meet(tensor)))
        monkeypatch.setattr(torch.Tensor, "is_cpu", property(lambda tensor: not hasattr(tensor, "held")))

    def hold(self, tensor, device):
        held = moved(tensor, device).clone()
        held.held = True
        return held

    def meet(self, tensor):
        self.count += hasattr(tensor, "held")
        return tensor

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        tensors = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
        held = any(hasattr(tensor, "held") for tensor in tensors)
        self.count += held and function._schema.name.removeprefix("aten::") in self.NAMES
        result = function(*args, **(kwargs or {}))
        for one in tree_leaves(result):
            if held and isinstance(one, torch.Tensor):
                one.held = True
        return result


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("lm-stream", {"training.averaging": "ema"}),
        ("lm-stream", {"training.accumulate": 1}),
        *((name, {}) for name in RUNS if name != "class2seq"),
        ("class2seq", {"training.batch_size": 1}),  # so that the epoch goes on
        ("lm-sentence", {"model.network": "window", "model.cell": "lstm"}),
        ("tag", {"model.crf": False}),
        *(("classify", {"model.pooling": kind}) for kind in ("mean", "attention")),
        ("seq2seq", {"training.teacher_forcing": 1.0, "model.attention": "additive"}),
    ],
)
@pytest.mark.slow
def test_an_update_waits_for_nothing(name, changes, data, monkeypatch):
    """Its figures come in one transfer, which the update after it reads."""
    settings = {"training.optimizer": "adamw", "training.schedule": "constant", "training.momentum": 0.0}
    settings |= {"training.clip": 0.5}
    settings |= {"model.embedding": 6, "training.loss": "cross-entropy"}  # one-hot tokens are read, on a CPU
    trainer = deferred(name, data, {**settings, **changes})
    read = []
    values = UpdateNumbers._values.func
    monkeypatch.setattr(
        UpdateNumbers, "_values", property(lambda figures: values(read.append(figures) or figures))
    )
    batches = trainer.task.epoch(trainer.examples, 0)
    first = trainer.update(batches)
    with Waits(trainer.model.state_dict(keep_vars=True).values(), monkeypatch) as waits:
        second = trainer.update(batches)
        assert waits.count == 0
        float(second.numbers.stacked[0])
        second.numbers.stacked.tolist()
        assert waits.count == 2  # a check that could fail
    assert set(read) == {first.numbers}
    trainer.cut_log()
    assert set(read) == {first.numbers, second.numbers}


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.slow
def test_who_does_not_wait_sees_the_same(name, data):
    """Events, positions and snapshots are those of a training that reads every figure at once."""
    changes = {"training.max_steps": 23, "training.validate_every": 5, "training.optimizer": "adamw"}
    changes |= {"training.schedule": "cosine", "training.momentum": 0.0, "training.learning_rate": 0.01}
    trainer, seen = trainer_of(name, data, changes), []
    for event in trainer.run():
        cut = trainer.cut_log() if trainer.position.update % 4 == 0 else None
        seen.append((figures(event), cut, trainer.snapshot()["state"]["position"]))
    other = deferred(name, data, changes)
    for event, (expected, cut, position) in zip(other.run(), seen, strict=True):
        if cut is not None:
            assert other.cut_log() == cut
        assert figures(event) == expected
        assert other.position.update == position["update"]
        if not isinstance(event, Update):
            assert other.snapshot()["state"]["position"] == position


@pytest.mark.gpu
@NEEDS_ONE
@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16", "float16"])
@pytest.mark.parametrize(("name", "optimizer"), [("lm-stream", "sgd"), *((name, "adamw") for name in RUNS)])
def test_torch_sees_no_wait_in_an_update_on_a_gpu(name, optimizer, precision, data):
    changes = {"training.device": "cuda", "training.precision": precision, "training.optimizer": optimizer}
    changes |= {"training.clip": 0.5, "training.averaging": "ema", "training.schedule": "constant"}
    changes |= {} if optimizer == "sgd" else {"training.momentum": 0.0}
    changes |= {"lm-stream": {"training.truncate": 8}, "class2seq": {"training.batch_size": 1}}.get(name, {})
    trainer = trainer_of(name, data, changes)
    batches = trainer.task.epoch(trainer.examples, 0)
    trainer.update(batches)  # compiles, and makes the state of the optimiser
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that the mode does not see everything
        torch.cuda.set_sync_debug_mode("error")
    try:
        trainer.update(batches)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert math.isfinite(trainer.cut_log()[0])


@pytest.mark.gpu
@NEEDS_ONE
def test_a_gpu_that_is_waited_for_computes_the_same(data):
    changes = {"training.device": "cuda", "training.max_steps": 12, "training.validate_every": 5}
    found = []
    for wait in (True, False):
        trainer = trainer_of("lm-stream", data, changes)
        trainer.deferred = not wait
        found.append([event.loss for event in trainer.run() if isinstance(event, Update)])
    assert found[0] == pytest.approx(found[1], rel=1e-4)


@pytest.mark.parametrize("wrong", ["loss", "gradient"])
@pytest.mark.parametrize(
    ("device", "optimizer"),
    [
        ("cpu", "adamw"),
        *(
            pytest.param("cuda", kind, marks=[pytest.mark.gpu, NEEDS_ONE])
            for kind in ("adamw", "sgd", "asgd")
        ),
    ],
)
@pytest.mark.slow
def test_what_is_not_finite_reaches_no_weight_even_if_nobody_waits(
    device, optimizer, wrong, data, monkeypatch
):
    changes = {"training.device": device, "training.optimizer": optimizer, "training.averaging": "ema"}
    trainer = deferred("lm-stream", data, changes)
    updates = trainer.run()
    next(updates)
    before = weights_of(trainer)
    loss = trainer.task.loss

    def broken(*arguments, **named):
        found = loss(*arguments, **named)
        total = found.total * math.inf if wrong == "loss" else found.total
        if wrong == "gradient":
            total.register_hook(lambda gradient: gradient * math.nan)
        return replace(found, total=total)

    monkeypatch.setattr(trainer.task, "loss", broken)
    next(updates)
    assert trainer.position.update == 2
    torch.testing.assert_close(weights_of(trainer), before, rtol=0, atol=0)
    with pytest.raises(DivergedError, match=f"the {wrong} is .* at update 2; the last checkpoint"):
        trainer.snapshot()


def test_tf32_is_on_in_updates_and_validations_and_off_afterwards(data, monkeypatch):
    trainer = trainer_of("lm-sentence", data, {"training.max_steps": 2, "training.validate_every": 1})
    trainer.settings = trainer.settings.model_copy(update={"precision": "tf32"})
    seen = []
    for name in ("loss", "evaluate"):
        method = getattr(trainer.task, name)
        monkeypatch.setattr(
            trainer.task,
            name,
            lambda *given, method=method, **named: seen.append(switch()) or method(*given, **named),
        )
    before = switch()
    for _ in trainer.run():
        assert switch() == before
    assert seen == ["tf32"] * 4


def switch():
    return torch.backends.cuda.matmul.fp32_precision
