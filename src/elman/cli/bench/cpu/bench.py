"""``elman bench`` on the CPU: how its results are judged and told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from elman.cli.bench.cpu.cases import GROUPS, Case, grid
from elman.cli.bench.cpu.measure import BLOCK, Rates, Result, measure, measure_rates
from elman.cli.bench.machine import describe_machine
from elman.cli.bench.show import NOTHING, show_error, show_ratio, show_times

HEADER = ("case", "ours {unit}", "peer {unit}", "ratio", "target", "ours/floor", "worst error")
MILLISECONDS = ("ms", 1e3)
UNITS = {"stream": ("µs", 1e6), "first": ("s", 1.0)}
METHOD = (
    "float32; input as wide as the state; one layer; batch-first on both sides",
    "training: forward and backward, gradients to x, the initial state and all weights",
    "ours, peer: medians of runs in turn in one process; ratio: peer / ours, above 1 we are faster",
    f"streams: blocks of {BLOCK} calls of one side; call by call in turn: see --json",
    "worst error: ‖a−b‖/(‖b‖+1) over outputs, states and gradients, against the peer (where it has the "
    "same equations) and against a float64 loop",
)


class CPUBench:
    groups = GROUPS

    def __init__(self) -> None:
        self.facts = describe_machine()
        self.rates: Rates | None = None

    def grid(self) -> Iterator[Case]:
        return grid()

    def prepare(self, *, quick: bool) -> Iterator[str]:
        if self.facts["load"] > self.facts["cores"] / 4:
            yield f"others are using this machine (load {self.facts['load']}): the figures will be off"
        yield "measuring what the machine can do"
        self.rates = measure_rates(quick=quick)

    def machine(self) -> dict[str, Any]:
        return self.facts

    def method(self) -> tuple[str, ...]:
        assert self.rates is not None
        return (
            *METHOD,
            f"floor: the products at this machine's {self.rates.flops / 1e9:.0f} GFLOP/s; for fewer than 4 "
            f"rows at least the reading of the recurrent weights at {self.rates.bytes / 1e9:.0f} GB/s, "
            "all threads",
        )

    def constants(self) -> dict[str, Any]:
        assert self.rates is not None
        rates = {"flops_per_second": self.rates.flops, "cached_bytes_per_second": self.rates.bytes}
        return {"rates": rates}

    def measure(self, case: Case, *, quick: bool) -> Result:
        assert self.rates is not None
        return measure(case, self.rates, quick=quick)

    def shortfalls(self, result: Result) -> list[str]:
        case, ratio, found = result.case, result.ratio, []
        if ratio is not None and ratio < 1:
            found.append("slower than the peer")
        if ratio is not None and case.target is not None and ratio < case.target:
            found.append(f"under its target of {case.target:g}×")
        if case.limit is not None and result.ours.median > case.limit:
            found.append(f"over its limit of {case.limit:g} s")
        if result.from_cache is False:
            found.append("compiled again instead of taken from the cache")
        return found

    def figures(self, result: Result) -> dict[str, float | None]:
        return {"ratio": result.ratio, "target": result.case.target}

    def summary(self, result: Result) -> str:
        return "" if result.ratio is None else show_ratio(result.ratio)

    def header(self, group: str) -> tuple[str, ...]:
        unit, _ = UNITS.get(group, MILLISECONDS)
        return tuple(title.format(unit=unit) for title in HEADER)

    def row(self, result: Result) -> tuple[str, ...]:
        case = result.case
        _, scale = UNITS.get(case.group, MILLISECONDS)
        target = f"{case.target:g}×" if case.target is not None else NOTHING
        if case.limit is not None:
            target = f"≤ {case.limit:g} s"
        if result.from_cache is not None:
            target = "cached" if result.from_cache else "not cached"
        return (
            case.name,
            show_times(result.ours, scale),
            show_times(result.peer, scale),
            show_ratio(result.ratio),
            target,
            f"{result.over_floor:.2f}" if result.over_floor is not None else NOTHING,
            show_error(result.worst_error),
        )

    def notes(self, result: Result) -> list[str]:
        return []

    def as_object(self, result: Result) -> dict[str, Any]:
        found = {
            **asdict(result.case),
            "name": result.case.name,
            "D": result.case.H,  # inputs are as wide as the state throughout
            "ours_seconds": asdict(result.ours),
            "peer_seconds": asdict(result.peer) if result.peer else None,
            "ratio": result.ratio,
            "floor_seconds": result.floor,
            "ours_over_floor": result.over_floor,
            "peer_over_floor": result.peer.median / result.floor if result.peer and result.floor else None,
            "errors": result.errors._asdict() if result.errors else None,
        }
        if result.alternating is not None:
            ours, peer = result.alternating
            found["alternating"] = {
                "ours_seconds": asdict(ours),
                "peer_seconds": asdict(peer),
                "ratio": peer.median / ours.median,
            }
        if result.from_cache is not None:
            found["from_cache"] = result.from_cache
        return found
