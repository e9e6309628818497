"""``elman bench``: the engine beside torch.nn on this machine, and where it loses."""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from operator import attrgetter
from statistics import median

import torch
import typer

from elman import __version__
from elman.bench.cases import MEDIANS, ON_REQUEST, Case
from elman.bench.devices import JSON, Bench
from elman.bench.measure import Result, Setting, measure, ratio
from elman.bench.tables import align, show_ratio
from elman.bench.timing import Times
from elman.errors import ArgumentError, UnknownNameError, nearest


def report(
    *,
    device: str | None = None,
    explain: bool = False,
    as_json: bool = False,
    quick: bool = False,
    only: str = "",
) -> None:
    """Measure the chosen groups; tables or one JSON object on stdout, progress on stderr.

    Args:
        device: ``"cpu"`` or ``"cuda"``; None: CUDA if this machine has it.
        explain: say how the engine would run each case, and measure nothing.
    """
    bench = find_bench(device, explain=explain)
    cases = choose(bench, quick=quick, only=only)
    if explain:
        _print_explanations(bench, cases, as_json=as_json)
        return
    for line in bench.prepare(quick=quick):
        say(line)
    results: list[Result] = []
    for group, chosen in groupby(cases, key=attrgetter("group")):
        if missing := bench.missing(group):
            say(f"{group}: skipped, since {missing}")
            continue
        found = []
        for case in chosen:
            say(f"{group}: {case.name}")
            found.append(measure(case, Setting(bench.device, quick, bench.rates)))
        results += found
        if not as_json:
            _print_group(bench, group, found)
    if as_json:
        print_json(as_object(bench, results, quick=quick))
    else:
        _print_end(bench, results, quick=quick)


def find_bench(device: str | None, *, explain: bool = False) -> Bench:
    available = torch.cuda.is_available()
    if device == "cuda" and not available:
        raise ArgumentError(
            "--device is cuda, but torch sees no CUDA device; check that nvidia-smi lists one and that torch "
            f"is built for CUDA (this is {torch.__version__}), or measure the CPU with --device cpu"
        )
    if device == "cuda" or (device is None and available):
        return Bench("cuda")
    if explain:
        remedy = "leave out --device cpu" if available else "torch sees none here"
        raise ArgumentError(f"--explain says how cells are laid out on a CUDA device; {remedy}")
    return Bench("cpu")


def choose(bench: Bench, *, quick: bool, only: str) -> list[Case]:
    """The cases of the groups whose name contains ``only``; the small ones where it should be quick.

    Groups that take long come only where ``only`` says something.
    """
    groups = [group for group in bench.groups if only in group and (only or group not in ON_REQUEST)]
    if not groups:
        raise UnknownNameError(f"no group of cases has {only!r} in its name; {nearest(only, bench.groups)}")
    return [case for case in bench.grid() if case.group in groups and (case.small or not quick)]


def say(what: str) -> None:
    print(f"· {what}", file=sys.stderr, flush=True)


def as_object(bench: Bench, results: Sequence[Result], *, quick: bool) -> dict[str, JSON]:
    return {
        "version": __version__,
        "quick": quick,
        "machine": bench.machine(),
        **bench.constants(),
        "method": bench.method(),
        "cases": [_described(result) for result in results],
        "losses": losses(results),
        "medians": {group: {"ratio": found, "target": asked} for group, found, asked in medians(results)},
    }


def medians(results: Iterable[Result]) -> Iterator[tuple[str, float, float]]:
    """The median ratio of every group of which one is asked, and what is asked."""
    for (group, precision), found in groupby(results, key=attrgetter("case.group", "case.precision")):
        ratios = [result.ratio for result in found if result.ratio is not None]
        asked = MEDIANS.get((group, precision))
        if asked is not None and ratios:
            yield group, median(ratios), asked


def losses(results: Iterable[Result]) -> list[dict[str, JSON]]:
    """Every case that falls short, by what it is judged, and of what."""
    return [
        {
            "group": result.case.group,
            "case": result.case.name,
            "ratio": result.ratio,
            "target": result.case.target,
            "eager": result.ratio,
            "eager_target": result.case.target,
            "graph": result.graph_ratio,
            "graph_target": result.case.graph_target,
            "over_floor": result.over_floor,
            "limit": result.case.limit,
            "why": why,
        }
        for result in results
        if (why := result.shortfalls())
    ]


def _described(result: Result) -> dict[str, JSON]:
    """All that is known about a case, times in seconds; some of it under the names of either device."""
    case = result.case
    ours, peer = result.alternating or (None, None)
    alternating = {**_seconds(ours=ours, peer=peer), "ratio": ratio(peer, ours)} if ours else None
    return {
        **asdict(case),
        "name": case.name,
        "D": case.H,  # inputs are as wide as the state throughout
        "kind": "network" if case.mode == "training" else case.mode,
        "padded": case.padding > 0,
        "eager": case.target,
        "graph": case.graph_target,
        **_seconds(ours=result.ours, peer=result.peer),
        **_seconds(ours_graph=result.ours_graph, peer_graph=result.peer_graph),
        "ratio": result.ratio,
        "eager_ratio": result.ratio,
        "graph_ratio": result.graph_ratio,
        "alternating": alternating,
        "step_seconds": result.step,
        "floor_seconds": result.floor,
        "over_floor": result.over_floor,
        "ours_over_floor": result.over_floor,
        "peer_over_floor": result.peer.median / result.floor if result.peer and result.floor else None,
        "errors": result.errors and result.errors._asdict(),
        "tokens_per_second": result.rate,
        "peer_tokens_per_second": result.peer_rate,
        "from_cache": result.from_cache,
        "no_graph": result.refusals,
        "failure": result.failure,
    }


def _seconds(**times: Times | None) -> dict[str, JSON]:
    return {f"{name}_seconds": asdict(found) if found else None for name, found in times.items()}


def print_json(found: Mapping[str, JSON]) -> None:
    typer.echo(json.dumps(found, indent=1, allow_nan=False, ensure_ascii=False))


def table(bench: Bench, results: Sequence[Result]) -> list[str]:
    """Aligned lines of one group: a header and one line a case."""
    columns = bench.columns(results[0].case.group)
    return align([[title for title, _ in columns], *([text(one) for _, text in columns] for one in results)])


def _print_group(bench: Bench, group: str, results: Sequence[Result]) -> None:
    header, *lines = table(bench, results)
    typer.secho(f"\n{group}: {bench.groups[group]}", bold=True)
    typer.secho(header, dim=True)
    for line, result in zip(lines, results, strict=True):
        typer.secho(line, fg="red" if result.shortfalls() else None)
    notes = []
    for result in results:
        notes += [] if result.failure is None else [f"{result.case.name} failed: {result.failure}"]
        for name, why in result.refusals.items():
            notes.append(f"no graph of {'ours' if name == 'ours' else 'the peer'}: {why}")
    notes += [f"median {show_ratio(found)}, asked {asked:g}×" for _, found, asked in medians(results)]
    for note in dict.fromkeys(notes):
        typer.echo(f"  {note}")


def _summary(result: Result) -> str:
    """The ratios of a case, before what it falls short of; empty where there is none."""
    over_floor = result.over_floor if result.case.mode == "floor" else None
    ratios = {"": result.ratio, " as a graph": result.graph_ratio, " of the floor": over_floor}
    shown = ", ".join(f"{show_ratio(ratio)}{way}" for way, ratio in ratios.items() if ratio is not None)
    return shown and f" {shown}{';' if result.case.precision else ''}"


def _print_end(bench: Bench, results: Sequence[Result], *, quick: bool) -> None:
    lost = [result for result in results if result.shortfalls()]
    typer.secho(f"\nLosses: {len(lost)} of {len(results)} cases", bold=True)
    for result in lost:
        why = ", ".join(result.shortfalls())
        typer.echo(f"  {result.case.group}: {result.case.name}:{_summary(result)} {why}")
    for group, found, asked in medians(results):
        if found < asked:
            typer.echo(f"  {group}: median {show_ratio(found)}, under its target of {asked:g}×")
    typer.secho("\nHow it was measured", bold=True)
    for line in bench.method():
        typer.echo(f"  {line}")
    if quick:
        typer.echo("  quick: few sizes and repetitions; a look, not a result")
    typer.secho("\nMachine", bold=True)
    for name, value in {"elman": __version__, **bench.machine()}.items():
        typer.echo(f"  {name}: {value}")


def _print_explanations(bench: Bench, cases: Iterable[Case], *, as_json: bool) -> None:
    found: list[JSON] = []
    for case in cases:
        if case.mode == "first":  # a process of its own
            continue
        lines = bench.explain(case)
        found.append({"group": case.group, "case": case.name, "lines": lines})
        if not as_json:
            typer.secho(f"{case.group}: {case.name}", bold=True)
            for line in lines:
                typer.echo(f"  {line}")
    if as_json:
        print_json({"version": __version__, "machine": bench.machine(), "cases": found})
