"""``elman tune``: settings that suit the data, found by training with many."""

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
    from elman.tuning.study import Trial

TRIALS = 20


def tune(
    task: TaskName = None,
    train: TrainFiles = [],  # noqa: B006
    train_target: TrainTargets = [],  # noqa: B006
    dev: DevFiles = [],  # noqa: B006
    dev_target: DevTargets = [],  # noqa: B006
    out: Annotated[Path | None, typer.Option(help="Folder of the search.")] = None,
    trials: Annotated[
        int | None, typer.Option(min=1, help=f"Trainings to try; unset: {TRIALS}, or what --minutes allow.")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(min=0, help="Time of the search; what has begun then is finished.")
    ] = None,
    search: Annotated[
        list[str],
        typer.Option(
            metavar="KEY=LOW..HIGH",
            help="A range to search, or values (model.cell=lstm,gru), besides the task's own; repeatable.",
        ),
    ] = [],  # noqa: B006
    seeds: Annotated[
        int, typer.Option(min=1, help="The best three and the default are trained so often; 1: not again.")
    ] = 3,
    seed: Annotated[int, typer.Option(min=0, help="Of the search, and of every trial.")] = 1,
    config: Annotated[
        Path | None, typer.Option(help="Settings of all trials as TOML (elman init TASK).")
    ] = None,
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
    """Search settings on validation data; what is set (--set, --config) is not searched."""
    with quick_imports():
        from elman.cli.training import collect
        from elman.comparing.processes import threads_of
        from elman.cores import cores
        from elman.training.session import run_lock
        from elman.tuning.results import Found, changes, outcome, rows, write_search
        from elman.tuning.searching import Budget, Plan, finalists, keep_best
        from elman.tuning.searching import search as run_search
        from elman.tuning.space import parse_range
        from elman.tuning.study import found_optuna

    if out is None:
        raise typer.BadParameter("where should the search go? Name a folder", param_hint="--out")
    found_optuna()
    ranges = dict(map(parse_range, search))
    files = {"train": train, "train_target": train_target, "dev": dev, "dev_target": dev_target}
    layout = {"format": format, "delimiter": delimiter, "encoding": encoding}
    common = collect(task, config, {**files, **layout}, columns, [*setting, f"training.seed={seed}"], None)
    at_once = jobs or cores()
    wanted = trials or (None if minutes else TRIALS)
    budget = Budget(wanted, minutes, seeds, at_once)
    out.mkdir(parents=True, exist_ok=True)
    with run_lock(out):
        plan = Plan.of(out, common, ranges, threads_of(at_once))
        for key, one in plan.space.items():
            say(f"{key}: {one}")

        def tell(trial: Trial) -> None:
            say(f"trial {trial.number}: {outcome(trial)}, {trial.seconds:,.0f} s: {changes(plan, trial)}")

        def tell_job(job: Job, seconds: float) -> None:
            say(f"{job.name}, seed {job.seed}: {seconds:,.0f} s")

        try:
            done = run_search(plan, budget, trust_code=trust_code, told=tell)
            if seeds > 1:
                say(f"the best with {seeds} seeds, for one may be lucky")
            best = finalists(plan, done, budget, trust_code=trust_code, told=tell_job)
        except KeyboardInterrupt:
            say(f"stopped; all is saved. Continue with:\n  elman {shlex.join(sys.argv[1:])}")
            raise SystemExit(130) from None
        found = Found(plan, done, best)
        keep_best(plan, found.best.trial)
        write_search(found, out / "tune.html")
    put(aligned(rows(found)))
    say(found.sentence)
    say(f"the page: {out / 'tune.html'} · its settings: {out / 'best.toml'}")
    name = shlex.quote(str(out / "best"))
    say(f"use it: elman predict {name} · elman evaluate {name} FILE")
    if as_json:
        put_json(found.as_json())
