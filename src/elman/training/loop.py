"""The training loop: a generator that yields after every update and validation; it saves nothing."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from elman.config import options_of
from elman.distributed.group import Group
from elman.errors import DivergedError
from elman.metrics.calibration import Calibration
from elman.models.counting import CountedModel
from elman.registry import SCHEDULES, construct
from elman.tasks.base import AnyTask, Measures, chosen_metric
from elman.tasks.examples import Examples
from elman.text.batches import EpochBatches, rate_share
from elman.training.averaging import Averaging
from elman.training.earlier_weights import parted, parted_optimizer
from elman.training.numbers import UpdateNumbers
from elman.training.optim import (
    clip_gradients,
    load_optimizer_tensors,
    make_optimizer,
    optimizer_tensors,
    set_rate,
)
from elman.training.position import Position, Update, Validation, finite
from elman.training.precision import products
from elman.training.recorded import RecordedUpdates
from elman.training.schedules.base import Schedule
from elman.training.shared_update import SharedUpdate, refuse_workers
from elman.training.snapshots import flatten, random_states, set_random_states, unflatten
from elman.training.update import Batch, Carry, Computed, UpdateComputation

RARELY = 300  # updates that lie between two validations at least, however short an epoch is
OFTEN = 2000  # and at most, however long it is
CALM = 20  # passes in a row that must hardly change the objective before training has converged
LINES = 200  # lines of the log, about, for a whole training


class Trainer:
    """Model, optimiser, schedule and average of a task, and the loop that moves them.

    On a GPU nothing waits for the numbers of an update (``deferred``): they are read while the next one runs,
    and before anything is logged, validated or saved. An update whose numbers are not finite changes no
    weight there either; it is the device that skips it.
    """

    def __init__(
        self,
        task: AnyTask,
        model: nn.Module,
        examples: Examples,
        dev: Examples,
        device: torch.device,
        group: Group | None = None,
    ) -> None:
        """``group``: the workers that train together, of which this process is one."""
        self.task, self.model, self.examples, self.dev = task, model, examples, dev
        self.device, self.group = device, group
        self.metric, self.higher_is_better = chosen_metric(task)
        self.settings = settings = task.config.training
        self.position = Position()
        self.carry: Carry = None
        self.deferred = device.type == "cuda"
        self.pending: UpdateNumbers | None = None  # of the last update, if not in the position yet
        self.counted = model if isinstance(model, CountedModel) else None
        if group is not None:
            refuse_workers(settings.optimizer, counted=self.counted is not None)
        self.optimizer = SGD([{"params": []}]) if self.counted else self._make_optimizer()
        self.schedule: Schedule = construct(
            SCHEDULES.find(settings.schedule or "constant"),
            options=options_of(settings, "schedule") if settings.schedule else {},
            named="training.schedule_options",
        )
        self.averaging = Averaging(settings.averaging or "none", decay=settings.average_decay)
        batches = task.epoch(examples, 0)
        self.n = batches.examples  # of (λ/n) R(w)
        parts = task, model, self.optimizer, self.averaging, settings, device, self.n
        self.computation = UpdateComputation(*parts) if group is None else SharedUpdate(*parts, group)
        self.recorded = RecordedUpdates(self.computation)
        self.epoch_updates = -(-len(batches) // settings.accumulate)
        self.total = (settings.epochs or 1) * self.epoch_updates
        if settings.max_steps is not None:
            self.total = min(self.total, settings.max_steps) if settings.epochs else settings.max_steps
        if self.counted:
            self.total = 1
        self.validate_every = settings.validate_every or min(OFTEN, max(RARELY, self.epoch_updates))
        self.log_every = settings.log_every or max(1, min(100, self.total // LINES))

    def run(self) -> Iterator[Update | Validation]:
        """Train from the present position to the end; what comes next follows from the position alone."""
        batches: EpochBatches | None = None
        epoch = -1  # whose batches these are
        while True:
            now = self.position
            since = now.update - now.validated
            if since >= self.validate_every or (since and now.finished):
                yield self.validate()
            elif now.finished:
                return
            elif self.counted:
                self.counted.fit(lambda: self.task.evaluation_batches(self.examples, self.device))
                self.position = replace(now, update=1, epoch=1, finished="counted")
            else:
                if now.update == 0 and self.task.companion is not None:
                    self.task.companion.fit(self.model, self.examples)
                if batches is None or epoch != now.epoch:
                    batches, epoch = self.task.epoch(self.examples, now.epoch), now.epoch
                with nullcontext() if self.group is None else self.group.update():
                    updated = self.update(batches)
                yield updated

    def _make_optimizer(self) -> Optimizer:
        settings = self.settings
        options = options_of(settings, "optimizer", sizes=("groups", "lr"))
        name = settings.optimizer or "adamw"
        return make_optimizer(self.model, name, settings.learning_rate or 0.0, options)

    def update(self, batches: EpochBatches) -> Update:
        """Forward, backward and one step of the optimiser over ``accumulate`` batches."""
        start = time.perf_counter()
        now = self.position
        places = range(now.batch, min(now.batch + self.settings.accumulate, len(batches)))
        keys = [batches[place] for place in places]
        if now.batch == 0:
            self.carry = None
        if not self.model.training:
            self.model.train()
        begin = time.perf_counter()
        given = [self._collate(key) for key in keys]
        reading = time.perf_counter() - begin
        place = now.scheduled(now.update, self.total), now.scheduled(now.update + 1, self.total)
        rate = self.schedule.rate(self.settings.learning_rate or 0.0, place[1], self.total)
        rate *= rate_share(batches, places)
        set_rate(self.optimizer, rate)
        self.computation.prepare(given, rate, place[0] / max(1, self.total - 1))
        with products(self.settings.precision):
            numbers, found = self._compute(given) if self.deferred else self._compute_at_once(given)
        self.carry = found.carry
        self.averaging.advance()
        now = self.position
        self.position = replace(
            now,
            update=now.update + 1,
            batch=now.batch + len(keys),
            log_count=now.log_count + numbers.count,
            log_tokens=now.log_tokens + sum(one.tokens for one in found.counts),
            log_updates=now.log_updates + 1,
        )
        if self.position.batch >= len(batches):
            self._end_epoch()
        else:
            self._end_by_number()
        return Update(numbers, rate, reading, time.perf_counter() - start)

    def _collate(self, key: object) -> Batch:
        """A batch: on the device, or where shapes are to come again still with the CPU."""
        bucketed, computation = self.computation.bucketed, self.computation
        batch = self.task.collate(self.examples, key, torch.device("cpu") if bucketed else self.device)
        if isinstance(computation, SharedUpdate):
            return computation.part(batch)
        return batch.bucketed() if bucketed else batch

    def _compute(self, batches: Sequence[Batch]) -> tuple[UpdateNumbers, Computed]:
        """An update whose numbers nobody waits for, recorded or not."""
        phase = self.averaging.phase
        found = self.recorded.run(batches, self.carry, None if phase == "first" else phase)
        numbers = self._numbers(found)
        self._read_pending()
        self.pending = numbers
        return numbers, found

    def _compute_at_once(self, batches: Sequence[Batch]) -> tuple[UpdateNumbers, Computed]:
        """An update whose numbers are looked at before it changes a weight."""
        update, limit = self.computation, self.settings.clip
        found, norm = update.gradients(update.moved(batches), self.carry)
        numbers = self._numbers(found)
        self._note(numbers)
        if limit and limit < numbers.norm < math.inf:
            clip_gradients(update.weights, norm, limit)
        update.descend()
        return numbers, found

    def _numbers(self, found: Computed) -> UpdateNumbers:
        count = sum(one.losses for one in found.counts)
        return UpdateNumbers(self.position.update + 1, found.numbers, count)

    def _read_pending(self) -> None:
        """Take the numbers of the last update into the position, where they are not there yet."""
        numbers, self.pending = self.pending, None
        if numbers is not None:
            self._note(numbers)

    def _note(self, numbers: UpdateNumbers) -> None:
        """Take the numbers of an update into the position; what is not finite ends training."""
        now = self.position
        loss = numbers.total if math.isfinite(numbers.objective) else numbers.objective
        if not math.isfinite(loss):
            raise DivergedError(
                f"the loss is {loss} at update {numbers.update}; the last checkpoint is unharmed. "
                f"{self._advice()}"
            )
        if not math.isfinite(numbers.norm) and not self.computation.scaler.is_enabled():
            raise DivergedError(
                f"the gradient is {numbers.norm} at update {numbers.update}; the last checkpoint is sound. "
                "Lower training.learning_rate"
            )
        self.position = replace(
            now,
            log_loss=now.log_loss + numbers.total,
            log_norm=now.log_norm + finite(numbers.norm),
            objective=now.objective + numbers.objective,
        )

    def _end_epoch(self) -> None:
        """Begin the next pass, or finish: by number, or because the objective no longer changes."""
        self._read_pending()
        now = self.position
        tolerance, before = self.settings.tolerance, now.last_objective
        calm = (
            bool(tolerance)
            and before is not None
            and abs(before - now.objective) <= (tolerance or 0.0) * abs(before)
        )
        self.position = replace(
            now,
            epoch=now.epoch + 1,
            batch=0,
            objective=0.0,
            last_objective=now.objective,
            calm=now.calm + 1 if calm else 0,
        )
        if self.position.calm >= CALM:
            self._finish("converged")
            return
        self._end_by_number()
        last = self.settings.epochs is not None and now.epoch + 1 >= self.settings.epochs
        if last and self.position.finished is None:
            self._finish("epochs")

    def _end_by_number(self) -> None:
        """Finish where the updates are done: those of the settings, or those that patience has left."""
        now = self.position
        if now.update >= (self.settings.max_steps or math.inf):
            self._finish("max_steps")
        elif now.update >= (now.ending or math.inf):
            self._finish("patience")

    def _lose_patience(self) -> None:
        """Finish, or take the rest of the schedule in a share of the updates so far and finish then."""
        now = self.position
        rest = round((self.settings.cooldown or 0.0) * now.update)
        if not rest:
            self._finish("patience")
        elif now.turned is None and now.update + rest < self.total:
            self.position = replace(now, turned=now.update, ending=now.update + rest)

    def _finish(self, reason: str) -> None:
        self.position = replace(self.position, finished=reason)

    def validate(self) -> Validation:
        """UpdateNumbers with the averaged weights; early stopping and plateaus look at them."""
        start = time.perf_counter()
        self._read_pending()
        self.model.eval()
        with self.averaging.applied(self.model), torch.no_grad(), products(self.settings.precision):
            if self.task.companion is not None:
                self.task.companion.weigh(self.model, self.dev)
            measures = self.task.evaluate(self.model, self.dev, quick=True)
            self._check_finite(measures)
            samples = self.task.samples(self.model, self.dev)
            watched = self.task.watched(self.model, self.dev)
        now = self.position
        value, loss = float(measures[self.metric]), float(measures["loss"])
        if self.group is not None:  # what is decided by these is decided by those of the first worker
            value, loss = self.group.meet([value, loss])[0]
        rank = value if self.higher_is_better else -value, -loss
        improved = now.best_rank is None or rank > tuple(now.best_rank)
        waited = 0 if improved else now.waited + 1
        self.schedule.note(loss)
        if waited:
            self.averaging.start()  # a tail begins where validation stops improving (NT-ASGD)
        self.position = replace(
            now,
            validated=now.update,
            best=value if improved else now.best,
            best_rank=rank if improved else now.best_rank,
            best_update=now.update if improved else now.best_update,
            calibration=self._calibration(measures) if improved else now.calibration,
            waited=waited,
        )
        if self.settings.patience is not None and waited >= self.settings.patience and now.finished is None:
            self._lose_patience()
        return Validation(measures, samples, watched, improved, time.perf_counter() - start)

    def _calibration(self, measures: Measures) -> dict[str, Any] | None:
        """What the validation says about probabilities; on what it was trained with a model is too sure."""
        found: dict[str, Any] | None = measures.get("calibration")
        if found is not None and self.dev.same_as(self.examples):
            return Calibration(reason="the validation data are the training data").as_json()
        return found

    def _advice(self) -> str:
        """What to do against divergence; incremental descent cannot clip."""
        may_clip = not self.settings.clip and self.settings.optimizer != "incremental"
        return f"Lower training.learning_rate{', or set training.clip' if may_clip else ''}"

    def _check_finite(self, measures: Measures) -> None:
        if not math.isfinite(measures["loss"]):
            raise DivergedError(
                f"the validation loss is {measures['loss']} after update {self.position.update}; the last "
                f"checkpoint is unharmed. {self._advice()}"
            )

    def cut_log(self) -> tuple[float, float, int]:
        """(mean loss, mean norm, tokens read) since the last line of the log, which starts anew."""
        self._read_pending()
        now = self.position
        self.position = replace(now, log_loss=0.0, log_count=0, log_tokens=0, log_norm=0.0, log_updates=0)
        return now.log_loss / max(1, now.log_count), now.log_norm / max(1, now.log_updates), now.log_tokens

    def epochs(self) -> float:
        """Passes so far, with the part of the present one."""
        batches = self.epoch_updates * int(self.settings.accumulate)
        return float(self.position.epoch + self.position.batch / max(1, batches))

    def snapshot(self) -> dict[str, Any]:
        """Everything that the rest of the training depends on; ``model`` is what is to be used."""
        self._read_pending()
        tensors, values = optimizer_tensors(self.optimizer)
        extra = {f"rng.{name}": state for name, state in random_states(self.device).items()}
        carried: list[Tensor] = []
        shape = flatten(self.carry, carried)
        extra |= {f"carry.{number}": one for number, one in enumerate(carried)}
        averages = self.averaging.tensors()
        weights = self.model.state_dict()
        if averages:
            extra |= {f"weights.{name}": weights[name] for name in averages}
        state = {
            "position": asdict(self.position),
            "optimizer": values,
            "schedule": self.schedule.state_dict(),
            "averaging": self.averaging.state_dict(),
            "scaler": self.computation.scaler.state_dict(),
            "carry": shape,
        }
        return {"model": {**weights, **averages}, "optimizer": tensors, "extra": extra, "state": state}

    def restore(
        self,
        model: Mapping[str, Tensor],
        optimizer: Mapping[str, Tensor],
        extra: Mapping[str, Tensor],
        state: Mapping[str, Any],
    ) -> None:
        """Stand exactly where ``snapshot`` was taken."""
        self.pending = None
        self.recorded.forget()
        raw = {
            name.removeprefix("weights."): one for name, one in extra.items() if name.startswith("weights.")
        }
        weights = {**model, **raw}
        self.model.load_state_dict(weights)
        saved = parted_optimizer(self.model, weights, self.optimizer, optimizer, state["optimizer"])
        load_optimizer_tensors(self.optimizer, *saved)
        self.schedule.load_state_dict(state["schedule"])
        averages = parted(self.model, {name: model[name] for name in raw})
        self.averaging.load_tensors(self.model, averages, state["averaging"])
        self.computation.scaler.load_state_dict(state["scaler"])
        self.carry = unflatten(state["carry"], extra, self.device)
        states = {name[4:]: one for name, one in extra.items() if name.startswith("rng.")}
        set_random_states(states, self.device)
        self.position = Position(**state["position"])


def count_parameters(model: nn.Module) -> int:
    return sum(weight.numel() for weight in model.parameters())
