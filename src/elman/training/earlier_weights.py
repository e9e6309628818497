"""Weights that cells of earlier versions had side by side in one tensor, and what optimisers keep of them."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from elman.cells.base import Cell


def parted(model: nn.Module, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors by the names of weights, those that an earlier version had side by side one by one."""
    found = dict(tensors)
    for name, module in model.named_modules():
        if isinstance(module, Cell):
            module.part_earlier(found, f"{name}.")
    return found


def parted_optimizer(
    model: nn.Module,
    weights: Mapping[str, Tensor],
    optimizer: Optimizer,
    tensors: Mapping[str, Tensor],
    state: Mapping[str, Any],
) -> tuple[Mapping[str, Tensor], Mapping[str, Any]]:
    """The same for what ``optimizer_tensors`` gave for an optimiser of these weights."""
    origins = _origins(model, weights)
    if not origins:
        return tensors, state
    names = {
        place: name
        for group in state["groups"]
        for place, name in zip(group["params"], group["param_names"], strict=True)
    }
    kept: dict[str, dict[str, Any]] = {}  # by what it is, as a momentum, and whose
    for entry, value in {**tensors, **state["values"]}.items():
        place, _, key = entry.partition(".")
        kept.setdefault(key, {})[names[int(place)]] = value
    order = [name for group in optimizer.param_groups for name in group["param_names"]]
    found: dict[str, Any] = {}
    for key, values in kept.items():
        large = {n: v for n, v in values.items() if isinstance(v, Tensor) and v.dim()}
        small = {n: v for n, v in values.items() if n not in large}  # a count of updates, say
        small |= {new: small[old] for new, old in origins.items() if old in small}
        each = {**small, **parted(model, large)}
        found |= {f"{place}.{key}": each[name] for place, name in enumerate(order) if name in each}
    groups = []
    for group, own in zip(state["groups"], optimizer.param_groups, strict=True):
        places = [order.index(name) for name in own["param_names"]]
        groups.append({**group, "params": places, "param_names": own["param_names"]})
    others = {name: value for name, value in found.items() if not isinstance(value, Tensor)}
    parts = {name: value for name, value in found.items() if isinstance(value, Tensor)}
    return parts, {**state, "groups": groups, "values": others}


def _origins(model: nn.Module, weights: Mapping[str, Tensor]) -> dict[str, str]:
    """The names of all weights that are parts of one of these, with its name."""
    found: dict[str, str] = {}
    for name, module in model.named_modules():
        for old, parts in module.earlier.items() if isinstance(module, Cell) else ():
            whole = f"{name}.{old}"
            if whole in weights and weights[whole].shape[-1] == len(parts) * module.hidden_size:
                found |= {f"{name}.{part}": whole for part in parts}
    return found
