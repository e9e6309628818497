"""Between the host's memory and a device."""

import torch
from torch import Tensor

from elman.errors import ConfigError

DEVICES = ("cpu", "cuda")


def find_device(name: str, said: str = "device") -> torch.device:
    """The device of this name; one that is not there is a mistake in what is ``said`` to be it."""
    try:
        device = torch.device(name)
        known = device.type in DEVICES
    except RuntimeError:
        known = False
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not known:
        here = DEVICES if found else DEVICES[:1]
        raise ConfigError(f"{said} is {name!r}; set {' or '.join(map(repr, here))}")
    if device.type == "cuda" and (device.index or 0) >= found:
        there = f"torch finds {found or 'no'} CUDA device{'s' * (found > 1)}"
        remedy = f"set {said} = {'cuda' if found else 'cpu'!r}"
        kept = " (a run that is continued: in its config.toml, without its first line)" if "." in said else ""
        raise ConfigError(f"{said} is {name!r}, but {there}; {remedy}{kept}")
    return device


def moved(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on the device; a GPU fetches it from pinned memory when it gets there, and nobody waits."""
    if device.type == "cuda" and tensor.is_cpu and tensor.numel():
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def fetched(*tensors: Tensor) -> list[Tensor]:
    """The tensors in the host's memory; from a device they come together, so that it is waited for once.

    Whole numbers travel as float64, which holds those up to 2^53.

    >>> [tensor.dtype for tensor in fetched(torch.tensor([1, 2]), torch.tensor([0.5]))]
    [torch.int64, torch.float32]
    """
    if all(tensor.is_cpu for tensor in tensors):
        return list(tensors)
    if len(tensors) == 1:
        return [tensors[0].cpu()]
    together = torch.cat([tensor.flatten().double() for tensor in tensors]).cpu()
    parts = together.split([tensor.numel() for tensor in tensors])
    return [part.to(tensor.dtype).view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]


def fill(place: Tensor, tensor: Tensor) -> None:
    """Copy a tensor to a place on a device; from the host by pinned memory, and nobody waits."""
    if place.is_cuda and tensor.is_cpu:
        tensor = tensor.pin_memory()
    place.copy_(tensor, non_blocking=True)
