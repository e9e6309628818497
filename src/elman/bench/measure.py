"""A case, checked and timed: contenders in turn, on a CUDA device eager and as CUDA graphs."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache, partial
from typing import NamedTuple

import torch

from elman.bench import timing
from elman.bench.cases import BACKWARD, LATER, Case
from elman.bench.contenders import build
from elman.bench.decoder import build_decoders, compare_decoders, count_products
from elman.bench.first import FirstUse, measure_first
from elman.bench.floors import Rates, run_floor, step_floor
from elman.bench.model import build_updates
from elman.bench.runs import Errors, Run, compare, draw
from elman.bench.stream import build_stream, carry, compare_stream
from elman.bench.timing import Call, Rounds, Times, in_one_line, take_turns

ROUNDS = {  # by device and quick
    ("cpu", False): Rounds(2, 5, 1.5),
    ("cpu", True): Rounds(2, 3, 0.3),
    ("cuda", False): Rounds(10, 30, 0.6),
    ("cuda", True): Rounds(5, 10, 0.2),
}
BLOCK = 200  # streaming steps of one contender on end
TOLERANCES = {None: 1e-3, "bf16": 0.05, "fp16": 0.01, "tf32": 0.01}


@dataclass(frozen=True)
class Result:
    """What was found for a case; what does not apply is None.

    alternating: streams: ours and the peer's, call by call.
    step: seconds of one time step; ``floor``: the least that it takes, on the CPU that the run takes.
    refusals: by contender, why it could not be captured as a CUDA graph.
    failure: what ended the case.
    """

    case: Case
    ours: Times | None = None
    peer: Times | None = None
    ours_graph: Times | None = None
    peer_graph: Times | None = None
    alternating: tuple[Times, Times] | None = None
    step: float | None = None
    floor: float | None = None
    errors: Errors | None = None
    from_cache: bool | None = None
    refusals: dict[str, str] = field(default_factory=dict)
    failure: str | None = None

    @property
    def best(self) -> Times | None:
        """Ours in its better way."""
        return min(filter(None, (self.ours, self.ours_graph)), key=lambda t: t.median, default=None)

    @property
    def ratio(self) -> float | None:
        """How many times faster than the peer, both called in Python."""
        return ratio(self.peer, self.ours)

    @property
    def graph_ratio(self) -> float | None:
        """How many times faster than the peer as a CUDA graph, ours in its better way."""
        return ratio(self.peer_graph, self.best)

    @property
    def over_floor(self) -> float | None:
        seconds = self.ours.median if self.step is None and self.ours else self.step
        return seconds / self.floor if seconds is not None and self.floor else None

    @property
    def worst_error(self) -> float | None:
        """Of ours: against the peer and against the float64 loop."""
        return None if self.errors is None else max(self.errors.float64, self.errors.peer or 0.0)

    @property
    def rate(self) -> float | None:
        """Tokens a second, in the training of a model."""
        return self._rate(self.ours)

    @property
    def peer_rate(self) -> float | None:
        return self._rate(self.peer)

    def _rate(self, times: Times | None) -> float | None:
        return self.case.B * self.case.T / times.median if times and self.case.mode == "model" else None

    def shortfalls(self) -> list[str]:
        """What this case does not reach, in words; empty where all is well."""
        case, first = self.case, self.case.mode == "first"
        if self.failure is not None:
            return [f"failed: {self.failure}"]
        found = []
        eager, graph = (self.ratio, case.target), (self.graph_ratio, case.graph_target)
        for way, (reached, target) in {"": eager, " as a graph": graph}.items():
            if reached is not None and reached < 1 and case.rivals:
                found.append(f"slower than the peer{way}")
            if reached is not None and target is not None and reached < target:
                found.append(f"under its target of {target:g}×{way}")
        limited = self.ours.median if first and self.ours else self.over_floor
        if case.limit is not None and limited is not None and limited > case.limit:
            found.append(f"over its limit of {case.limit:g} {'s' if first else 'floors'}")
        if self.from_cache is False:
            found.append("compiled again instead of taken from the cache")
        tolerance = TOLERANCES[case.precision]
        if self.errors and self.errors.float64 > tolerance:
            found.append(f"error {self.errors.float64:.0e} above {tolerance:g}")
        return found


def ratio(peer: Times | None, ours: Times | None) -> float | None:
    return None if peer is None or ours is None else peer.median / ours.median


class Setting(NamedTuple):
    """Where and how thoroughly a case is measured; ``rates``: of the CPU, for its floors."""

    device: str
    quick: bool
    rates: Rates | None = None


def measure(case: Case, setting: Setting) -> Result:
    """One case, checked and timed; one that fails does not keep the others from being measured."""
    kinds = {"stream": _stream, "floor": _step_floor, "model": _model, "decoder": _decoder, "first": _first}
    try:
        torch.cuda.empty_cache()
        devices = [torch.cuda.current_device()] if setting.device == "cuda" else []
        with torch.random.fork_rng(devices), numbers(case):
            torch.manual_seed(1)
            return kinds.get(case.mode, _network)(case, setting)
    except Exception as error:  # whatever it is: it is told as a loss
        return Result(case, failure=in_one_line(error))


@contextmanager
def numbers(case: Case) -> Iterator[None]:
    """Products of float32 may be TF32 where the case says so, in torch, in cuDNN and in our kernels."""
    products, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = products.allow_tf32, cudnn.allow_tf32
    try:
        products.allow_tf32 = cudnn.allow_tf32 = case.precision == "tf32"
        yield
    finally:
        products.allow_tf32, cudnn.allow_tf32 = before


def _turns(case: Case, calls: dict[str, Call], setting: Setting, block: int = 1) -> dict[str, Times]:
    """All of them in turn; a turn is ``block`` calls on end."""
    host_clock = partial(timing.host_clock, block=block)
    clock = timing.event_clock if setting.device == "cuda" else host_clock
    rounds = ROUNDS["cuda" if case.precision else "cpu", setting.quick]
    return dict(zip(calls, take_turns([*calls.values()], clock, rounds), strict=True))


def _captured(calls: dict[str, Call]) -> tuple[dict[str, Call], dict[str, str]]:
    """The graphs of those that can be captured, and why the others cannot."""
    graphs: dict[str, Call] = {}
    refusals: dict[str, str] = {}
    for name, call in calls.items():
        try:
            graphs[name] = timing.capture(call)
        except RuntimeError as error:
            refusals[name] = in_one_line(timing.first_cause(error))
    return graphs, refusals


def _race(case: Case, calls: dict[str, Call], resident: dict[str, Call], setting: Setting) -> Result:
    """Ours and the peer in turn; on a CUDA device eager and as graphs.

    Args:
        calls: ``ours`` and ``peer`` as a user calls them; ``resident``: as they are to be captured.
    """
    graphs, refusals = _captured(resident) if case.precision else ({}, {})
    times = _turns(case, calls | {f"{name}_graph": graph for name, graph in graphs.items()}, setting)
    ours, peer = times["ours"], times["peer"]
    return Result(case, ours, peer, times.get("ours_graph"), times.get("peer_graph"), refusals=refusals)


def _network(case: Case, setting: Setting) -> Result:
    pair, inputs = build(case, setting.device), draw(case, setting.device)
    errors = compare(case, pair, inputs)
    training = case.mode == "training"
    ours, peer = (Run(contender, inputs, training=training) for contender in (pair.ours, pair.peer))
    resident = ours
    if case.precision and inputs.lengths is not None:  # packing wants them on the host, a graph does not
        there = inputs._replace(lengths=inputs.lengths.to(setting.device))
        resident = Run(pair.ours, there, training=training)
    found = _race(case, {"ours": ours, "peer": peer}, {"ours": resident, "peer": peer}, setting)
    if setting.rates is not None:
        cell = pair.ours.cell
        W_x, W_h = (0 if w is None else w.numel() for w in (cell.W_x, cell.W_h))
        W_h += sum(matrix.numel() for matrix in cell.learned_matrices().values())
        steps = case.B * case.T if inputs.lengths is None else int(inputs.lengths.sum())
        least = run_floor(W_x + W_h, W_h, case, steps, setting.rates)
        return replace(found, errors=errors, floor=least)
    assert found.best is not None
    return replace(found, errors=errors, step=found.best.median / case.T)


def _stream(case: Case, setting: Setting) -> Result:
    with torch.inference_mode():
        ours, peer, rnn = build_stream(case)
        errors = compare_stream(case, ours, peer, rnn)
        x = torch.randn(case.B, case.H)
        calls: dict[str, Call] = {"ours": partial(carry(ours), x), "peer": partial(carry(peer), x)}
        alternating, alone = (_turns(case, calls, setting, block) for block in (1, BLOCK))
    weights = sum(w.numel() for w in rnn.parameters() if w.dim() == 2)
    least = run_floor(weights, weights, case, case.B, setting.rates) if setting.rates else None
    beside = alternating["ours"], alternating["peer"]
    return Result(case, alone["ours"], alone["peer"], floor=least, errors=errors, alternating=beside)


def _model(case: Case, setting: Setting) -> Result:
    ours, peer = build_updates(case, setting.device)
    calls: dict[str, Call] = {"ours": ours, "peer": peer}
    return _race(case, calls, calls, setting)


def _decoder(case: Case, setting: Setting) -> Result:
    decoders = build_decoders(case, setting.device)
    errors = compare_decoders(case, decoders)
    calls: dict[str, Call] = {"ours": decoders.ours, "peer": decoders.peer}
    found = replace(_race(case, calls, calls, setting), errors=errors)
    if setting.rates is not None:
        weights, recurrent = count_products(case, decoders.reference)
        least = run_floor(weights, recurrent, case, case.B * case.T, setting.rates)
        return replace(found, floor=least)
    assert found.best is not None
    return replace(found, step=found.best.median / case.T)


def _step_floor(case: Case, setting: Setting) -> Result:
    backward = case.ours == BACKWARD
    step = _steps(replace(case, ours="LSTM", peer="nn.LSTM"), setting)[backward]
    return Result(case, step=step, floor=step_floor(case.H, case.B, backward=backward))


@lru_cache(maxsize=1)
def _steps(case: Case, setting: Setting) -> tuple[float, float]:
    """Seconds of a step, forward and backward: whole passes as graphs, less their large products.

    These are the input's forward; backward the gradients of x and of both weight matrices.
    """
    pair, inputs = build(case, setting.device), draw(case, setting.device)
    run, cell = Run(pair.ours, inputs, training=True), pair.ours.cell
    assert cell.W_x is not None
    assert cell.b is not None
    W_x, b = cell.W_x.detach(), cell.b.detach()
    rows, outputs = inputs.x.flatten(0, 1), inputs.d_outputs.flatten(0, 1)
    d_gates = torch.randn(len(rows), len(b)).to(rows)
    calls: dict[str, Call] = {
        "forward": run.forward,
        "training": run,
        "input": lambda: torch.addmm(b, rows, W_x),
        "products": lambda: (d_gates @ W_x.t(), rows.t() @ d_gates, outputs.t() @ d_gates),
    }
    graphs, _ = _captured(calls)
    seconds = {name: times.median for name, times in _turns(case, {**calls, **graphs}, setting).items()}
    forward = seconds["forward"] - seconds["input"]
    return forward / case.T, (seconds["training"] - seconds["forward"] - seconds["products"]) / case.T


def _first(case: Case, setting: Setting) -> Result:
    uses = first_uses("cuda" if case.precision else "cpu", 1 if case.precision or setting.quick else 3)
    if case.ours != LATER:
        return Result(case, Times.of([use.compiled for use in uses]))
    known = [use.from_cache for use in uses]
    cached = None if None in known else all(known)
    return Result(case, Times.of([use.later for use in uses]), from_cache=cached)


@cache
def first_uses(device: str, count: int) -> tuple[FirstUse, ...]:
    """Both cases of first use come out of the same processes."""
    return tuple(measure_first(device) for _ in range(count))
