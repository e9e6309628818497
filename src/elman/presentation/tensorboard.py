"""The measures of a training for TensorBoard."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from elman.errors import ArgumentError
from elman.presentation.events import Event, measures

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

TRAINING = ("loss", "rate", "gradient_norm")


class TensorBoard:
    """An observer that writes every scalar into ``folder``, training and validation apart."""

    def __init__(self, folder: str | Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            problem = "TensorBoard is asked for, but its package is missing"
            raise ArgumentError(f"{problem}; pip install elman[track]") from None
        self.folder = Path(folder)
        self._make_writer = SummaryWriter
        self._writer: SummaryWriter | None = None

    def __call__(self, event: Event) -> None:
        if self._writer is None:  # an interrupted run may have left points beyond where it goes on
            purge = event["resumed_at"] + 1 if event.get("resumed_at") is not None else None
            self._writer = self._make_writer(log_dir=str(self.folder), purge_step=purge)
        values: dict[str, float] = {}
        if event["event"] == "update":
            values = {f"training/{name}": event[name] for name in TRAINING}
            values["training/tokens_per_second"] = event["time"]["tokens_per_second"]
        elif event["event"] == "validation":
            values = {f"validation/{name}": value for name, value in measures(event).items()}
        for name, value in values.items():
            self._writer.add_scalar(name, value, event["update"])
        if event["event"] == "validation":
            self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
