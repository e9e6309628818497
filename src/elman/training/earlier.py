"""The words of earlier versions in the settings of a run."""

from typing import Any


def renamed(tables: dict[str, Any]) -> dict[str, Any]:
    """The tables of a run with the words of this version."""
    model, data = tables.get("model"), tables.get("data")
    if isinstance(data, dict) and data.get("format") == "text":
        tables = tables | {"data": data | {"format": "lines"}}
    if not isinstance(model, dict) or not isinstance(model.get("encoder"), str):
        return tables
    return tables | {"model": {"network" if key == "encoder" else key: value for key, value in model.items()}}
