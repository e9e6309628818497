"""What ``elman bench`` measures, on the CPU and on a CUDA device: lists of cases, without a single tensor."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product


@dataclass(frozen=True)
class Case:
    """One line of a table: what runs, beside what, on which sizes, and what is asked of it.

    ours, peer: names that ``contenders.py`` turns into something that runs.
    mode: ``training`` or ``inference`` of a recurrent network, ``stream`` (one step, T = 1), ``floor``
        (the recurrence alone), ``model`` (training of a whole language model) or ``first`` (a new process).
    precision: ``bf16``, ``fp16`` or ``tf32`` (float32 whose products may be TF32) on a CUDA device; None:
        float32 on the CPU.
    padding: the share of the batch that is padding.
    target: the ratio (peer / ours) that must be reached with both called in Python; ``graph_target``: with
        the peer replayed as a CUDA graph, ours in its better way.
    limit: what must not be exceeded: seconds (``first``), or multiples of the floor.
    """

    group: str
    ours: str
    peer: str | None
    mode: str = "training"
    B: int = 1
    T: int = 1
    H: int = 128
    precision: str | None = None
    layers: int = 1
    bidirectional: bool = False
    padding: float = 0.0
    target: float | None = None
    graph_target: float | None = None
    limit: float | None = None

    @property
    def name(self) -> str:
        if self.mode == "first":
            return self.ours
        contenders = self.ours if self.peer is None else f"{self.ours} vs {self.peer}"
        steps = "" if self.mode == "stream" else f", T {self.T}"
        layers = f", {self.layers} layers" if self.layers > 1 else ""
        both = ", bidirectional" if self.bidirectional else ""
        padded = ", different lengths" if self.precision else f", {self.padding:.0%} padding"
        sizes = f"B {self.B}{steps}, H {self.H}{layers}{both}{padded if self.padding else ''}"
        return f"{contenders}, {self.precision or self.mode}, {sizes}"

    @property
    def small(self) -> bool:
        """Whether a quick run takes it: on CUDA a few sizes of the large grids, and all other groups."""
        if self.precision:
            return "-" not in self.group or (self.B == 32 and self.H in (256, 512))
        return self.B <= 32 and self.T <= 100 and self.H <= 256


FIRST, LATER = "new cell, compiled", "the same in a later process"
FIRST_USE = {"first": "first use of a new cell in a process"}

# ---- on the CPU ----------------------------------------------------------------------------------

CPU_GROUPS = {
    "lstm": "LSTM beside nn.LSTM",
    "user": "the LSTM's equations as a user's new cell, beside nn.LSTM",
    "gru": "GRU beside nn.GRU",
    "elman": "Elman beside nn.RNN",
    "padded": "sequences of different length beside a packed nn.LSTM",
    "stream": "one step of a stream, state carried",
    "scan": "a cell without recurrent product beside a Python loop of it",
    "free": "free-form cells beside the best Python loops of their equations",
    **FIRST_USE,
}
BOTH = ("training", "inference")


def cpu_grid() -> Iterator[Case]:
    for mode, B, H, T in product(BOTH, (8, 32, 128), (128, 256, 512), (50, 200)):
        yield Case("lstm", "LSTM", "nn.LSTM", mode, B, T, H, target=0.95)
    for B, widths, target in ((32, (128, 256, 512), 0.85), (1, (128, 256), 1.3)):
        for H, T in product(widths, (50, 200)):
            yield Case("user", "user's LSTM", "nn.LSTM", "training", B, T, H, target=target)
    for group, ours, peer in (("gru", "GRU", "nn.GRU"), ("elman", "Elman", "nn.RNN")):
        yield Case(group, ours, peer, "training", 32, 100, 256, target=1.2)
        yield Case(group, ours, peer, "training", 1, 100, 128, target=3.0)
    for ours in ("LSTM", "GRU", "user's four gates"):
        yield Case("padded", ours, "packed nn.LSTM", "training", 32, 100, 128, padding=0.4, target=1.5)
    for H in (128, 256, 512):
        yield Case("stream", "LSTM", "nn.LSTM", "stream", 1, 1, H, target=5.0)
        yield Case("stream", "LSTM", "nn.LSTMCell", "stream", 1, 1, H, target=2.0)
    loops = (("scan", "SRU"), ("free", "layer-norm LSTM"), ("free", "original MGU"))
    for (group, ours), mode, (B, H) in product(loops, BOTH, ((32, 256), (1, 128))):
        yield Case(group, ours, "Python loop", mode, B, 100, H, target=1.0)
    yield Case("first", FIRST, None, "first", limit=3.0)
    yield Case("first", LATER, None, "first")


# ---- on a CUDA device ----------------------------------------------------------------------------

PAIRS = {
    "lstm": ("LSTM", "nn.LSTM"),
    "gru": ("GRU", "nn.GRU"),
    "elman": ("Elman", "nn.RNN"),
    "user": ("user's four gates", "nn.LSTM"),
}
CUDA_GROUPS = {
    **{
        f"{cell}-{precision}": f"{ours} beside {peer}, training in {precision}"
        for precision in ("bf16", "tf32")
        for cell, (ours, peer) in PAIRS.items()
    },
    "lstm-fp16": "LSTM beside nn.LSTM in fp16, where cuDNN too keeps the weights on chip",
    "bidirectional": "two bidirectional layers over sequences of different length beside a packed nn.LSTM",
    "awd": "three wide layers beside nn.LSTM",
    "large": "weights that do not fit the chip, beside nn.LSTM",
    "floor": "a time step beside the least that barrier, exchange and product take",
    "model": "a whole language model in training, beside the same on nn.LSTM",
    **FIRST_USE,
}
WIDTHS, BATCHES, STEPS = (256, 512, 768, 1024), (16, 32, 64, 128), 256
QUARTER = 0.375  # of padding: lengths lie evenly between a quarter of T and all of it
FORWARD, BACKWARD = "LSTM, steps forward", "LSTM, steps backward"


def cuda_grid() -> Iterator[Case]:
    train, lstm = "training", PAIRS["lstm"]
    for precision, (cell, pair) in product(("bf16", "tf32"), PAIRS.items()):
        for H, B in product(WIDTHS, BATCHES):
            eager, graph = _asked(precision, H, B)
            group = f"{cell}-{precision}"
            yield Case(group, *pair, train, B, STEPS, H, precision, target=eager, graph_target=graph)
    for H, B in product(WIDTHS, BATCHES):
        yield Case("lstm-fp16", *lstm, train, B, STEPS, H, "fp16", target=0.9)
    sizes = (32, STEPS, 512, "bf16", 2, True, QUARTER)
    yield Case("bidirectional", "LSTM", "packed nn.LSTM", train, *sizes, target=4.0, graph_target=1.5)
    yield Case("awd", *lstm, train, 40, 70, 1152, "bf16", layers=3, target=2.5)
    yield Case("large", *lstm, train, 64, STEPS, 2048, "bf16", target=0.9)
    for part in (FORWARD, BACKWARD):
        yield Case("floor", part, None, "floor", 32, STEPS, 512, "bf16", limit=4.0)
    yield Case("model", *lstm, "model", 20, 35, 650, "bf16", layers=2, target=1.8)
    yield Case("first", FIRST, None, "first", precision="bf16", limit=10.0)
    yield Case("first", LATER, None, "first", precision="bf16")


def _asked(precision: str, H: int, B: int) -> tuple[float | None, float | None]:
    """The ratios that must be reached, eager and as a graph; None where sizes are only reported."""
    if precision == "bf16":
        return (None, None) if H == 1024 and B >= 64 else (3.5, 1.3)
    return (3.0, 1.2) if H <= 512 else (None, None)
