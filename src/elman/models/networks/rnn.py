"""A recurrent network: any cell, stacked, in one direction or in both."""

from collections.abc import Mapping, Sequence
from typing import Any

from elman.config import RecurrentSettings
from elman.layers.rnn import RNN
from elman.models.networks.base import Network


class Recurrent(RNN, Network):
    """``RNN`` with the cell among its options."""

    stacked = True
    reads_forward = True  # in one direction, which is all that those have who ask

    def __init__(
        self,
        input_size: int,
        hidden: int | Sequence[int],
        *,
        cell: str = "lstm",
        cell_options: Mapping[str, Any] | None = None,
        layers: int | None = None,
        bidirectional: bool = False,
        dropout: float = 0.0,
        layer_dropout: float | None = None,
        recurrent_dropout: float = 0.0,
        zoneout: float = 0.0,
        weight_drop: float = 0.0,
        initial_state: str = "zero",
        backend: str = "auto",
        piece: int | None = None,
    ) -> None:
        """``layer_dropout``: one mask a sequence between layers, in place of ``dropout`` at each position."""
        super().__init__(
            cell,
            input_size,
            hidden,
            layers=layers,
            bidirectional=bidirectional,
            dropout=dropout if layer_dropout is None else 0.0,
            layer_dropout=layer_dropout or 0.0,
            recurrent_dropout=recurrent_dropout,
            zoneout=zoneout,
            weight_drop=weight_drop,
            cell_options=cell_options,
            initial_state=initial_state,
            backend=backend,
            piece=piece,
        )

    @classmethod
    def summary(cls, name: str, settings: RecurrentSettings) -> str:
        hidden = settings.hidden
        widths = " + ".join(map(str, hidden)) if isinstance(hidden, list) else hidden
        deep = f" × {settings.layers}" if not isinstance(hidden, list) else ""
        return f"{settings.cell} {widths}{deep}{', both directions' if settings.bidirectional else ''}"
