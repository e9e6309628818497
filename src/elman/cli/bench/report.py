"""``elman bench``: the engine beside torch.nn on this machine, and where it loses."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch
import typer

from elman import __version__
from elman.cli.bench.show import align
from elman.errors import ArgumentError, UnknownNameError, nearest


class Bench(Protocol):
    """What is measured on one kind of device, and how its results are judged and told.

    A case has a ``group``, a ``name`` and ``small``, whether a quick run takes it; a result its ``case``.
    """

    @property
    def groups(self) -> Mapping[str, str]:
        """Their names and titles."""

    def grid(self) -> Iterator[Any]:
        """All cases, group by group."""

    def prepare(self, *, quick: bool) -> Iterator[str]:
        """Finds out what is needed before the first case, and says what it is doing."""

    def machine(self) -> dict[str, Any]:
        """The facts without which a figure means little."""

    def method(self) -> tuple[str, ...]:
        """How it was measured, in sentences."""

    def constants(self) -> dict[str, Any]:
        """What figures were compared with, for JSON."""

    def measure(self, case: Any, *, quick: bool) -> Any: ...
    def shortfalls(self, result: Any) -> list[str]:
        """What this case does not reach, in words; empty where all is well."""

    def figures(self, result: Any) -> dict[str, float | None]:
        """What a case is judged by, for JSON."""

    def summary(self, result: Any) -> str:
        """The same for people, before what it falls short of; empty where there is nothing."""

    def header(self, group: str) -> tuple[str, ...]: ...
    def row(self, result: Any) -> tuple[str, ...]:
        """Its line, column by column as the group's header."""

    def notes(self, result: Any) -> list[str]:
        """What has to be said below the table."""

    def as_object(self, result: Any) -> dict[str, Any]:
        """All that is known about a case, for JSON; times in seconds."""


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
        _say(line)
    results: list[Any] = []
    for group in dict.fromkeys(case.group for case in cases):
        found = [_measured(bench, case, quick) for case in cases if case.group == group]
        results += found
        if not as_json:
            _print_group(bench, group, found)
    if as_json:
        _print_json(as_object(bench, results, quick=quick))
    else:
        _print_end(bench, results, quick=quick)


def find_bench(device: str | None, *, explain: bool = False) -> Bench:
    """What belongs to this device, if this machine has it."""
    from elman.cli.bench.cpu.bench import CPUBench
    from elman.cli.bench.cuda.bench import CUDABench

    available = torch.cuda.is_available()
    if device == "cuda" and not available:
        raise ArgumentError(
            "--device is cuda, but torch sees no CUDA device; check that nvidia-smi lists one and that torch "
            f"is built for CUDA (this is {torch.__version__}), or measure the CPU with --device cpu"
        )
    if device == "cuda" or (device is None and available):
        return CUDABench()
    if explain:
        remedy = "leave out --device cpu" if available else "torch sees none here"
        raise ArgumentError(f"--explain says how cells are laid out on a CUDA device; {remedy}")
    return CPUBench()


def choose(bench: Bench, *, quick: bool, only: str) -> list[Any]:
    """The cases of the groups whose name contains ``only``; the small ones where it should be quick."""
    groups = [group for group in bench.groups if only in group]
    if not groups:
        raise UnknownNameError(f"no group of cases has {only!r} in its name; {nearest(only, bench.groups)}")
    return [case for case in bench.grid() if case.group in groups and (case.small or not quick)]


def _measured(bench: Bench, case: Any, quick: bool) -> Any:
    _say(f"{case.group}: {case.name}")
    return bench.measure(case, quick=quick)


def _say(what: str) -> None:
    print(f"· {what}", file=sys.stderr, flush=True)


# ---- what was lost, and JSON ---------------------------------------------------------------------


def losses(bench: Bench, results: Iterable[Any]) -> list[dict[str, Any]]:
    """Every case that falls short, and of what."""
    return [
        {"group": result.case.group, "case": result.case.name, **bench.figures(result), "why": why}
        for result in results
        if (why := bench.shortfalls(result))
    ]


def as_object(bench: Bench, results: Sequence[Any], *, quick: bool) -> dict[str, Any]:
    """Everything that is known, for programs."""
    return {
        "version": __version__,
        "quick": quick,
        "machine": bench.machine(),
        **bench.constants(),
        "method": bench.method(),
        "cases": [bench.as_object(result) for result in results],
        "losses": losses(bench, results),
    }


def _print_json(found: dict[str, Any]) -> None:
    typer.echo(json.dumps(found, indent=1, allow_nan=False, ensure_ascii=False))


# ---- for people ----------------------------------------------------------------------------------


def table(bench: Bench, results: Sequence[Any]) -> list[str]:
    """Aligned lines of one group: a header and one line a case."""
    return align([bench.header(results[0].case.group), *(bench.row(result) for result in results)])


def _print_group(bench: Bench, group: str, results: Sequence[Any]) -> None:
    header, *lines = table(bench, results)
    typer.secho(f"\n{group}: {bench.groups[group]}", bold=True)
    typer.secho(header, dim=True)
    for line, result in zip(lines, results, strict=True):
        typer.secho(line, fg="red" if bench.shortfalls(result) else None)
    for note in dict.fromkeys(note for result in results for note in bench.notes(result)):
        typer.echo(f"  {note}")


def _print_end(bench: Bench, results: Sequence[Any], *, quick: bool) -> None:
    lost = [result for result in results if bench.shortfalls(result)]
    typer.secho(f"\nLosses: {len(lost)} of {len(results)} cases", bold=True)
    for result in lost:
        summary = bench.summary(result)
        why = ", ".join(bench.shortfalls(result))
        typer.echo(f"  {result.case.group}: {result.case.name}:{summary and f' {summary}'} {why}")
    typer.secho("\nHow it was measured", bold=True)
    for line in bench.method():
        typer.echo(f"  {line}")
    if quick:
        typer.echo("  quick: few sizes and repetitions; a look, not a result")
    typer.secho("\nMachine", bold=True)
    for name, value in {"elman": __version__, **bench.machine()}.items():
        typer.echo(f"  {name}: {value}")


def _print_explanations(bench: Bench, cases: Iterable[Any], *, as_json: bool) -> None:
    from elman.cli.bench.cuda.explain import explain

    found = []
    for case in cases:
        if case.kind == "first":  # a process of its own
            continue
        lines = explain(case)
        found.append({"group": case.group, "case": case.name, "lines": lines})
        if not as_json:
            typer.secho(f"{case.group}: {case.name}", bold=True)
            for line in lines:
                typer.echo(f"  {line}")
    if as_json:
        _print_json({"version": __version__, "machine": bench.machine(), "cases": found})
