"""A worker that is not the first: it opens what the first one wrote, computes with it, and writes nothing."""

import json
from pathlib import Path

import safetensors.torch

from elman.distributed.group import Group
from elman.storage.sealed import canonical, parsed
from elman.training.building import build
from elman.training.checkpoint import packed
from elman.training.learned import load_learned
from elman.training.loop import Trainer
from elman.training.preparing import prepare_run
from elman.training.session import Interrupted, signals
from elman.training.settings import check_code, make_task, read_config
from elman.trust import Trust

PARTS = ("model", "optimizer", "extra")


def tell(group: Group, *, over: bool) -> None:
    """Let the others begin, since all is written that they read; or let them go."""
    group.broadcast(json.dumps({"over": over}).encode())


def send(group: Group, trainer: Trainer) -> None:
    """Let the others stand where the first one stands."""
    snapshot = trainer.snapshot()
    for part in PARTS:
        group.broadcast(packed(snapshot[part]))
    group.broadcast(canonical(snapshot["state"]))


def receive(group: Group, trainer: Trainer) -> None:
    """Stand where the first one stands."""
    model, optimizer, extra = (safetensors.torch.load(group.broadcast(b"")) for _ in PARTS)
    trainer.restore(model, optimizer, extra, parsed(group.broadcast(b"")))


def follow_run(run: Path, group: Group) -> None:
    """Train along until the first worker's run ends; a signal that it obeys raises ``Interrupted``."""
    if json.loads(group.broadcast(b""))["over"]:
        return
    trust = Trust(run, everything=True)  # the first worker has asked
    config = read_config(run, trust)
    check_code(config, trust)
    task = make_task(config)
    load_learned(task, run)
    trainer = build(prepare_run(run, task, fresh=False), fresh=False, group=group)
    receive(group, trainer)
    with signals() as received:
        group.wish = lambda: received[0] if received else 0
        for _ in trainer.run():
            if group.asked:
                break
        group.leave()
    if group.asked:
        raise Interrupted(group.asked, trainer.position.update)
