"""What ``elman bench`` measures on the CPU: the grid as a list of cases, without a single tensor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product


@dataclass(frozen=True)
class Case:
    """One line of the table: what runs, beside what, on which sizes, and what is asked of it.

    ours, peer: names that ``sides.py`` turns into something that runs.
    mode: ``training``, ``inference``, ``stream`` (one step, T = 1) or ``first`` (a new process).
    padding: the share of the batch that is padding.
    target: the ratio (peer / ours) that must be reached.
    limit: the seconds that must not be exceeded, where there is no peer.
    """

    group: str
    ours: str
    peer: str | None
    mode: str
    B: int = 1
    T: int = 1
    H: int = 128
    padding: float = 0.0
    target: float | None = None
    limit: float | None = None

    @property
    def name(self) -> str:
        if self.mode == "first":
            return self.ours
        sizes = f"B {self.B}, H {self.H}" if self.mode == "stream" else f"B {self.B}, T {self.T}, H {self.H}"
        padded = f", {self.padding:.0%} padding" if self.padding else ""
        return f"{self.ours} vs {self.peer}, {self.mode}, {sizes}{padded}"

    @property
    def small(self) -> bool:
        """Whether a quick run takes it."""
        return self.B <= 32 and self.T <= 100 and self.H <= 256


GROUPS = {
    "lstm": "LSTM beside nn.LSTM",
    "user": "the LSTM's equations as a user's new cell, beside nn.LSTM",
    "gru": "GRU beside nn.GRU",
    "elman": "Elman beside nn.RNN",
    "padded": "sequences of different length beside a packed nn.LSTM",
    "stream": "one step of a stream, state carried",
    "scan": "a cell without recurrent product beside a Python loop of it",
    "free": "free-form cells beside the best Python loops of their equations",
    "first": "first use of a new cell in a process",
}
BOTH = ("training", "inference")
FIRST, LATER = "new cell, compiled", "the same in a later process"


def grid() -> Iterator[Case]:
    """All cases, group by group."""
    for mode, B, H, T in product(BOTH, (8, 32, 128), (128, 256, 512), (50, 200)):
        yield Case("lstm", "LSTM", "nn.LSTM", mode, B, T, H, target=0.95)
    for H, T in product((128, 256, 512), (50, 200)):
        yield Case("user", "user's LSTM", "nn.LSTM", "training", 32, T, H, target=0.85)
    for H, T in product((128, 256), (50, 200)):
        yield Case("user", "user's LSTM", "nn.LSTM", "training", 1, T, H, target=1.3)
    for group, ours, peer in (("gru", "GRU", "nn.GRU"), ("elman", "Elman", "nn.RNN")):
        yield Case(group, ours, peer, "training", 32, 100, 256, target=1.2)
        yield Case(group, ours, peer, "training", 1, 100, 128, target=3.0)
    for ours in ("LSTM", "GRU", "user's four gates"):
        yield Case("padded", ours, "packed nn.LSTM", "training", 32, 100, 128, padding=0.4, target=1.5)
    for H in (128, 256, 512):
        yield Case("stream", "LSTM", "nn.LSTM", "stream", 1, 1, H, target=5.0)
        yield Case("stream", "LSTM", "nn.LSTMCell", "stream", 1, 1, H, target=2.0)
    for mode, (B, H) in product(BOTH, ((32, 256), (1, 128))):
        yield Case("scan", "SRU", "Python loop", mode, B, 100, H, target=1.0)
    for ours, mode, (B, H) in product(("layer-norm LSTM", "original MGU"), BOTH, ((32, 256), (1, 128))):
        yield Case("free", ours, "Python loop", mode, B, 100, H, target=1.0)
    yield Case("first", FIRST, None, "first", limit=3.0)
    yield Case("first", LATER, None, "first")
