"""The precision of matrix products in training: float32, TF32, or half precision by autocast."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

HALF = ("bfloat16", "float16")


def autocast(precision: str, device: torch.device) -> AbstractContextManager[Any]:
    """Inside, products are of half precision where that is asked; weights stay float32."""
    return torch.autocast(device.type, getattr(torch, precision)) if precision in HALF else nullcontext()


@contextmanager
def products(precision: str) -> Iterator[None]:
    """Inside, CUDA rounds the factors of float32 products to 10 bits where ``"tf32"`` is asked.

    Otherwise the switches of torch stay as they are: off, unless somebody turned them on.

    >>> with products("tf32"):
    ...     torch.backends.cuda.matmul.allow_tf32
    True
    >>> torch.backends.cuda.matmul.allow_tf32
    False
    """
    if precision != "tf32":
        yield
        return
    switches: tuple[Any, ...] = torch.backends.cuda.matmul, torch.backends.cudnn
    before = [switch.allow_tf32 for switch in switches]
    try:
        for switch in switches:
            switch.allow_tf32 = True
        yield
    finally:
        for switch, value in zip(switches, before, strict=True):
            switch.allow_tf32 = value
