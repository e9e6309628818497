"""Making an optimiser, clipping gradients, and the state of an optimiser as tensors."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim import SGD, Adam, AdamW, Optimizer

from elman.errors import ArgumentError, RunError
from elman.registry import OPTIMIZERS, construct, parameters_of

Betas = tuple[float, float]
Groups = list[dict[str, Any]]  # of weights, each with settings of its own, as torch's optimisers take them


def make_optimizer(
    model: nn.Module, name: str, learning_rate: float, options: Mapping[str, Any] | None = None
) -> Optimizer:
    """The optimiser of all weights that want a gradient: ours by its name, or any class of torch's kind.

    Weight decay acts on matrices only, never on biases and per-unit vectors.
    """
    kind, given = OPTIMIZERS.find(name), dict(options or {})
    known = parameters_of(kind)
    if "lr" not in known:
        raise ArgumentError(f"{kind.__name__} takes no lr; an optimiser is made from groups and a rate")
    decay = (given.pop("weight_decay", known["weight_decay"]) if "weight_decay" in known else None) or 0.0
    weights = [(label, weight) for label, weight in model.named_parameters() if weight.requires_grad]
    matrices = [(label, weight) for label, weight in weights if weight.dim() >= 2]
    vectors = [(label, weight) for label, weight in weights if weight.dim() < 2]
    if not weights:
        raise ArgumentError("the model has no weights that want a gradient; there is nothing to train")
    groups: Groups = [
        {"params": chosen, "weight_decay": strength}
        for chosen, strength in ((matrices, decay), (vectors, 0.0))
        if chosen
    ]
    made: Optimizer = construct(
        kind, groups, options={"lr": learning_rate, **given}, named="training.optimizer_options"
    )
    return made


def on_a_gpu(groups: Groups) -> bool:
    return all(weight.is_cuda for group in groups for _, weight in group["params"])


def set_rate(optimizer: Optimizer, rate: float) -> None:
    """The learning rate of the next update."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def reads_rate_on_device(optimizer: Optimizer) -> bool:
    """Whether its step is a fused kernel of torch on a GPU, which takes the rate as a number there."""
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    known = type(optimizer).__module__.startswith(("elman.training.optimizers.", "torch.optim."))
    fused = all(group.get("fused") for group in optimizer.param_groups)
    return known and fused and isinstance(optimizer, (Adam, AdamW, SGD)) and all(w.is_cuda for w in weights)


@contextmanager
def at_rate(optimizer: Optimizer, rate: Tensor | None) -> Iterator[None]:
    """Inside, a step reads the learning rate from the device, where there is one; it stays a float in groups.

    So one that is recorded goes by the rate of the moment, and one that is not rounds it alike.
    """
    before = [group["lr"] for group in optimizer.param_groups]
    try:
        for group in optimizer.param_groups if rate is not None else ():
            group["lr"] = rate
        yield
    finally:
        for group, own in zip(optimizer.param_groups, before, strict=True):
            group["lr"] = own


@contextmanager
def capturable(optimizer: Optimizer) -> Iterator[None]:
    """Inside, torch lets a step be recorded; fused ones compute the same either way."""
    groups = [group for group in optimizer.param_groups if "capturable" in group]
    before = [group["capturable"] for group in groups]
    try:
        for group in groups:
            group["capturable"] = True
        yield
    finally:
        for group, own in zip(groups, before, strict=True):
            group["capturable"] = own


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
    begin_momentum(optimizer)


def begin_momentum(optimizer: Optimizer) -> None:
    """The momentum of every weight begins at zero where a fused kernel computes it.

    It would leave that of a first update which is skipped as memory was, and wants that of all or none.
    """
    for group in optimizer.param_groups:
        if group.get("fused") and group.get("momentum"):
            for weight in group["params"]:
                optimizer.state[weight].setdefault("momentum_buffer", torch.zeros_like(weight))


def _names(group: Mapping[str, Any]) -> list[str]:
    """The names of a group's weights, or as many places where it was made without names."""
    return list(group.get("param_names", map(str, range(len(group["params"])))))


def _tupled(value: Any) -> Any:
    """JSON has no tuples; ``betas`` is one, ``params`` and ``param_names`` stay lists."""
    if isinstance(value, list) and all(isinstance(item, float) for item in value):
        return tuple(value)
    return value
