"""What belongs to a kind of device: its cases and tables, how it is measured, and what is told of it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from elman.bench.cases import CPU_GROUPS, CUDA_GROUPS, TORCHRECURRENT, Case, cpu_grid, cuda_grid
from elman.bench.catalogue import OTHERWISE, absent
from elman.bench.contenders import DTYPES, OPTIONS, OURS
from elman.bench.decoder import VOCABULARY as TOKENS
from elman.bench.decoder import explain_decoder
from elman.bench.floors import BARRIER, H200, Rates, measure_rates
from elman.bench.machine import Facts, describe_card, describe_machine
from elman.bench.measure import BLOCK, ROUNDS, numbers
from elman.bench.model import CLIP, DROPOUT, VOCABULARY
from elman.bench.others import FLASH, HGRN, absent_package
from elman.bench.tables import cpu_columns, cuda_columns
from elman.bench.timing import in_one_line
from elman.errors import ElmanError
from elman.layers.rnn import find_cell

JSON = Mapping[str, "JSON"] | Sequence["JSON"] | str | float | None

BOTH_METHOD = (
    "norm: the norm is more work than our LSTM, which it stands beside; being slower than that is no loss",
    "decoder: one LSTM layer, attention asked by the previous output over a source as long as the target and "
    f"twice as wide; no padding; embedding ({TOKENS} tokens) and readout included, output layer not; plain "
    "PyTorch is a loop of nn.LSTMCell with keys made once",
    "catalogue: torchrecurrent's layers, time-major, from a zero state; gradients of weights are compared "
    f"with the float64 loop alone; {', '.join(OTHERWISE)} is timed but not compared, having other equations "
    "there",
)
THOROUGH = ROUNDS["cuda", False]
CPU_METHOD = (
    "float32; input as wide as the state; one layer; batch-first on both sides",
    "training: forward and backward, gradients to x, the initial state and all weights",
    "ours, peer: medians of runs in turn in one process; ratio: peer / ours, above 1 we are faster",
    f"streams: blocks of {BLOCK} calls of one side; call by call in turn: see --json",
    "worst error: ‖a−b‖/(‖b‖+1) over outputs, states and gradients, against the peer (where it has the "
    "same equations) and, on two rows at either end of the batch, against a float64 loop",
)
CUDA_METHOD = (
    "training: forward and backward from a zero state, gradients to x and all weights, all products included",
    "inputs as wide as the state; ours batch-first; the peer time-major with flattened weights, its fastest",
    "medians of times between CUDA events around single calls that find the device idle, all in turn in one "
    f"process: {THOROUGH.warm_up} rounds of warming up, {THOROUGH.least} or more that count",
    "graph: the whole training step replayed as a CUDA graph; eager: called in Python",
    "ratios: peer / ours, above 1 we are faster; eager against eager; graph: the peer's graph against the "
    "better of ours; asked: the least for both",
    "heads: FlashRNN with its input product, in the fastest of its ways; hgrn: the gates of a minimal "
    "GRU by torch and its recurrence by that kernel over chunks; neither is compared, only timed",
    "tf32: float32 with TF32 products allowed in torch and cuDNN; off elsewhere",
    "different lengths: from T/4 to T, the longest first, so that packing need not sort",
    "error: ‖a−b‖/(‖b‖+1), the worst of outputs and gradients, in the case's numbers against a float64 loop, "
    "on two rows at either end of the batch; peer's: its own where it has the same equations",
    f"model: tied embedding and output, vocabulary {VOCABULARY:,}, dropout {DROPOUT}, autocast, "
    f"cross-entropy, clipping at {CLIP}, gradient descent, state carried; only the recurrent layers differ; "
    "times of one update",
    "floor: barrier + product on chip + exchange through L2 of one step, in the best split over the "
    f"{H200.programs} multiprocessors of an H200, at its peak rates (a barrier among 16 programs: "
    f"{BARRIER[2][1]} µs, measured by a probe); a step is the pass less its large products, timed alone",
)


class Bench:
    """What is measured on one kind of device, ``"cpu"`` or ``"cuda"``, and what is told of it."""

    def __init__(self, device: str) -> None:
        self.device, self.cuda = device, device == "cuda"
        self.groups = CUDA_GROUPS if self.cuda else CPU_GROUPS  # their names and titles
        self.columns = cuda_columns if self.cuda else cpu_columns  # of a group's table
        self.rates: Rates | None = None
        self.facts: Facts = {}

    def grid(self) -> Iterator[Case]:
        return cuda_grid() if self.cuda else cpu_grid()

    def machine(self) -> Facts:
        self.facts = self.facts or (describe_card() if self.cuda else describe_machine())
        return self.facts

    def prepare(self, *, quick: bool) -> Iterator[str]:
        """Find out what is needed before the first case, and say what is being done."""
        facts = self.machine()
        if self.cuda:
            yield f"measuring on {facts['card']}"
            return
        load, cores = (float(facts[name] or 0) for name in ("load", "cores"))
        if load > cores / 4:
            yield f"others are using this machine (load {load}): the figures will be off"
        yield "measuring what the machine can do"
        self.rates = measure_rates(quick=quick)

    def missing(self, group: str) -> str | None:
        """Why a group cannot be measured, or None."""
        if group == "catalogue":
            return absent()
        peer = {"heads": FLASH, "hgrn": HGRN}.get(group)
        return None if peer is None else absent_package(peer)

    def method(self) -> tuple[str, ...]:
        if self.cuda:
            return (*CUDA_METHOD, *BOTH_METHOD)
        assert self.rates is not None
        floor = (
            f"floor: the products at this machine's {self.rates.flops / 1e9:.0f} GFLOP/s; for fewer than 4 "
            f"rows at least the reading of the recurrent weights at {self.rates.bytes / 1e9:.0f} GB/s, "
            "all threads"
        )
        return (*CPU_METHOD, *BOTH_METHOD, floor)

    def constants(self) -> dict[str, JSON]:
        """What results were compared with."""
        if self.cuda:
            return {"floor": {**asdict(H200), "barrier_microseconds": {str(n): us for n, us in BARRIER}}}
        assert self.rates is not None
        return {"rates": {"flops_per_second": self.rates.flops, "cached_bytes_per_second": self.rates.bytes}}

    def explain(self, case: Case) -> list[str]:
        """Which way the cell or the decoder of a case takes, and why; or why it cannot be served."""
        from elman.recurrence.triton.backend import explain

        if case.mode == "decoder":
            return explain_decoder(case, self.device)
        dtype, directions = DTYPES[case.precision], 2 if case.bidirectional else 1
        with numbers(case):
            kind = find_cell(case.ours) if case.peer == TORCHRECURRENT else OURS.get(case.ours, OURS["LSTM"])
            options = {"heads": case.heads, **OPTIONS.get(case.ours, {})}
            cell = kind(case.H, case.H, initialisation="uniform", **options)  # type: ignore[arg-type]
            try:
                own = cell.to(self.device, dtype)
                return list(explain(own, case.B, dtype, directions=directions, T=case.T))
            except ElmanError as error:
                return [in_one_line(error)]
