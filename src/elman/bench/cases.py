"""What ``elman bench`` measures, on the CPU and on a CUDA device: lists of cases, without a single tensor."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from elman.bench.catalogue import OTHERWISE, PEERS
from elman.bench.others import FLASH, HGRN

OUR_LSTM, OUR_LOOP, OUR_STEPS = "our LSTM", "our loop", "our steps"  # peers that are no others
TORCHRECURRENT, PLAIN = "torchrecurrent", "plain PyTorch"


@dataclass(frozen=True)
class Case:
    """One line of a table: what runs, beside what, on which sizes, and what is asked of it.

    ours, peer: names that ``contenders.py`` turns into something that runs.
    mode: ``training`` or ``inference`` of a recurrent network, ``stream`` (one step, T = 1), ``floor``
        (the recurrence alone), ``model`` (training of a whole language model), ``decoder`` (training of one
        with attention, on sources of T steps as well) or ``first`` (a new process).
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
    heads: int = 1
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
        both += f", heads {self.heads}" if self.heads > 1 else ""
        padded = ", different lengths" if self.precision else f", {self.padding:.0%} padding"
        sizes = f"B {self.B}{steps}, H {self.H}{layers}{both}{padded if self.padding else ''}"
        return f"{contenders}, {self.precision or self.mode}, {sizes}"

    @property
    def small(self) -> bool:
        """Whether a quick run takes it: on CUDA a few sizes of the large grids, and all other groups."""
        if self.precision is None:
            return self.B <= 32 and self.T <= 100 and self.H <= 256
        if self.group in SHARED_GROUPS:
            return self.H <= 256 and self.B in (16, 32, 64) and self.peer not in (OUR_LSTM, OUR_LOOP)
        return "-" not in self.group or (self.B == 32 and self.H in (256, 512))

    @property
    def started(self) -> bool:
        """Whether a network starts from a state that is given, and not from zero."""
        return self.precision is None and self.peer != TORCHRECURRENT

    @property
    def rivals(self) -> bool:
        """Whether the peer is somebody else's, so that being slower is a loss."""
        return self.peer not in (OUR_LSTM, OUR_LOOP, OUR_STEPS)


FIRST, LATER = "new cell, compiled", "the same in a later process"
FIRST_USE = {"first": "first use of a new cell in a process"}
SHARED_GROUPS = {  # by CPU and CUDA
    "norm": "the layer-normalised LSTM beside our LSTM, the best Python loop and nn.LSTM",
    "products": "cells with products inside their step beside the best Python loops of their equations",
    "decoder": "a decoder whose attention looks before its step, over all of time, beside plain PyTorch",
    "catalogue": "cells beside torchrecurrent's; only where it is asked for",
}
ON_REQUEST = ("catalogue", "heads", "linear", "hgrn")  # groups that take long: --only must name them
MEDIANS: dict[tuple[str, str | None], float] = {("catalogue", None): 4.0}  # by group and precision
PRODUCTS = ("original GRU", "original MGU", "multiplicative LSTM", "highway", "mogrifier")
ATTENTIONS = ("additive", "bilinear", "dot", "location", "additive with feeding")
CATALOGUE = sorted({*PEERS, *OTHERWISE})

# ---- on the CPU ----------------------------------------------------------------------------------

CPU_GROUPS = {
    "lstm": "LSTM beside nn.LSTM",
    "user": "the LSTM's equations as a user's new cell, beside nn.LSTM",
    "gru": "GRU beside nn.GRU",
    "elman": "Elman beside nn.RNN",
    "padded": "sequences of different length beside a packed nn.LSTM",
    "stream": "one step of a stream, state carried",
    "scan": "a cell without recurrent product beside a Python loop of it",
    **SHARED_GROUPS,
    **FIRST_USE,
}
BOTH = ("training", "inference")
NORM, LOOP = "layer-norm LSTM", "Python loop"


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
    for mode, (B, H) in product(BOTH, ((32, 256), (1, 128))):
        yield Case("scan", "SRU", LOOP, mode, B, 100, H, target=1.0)
    for B, H in product((32, 1), (128, 256)):
        least = 0.7 if B == 32 else None
        yield Case("norm", NORM, OUR_LSTM, "training", B, 100, H, target=least)
        for mode in BOTH:
            yield Case("norm", NORM, LOOP, mode, B, 100, H, target=1.0 if B == 32 else 3.0)
    for ours, mode, (B, H, target) in product(PRODUCTS, BOTH, ((32, 256, 1.3), (1, 128, 4.0))):
        yield Case("products", ours, LOOP, mode, B, 100, H, target=target)
    for ours, (B, H) in product(ATTENTIONS, ((64, 256), (64, 512), (1, 256))):
        slow = ours in ("location", "additive with feeding")
        target = 1.5 if slow else 2.2 if B > 1 else 4.0
        yield Case("decoder", ours, PLAIN, "decoder", B, 20, H, target=target)
    for ours in CATALOGUE:
        yield Case("catalogue", ours, TORCHRECURRENT, "training", 32, 100, 128, target=2.5)
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
    "heads": "recurrent weights in heads beside FlashRNN; only where it is asked for",
    "linear": "linear recurrences in parallel over time beside their own steps; only where it is asked for",
    "hgrn": "a linear recurrence beside flash-linear-attention's HGRN kernel; only where it is asked for",
    **SHARED_GROUPS,
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
    for ours, heads in product(("LSTM", "sLSTM"), (12, 6, 1)):
        yield Case("heads", ours, FLASH, train, 16, 1024, 768, "bf16", heads=heads, target=1.5)
    for ours in ("minimal GRU", "linear SRU"):
        yield Case("linear", ours, OUR_STEPS, train, 1, 65536, 256, "bf16", target=30.0)
    yield Case("hgrn", "minimal GRU", HGRN, train, 8, 4096, 1024, "bf16", target=1.0, graph_target=1.0)
    for H, B, peer in product((256, 1024), (16, 128), (OUR_LSTM, LOOP, "nn.LSTM")):
        eager, graph = (3.0, 1.0) if peer == "nn.LSTM" else (None, None)
        yield Case("norm", NORM, peer, train, B, STEPS, H, "bf16", target=eager, graph_target=graph)
    for ours, H in product(PRODUCTS, (256, 512)):
        yield Case("products", ours, LOOP, train, 32, STEPS, H, "bf16", target=10.0, graph_target=2.0)
    for ours, (B, H) in product(ATTENTIONS, ((64, 256), (64, 512), (1, 256))):
        yield Case("decoder", ours, OUR_LOOP, "decoder", B, 20, H, "bf16", target=15.0)
        yield Case("decoder", ours, PLAIN, "decoder", B, 20, H, "bf16", graph_target=2.0)
    for ours in CATALOGUE:
        yield Case("catalogue", ours, TORCHRECURRENT, train, 32, 100, 128, "tf32", target=20.0)
    yield Case("first", FIRST, None, "first", precision="bf16", limit=10.0)
    yield Case("first", LATER, None, "first", precision="bf16")


def _asked(precision: str, H: int, B: int) -> tuple[float | None, float | None]:
    """The ratios that must be reached, eager and as a graph; None where sizes are only reported."""
    if precision == "bf16":
        return (None, None) if H == 1024 and B >= 64 else (3.5, 1.3)
    return (3.0, 1.2) if H <= 512 else (None, None)
