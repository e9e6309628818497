"""What an update computes on the device, as one function of its batches: it can be run, or recorded."""

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from elman.config.sections import TrainingSettings
from elman.tasks.base import AnyTask, Loss
from elman.tasks.buckets import Counts
from elman.tensors.checks import known_lengths
from elman.tensors.nested import map_tensors
from elman.tensors.transfer import fill, moved
from elman.training.averaging import Averaging
from elman.training.numbers import broken, stacked
from elman.training.optim import at_rate, clip_gradients, gradient_norm, reads_rate_on_device, skipping
from elman.training.precision import autocast

Batch: TypeAlias = Any  # of a task
Carry: TypeAlias = Any  # the state that the next batch starts from, or None


class Computed(NamedTuple):
    """What an update leaves on the device, its numbers and the carry; and what its batches had."""

    numbers: Tensor  # as ``numbers.stacked`` puts them together
    carry: Carry
    counts: Sequence[Counts]


class DeviceScalars:
    """The numbers that differ from one update to the next, where kernels read them.

    rate: of learning. share: of the new weights in an average. counts: of the losses of each batch; total: of
    all. On a GPU every update reads them there, recorded or not: so both round alike.
    """

    def __init__(self, batches: int, device: torch.device) -> None:
        self.values = torch.ones(3 + batches, device=device)
        self.rate, self.share, self.total, *self.counts = self.values.unbind()

    def fill(self, rate: float, share: float, counts: Sequence[int]) -> None:
        unused = [1.0] * (len(self.counts) - len(counts))
        fill(self.values, torch.tensor([rate, share, sum(counts) or 1.0, *counts, *unused]))


class UpdateComputation:
    """Forward, backward, clipping, optimiser and average of an update.

    On a GPU its batches come in shapes that come again, where the task has such (``bucketed``); with them
    ``compute`` neither waits for the device nor decides by what is there.
    """

    def __init__(
        self,
        task: AnyTask,
        model: nn.Module,
        optimizer: Optimizer,
        averaging: Averaging,
        settings: TrainingSettings,
        device: torch.device,
        examples: int,
    ) -> None:
        self.task, self.model, self.optimizer, self.averaging = task, model, optimizer, averaging
        self.settings, self.device, self.examples = settings, device, examples
        self.weights = list(model.parameters())
        self.scaler = torch.amp.GradScaler(device.type, enabled=settings.precision == "float16")
        self.progress = 0.0  # share of all updates that is done
        self.shared = False  # with other workers
        on_a_gpu = device.type == "cuda"
        self.scalars = DeviceScalars(settings.accumulate, device) if on_a_gpu else None
        self.bucketed = on_a_gpu and task.buckets
        self.rate_there = reads_rate_on_device(optimizer)

    def prepare(self, batches: Sequence[Batch], rate: float, progress: float) -> None:
        """Say what differs from the update before, besides the batches."""
        self.progress = progress
        if self.scalars is not None:
            counts = [batch.counts.losses for batch in batches] if self.bucketed else []
            self.scalars.fill(rate, self.averaging.share, counts)

    def moved(self, batches: Sequence[Batch]) -> list[Batch]:
        """Batches on the device; such as are not bucketed are there already."""
        if not self.bucketed:
            return list(batches)
        return [map_tensors(partial(moved, device=self.device), batch) for batch in batches]

    def compute(self, batches: Sequence[Batch], carry: Carry) -> Computed:
        """A whole update; where its numbers are not finite, no weight changes."""
        found, norm = self.gradients(batches, carry)
        if self.settings.clip:
            clip_gradients(self.weights, norm, self.settings.clip)
        guarded = not self.scaler.is_enabled()  # a scaler skips by itself
        with skipping(self.optimizer, broken(found.numbers)) if guarded else nullcontext():
            self.descend()
        return found

    def gradients(self, batches: Sequence[Batch], carry: Carry) -> tuple[Computed, Tensor]:
        """Losses and gradients; and the norm of these by itself."""
        settings, on_device = self.settings, self.scalars if self.bucketed else None
        losses: list[Loss] = []
        objectives: list[Tensor] = []
        self.optimizer.zero_grad(set_to_none=True)
        for place, batch in enumerate(batches):
            known = known_lengths() if self.bucketed else nullcontext()
            with known, autocast(settings.precision, self.device):
                loss = self.task.loss(self.model, batch, carry=carry, progress=self.progress)
            carry = loss.carry
            count = loss.count if on_device is None else on_device.counts[place]
            objectives.append(self._objective(loss, count, alone=len(batches) == 1))
            self.scaler.scale(objectives[-1]).backward()
            losses.append(loss)
        self.scaler.unscale_(self.optimizer)
        if len(losses) > 1 and settings.reduction == "mean":
            gradients = [weight.grad for weight in self.weights if weight.grad is not None]
            total = sum(loss.count for loss in losses) if on_device is None else on_device.total
            torch._foreach_div_(gradients, total)
        norm = gradient_norm(self.weights)
        numbers = stacked(objectives, [loss.total for loss in losses], norm)
        return Computed(numbers, carry, [Counts(one.count, one.examples, one.tokens) for one in losses]), norm

    def descend(self) -> None:
        """One step of the optimiser, and of the average."""
        scalars = self.scalars
        with at_rate(self.optimizer, scalars.rate if scalars is not None and self.rate_there else None):
            self.scaler.step(self.optimizer)
        self.scaler.update()
        self.averaging.take(self.model, None if scalars is None else scalars.share)

    def _objective(self, loss: Loss, count: int | Tensor, *, alone: bool) -> Tensor:
        """``Σ l(δ) + (λ/n) R(w)`` of every example, over the number of losses where the mean is asked."""
        total, settings = loss.total, self.settings
        if loss.regularisation is not None:
            total = total + loss.regularisation
        if settings.regulariser != "none" and settings.regularisation:
            size = loss.examples * settings.regularisation / self.examples
            total = total + size * penalty(self.model, settings.regulariser)
        return total / count if settings.reduction == "mean" and alone else total


def penalty(model: nn.Module, kind: str) -> Tensor:
    """``R(w)``: Σ|w| or ½ Σw² over all weights."""
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    parts = [weight.abs().sum() if kind == "l1" else weight.square().sum() / 2 for weight in weights]
    return torch.stack(parts).sum()
