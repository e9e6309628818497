"""An update that several workers compute together: each its rows of every batch; the sums are everybody's.

A loss is a sum over examples, so a worker differentiates the sum over its own rows. Gradients, losses and the
carried state are put together once an update; what follows, the clipping, the optimiser, the average, is the
same function of the same numbers on all workers.
"""

import math
import zlib
from collections.abc import Sequence
from contextlib import nullcontext
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from elman.config.sections import TrainingSettings
from elman.distributed.group import Group, rows_of
from elman.errors import WorkersError
from elman.tasks.base import AnyTask, Loss
from elman.tasks.buckets import Counts
from elman.tensors.checks import known_lengths
from elman.tensors.draws import Share, generator_digest, guarded, shared
from elman.tensors.nested import map_tensors, tensors_in
from elman.training.averaging import Averaging
from elman.training.numbers import stacked
from elman.training.optim import gradient_norm
from elman.training.precision import autocast
from elman.training.update import Batch, Carry, Computed, UpdateComputation

N = TypeVar("N")
GUARDED = 3  # updates of a session in which foreign random numbers are looked for


class Part(NamedTuple):
    """The rows of a batch that are computed here; ``idle``: none are, and one is computed for nothing."""

    batch: Batch
    share: Share
    idle: bool


class SharedUpdate(UpdateComputation):
    """``UpdateComputation`` of one worker of several; its batches are parts."""

    def __init__(
        self,
        task: AnyTask,
        model: nn.Module,
        optimizer: Optimizer,
        averaging: Averaging,
        settings: TrainingSettings,
        device: torch.device,
        examples: int,
        group: Group,
    ) -> None:
        super().__init__(task, model, optimizer, averaging, settings, device, examples)
        self.group, self.shared, self.rate = group, True, 0.0
        self.guarded = 0  # updates so far in which it was looked whether all draw alike
        self.last = 0.0  # the norm of the last gradient, where nobody has to wait for it

    def part(self, batch: Batch) -> Part:
        """The part of this worker in a whole batch."""
        if not hasattr(batch, "taken"):
            raise WorkersError(
                f"batches of {type(self.task).__name__} have no taken(rows), so workers cannot share them; "
                "train with one worker"
            )
        size = batch.size
        rows = rows_of(self.group.rank, self.group.size, size)
        idle = not len(rows)
        rows = rows if len(rows) else torch.zeros(1, dtype=torch.int64)
        lengths = None if self.bucketed else getattr(batch, "lengths", None)
        own = batch.taken(rows)
        return Part(own.bucketed() if self.bucketed else own, Share(rows, size, lengths), idle)

    def prepare(self, batches: Sequence[Batch], rate: float, progress: float) -> None:
        super().prepare([], rate, progress)
        self.rate = rate

    def gradients(self, batches: Sequence[Batch], carry: Carry) -> tuple[Computed, Tensor]:
        settings, losses, objectives = self.settings, list[Loss](), list[Tensor]()
        self.optimizer.zero_grad(set_to_none=True)
        shares = [part.share for part in batches]
        start = carry if carry is None else map_tensors(shares[0].taken, carry)
        for part in batches:
            loss = self._loss(part, start)
            start = loss.carry
            objectives.append(self._objective(loss, 1, alone=False))
            if not part.idle:
                self.scaler.scale(objectives[-1]).backward()
            losses.append(loss)
        self.guarded += 1
        idle = [part.idle for part in batches]
        kept = [
            [value.detach() * (not none) for value, none in zip(values, idle, strict=True)]
            for values in (objectives, [loss.total for loss in losses])
        ]
        counts = [
            Counts(0, 0, 0) if none else Counts(one.count, one.examples, one.tokens)
            for one, none in zip(losses, idle, strict=True)
        ]
        carried = start if start is None else map_tensors(lambda own: self._spread(own, batches[-1]), start)
        summed, counts = self._exchange([*kept[0], *kept[1]], counts, tensors_in(carried))
        total = sum(one.losses for one in counts) or 1
        if settings.reduction == "mean":
            gradients = [weight.grad for weight in self.weights if weight.grad is not None]
            torch._foreach_div_(gradients, total)
        self.scaler.unscale_(self.optimizer)
        norm = gradient_norm(self.weights)
        count = len(batches)
        objectives, totals = summed[:count], summed[count : 2 * count]
        if settings.reduction == "mean" and count == 1:
            objectives = [objectives[0] / total]
        numbers = stacked(objectives, totals, norm)
        if self.device.type == "cpu":
            self.last = float(norm)
        whole = iter(summed[2 * count :])
        carried = map_tensors(lambda own: next(whole).view(own.shape).to(own.dtype), carried)
        return Computed(numbers, carried, counts), norm

    def _loss(self, part: Part, carry: Carry) -> Loss:
        known = known_lengths() if self.bucketed else nullcontext()
        looking = guarded(self.device) if self.guarded < GUARDED else nullcontext()
        with shared(part.share), looking, known, autocast(self.settings.precision, self.device):
            return self.task.loss(self.model, part.batch, carry=carry, progress=self.progress)

    def _spread(self, own: Tensor, part: Part) -> Tensor:
        """A carried state of all rows, of which those of other workers are zero."""
        whole = own.new_zeros(part.share.of, *own.shape[1:])
        if len(own) != len(part.share.rows):
            raise WorkersError(
                f"the carried state has {len(own)} rows for {len(part.share.rows)} of the batch, so workers "
                "cannot share it; train with one worker"
            )
        if not part.idle:
            whole[part.share.rows.to(own.device)] = own
        return whole

    def _exchange(
        self, values: list[Tensor], counts: list[Counts], carried: list[Tensor]
    ) -> tuple[list[Tensor], list[Counts]]:
        """The sums of gradients, which stay with the weights, and of all else; the counts of all workers."""
        here = [weight.grad for weight in self.weights]
        shapes = [weight.shape for weight in self.weights] + [one.shape for one in (*values, *carried)]
        sizes = [math.prod(shape) for shape in shapes]
        sums = self.group.sums(sum(sizes), self.device)
        own = sums.own(sum(sizes))
        for place, tensor in zip(own.split(sizes), (*here, *values, *carried), strict=True):
            if tensor is None:
                place.zero_()
            else:
                place.copy_(tensor.reshape(-1))
        flat = [float(number) for one in counts for number in one]
        rows = self.group.meet([self._digest(), *flat, *(float(one is not None) for one in here)])
        if any(row[0] != rows[0][0] for row in rows):
            raise WorkersError(
                "the workers have come apart: they no longer have the same random numbers or weights; the "
                "last checkpoint is sound. Do all of them have the same code and the same kind of processor?"
            )
        total = sums.total(sum(sizes))
        added = [sum(column) for column in zip(*(row[1:] for row in rows), strict=True)]
        parts = total.clone().split(sizes)
        for weight, part, there in zip(self.weights, parts, added[len(flat) :], strict=False):
            weight.grad = part.view(weight.shape).to(weight.dtype) if there else None
        whole = [Counts(*map(int, added[k : k + 3])) for k in range(0, len(flat), 3)]
        rest = [part.view(shape) for part, shape in zip(parts, shapes, strict=True)][len(here) :]
        return rest, whole

    def _digest(self) -> float:
        """What must be alike on all workers before an update, as a number."""
        before = f"{self.rate} {self.progress} {self.last} {generator_digest(self.device)}"
        return float(zlib.crc32(before.encode()))


def refuse_workers(optimizer: object, *, counted: bool) -> None:
    """Raise where a training is one that workers cannot share."""
    if counted:
        raise WorkersError("a counted model is counted in one pass by one process; leave out --workers")
    if optimizer == "incremental":
        raise WorkersError(
            "training.optimizer is 'incremental', which changes the weights after every example, so there is "
            "nothing to share; leave out --workers, or choose another optimiser with a larger batch"
        )
