"""Random states, and carried states of any nesting, as tensors that a checkpoint can hold."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


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
