"""Optimisers, the schedules of their learning rate, the clipping of gradients, and their state as tensors."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim import SGD, Adam, AdamW, Optimizer

from elman.errors import ArgumentError, RunError
from elman.tensors.checks import check_choice, check_size

OPTIMIZERS = ("sgd", "adam", "adamw", "asgd", "incremental")
SCHEDULES = ("constant", "warmup", "cosine", "one-cycle", "plateau")
ONE_CYCLE_START = 1 / 25  # share of the learning rate at which one cycle begins


class OptimizerSettings(Protocol):
    """What an optimiser is made from."""

    @property
    def optimizer(self) -> str: ...
    @property
    def learning_rate(self) -> float: ...
    @property
    def momentum(self) -> float: ...
    @property
    def weight_decay(self) -> float: ...
    @property
    def betas(self) -> tuple[float, float]: ...


class ScheduleSettings(Protocol):
    """What a schedule is made from."""

    @property
    def schedule(self) -> str: ...
    @property
    def learning_rate(self) -> float: ...
    @property
    def warmup(self) -> float: ...
    @property
    def final_rate(self) -> float: ...
    @property
    def decay(self) -> float: ...
    @property
    def patience(self) -> int: ...


def make_optimizer(model: nn.Module, settings: OptimizerSettings) -> Optimizer:
    """The optimiser of all weights that want a gradient.

    With ``g`` the gradient, ``η`` the learning rate, ``μ`` the momentum and ``λ`` the weight decay,

    * ``incremental``: ``W ← W − η g`` and nothing else; momentum and decay of the settings do not count.
    * ``asgd``: ``W ← W − η (g + λ W)``, without momentum, to be averaged by ``Averaging("tail")``.
    * ``sgd``: ``v ← μ v + g + λ W``, ``W ← W − η v``.
    * ``adam``: Kingma and Ba (2015), with ``λ W`` added to the gradient.
    * ``adamw``: the same, but ``W ← W − η λ W`` beside the step (Loshchilov and Hutter, 2019).

    Decay acts on matrices only, never on biases and per-unit vectors. The fused kernels of torch
    take a third of the time of its plain Adam on a CPU, so they are asked for; on a GPU always.
    """
    kind = check_choice("optimizer", settings.optimizer, OPTIMIZERS)
    decay = 0.0 if kind == "incremental" else settings.weight_decay
    weights = [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]
    matrices = [(name, weight) for name, weight in weights if weight.dim() >= 2]
    vectors = [(name, weight) for name, weight in weights if weight.dim() < 2]
    if not weights:
        raise ArgumentError("the model has no weights that want a gradient; there is nothing to train")
    groups: list[dict[str, Any]] = [
        {"params": chosen, "weight_decay": strength}
        for chosen, strength in ((matrices, decay), (vectors, 0.0))
        if chosen
    ]
    rate = settings.learning_rate
    fused = all(weight.is_cuda for _, weight in weights)
    match kind:
        case "adam":
            return Adam(groups, lr=rate, betas=settings.betas, fused=True)
        case "adamw":
            return AdamW(groups, lr=rate, betas=settings.betas, fused=True)
        case "sgd":
            return _with_momentum(SGD(groups, lr=rate, momentum=settings.momentum, fused=fused))
        case _:
            return SGD(groups, lr=rate, fused=fused)


def set_rate(optimizer: Optimizer, rate: float) -> None:
    """The learning rate of the next update."""
    for group in optimizer.param_groups:
        group["lr"] = rate


class Schedule:
    """The learning rate of update ``u`` of ``U``, both counted from 1.

    With ``η`` the learning rate, ``w`` the updates of the warm-up (``warmup · U``), ``e`` the final
    share and ``c(a, b, p) = b + (a − b) (1 + cos πp) / 2`` the half cosine from a to b,

    * ``constant``: ``η``
    * ``warmup``: ``η min(1, u / w)``
    * ``cosine``: ``η u / w`` up to ``w``, then ``η c(1, e, (u − w) / (U − w))``
    * ``one-cycle``: ``η c(1/25, 1, u / w)`` up to ``w``, then as ``cosine`` (Smith, 2018)
    * ``plateau``: ``η dᵏ`` where ``k`` counts how often more than ``patience`` validations in a row
      brought no lower loss, and ``d`` is ``decay``

    Only ``plateau`` remembers anything; its state fits into JSON.

    >>> from types import SimpleNamespace
    >>> settings = SimpleNamespace(
    ...     schedule="cosine", learning_rate=2.0, warmup=0.5, final_rate=0.0, decay=0.5, patience=0)
    >>> [round(Schedule(settings).rate(update, 8), 3) for update in range(1, 9)]
    [0.5, 1.0, 1.5, 2.0, 1.707, 1.0, 0.293, 0.0]
    """

    def __init__(self, settings: ScheduleSettings) -> None:
        self.kind = check_choice("schedule", settings.schedule, SCHEDULES)
        self.settings = settings
        self.cuts = 0
        self.waited = 0
        self.best: float | None = None

    def rate(self, update: int, total: int) -> float:
        """The learning rate of this update; beyond ``total`` that of the last."""
        check_size("update", update)
        check_size("total", total)
        return self.settings.learning_rate * self._share(min(update, total), total)

    def note(self, loss: float) -> bool:
        """After a validation: is the rate cut because the loss stopped falling? Only ``plateau`` does."""
        if self.kind != "plateau":
            return False
        if loss < (math.inf if self.best is None else self.best):
            self.best, self.waited = loss, 0
            return False
        self.waited += 1
        if self.waited <= self.settings.patience:
            return False
        self.cuts, self.waited = self.cuts + 1, 0
        return True

    def state_dict(self) -> dict[str, Any]:
        return {"cuts": self.cuts, "waited": self.waited, "best": self.best}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.cuts, self.waited, self.best = state["cuts"], state["waited"], state["best"]

    def _share(self, update: int, total: int) -> float:
        warmup = round(self.settings.warmup * total)
        match self.kind:
            case "constant":
                return 1.0
            case "plateau":
                return float(self.settings.decay**self.cuts)
        if update <= warmup:
            rise = update / warmup
            return _half_cosine(ONE_CYCLE_START, 1.0, rise) if self.kind == "one-cycle" else rise
        if self.kind == "warmup":
            return 1.0
        return _half_cosine(1.0, self.settings.final_rate, (update - warmup) / (total - warmup))


def gradient_norm(weights: Sequence[Tensor]) -> Tensor:
    """The norm of all gradients as one vector, on their device."""
    return get_total_norm([weight.grad for weight in weights if weight.grad is not None])


def clip_gradients(weights: Sequence[Tensor], norm: Tensor, limit: float) -> None:
    """``g ← g · min(1, limit / ‖g‖)``, where the gradients are and without waiting for them."""
    if not limit > 0:
        raise ArgumentError(f"limit is {limit!r}; it must be a positive number")
    clip_grads_with_norm_([weight for weight in weights if weight.grad is not None], limit, norm)


@contextmanager
def skipping(optimizer: Optimizer, broken: Tensor) -> Iterator[None]:
    """Inside, a step changes nothing where ``broken`` is 1; that is decided on the device, by a fused kernel.

    Nobody has to know beforehand: this is how ``torch.amp.GradScaler`` leaves steps out.
    """
    optimizer.found_inf = broken  # type: ignore[attr-defined]
    try:
        yield
    finally:
        del optimizer.found_inf  # type: ignore[attr-defined]


def optimizer_tensors(optimizer: Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The state of an optimiser as named tensors and as what fits into JSON; nothing is copied."""
    saved = optimizer.state_dict()
    entries = {
        f"{place}.{key}": value for place, values in saved["state"].items() for key, value in values.items()
    }
    tensors = {name: value for name, value in entries.items() if isinstance(value, Tensor)}
    values = {name: value for name, value in entries.items() if not isinstance(value, Tensor)}
    return tensors, {"groups": saved["param_groups"], "values": values}


def load_optimizer_tensors(
    optimizer: Optimizer, tensors: Mapping[str, Tensor], state: Mapping[str, Any]
) -> None:
    """Back to exactly where ``optimizer_tensors`` was called; the optimiser must have the same weights."""
    groups = [{key: _tupled(value) for key, value in group.items()} for group in state["groups"]]
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    if [_names(group) for group in groups] != [_names(group) for group in optimizer.param_groups]:
        raise RunError("the optimiser was saved for other weights than those of this model")
    places: dict[int, dict[str, Any]] = {}
    for name, value in {**tensors, **state["values"]}.items():
        place, _, key = name.partition(".")
        if isinstance(value, Tensor) and value.dim() and value.shape != weights[int(place)].shape:
            raise RunError(
                f"the optimiser's {name!r} has shape {tuple(value.shape)}, "
                f"its weight {tuple(weights[int(place)].shape)}"
            )
        # A copy: torch keeps a tensor that already fits, and an update would change the caller's.
        places.setdefault(int(place), {})[key] = value.clone() if isinstance(value, Tensor) else value
    for group, own in zip(groups, optimizer.param_groups, strict=True):
        if "fused" in own:  # belongs to the device, not to the run
            group["fused"] = own["fused"]
    optimizer.load_state_dict({"state": places, "param_groups": groups})
    _with_momentum(optimizer)


def _with_momentum(optimizer: Optimizer) -> Optimizer:
    """The momentum of every weight begins at zero where a fused kernel computes it.

    It would leave that of a first update which is skipped as memory was, and wants that of all or none.
    """
    for group in optimizer.param_groups:
        if group.get("fused") and group.get("momentum"):
            for weight in group["params"]:
                optimizer.state[weight].setdefault("momentum_buffer", torch.zeros_like(weight))
    return optimizer


def _names(group: Mapping[str, Any]) -> list[str]:
    """The names of a group's weights, or as many places where it was made without names."""
    return list(group.get("param_names", map(str, range(len(group["params"])))))


def _tupled(value: Any) -> Any:
    """JSON has no tuples; ``betas`` is one, ``params`` and ``param_names`` stay lists."""
    if isinstance(value, list) and all(isinstance(item, float) for item in value):
        return tuple(value)
    return value


def _half_cosine(start: float, end: float, progress: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * progress)) / 2
