"""Averages of the weights over updates, which often score better than the last weights."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from elman.errors import RunError
from elman.tensors.checks import check_choice, check_rate

KINDS = ("none", "ema", "tail")


class Averaging:
    """An average ``a`` of the weights ``w``, fed after each update.

    * ``none``: no average; the weights themselves are used.
    * ``ema``: ``a ← d a + (1 − d) w`` with ``d = min(decay, (1 + n) / (10 + n))`` after ``n`` updates, so
      that the average forgets the first weights quickly; it begins as the first weights it sees.
    * ``tail``: ``a ← a + (w − a) / n``, the mean of the ``n`` weights since ``start()`` was called: when
      validation stops improving (NT-ASGD, Merity et al. 2018) or from a share of all updates on
      (Polyak and Juditsky, 1992). Before that the weights themselves are used.

    Buffers are not averaged. Averages of half-precision weights are kept in float32.

    >>> model, averaging = nn.Linear(1, 1, bias=False), Averaging("tail")
    >>> averaging.start()
    >>> for value in (1.0, 2.0, 6.0):
    ...     _ = nn.init.constant_(model.weight, value)
    ...     averaging.update(model)
    >>> with averaging.applied(model):
    ...     model.weight.item()
    3.0
    >>> model.weight.item()
    6.0
    """

    def __init__(self, kind: str, *, decay: float = 0.999) -> None:
        self.kind = check_choice("averaging", kind, KINDS)
        self.decay = check_rate("decay", decay)
        self.started = kind == "ema"
        self.count = 0  # how many weights are in the average
        self._average: dict[str, Tensor] = {}

    def start(self) -> None:
        """Let the tail begin with the next update; it begins only once, and other kinds need no start."""
        self.started = self.started or self.kind == "tail"

    def update(self, model: nn.Module) -> None:
        """Take the weights as they are after an update into the average."""
        self.take(model)
        self.advance()

    @torch.no_grad()
    def take(self, model: nn.Module, share: Tensor | None = None) -> None:
        """The same, but for the counting; the share may be a number on the device of the weights."""
        if not self.started:
            return
        weights = dict(model.named_parameters())
        if self.count == 0:
            self._average = {name: _copied(weight) for name, weight in weights.items()}
            return
        averages = list(self._average.values())
        news = [weights[name].to(average.dtype) for name, average in self._average.items()]
        if share is None:
            torch._foreach_lerp_(averages, news, self.share)
            return
        torch._foreach_sub_(averages, news)  # a ← (a − w) (1 − s) + w: torch has no lerp by such a number
        torch._foreach_mul_(averages, 1 - share)
        torch._foreach_add_(averages, news)

    def advance(self) -> None:
        """Count the weights that were taken."""
        self.count += self.started

    @property
    def phase(self) -> str:
        """What taking weights does: nothing, make an average of the first, or go on with it."""
        return "none" if not self.started else "first" if self.count == 0 else "next"

    @contextmanager
    def applied(self, model: nn.Module) -> Iterator[None]:
        """Inside, the model has the averaged weights; afterwards its own again, bit for bit."""
        weights = dict(model.named_parameters())
        own = {name: weights[name].detach().clone() for name in self._average}
        _copy_into(weights, self._average)
        try:
            yield
        finally:
            _copy_into(weights, own)

    def tensors(self) -> dict[str, Tensor]:
        """The averages by the names of their weights; empty where there are none yet."""
        return dict(self._average)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint needs beside the tensors; it fits into JSON."""
        return {"kind": self.kind, "started": self.started, "count": self.count}

    def load_tensors(self, model: nn.Module, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Continue exactly where ``tensors()`` and ``state_dict()`` were taken, on the model's device."""
        if state["kind"] != self.kind:
            raise RunError(f"the checkpoint has averaging {state['kind']!r}, the settings say {self.kind!r}")
        weights = dict(model.named_parameters()) if state["count"] else {}
        shapes = {name: tuple(weight.shape) for name, weight in weights.items()}
        found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        for name in sorted({*shapes, *found}):
            if shapes.get(name) != found.get(name):
                raise RunError(
                    f"the average of {name!r} has shape {found.get(name)}, its weight {shapes.get(name)}; "
                    "the checkpoint belongs to another model"
                )
        self.started, self.count = state["started"], state["count"]
        self._average = {name: tensors[name].to(weight.device, copy=True) for name, weight in weights.items()}

    @property
    def share(self) -> float:
        """Of the next weights in the average."""
        if self.kind == "tail":
            return 1 / (self.count + 1)
        return 1 - min(self.decay, (1 + self.count) / (10 + self.count))


def _copied(weight: Tensor) -> Tensor:
    return weight.detach().to(torch.promote_types(weight.dtype, torch.float32), copy=True)


@torch.no_grad()
def _copy_into(weights: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    for name, value in values.items():
        weights[name].copy_(value)
