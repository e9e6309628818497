"""The precision of matrix products in training: float32, TF32, or half precision by autocast."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

HALF = ("bfloat16", "float16")
PRECISIONS = ("float32", "tf32", *HALF)


def usable_precisions() -> list[str]:
    """Those that this machine has: TF32 is CUDA's."""
    return [name for name in PRECISIONS if name != "tf32" or torch.cuda.is_available()]


def autocast(precision: str | None, device: torch.device) -> AbstractContextManager[Any]:
    """Inside, products are of half precision where that is asked; weights stay float32."""
    if precision not in HALF:
        return nullcontext()
    return torch.autocast(device.type, {"bfloat16": torch.bfloat16, "float16": torch.float16}[precision])


@contextmanager
def products(precision: str | None) -> Iterator[None]:
    """Inside, CUDA rounds the factors of float32 products to 10 bits where ``"tf32"`` is asked.

    Otherwise the switches of torch stay as they are: off, unless somebody turned them on.

    >>> with products("tf32"):
    ...     torch.backends.cuda.matmul.fp32_precision
    'tf32'
    """
    if precision != "tf32":
        yield
        return
    switch: Any = torch.backends.cuda.matmul
    before = switch.fp32_precision
    try:
        switch.fp32_precision = "tf32"
        yield
    finally:
        switch.fp32_precision = before
