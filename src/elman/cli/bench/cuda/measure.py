"""Timing of a case on a CUDA device: eager and as CUDA graphs, ours and the peer in turn."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from elman.cli.bench.cuda.cases import BACKWARD, LATER, Case
from elman.cli.bench.cuda.floor import step_floor
from elman.cli.bench.cuda.model import build_updates
from elman.cli.bench.cuda.sides import build, compare, draw, numbers
from elman.cli.bench.first import FirstUse, measure_first
from elman.cli.bench.measure import Call, Times, take_turns
from elman.cli.bench.sides import Errors, Run

DEVICE = "cuda"
WARM_UP = {False: 10, True: 5}  # rounds that do not count; by quick
LEAST = {False: 30, True: 10}  # rounds that count, however long they take
BUDGET = {False: 0.6, True: 0.2}  # seconds a case
BEFORE_CAPTURE = 3  # calls in which libraries make up their minds


@dataclass(frozen=True)
class Result:
    """What was found for a case; what does not apply is None.

    step, floor: seconds of one time step, and the least that it takes.
    refusals: by side, why it could not be captured as a CUDA graph.
    failure: what ended the case.
    """

    case: Case
    ours: Times | None = None
    ours_graph: Times | None = None
    peer: Times | None = None
    peer_graph: Times | None = None
    step: float | None = None
    floor: float | None = None
    errors: Errors | None = None
    from_cache: bool | None = None
    refusals: dict[str, str] = field(default_factory=dict)
    failure: str | None = None

    @property
    def best(self) -> Times | None:
        """Ours in its better way."""
        ways = [times for times in (self.ours, self.ours_graph) if times is not None]
        return min(ways, key=lambda times: times.median, default=None)

    @property
    def eager(self) -> float | None:
        """How many times faster than the peer, both called in Python."""
        return _ratio(self.peer, self.ours)

    @property
    def graph(self) -> float | None:
        """How many times faster than the peer as a CUDA graph, ours in its better way."""
        return _ratio(self.peer_graph, self.best)

    @property
    def over_floor(self) -> float | None:
        return None if self.step is None or self.floor is None else self.step / self.floor


def _ratio(peer: Times | None, ours: Times | None) -> float | None:
    return None if peer is None or ours is None else peer.median / ours.median


def measure(case: Case, *, quick: bool) -> Result:
    """One case, checked and timed; one that fails does not keep the others from being measured."""
    kinds: dict[str, Callable[[Case, bool], Result]] = {
        "network": _network,
        "floor": _floor,
        "model": _model,
        "first": _first,
    }
    try:
        torch.cuda.empty_cache()
        devices = [torch.cuda.current_device()] if DEVICE == "cuda" else []
        with torch.random.fork_rng(devices), numbers(case):
            return kinds[case.kind](case, quick)
    except Exception as error:  # whatever it is: it is told as a loss
        return Result(case, failure=in_one_line(error))


def in_one_line(error: BaseException, limit: int = 200) -> str:
    """
    >>> in_one_line(RuntimeError("CUDA error: out of luck\\n  try again"))
    'RuntimeError: CUDA error: out of luck try again'
    """
    text = f"{type(error).__name__}: {' '.join(str(error).split())}"
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


# ---- the clock, and graphs -----------------------------------------------------------------------


def clock(call: Call) -> float:
    """Seconds between two CUDA events around a call that finds the device idle."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3


def capture(call: Call) -> Call:
    """The same work as a CUDA graph; calling it replays that."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(BEFORE_CAPTURE):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        call()
    return graph.replay


def _captured(calls: dict[str, Call]) -> tuple[dict[str, Call], dict[str, str]]:
    """The graphs of those that can be captured, and why the others cannot."""
    graphs: dict[str, Call] = {}
    refusals: dict[str, str] = {}
    for name, call in calls.items():
        try:
            graphs[name] = capture(call)
        except RuntimeError as error:
            refusals[name] = in_one_line(_cause(error))
    return graphs, refusals


def _cause(error: BaseException) -> BaseException:
    """What happened first: the end of a broken capture is an error as well, and says less."""
    return error if error.__context__ is None else _cause(error.__context__)


def _race(case: Case, calls: dict[str, Call], captured: dict[str, Call], quick: bool) -> Result:
    """Ours and the peer, eager and as graphs, in turn.

    Args:
        calls: ``ours`` and ``peer`` as a user calls them; ``captured``: as they are to be captured.
    """
    graphs, refusals = _captured(captured)
    times = _times({**calls, **{f"{name}_graph": graph for name, graph in graphs.items()}}, quick)
    return Result(
        case,
        ours=times["ours"],
        ours_graph=times.get("ours_graph"),
        peer=times["peer"],
        peer_graph=times.get("peer_graph"),
        refusals=refusals,
    )


def _times(calls: dict[str, Call], quick: bool) -> dict[str, Times]:
    found = take_turns(
        list(calls.values()), clock, warm_up=WARM_UP[quick], least=LEAST[quick], budget=BUDGET[quick]
    )
    return dict(zip(calls, found, strict=True))


# ---- the kinds of cases --------------------------------------------------------------------------


def _network(case: Case, quick: bool) -> Result:
    pair, inputs = build(case, DEVICE), draw(case, DEVICE)
    errors = compare(case, pair, inputs, DEVICE)
    ours, peer = (Run(side, inputs, training=True) for side in (pair.ours, pair.peer))
    resident = ours
    if inputs.lengths is not None:  # a graph copies nothing from the host; packing wants them there
        on_device = replace(inputs, lengths=inputs.lengths.to(DEVICE))
        resident = Run(pair.ours, on_device, training=True)
    found = _race(case, {"ours": ours, "peer": peer}, {"ours": resident, "peer": peer}, quick)
    assert found.best is not None
    return replace(found, errors=errors, step=found.best.median / case.T)


def _model(case: Case, quick: bool) -> Result:
    ours, peer = build_updates(case, DEVICE)
    calls: dict[str, Call] = {"ours": ours, "peer": peer}
    return _race(case, calls, calls, quick)


def _floor(case: Case, quick: bool) -> Result:
    backward = case.ours == BACKWARD
    step = _steps(replace(case, ours="LSTM"), quick)[backward]
    return Result(case, step=step, floor=step_floor(case.H, case.B, backward=backward))


@functools.lru_cache(maxsize=1)
def _steps(case: Case, quick: bool) -> tuple[float, float]:
    """Seconds of a step, forward and backward: whole passes as graphs, less their large products.

    These are the input's forward; backward the gradients of x and of both weight matrices.
    """
    pair, inputs = build(case, DEVICE), draw(case, DEVICE)
    run = Run(pair.ours, inputs, training=True)
    W_x, b = pair.ours.cell.W_x.detach(), pair.ours.cell.b.detach()
    rows, outputs = inputs.x.flatten(0, 1), inputs.d_outputs.flatten(0, 1)
    d_gates = torch.randn(len(rows), len(b)).to(rows)

    def products() -> tuple[Tensor, ...]:
        return d_gates @ W_x.t(), rows.t() @ d_gates, outputs.t() @ d_gates

    calls: dict[str, Call] = {
        "forward": run.forward,
        "training": run,
        "input": lambda: torch.addmm(b, rows, W_x),
        "products": products,
    }
    graphs, _ = _captured(calls)
    seconds = {name: times.median for name, times in _times({**calls, **graphs}, quick).items()}
    return (
        (seconds["forward"] - seconds["input"]) / case.T,
        (seconds["training"] - seconds["forward"] - seconds["products"]) / case.T,
    )


def _first(case: Case, quick: bool) -> Result:
    use = _first_use()
    if case.ours != LATER:
        return Result(case, ours=Times.of([use.compiled]))
    return Result(case, ours=Times.of([use.later]), from_cache=use.from_cache)


@functools.cache
def _first_use() -> FirstUse:
    """Both cases of first use come out of the same processes."""
    return measure_first(DEVICE)
