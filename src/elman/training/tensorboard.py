"""The figures of a training for TensorBoard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from elman.errors import ArgumentError
from elman.training.progress import figures

TRAINING = ("loss", "rate", "gradient_norm")


class TensorBoard:
    """An observer that writes every scalar into ``folder``, training and validation apart."""

    def __init__(self, folder: str | Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise ArgumentError(
                "TensorBoard is asked for, but its package is missing; pip install elman[track]"
            ) from None
        self.folder = Path(folder)
        self._make_writer: Any = SummaryWriter
        self._writer: Any = None

    def __call__(self, event: dict[str, Any]) -> None:
        if self._writer is None:  # an interrupted run may have left points beyond where it goes on
            resumed = event.get("resumed_at")
            purge = None if resumed is None else resumed + 1
            self._writer = self._make_writer(log_dir=str(self.folder), purge_step=purge)
        match event["event"]:
            case "update":
                values = {name: event[name] for name in TRAINING}
                speed = event["time"]["tokens_per_second"]
                self._write("training", values | {"tokens_per_second": speed}, event["update"])
            case "validation":
                self._write("validation", figures(event), event["update"])
                self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _write(self, group: str, values: dict[str, float], update: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(f"{group}/{name}", value, update)
