"""``elman bench``: the engine beside torch.nn on this machine, and where it loses."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

import typer

from elman import __version__
from elman.cli.bench.cases import GROUPS, Case, choose
from elman.cli.bench.machine import describe_machine
from elman.cli.bench.measure import BLOCK, Rates, Result, Times, measure, measure_rates

HEADER = ("case", "ours {unit}", "peer {unit}", "ratio", "target", "ours/floor", "worst error")
UNITS = {"stream": ("µs", 1e6), "first": ("s", 1.0)}
METHOD = (
    "float32; input as wide as the state; one layer; batch-first on both sides",
    "training: forward and backward, gradients to x, the initial state and all weights",
    "ours, peer: medians of runs in turn in one process; ratio: peer / ours, above 1 we are faster",
    f"streams: blocks of {BLOCK} calls of one side; call by call in turn: see --json",
    "worst error: ‖a−b‖/(‖b‖+1) over outputs, states and gradients, against the peer (where it has the "
    "same equations) and against a float64 loop",
)


def report(*, as_json: bool = False, quick: bool = False, only: str = "") -> None:
    """Measure the chosen groups; tables or one JSON object on stdout, progress on stderr."""
    cases = choose(quick=quick, only=only)
    machine = describe_machine()
    if machine["load"] > machine["cores"] / 4:
        _say(f"others are using this machine (load {machine['load']}): the figures will be off")
    _say("measuring what the machine can do")
    rates = measure_rates(quick=quick)
    results: list[Result] = []
    for group in dict.fromkeys(case.group for case in cases):
        found = [_measured(case, rates, quick) for case in cases if case.group == group]
        results += found
        if not as_json:
            _print_group(group, found)
    if as_json:
        typer.echo(
            json.dumps(
                as_object(results, rates, machine, quick=quick), indent=1, allow_nan=False, ensure_ascii=False
            )
        )
    else:
        _print_end(results, rates, machine, quick=quick)


def _measured(case: Case, rates: Rates, quick: bool) -> Result:
    _say(f"{case.group}: {case.name}")
    return measure(case, rates, quick=quick)


def _say(what: str) -> None:
    print(f"· {what}", file=sys.stderr, flush=True)


# ---- what was lost -------------------------------------------------------------------------------


def shortfalls(result: Result) -> list[str]:
    """What this case does not reach, in words; empty where all is well."""
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


def losses(results: Iterable[Result]) -> list[dict[str, Any]]:
    """Every case that falls short, and of what."""
    return [
        {"group": r.case.group, "case": r.case.name, "ratio": r.ratio, "target": r.case.target, "why": why}
        for r in results
        if (why := shortfalls(r))
    ]


# ---- JSON ----------------------------------------------------------------------------------------


def as_object(
    results: Sequence[Result], rates: Rates, machine: dict[str, Any], *, quick: bool
) -> dict[str, Any]:
    """Everything that is known, for programs; times in seconds."""
    return {
        "version": __version__,
        "quick": quick,
        "machine": machine,
        "rates": {"flops_per_second": rates.flops, "cached_bytes_per_second": rates.bytes},
        "method": METHOD,
        "cases": [_case_object(result) for result in results],
        "losses": losses(results),
    }


def _case_object(result: Result) -> dict[str, Any]:
    found = {
        **asdict(result.case),
        "name": result.case.name,
        "D": result.case.D,
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


# ---- tables --------------------------------------------------------------------------------------


def table(results: Sequence[Result]) -> list[str]:
    """Aligned lines: a header and one line a case."""
    unit, scale = UNITS.get(results[0].case.group, ("ms", 1e3))
    rows = [tuple(title.format(unit=unit) for title in HEADER)]
    rows += [_row(result, scale) for result in results]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]


def _row(result: Result, scale: float) -> tuple[str, ...]:
    case = result.case
    target = f"{case.target:g}×" if case.target is not None else "–"
    if case.limit is not None:
        target = f"≤ {case.limit:g} s"
    if result.from_cache is not None:
        target = "cached" if result.from_cache else "not cached"
    return (
        case.name,
        _number(result.ours, scale),
        _number(result.peer, scale),
        f"{result.ratio:.2f}×" if result.ratio is not None else "–",
        target,
        f"{result.over_floor:.2f}" if result.over_floor is not None else "–",
        f"{result.worst_error:.0e}" if result.worst_error is not None else "–",
    )


def _number(times: Times | None, scale: float) -> str:
    """Three digits at least, and no powers of ten."""
    if times is None:
        return "–"
    value = times.median * scale
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"


def _print_group(group: str, results: Sequence[Result]) -> None:
    header, *lines = table(results)
    typer.secho(f"\n{group}: {GROUPS[group]}", bold=True)
    typer.secho(header, dim=True)
    for line, result in zip(lines, results, strict=True):
        typer.secho(line, fg="red" if shortfalls(result) else None)


def _print_end(results: Sequence[Result], rates: Rates, machine: dict[str, Any], *, quick: bool) -> None:
    lost = losses(results)
    typer.secho(f"\nLosses: {len(lost)} of {len(results)} cases", bold=True)
    for loss in lost:
        ratio = f" {loss['ratio']:.2f}×" if loss["ratio"] is not None else ""
        typer.echo(f"  {loss['group']}: {loss['case']}:{ratio} {', '.join(loss['why'])}")
    typer.secho("\nHow it was measured", bold=True)
    for line in (*METHOD, _floor_line(rates)):
        typer.echo(f"  {line}")
    if quick:
        typer.echo("  quick: few sizes and repetitions; a look, not a result")
    typer.secho("\nMachine", bold=True)
    for name, value in {"elman": __version__, **machine}.items():
        typer.echo(f"  {name}: {value}")


def _floor_line(rates: Rates) -> str:
    return (
        f"floor: the products at this machine's {rates.flops / 1e9:.0f} GFLOP/s; for fewer than 4 rows at "
        f"least the reading of the recurrent weights at {rates.bytes / 1e9:.0f} GB/s, all threads"
    )
