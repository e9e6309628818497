"""``elman compare``: several networks under one budget, with several seeds."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elman.cli.options import (
    AsJson,
    Columns,
    Delimiter,
    DevFiles,
    DevTargets,
    Encoding,
    Format,
    Jobs,
    Quiet,
    Set,
    TaskName,
    TrainFiles,
    TrainTargets,
    TrustCode,
)
from elman.cli.output import aligned, put, put_json, say
from elman.cli.startup import quick_imports

if TYPE_CHECKING:
    from elman.comparing.running import Job


def compare(
    task: TaskName = None,
    cells: Annotated[str, typer.Option(help="Cells to compare: lstm,gru,cells.py:Mine.")] = "",
    tried: Annotated[
        list[str],
        typer.Option(
            "--try", metavar="'NAME: KEY=VALUE …'", help="Settings to compare, with a name; repeatable."
        ),
    ] = [],  # noqa: B006
    baselines: Annotated[str, typer.Option(help="Comparators without recurrence: ngram,window,bag.")] = "",
    seeds: Annotated[int, typer.Option(min=1, help="How often each is trained.")] = 5,
    equal: Annotated[
        str, typer.Option(help="What all have the same of: updates, tokens, parameters or minutes.")
    ] = "updates",
    minutes: Annotated[float | None, typer.Option(help="With --equal minutes: of each training.")] = None,
    train: TrainFiles = [],  # noqa: B006
    train_target: TrainTargets = [],  # noqa: B006
    dev: DevFiles = [],  # noqa: B006
    dev_target: DevTargets = [],  # noqa: B006
    test: Annotated[
        str | None, typer.Option(help="Compare by this file instead of validation data; once, at the end.")
    ] = None,
    test_target: Annotated[str | None, typer.Option(help="Second, line-aligned test file.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the comparison.")] = None,
    config: Annotated[Path | None, typer.Option(help="Settings of all as TOML (elman init TASK).")] = None,
    format: Format = None,
    columns: Columns = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    setting: Set = [],  # noqa: B006
    jobs: Jobs = None,
    trust_code: TrustCode = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Compare cells, settings or comparators fairly: one budget, several seeds, intervals that cover."""
    with quick_imports():
        from elman.cli.training import collect
        from elman.comparing import running
        from elman.comparing.contenders import EQUAL, contenders, entries
        from elman.comparing.page import write_comparison
        from elman.comparing.processes import threads_of
        from elman.comparing.results import latex, results_of, rows
        from elman.cores import cores
        from elman.storage.files import write_bytes
        from elman.training.session import run_lock

    if out is None:
        raise typer.BadParameter("where should the comparison go? Name a folder", param_hint="--out")
    if equal not in EQUAL:
        raise typer.BadParameter(f"{equal!r} is none of {', '.join(EQUAL)}", param_hint="--equal")
    if (minutes is None) == (equal == "minutes"):
        raise typer.BadParameter(
            "--minutes goes with --equal minutes, and that with it", param_hint="--minutes"
        )
    given = contenders(named(cells), tried, named(baselines))
    files = {"train": train, "train_target": train_target, "dev": dev, "dev_target": dev_target}
    layout = {"format": format, "delimiter": delimiter, "encoding": encoding}
    pairs = [*setting] if minutes is None else [*setting, f"training.minutes={minutes}"]
    common = collect(task, config, {**files, **layout}, columns, pairs, None)
    told = [] if test is None else [test, *(["--target", test_target] if test_target else [])]
    plan = {
        "contenders": [[one.name, *one.settings] for one in given],
        "seeds": seeds,
        "equal": equal,
        "test": told,
        "settings": common.model_dump(mode="json", exclude_unset=True),
    }
    at_once = jobs or min(len(given) * seeds, cores())
    whole = running.begin(out, plan, lambda: entries(common, given, equal, threads_of(at_once), told))
    todo = running.jobs(out, [one["name"] for one in whole["entries"]], seeds)

    def tell(job: Job, seconds: float) -> None:
        say(f"{job.name}, seed {job.seed}: {seconds:,.0f} s")

    try:
        with run_lock(out):
            left = sum(not job.finished(bool(told)) for job in todo)
            say(f"{len(todo)} trainings, {left} of them to do, {at_once} at a time")
            running.run_all(todo, told, at_once=at_once, trust_code=trust_code, told=tell)
    except KeyboardInterrupt:
        say(f"stopped; all is saved. Continue with:\n  elman {shlex.join(sys.argv[1:])}")
        raise SystemExit(130) from None
    found = results_of(f"{common.task}: {', '.join(one.name for one in given)}", whole, todo)
    put(aligned(rows(found)))
    if seeds == 1:
        say("one seed says nothing of chance: with more of them (--seeds 5) it shows who is better")
    write_comparison(found, out / "comparison.html")
    write_bytes(out / "comparison.tex", latex(found).encode())
    say(f"the page: {out / 'comparison.html'} · for a paper: {out / 'comparison.tex'}")
    if as_json:
        put_json(found.as_json())


def named(words: str) -> list[str]:
    return [word.strip() for word in words.split(",") if word.strip()]
