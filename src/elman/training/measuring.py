"""How fast a training is on this machine, measured by a trainer that is thrown away."""

import gc
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

import numpy as np
import torch

from elman.config import changed, has_key, lookup
from elman.tasks.base import AnyTask
from elman.tasks.defaults import PATIENCE
from elman.tensors.transfer import find_device
from elman.text.batches import EpochBatches, Shuffled
from elman.training.budget import (
    AIM,
    FASTER,
    LONGER,
    REPORT,
    SHORT,
    Speed,
    mean_seconds,
    narrower,
    planned,
    spread,
)
from elman.training.building import build
from elman.training.loop import Trainer, count_parameters
from elman.training.position import Position
from elman.training.preparing import Prepared
from elman.training.recorded import shape_of

Clock = Callable[[], float]

WHILE = 1.0  # seconds that updates are measured for, and validations, where there is no budget
BRIEF = 0.5  # the same where somebody waits for the training to begin
MEASURED = 0.03  # share of a budget that goes into each of the two
LEAST = 3  # updates that are measured, however long they take
MOST = 200  # and at most, however short they are
WARM = 2  # updates before that: they compile kernels and ask for memory
RECORDED = 3  # times more that each batch comes where updates are recorded: the last time it is
SHAPES = 4  # batches that are measured there
LOOKED_AT = 64  # and that tell how many shapes there are
FEW = 32  # validation examples that tell how many more there is time for
STANDSTILL = 1e-12  # learning rate of what is measured: nothing diverges
WRITING = 150e6  # bytes of a checkpoint that are hashed and on the disk in a second
LONG = 0.9  # share of the outputs that are no longer than those that a validation is measured with


def measure(
    prepared: Prepared,
    seconds: float = WHILE,
    clock: Clock = time.perf_counter,
    *,
    share: float | None = None,
) -> Speed:
    """Build the network, update it with batches of all lengths, and validate, each for about so many seconds.

    All of it is a copy's: neither the data, nor the random numbers that the training will draw, nor anything
    else that it depends on is touched. Kernels that were compiled stay so, and so does what was fitted
    beside the network, which would be the same again.

    ``share``: no more than this share of all updates is measured. Where that is next to nothing, and where
    the model is counted, an update takes 0 seconds.
    """
    device = find_device(prepared.task.config.training.device, "training.device")
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        speed = _measured(prepared, seconds, clock, share)
    if device.type == "cuda":  # the training will want the memory
        gc.collect()
        torch.cuda.empty_cache()
    return speed


def _measured(prepared: Prepared, seconds: float, clock: Clock, share: float | None) -> Speed:
    begin, companion = clock(), prepared.task.companion
    trainer = build(replace(prepared, task=_measured_task(prepared)), fresh=False)
    built, total, every = clock() - begin, trainer.total, trainer.validate_every
    most = MOST if share is None else min(MOST, int(share * total))
    if trainer.counted or (share is not None and most < LEAST):
        return Speed(0.0, 0.0, built, total, every)
    trainer.position = Position(update=total // 2)  # some settings change on the way
    if companion is not None:
        companion.fit(trainer.model, prepared.train)
    update, recording = _update_seconds(trainer, seconds, clock, most)
    saving = held_bytes(trainer) / WRITING
    update *= 1 + saving / trainer.settings.save_seconds
    validation = _validation_seconds(trainer, seconds, clock) + saving
    return Speed(update, validation, built + recording, total, every)


def _measured_task(prepared: Prepared) -> AnyTask:
    """The task, but that its updates stand still, and that it writes no more than a trained network would."""
    task, changes = prepared.task, dict[str, float]()
    if task.config.training.learning_rate is not None:
        changes["training.learning_rate"] = STANDSTILL
    written = prepared.dev.store.fields.get(task.roles[-1])
    if written is not None and has_key(type(task.config), "decoding.max_length"):
        changes["decoding.max_length"] = 1 + int(np.quantile(written.lengths, LONG))
    return task.reconfigured(changed(task.config, changes))


class ChosenBatches(list[object]):
    """Some batches of an epoch, as if they were all of it."""

    examples = 0


def _update_seconds(trainer: Trainer, seconds: float, clock: Clock, most: int) -> tuple[float, float]:
    """Of an update in the mean; and of recording all shapes, where updates are recorded."""
    accumulate, recorded = trainer.settings.accumulate, trainer.recorded.obstacle is None
    batches = trainer.task.epoch(trainer.examples, 0)
    sizes = _sizes(batches, accumulate)
    places = spread(sizes, SHAPES if recorded else MOST)
    groups = (range(place * accumulate, min(len(batches), (place + 1) * accumulate)) for place in places)
    chosen = ChosenBatches(batches[k] for group in groups for k in group)

    def update(times: int) -> float:
        """So many updates; when they are done."""
        for _ in range(times):
            last = trainer.update(chosen)
        float(last.loss)  # which a GPU may still be computing
        return clock()

    done = len(places) if recorded else WARM
    begin, recording = update(done), 0.0
    if recorded:
        done += RECORDED * len(places)
        recording = (
            (update(RECORDED * len(places)) - begin) / len(places) * len(_shapes(trainer, batches, sizes))
        )
        begin = clock()
    count = 1
    while count < LEAST or (clock() - begin < seconds and count < most):
        trainer.update(chosen)
        count += 1
    passed = update(1) - begin
    measured = [sizes[places[(done + number) % len(places)]] for number in range(count)]
    return mean_seconds(passed, measured, sizes), recording


def _sizes(batches: EpochBatches, accumulate: int) -> list[int]:
    """The positions that each update of an epoch computes; all the same where batches do not tell."""
    updates = max(1, len(batches) // accumulate)
    if not isinstance(batches, Shuffled):
        return [1] * updates
    positions = batches.positions
    return [sum(positions[k : k + accumulate]) for k in range(0, updates * accumulate, accumulate)]


def _shapes(trainer: Trainer, batches: EpochBatches, sizes: Sequence[int]) -> set[Hashable]:
    """The shapes of batches that will be recorded, as far as some of the batches show them."""
    task, cpu = trainer.task, torch.device("cpu")
    keys = (batches[place * trainer.settings.accumulate] for place in spread(sizes, LOOKED_AT))
    return {shape_of(task.collate(trainer.examples, key, cpu).bucketed()) for key in keys}


def _validation_seconds(trainer: Trainer, seconds: float, clock: Clock) -> float:
    """By a few of the examples, and then by as many as there is time for."""
    dev, taken = trainer.dev, 0.0
    share = min(1.0, FEW / len(dev))
    for _ in range(2):  # the first time, kernels are compiled
        trainer.dev = dev.every(max(1, round(1 / share)))
        begin = clock()
        trainer.validate()
        taken = (clock() - begin) * len(dev) / len(trainer.dev)
        share = min(1.0, seconds / max(taken, 1e-9))
    return taken


def held_bytes(trainer: Trainer) -> int:
    """Memory of weights, gradients and optimiser, and of the averages where there are any."""
    copies = {"adam": 4, "adamw": 4}.get(str(trainer.settings.optimizer), 2)
    return 4 * count_parameters(trainer.model) * (copies + (trainer.averaging.kind != "none"))


def measured_shortly(prepared: Prepared) -> Speed:
    """For somebody who waits: a training of which a hundredth is not worth measuring is over soon."""
    return measure(prepared, BRIEF, share=0.01)


def keep_within(prepared: Prepared, began: float, clock: Clock = time.perf_counter) -> None:
    """Choose updates and, where few would fit, a narrower network, so that training takes so many minutes.

    ``began``: the time at which the minutes began. What is chosen goes into the settings, with its reasons;
    where they have it already, as those of a run that begins again, nothing is measured.
    """
    task, training, reasons = prepared.task, prepared.task.config.training, prepared.statistics.reasons
    minutes = training.minutes
    if minutes is None or training.max_steps is not None:
        return
    usual, within = task.config, f"{minutes:g} minute{'s' * (minutes != 1)}"
    longer = LONGER if "training.epochs" in prepared.chosen else 1  # what the user set is a limit

    def measured() -> tuple[Speed, Speed]:
        """The usual training, and the one that there is time for."""
        found = measure(prepared, MEASURED * 60 * minutes, clock)
        left = AIM * 60 * minutes - REPORT - (clock() - began)
        return found, planned(found, left, longer * found.total, training.validate_every)

    speed, plan = measured()
    if not speed.update:
        return  # the model is counted
    while plan.total < SHORT * speed.total and (widths := narrower(task.config, prepared.chosen)):
        before, task.config = task.config, changed(task.config, widths)
        narrow = measured()
        if narrow[0].update > FASTER * speed.update:
            task.config = before
            break
        speed, plan = narrow
        prepared.chosen |= widths
        reasons |= {key: f"since {within} are too few for the usual {lookup(usual, key)}" for key in widths}
    found: dict[str, object] = {"training.max_steps": plan.total, "training.validate_every": plan.every}
    if "training.patience" in prepared.chosen:  # there is time: half of it, if validations are many
        found["training.patience"] = max(PATIENCE, plan.validations // 2)
    if plan.total < longer * speed.total:
        why = f"as many as fit into {within}"
    else:
        why = f"{longer} times as many as usual" if longer > 1 else "all epochs, which fit"
    reasons["training.max_steps"] = f"{why}: {plan.update:.2g} s each"
    reasons["training.validate_every"] = f"{plan.validations} in all: {plan.validation:.2g} s each"
    prepared.chosen |= found
    if longer > 1:
        found["training.epochs"] = None  # the number of updates says it all
        for known in (prepared.chosen, reasons):
            known.pop("training.epochs", None)
    task.config, prepared.speed = changed(task.config, found), plan
