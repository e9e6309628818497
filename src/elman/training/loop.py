"""The training loop: a generator that yields after every update and validation; it saves nothing."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD

from elman.errors import DivergedError
from elman.models.counting import CountedModel
from elman.tasks.base import Examples, Loss, Task
from elman.text.batches import Segments
from elman.training.averaging import Averaging
from elman.training.figures import Figures
from elman.training.optim import (
    Schedule,
    clip_gradients,
    gradient_norm,
    load_optimizer_tensors,
    make_optimizer,
    optimizer_tensors,
    set_rate,
    skipping,
)
from elman.training.precision import autocast, products

RARELY = 300  # updates that lie between two validations at least, however short an epoch is
OFTEN = 2000  # and at most, however long it is
CALM = 20  # passes in a row that must hardly change the objective before training has converged
LINES = 200  # lines of the log, about, for a whole training


@dataclass(frozen=True)
class Position:
    """Where training stands; all of it fits into JSON, and floats come back bit for bit."""

    update: int = 0
    epoch: int = 0
    batch: int = 0  # of the epoch's plan
    validated: int = 0  # update of the last validation
    best: float | None = None  # of the chosen metric
    best_rank: tuple[float, float] | None = None
    best_update: int = 0
    waited: int = 0  # validations without improvement
    log_loss: float = 0.0  # sums since the last line of the log
    log_count: int = 0
    log_tokens: int = 0
    log_norm: float = 0.0
    log_updates: int = 0
    objective: float = 0.0  # summed over the pass so far
    last_objective: float | None = None
    calm: int = 0  # passes in a row that hardly changed the objective
    finished: str | None = None


@dataclass(frozen=True)
class Update:
    """One update: its figures, which a GPU may still be computing, the rate, and where the time went."""

    figures: Figures
    rate: float
    data_seconds: float
    seconds: float

    @property
    def count(self) -> int:
        return self.figures.count

    @property
    def loss(self) -> float:
        """The mean over its batches."""
        return self.figures.total / self.figures.count

    @property
    def gradient_norm(self) -> float:
        return finite(self.figures.norm)


@dataclass(frozen=True)
class Validation:
    """Figures on the validation data, and whether they are the best so far."""

    figures: dict[str, Any]
    samples: list[str]
    improved: bool
    seconds: float


class Trainer:
    """Model, optimiser, schedule and average of a task, and the loop that moves them.

    On a GPU nothing waits for the figures of an update (``deferred``): they are read while the next one runs,
    and before anything is logged, validated or saved. An update whose figures are not finite changes no
    weight there either; it is the device that skips it.
    """

    def __init__(self, task: Task[Any], model: nn.Module, examples: Examples, dev: Examples) -> None:
        self.task, self.model, self.examples, self.dev = task, model, examples, dev
        self.settings = settings = task.config.training
        self.position = Position()
        self.carry: Any = None
        self.deferred = task.device.type == "cuda"
        self.pending: Figures | None = None  # of the last update, where they are not in the position yet
        self.weights = list(model.parameters())
        self.counted = model if isinstance(model, CountedModel) else None
        self.optimizer = SGD([{"params": []}]) if self.counted else make_optimizer(model, settings)
        self.schedule = Schedule(schedule_settings(settings))
        self.averaging = Averaging(settings.averaging or "none", decay=settings.average_decay)
        self.scaler = torch.amp.GradScaler(task.device.type, enabled=settings.precision == "float16")
        plan = task.plan(examples, 0)
        batches = len(plan)
        # (λ/n): of a stream the examples are the segments of its rows
        self.n = plan.rows * batches if isinstance(plan, Segments) else len(examples)
        self.epoch_updates = -(-batches // settings.accumulate)
        self.total = (settings.epochs or 1) * self.epoch_updates
        if settings.max_steps is not None:
            self.total = min(self.total, settings.max_steps) if settings.epochs else settings.max_steps
        if self.counted:
            self.total = 1
        self.validate_every = settings.validate_every or min(OFTEN, max(RARELY, self.epoch_updates))
        self.log_every = settings.log_every or max(1, min(100, self.total // LINES))

    def run(self) -> Iterator[Update | Validation]:
        """Train from the present position to the end; what comes next follows from the position alone."""
        plan: Sequence[Any] | Segments = ()
        planned = None
        while True:
            now = self.position
            since = now.update - now.validated
            if since >= self.validate_every or (since and now.finished):
                yield self._validate()
            elif now.finished:
                return
            elif self.counted:
                self.counted.fit(lambda: self.task.batches(self.examples))
                self.position = replace(now, update=1, epoch=1, finished="counted")
            else:
                if planned != now.epoch:
                    plan, planned = self.task.plan(self.examples, now.epoch), now.epoch
                yield self._update(plan)

    def _update(self, plan: Sequence[Any] | Segments) -> Update:
        """Forward, backward and one step of the optimiser over ``accumulate`` batches."""
        start = time.perf_counter()
        now = self.position
        keys = [plan[k] for k in range(now.batch, min(now.batch + self.settings.accumulate, len(plan)))]
        if now.batch == 0:
            self.carry = None
        self.task.progress = now.update / max(1, self.total - 1)
        if not self.model.training:
            self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        losses: list[Loss] = []
        objectives: list[Tensor] = []
        reading = 0.0
        with products(self.settings.precision):
            for key in keys:
                begin = time.perf_counter()
                batch = self.task.collate(self.examples, key)
                reading += time.perf_counter() - begin
                with autocast(self.settings.precision, self.task.device):
                    loss = self.task.loss(self.model, batch, self.carry)
                self.carry = loss.carry
                objectives.append(self._objective(loss, alone=len(keys) == 1))
                self.scaler.scale(objectives[-1]).backward()
                losses.append(loss)
            figures = self._step(losses, objectives)
        now = self.position
        self.position = replace(
            now,
            update=now.update + 1,
            batch=now.batch + len(keys),
            log_count=now.log_count + figures.count,
            log_tokens=now.log_tokens + sum(loss.tokens for loss in losses),
            log_updates=now.log_updates + 1,
        )
        if self.position.batch >= len(plan):
            self._end_epoch()
        elif self.position.update >= (self.settings.max_steps or math.inf):
            self._finish("max_steps")
        rate = self.optimizer.param_groups[0]["lr"]
        return Update(figures, rate, reading, time.perf_counter() - start)

    def _objective(self, loss: Loss, *, alone: bool) -> Tensor:
        """``Σ l(δ) + (λ/n) R(w)`` of every example, over the number of losses where the mean is asked."""
        total = loss.total
        settings = self.settings
        if settings.regulariser != "none" and settings.regularisation:
            size = loss.examples * settings.regularisation / self.n
            total = total + size * penalty(self.model, settings.regulariser)
        return total / loss.count if settings.reduction == "mean" and alone else total

    def _step(self, losses: list[Loss], objectives: list[Tensor]) -> Figures:
        """One step of the optimiser; what is not finite never reaches the weights."""
        settings = self.settings
        self.scaler.unscale_(self.optimizer)
        if len(losses) > 1 and settings.reduction == "mean":
            gradients = [weight.grad for weight in self.weights if weight.grad is not None]
            torch._foreach_div_(gradients, sum(loss.count for loss in losses))
        norm = gradient_norm(self.weights)
        figures = Figures(self.position.update + 1, losses, objectives, norm)
        if not self.deferred:
            self._note(figures)
        if settings.clip and (self.deferred or settings.clip < figures.norm < math.inf):
            clip_gradients(self.weights, norm, settings.clip)
        set_rate(self.optimizer, self.schedule.rate(self.position.update + 1, self.total))
        guarded = self.deferred and not self.scaler.is_enabled()  # a scaler skips by itself
        with skipping(self.optimizer, figures.broken()) if guarded else nullcontext():
            self.scaler.step(self.optimizer)
        self.scaler.update()
        self.averaging.update(self.model)
        if self.deferred:
            self._read_pending()
            self.pending = figures
        return figures

    def _read_pending(self) -> None:
        """Take the figures of the last update into the position, where they are not there yet."""
        figures, self.pending = self.pending, None
        if figures is not None:
            self._note(figures)

    def _note(self, figures: Figures) -> None:
        """Take the figures of an update into the position; what is not finite ends training."""
        now = self.position
        loss = figures.total if math.isfinite(figures.objective) else figures.objective
        if not math.isfinite(loss):
            raise DivergedError(
                f"the loss is {loss} at update {figures.update}; the last checkpoint is unharmed. "
                f"{self._advice()}"
            )
        if not math.isfinite(figures.norm) and not self.scaler.is_enabled():
            raise DivergedError(
                f"the gradient is {figures.norm} at update {figures.update}; the last checkpoint is sound. "
                "Lower training.learning_rate"
            )
        self.position = replace(
            now,
            log_loss=now.log_loss + figures.total,
            log_norm=now.log_norm + finite(figures.norm),
            objective=now.objective + figures.objective,
        )

    def _end_epoch(self) -> None:
        """Begin the next pass, or finish: by number, or because the objective no longer changes."""
        self._read_pending()
        now = self.position
        tolerance, last = self.settings.tolerance, now.last_objective
        calm = bool(tolerance) and last is not None and abs(last - now.objective) <= tolerance * abs(last)
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
        elif now.update >= (self.settings.max_steps or math.inf):
            self._finish("max_steps")
        elif self.settings.epochs is not None and now.epoch + 1 >= self.settings.epochs:
            self._finish("epochs")

    def _finish(self, reason: str) -> None:
        self.position = replace(self.position, finished=reason)

    def _validate(self) -> Validation:
        """Figures with the averaged weights; early stopping and plateaus look at them."""
        start = time.perf_counter()
        self._read_pending()
        self.model.eval()
        with self.averaging.applied(self.model), torch.no_grad(), products(self.settings.precision):
            figures = self.task.validate(self.model, self.dev)
            self._check_finite(figures)
            samples = self.task.samples(self.model, self.dev)
        now = self.position
        value, rank = float(figures[self.task.chosen_metric()]), self.task.rank(figures)
        improved = now.best_rank is None or rank > tuple(now.best_rank)
        waited = 0 if improved else now.waited + 1
        self.schedule.note(float(figures["loss"]))
        if waited:
            self.averaging.start()  # a tail begins where validation stops improving (NT-ASGD)
        self.position = replace(
            now,
            validated=now.update,
            best=value if improved else now.best,
            best_rank=rank if improved else now.best_rank,
            best_update=now.update if improved else now.best_update,
            waited=waited,
        )
        if self.settings.patience is not None and waited >= self.settings.patience and now.finished is None:
            self._finish("patience")
        return Validation(figures, samples, improved, time.perf_counter() - start)

    def _advice(self) -> str:
        """What to do against divergence; incremental descent cannot clip."""
        may_clip = not self.settings.clip and self.settings.optimizer != "incremental"
        return f"Lower training.learning_rate{', or set training.clip' if may_clip else ''}"

    def _check_finite(self, figures: Mapping[str, Any]) -> None:
        if not math.isfinite(figures["loss"]):
            raise DivergedError(
                f"the validation loss is {figures['loss']} after update {self.position.update}; the last "
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
        extra = {f"rng.{name}": state for name, state in random_states(self.task.device).items()}
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
            "scaler": self.scaler.state_dict(),
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
        raw = {
            name.removeprefix("weights."): one for name, one in extra.items() if name.startswith("weights.")
        }
        self.model.load_state_dict({**model, **raw})
        load_optimizer_tensors(self.optimizer, optimizer, state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        self.averaging.load_tensors(self.model, {name: model[name] for name in raw}, state["averaging"])
        self.scaler.load_state_dict(state["scaler"])
        self.carry = unflatten(state["carry"], extra, self.task.device)
        states = {name[4:]: one for name, one in extra.items() if name.startswith("rng.")}
        set_random_states(states, self.task.device)
        self.position = Position(**state["position"])


def count_parameters(model: nn.Module) -> int:
    return sum(weight.numel() for weight in model.parameters())


def finite(value: float) -> float:
    """The value, or zero where it is not finite: of the norm of a step that the scaler skipped."""
    return value if math.isfinite(value) else 0.0


def penalty(model: nn.Module, kind: str) -> Tensor:
    """``R(w)``: Σ|w| or ½ Σw² over all weights."""
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    parts = [weight.abs().sum() if kind == "l1" else weight.square().sum() / 2 for weight in weights]
    return torch.stack(parts).sum()


def schedule_settings(settings: Any) -> Any:
    """What a schedule reads, with its own patience in place of that of early stopping."""
    names = ("schedule", "learning_rate", "warmup", "final_rate", "decay")
    return SimpleNamespace(**{name: getattr(settings, name) for name in names}, patience=settings.plateau)


def random_states(device: torch.device) -> dict[str, Tensor]:
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def set_random_states(states: Mapping[str, Tensor], device: torch.device) -> None:
    torch.set_rng_state(states["cpu"])
    if "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)


def flatten(state: Any, into: list[Tensor]) -> Any:
    """The shape of a nested state as JSON: a list for a tuple, a number for a tensor, which goes ``into``."""
    if state is None:
        return None
    if isinstance(state, Tensor):
        into.append(state)
        return len(into) - 1
    return [flatten(part, into) for part in state]


def unflatten(shape: Any, tensors: Mapping[str, Tensor], device: torch.device) -> Any:
    if shape is None:
        return None
    if isinstance(shape, int):
        return tensors[f"carry.{shape}"].to(device)
    return tuple(unflatten(part, tensors, device) for part in shape)
