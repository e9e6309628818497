"""Elman: write a recurrent cell as its equations; use it everywhere, at kernel speed.

>>> import elman, torch
>>> rnn = elman.RNN("lstm", 8, 16, layers=2, bidirectional=True)
>>> outputs, last, state = rnn(torch.randn(3, 5, 8), lengths=torch.tensor([5, 2, 4]))
>>> outputs.shape, last.shape
(torch.Size([3, 5, 32]), torch.Size([3, 32]))
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elman.attention.base import Attention as Attention
    from elman.cells.base import Cell as Cell
    from elman.decoding.base import Choice as Choice
    from elman.decoding.base import Strategy as Strategy
    from elman.fitting import fit as fit
    from elman.layers.rnn import RNN as RNN
    from elman.metrics.base import Metric as Metric
    from elman.models.networks.base import Network as Network
    from elman.models.poolings.base import Pooling as Pooling
    from elman.predictor import Predictor as Predictor
    from elman.predictor import load as load
    from elman.recurrence.contract import Unrolled as Unrolled
    from elman.recurrence.functions import norm as norm
    from elman.recurrence.functions import rms as rms
    from elman.registry import register as register
    from elman.tasks.base import Task as Task
    from elman.tasks.predictions import Prediction as Prediction
    from elman.text.readers.base import Reader as Reader
    from elman.text.records import Record as Record
    from elman.text.units.base import Unit as Unit
    from elman.training.schedules.base import Schedule as Schedule

__version__ = "0.1.0"
_HOMES = {
    "Attention": "elman.attention.base",
    "Cell": "elman.cells.base",
    "Choice": "elman.decoding.base",
    "Metric": "elman.metrics.base",
    "Network": "elman.models.networks.base",
    "Pooling": "elman.models.poolings.base",
    "Prediction": "elman.tasks.predictions",
    "Predictor": "elman.predictor",
    "RNN": "elman.layers.rnn",
    "Reader": "elman.text.readers.base",
    "Record": "elman.text.records",
    "Schedule": "elman.training.schedules.base",
    "Strategy": "elman.decoding.base",
    "Task": "elman.tasks.base",
    "Unit": "elman.text.units.base",
    "Unrolled": "elman.recurrence.contract",
    "fit": "elman.fitting",
    "load": "elman.predictor",
    "norm": "elman.recurrence.functions",
    "register": "elman.registry",
    "rms": "elman.recurrence.functions",
}
__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for, so that ``import elman`` costs nothing."""
    import importlib

    if name not in _HOMES:
        raise AttributeError(f"module 'elman' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
