"""What no export can take along, refused by its name before anything is written."""

from __future__ import annotations

from elman.cells.base import Cell
from elman.config import part_names
from elman.errors import ExportError
from elman.predictor import Predictor

CELLS = (".cell",)  # settings that may name a user's code: its equations are read, its code is left behind


def check_exportable(predictor: Predictor) -> None:
    """Raise for a part of a model that exists as Python code alone."""
    if predictor.partners:
        raise ExportError("an ensemble is several models; export its runs one by one")
    for key, name in part_names(predictor.config):
        if ":" in name and not f".{key}".endswith(CELLS):
            raise ExportError(f"{key} is {name!r}, code of your own in Python, which no export takes along")
    for module in predictor.model.modules():
        if isinstance(module, Cell) and module.equations is None:
            raise ExportError(
                f"{type(module).__name__} is a free-form cell: its step is Python code, not equations; "
                "write it as R(self, x, h, s)"
            )
