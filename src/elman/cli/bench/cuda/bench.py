"""``elman bench`` on a CUDA device: how its results are judged and told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from elman.cli.bench.cuda.cases import GROUPS, Case, grid
from elman.cli.bench.cuda.floor import BARRIER, H200
from elman.cli.bench.cuda.measure import LEAST, WARM_UP, Result, measure
from elman.cli.bench.cuda.model import CLIP, DROPOUT, VOCABULARY
from elman.cli.bench.machine import describe_card
from elman.cli.bench.measure import Times
from elman.cli.bench.show import NOTHING, show_error, show_number, show_ratio, show_times

WAYS = ("ours ms", "ours graph", "peer ms", "peer graph", "eager", "graph", "asked")
HEADERS = {
    "network": ("case", *WAYS, "µs/step", "error", "peer's"),
    "model": ("case", *WAYS, "tokens/s", "peer's"),
    "floor": ("case", "µs/step", "floor", "ours/floor", "asked"),
    "first": ("case", "s", "asked"),
}
TOLERANCES = {"bf16": 0.05, "fp16": 0.01, "tf32": 0.01}
METHOD = (
    "training: forward and backward from a zero state, gradients to x and all weights, all products included",
    "inputs as wide as the state; ours batch-first; the peer time-major with flattened weights, its fastest",
    "medians of times between CUDA events around single calls that find the device idle, all in turn in one "
    f"process: {WARM_UP[False]} rounds of warming up, {LEAST[False]} or more that count",
    "graph: the whole training step replayed as a CUDA graph; eager: called in Python",
    "ratios: peer / ours, above 1 we are faster; eager against eager; graph: the peer's graph against the "
    "better of ours; asked: the least for both",
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


class CUDABench:
    groups = GROUPS

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {}

    def grid(self) -> Iterator[Case]:
        return grid()

    def prepare(self, *, quick: bool) -> Iterator[str]:
        yield f"measuring on {self.machine()['card']}"

    def machine(self) -> dict[str, Any]:
        self.facts = self.facts or describe_card()
        return self.facts

    def method(self) -> tuple[str, ...]:
        return METHOD

    def constants(self) -> dict[str, Any]:
        return {"floor": {**asdict(H200), "barrier_microseconds": dict(BARRIER)}}

    def measure(self, case: Case, *, quick: bool) -> Result:
        return measure(case, quick=quick)

    def shortfalls(self, result: Result) -> list[str]:
        case = result.case
        if result.failure is not None:
            return [f"failed: {result.failure}"]
        found = []
        for way, ratio, target in (("", result.eager, case.eager), (" as a graph", result.graph, case.graph)):
            if ratio is not None and ratio < 1:
                found.append(f"slower than the peer{way}")
            if ratio is not None and target is not None and ratio < target:
                found.append(f"under its target of {target:g}×{way}")
        if case.kind == "floor" and _over(result.over_floor, case.limit):
            found.append(f"over its limit of {case.limit:g} floors")
        if case.kind == "first" and result.ours and _over(result.ours.median, case.limit):
            found.append(f"over its limit of {case.limit:g} s")
        if result.from_cache is False:
            found.append("compiled again instead of taken from the cache")
        tolerance = TOLERANCES[case.precision]
        if result.errors and result.errors.float64 > tolerance:
            found.append(f"error {result.errors.float64:.0e} above {tolerance:g}")
        return found

    def figures(self, result: Result) -> dict[str, float | None]:
        case = result.case
        return {
            "eager": result.eager,
            "eager_target": case.eager,
            "graph": result.graph,
            "graph_target": case.graph,
            "over_floor": result.over_floor,
            "limit": case.limit,
        }

    def summary(self, result: Result) -> str:
        ratios = {"": result.eager, " as a graph": result.graph, " of the floor": result.over_floor}
        shown = ", ".join(f"{show_ratio(ratio)}{way}" for way, ratio in ratios.items() if ratio is not None)
        return shown and f"{shown};"

    def header(self, group: str) -> tuple[str, ...]:
        return HEADERS.get(group, HEADERS["network"])

    def row(self, result: Result) -> tuple[str, ...]:
        case, errors = result.case, result.errors
        if case.kind == "first":
            cached = {None: NOTHING, True: "cached", False: "not cached"}[result.from_cache]
            return case.name, show_times(result.ours, 1.0), f"≤ {case.limit:g} s" if case.limit else cached
        step = show_number(None if result.step is None else result.step * 1e6)
        if case.kind == "floor":
            floor = show_number(None if result.floor is None else result.floor * 1e6)
            return case.name, step, floor, show_ratio(result.over_floor), f"≤ {case.limit:g}×"
        ways = (result.ours, result.ours_graph, result.peer, result.peer_graph)
        asked = [f"{target:g}×" for target in (case.eager, case.graph) if target is not None]
        row = (
            case.name,
            *(show_times(times, 1e3) for times in ways),
            show_ratio(result.eager),
            show_ratio(result.graph),
            ", ".join(asked) or NOTHING,
        )
        if case.kind == "model":
            return *row, *(_show_rate(case, times) for times in (result.ours, result.peer))
        own = (errors.float64, errors.peer_float64) if errors else (None, None)
        return *row, step, *(show_error(error) for error in own)

    def notes(self, result: Result) -> list[str]:
        failed = [] if result.failure is None else [f"{result.case.name} failed: {result.failure}"]
        side = {"ours": "ours", "peer": "the peer"}
        return [*failed, *(f"no graph of {side[name]}: {why}" for name, why in result.refusals.items())]

    def as_object(self, result: Result) -> dict[str, Any]:
        case, errors = result.case, result.errors
        times = {
            f"{way}_seconds": getattr(result, way) for way in ("ours", "ours_graph", "peer", "peer_graph")
        }
        return {
            **asdict(case),
            "name": case.name,
            "D": case.H,  # inputs are as wide as the state throughout
            **{name: asdict(found) if found else None for name, found in times.items()},
            "eager_ratio": result.eager,
            "graph_ratio": result.graph,
            "step_seconds": result.step,
            "floor_seconds": result.floor,
            "over_floor": result.over_floor,
            "errors": errors._asdict() if errors else None,
            "tokens_per_second": _rate(case, result.ours) if case.kind == "model" else None,
            "peer_tokens_per_second": _rate(case, result.peer) if case.kind == "model" else None,
            "from_cache": result.from_cache,
            "no_graph": result.refusals,
            "failure": result.failure,
        }


def _over(value: float | None, limit: float | None) -> bool:
    return value is not None and limit is not None and value > limit


def _rate(case: Case, times: Times | None) -> float | None:
    """Tokens a second."""
    return None if times is None else case.B * case.T / times.median


def _show_rate(case: Case, times: Times | None) -> str:
    rate = _rate(case, times)
    return NOTHING if rate is None else f"{rate:,.0f}"
