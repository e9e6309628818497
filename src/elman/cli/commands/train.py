"""``elman train``: from a file to a run."""

from __future__ import annotations

import shlex
import sys
import time
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elman.cli.completion import comparator_names, run_folders
from elman.cli.options import (
    AsJson,
    Columns,
    Delimiter,
    Encoding,
    Format,
    LabelsSeparator,
    Prefix,
    Quiet,
    Separator,
    Set,
    TaskName,
    TrustCode,
)
from elman.cli.output import put_json, say, warn
from elman.cli.startup import quick_imports
from elman.distributed.place import find_place, started_again
from elman.distributed.supervisor import supervise

if TYPE_CHECKING:
    from collections.abc import Sequence

    from elman.config import Config
    from elman.training.origin import Origin


def train(
    task: TaskName = None,
    train: Annotated[
        list[str],
        typer.Option(
            help="Training file, folder, pattern ('*.csv') or builtin:NAME (elman corpora); repeatable."
        ),
    ] = [],  # noqa: B006
    train_target: Annotated[
        list[str], typer.Option(help="Second, line-aligned training file; as many as --train.")
    ] = [],  # noqa: B006
    dev: Annotated[
        list[str], typer.Option(help="Validation file, repeatable; a part is held out without.")
    ] = [],  # noqa: B006
    dev_target: Annotated[
        list[str], typer.Option(help="Second, line-aligned validation file; as many as --dev.")
    ] = [],  # noqa: B006
    out: Annotated[Path | None, typer.Option(help="Folder of the run.", autocompletion=run_folders)] = None,
    config: Annotated[Path | None, typer.Option(help="Settings as TOML (elman init TASK).")] = None,
    format: Format = None,
    columns: Columns = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    separator: Separator = None,
    labels_separator: LabelsSeparator = None,
    prefix: Prefix = None,
    setting: Set = [],  # noqa: B006
    start: Annotated[
        list[Path],
        typer.Option(
            "--from",
            metavar="RUN",
            help="A run whose weights the new one starts from; two: one that reads forward, one backward.",
            autocompletion=run_folders,
        ),
    ] = [],  # noqa: B006
    baseline: Annotated[
        str | None,
        typer.Option(
            help="A comparator instead of the network: ngram, window or bag.", autocompletion=comparator_names
        ),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            metavar="MINUTES",
            help="Choose updates, and if need be the network's size, so that training ends in that time.",
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run exactly where it was saved.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Sizes, memory, time and the first batch; no training.")
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Processes of this machine that share every batch; see docs/scale.md."),
    ] = None,
    tensorboard: Annotated[bool, typer.Option(help="Also write TensorBoard files into the run.")] = False,
    trust_code: TrustCode = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Train a model from a file; what is not set is chosen for the data."""
    began, place = time.perf_counter(), find_place()
    if workers is not None and place is None:
        if out is None or dry_run:
            raise typer.BadParameter("workers train; name a folder with --out", param_hint="--workers")
        raise SystemExit(supervise([sys.executable, "-m", "elman", *sys.argv[1:]], workers, out, warn))
    if started_again() and out is not None:
        resume = resume or (out / "config.toml").is_file()
    with quick_imports():
        from elman.cli import training as work
        from elman.distributed.group import Group
        from elman.distributed.watch import end_with_supervisor

    end_with_supervisor()
    if place is not None and place.rank > 0:
        if out is None:
            raise typer.BadParameter("where should the run go? Name a folder", param_hint="--out")
        with Group(place) as group:
            work.follow(out, group)
        return

    files = {"train": train, "train_target": train_target, "dev": dev, "dev_target": dev_target}
    layout = {"delimiter": delimiter, "separator": separator, "prefix": prefix}
    layout["labels_separator"] = labels_separator
    layout |= {"format": format, "encoding": encoding}
    given = task or config or train or (start and not resume)
    for option, there in (("--set", setting), ("--minutes", minutes is not None)):
        if resume and not given and there:
            problem = f"a continued run keeps its settings; leave out {option}"
            raise typer.BadParameter(problem, param_hint=option)
    origins = work.open_origins(start, None if dry_run else out, resume=resume, trust_code=trust_code)
    said, pairs = {**files, **layout}, [*setting]
    if minutes is not None:
        pairs.append(f"training.minutes={minutes}")
    settings = work.collect(task, config, said, columns, pairs, baseline, origins) if given else None
    if dry_run:
        if settings is None:
            raise typer.BadParameter("what should be tried? Name a task and --train", param_hint="--dry-run")
        try_out(settings, origins, began, as_json=as_json)
        return
    if out is None:
        raise typer.BadParameter("where should the run go? Name a folder", param_hint="--out")
    with nullcontext() if place is None or place.size == 1 else Group(place) as group:
        last = work.train(
            settings,
            out,
            resume=resume,
            tensorboard=tensorboard,
            trust_code=trust_code,
            origins=origins,
            began=began,
            group=group,
        )
    say(f"best {last['metric']} {last['best']:.4f} at update {last['best_update']} ({last['reason']})")
    if "calibration" in last:
        from elman.metrics.calibration import Calibration

        say(Calibration.of(last["calibration"]).sentence)
    say(f"curves and samples: {out / 'report.html'}")
    name = shlex.quote(str(out))
    say(f"use it: elman predict {name} · elman evaluate {name} FILE")
    if as_json:
        put_json(last)


def try_out(config: Config, origins: Sequence[Origin], began: float, *, as_json: bool) -> None:
    """Everything but training: sizes, memory, what is chosen and why, the time, and the first batch."""
    from elman.cli.training import announce, choice_lines
    from elman.tensors.nested import tensors_in
    from elman.training.building import build
    from elman.training.loop import count_parameters
    from elman.training.measuring import held_bytes, keep_within, measure
    from elman.training.preparing import prepare
    from elman.training.settings import make_task

    task = make_task(config)
    prepared = prepare(task, origins=origins)
    keep_within(prepared, began)
    speed = prepared.speed = prepared.speed or measure(prepared)
    trainer = build(prepared)
    announce(prepared, trainer)
    parts: tuple[object, ...] = task.collate(prepared.train, task.epoch(prepared.train, 0)[0], trainer.device)
    shapes = ", ".join("×".join(map(str, one.shape)) for one in tensors_in(parts))
    for name, weight in trainer.model.named_parameters():
        say(f"  {name:<40} {' × '.join(map(str, weight.shape))}")
    say("chosen, since you left it open; without a reason, the usual:")
    for line in choice_lines(prepared):
        say(f"  {line}")
    say(f"memory of weights, gradients and optimiser: {held_bytes(trainer) / 2**20:,.1f} MiB")
    say(f"first batch: {shapes}")
    if as_json:
        put_json(
            {
                "parameters": count_parameters(trainer.model),
                "bytes": held_bytes(trainer),
                "updates": trainer.total,
                "seconds": speed.seconds,
                "speed": asdict(speed),
                "examples": len(prepared.train),
                "dev_examples": len(prepared.dev),
                **({"from": [*prepared.taken]} if origins else {}),
                "batch": shapes,
                "config": task.config.model_dump(),
                "chosen": [*prepared.chosen],
                "reasons": prepared.statistics.reasons,
            }
        )
