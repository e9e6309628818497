"""What ``elman bench`` measures on a CUDA device: the grid as a list of cases, without a single tensor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product


@dataclass(frozen=True)
class Case:
    """One line of a table: what runs, beside what, on which sizes, and what is asked of it.

    kind: ``network`` (training of a recurrent network), ``floor`` (its recurrence alone), ``model`` (a
        whole language model) or ``first`` (a new process).
    ours, peer: names that ``sides.py`` turns into something that runs.
    precision: ``bf16``, ``fp16`` or ``tf32`` (float32 whose products may be TF32).
    padded: sequences of different length, from a quarter of T to all of it.
    eager: the ratio (peer / ours) that must be reached with both called in Python; ``graph``: with the
        peer replayed as a CUDA graph, ours in its better way.
    limit: what must not be exceeded: seconds (``first``), or multiples of the floor.
    """

    group: str
    ours: str
    peer: str | None
    precision: str = "bf16"
    B: int = 1
    H: int = 1
    T: int = 256
    layers: int = 1
    bidirectional: bool = False
    padded: bool = False
    kind: str = "network"
    eager: float | None = None
    graph: float | None = None
    limit: float | None = None

    @property
    def name(self) -> str:
        if self.kind == "first":
            return self.ours
        sides = self.ours if self.peer is None else f"{self.ours} vs {self.peer}"
        layers = f", {self.layers} layers" if self.layers > 1 else ""
        both = ", bidirectional" if self.bidirectional else ""
        padded = ", different lengths" if self.padded else ""
        return f"{sides}, {self.precision}, B {self.B}, T {self.T}, H {self.H}{layers}{both}{padded}"

    @property
    def small(self) -> bool:
        """Whether a quick run takes it: of the large grids a few sizes, of the other groups all."""
        return "-" not in self.group or (self.B == 32 and self.H in (256, 512))


CELLS = {
    "lstm": ("LSTM", "nn.LSTM"),
    "gru": ("GRU", "nn.GRU"),
    "elman": ("Elman", "nn.RNN"),
    "user": ("user's four gates", "nn.LSTM"),
}
WIDTHS, BATCHES = (256, 512, 768, 1024), (16, 32, 64, 128)
FIRST, LATER = "new cell, compiled", "the same in a later process"
FORWARD, BACKWARD = "LSTM, steps forward", "LSTM, steps backward"

GROUPS = {
    **{
        f"{cell}-{precision}": f"{ours} beside {peer}, training in {precision}"
        for precision in ("bf16", "tf32")
        for cell, (ours, peer) in CELLS.items()
    },
    "lstm-fp16": "LSTM beside nn.LSTM in fp16, where cuDNN too keeps the weights on chip",
    "bidirectional": "two bidirectional layers over sequences of different length beside a packed nn.LSTM",
    "awd": "three wide layers beside nn.LSTM",
    "large": "weights that do not fit the chip, beside nn.LSTM",
    "floor": "a time step beside the least that barrier, exchange and product take",
    "model": "a whole language model in training, beside the same on nn.LSTM",
    "first": "first use of a new cell in a process",
}


def grid() -> Iterator[Case]:
    """All cases, group by group."""
    for precision, (cell, (ours, peer)) in product(("bf16", "tf32"), CELLS.items()):
        for H, B in product(WIDTHS, BATCHES):
            eager, graph = _asked(precision, H, B)
            yield Case(f"{cell}-{precision}", ours, peer, precision, B, H, eager=eager, graph=graph)
    for H, B in product(WIDTHS, BATCHES):
        yield Case("lstm-fp16", "LSTM", "nn.LSTM", "fp16", B, H, eager=0.9)
    both = Case("bidirectional", "LSTM", "packed nn.LSTM", "bf16", 32, 512, eager=4.0, graph=1.5)
    yield replace(both, layers=2, bidirectional=True, padded=True)
    yield Case("awd", "LSTM", "nn.LSTM", "bf16", 40, 1152, 70, layers=3, eager=2.5)
    yield Case("large", "LSTM", "nn.LSTM", "bf16", 64, 2048, eager=0.9)
    for part in (FORWARD, BACKWARD):
        yield Case("floor", part, None, "bf16", 32, 512, kind="floor", limit=4.0)
    yield Case("model", "LSTM", "nn.LSTM", "bf16", 20, 650, 35, layers=2, kind="model", eager=1.8)
    yield Case("first", FIRST, None, kind="first", limit=10.0)
    yield Case("first", LATER, None, kind="first")


def _asked(precision: str, H: int, B: int) -> tuple[float | None, float | None]:
    """The ratios that must be reached, eager and as a graph; None where sizes are only reported."""
    if precision == "bf16":
        return (None, None) if H == 1024 and B >= 64 else (3.5, 1.3)
    return (3.0, 1.2) if H <= 512 else (None, None)
