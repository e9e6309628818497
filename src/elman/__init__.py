"""Elman: write a recurrent cell as its equations; use it everywhere, at kernel speed.

>>> import elman, torch
>>> rnn = elman.RNN("lstm", 8, 16, layers=2, bidirectional=True)
>>> outputs, last, state = rnn(torch.randn(3, 5, 8), lengths=torch.tensor([5, 2, 4]))
>>> outputs.shape, last.shape
(torch.Size([3, 5, 32]), torch.Size([3, 32]))
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elman.cells.base import Cell
    from elman.layers.rnn import RNN
    from elman.predictor import load
    from elman.registry import register

__version__ = "0.1.0"
__all__ = ["RNN", "Cell", "__version__", "load", "register"]

_HOMES = {
    "Cell": "elman.cells.base",
    "RNN": "elman.layers.rnn",
    "load": "elman.predictor",
    "register": "elman.registry",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for, so that ``import elman`` costs nothing."""
    import importlib

    if name not in _HOMES:
        raise AttributeError(f"module 'elman' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
