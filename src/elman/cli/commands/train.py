"""``elman train``: from a file to a run."""

from __future__ import annotations

import shlex
import time
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
from elman.cli.output import put_json, say
from elman.cli.startup import quick_imports

BEFORE = 4  # updates that a dry run does not measure where the next ones are recorded

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
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run exactly where it was saved.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Sizes, memory, time and the first batch; no training.")
    ] = False,
    tensorboard: Annotated[bool, typer.Option(help="Also write TensorBoard files into the run.")] = False,
    trust_code: TrustCode = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Train a model from a file; what is not set is chosen for the data."""
    with quick_imports():
        from elman.cli import training as work

    files = {"train": train, "train_target": train_target, "dev": dev, "dev_target": dev_target}
    layout = {"delimiter": delimiter, "separator": separator, "prefix": prefix}
    layout["labels_separator"] = labels_separator
    layout |= {"format": format, "encoding": encoding}
    given = task or config or train or (start and not resume)
    if resume and not given and setting:
        raise typer.BadParameter("a continued run keeps its settings; leave out --set", param_hint="--set")
    origins = work.open_origins(start, None if dry_run else out, resume=resume, trust_code=trust_code)
    said = {**files, **layout}
    settings = work.collect(task, config, said, columns, setting, baseline, origins) if given else None
    if dry_run:
        if settings is None:
            raise typer.BadParameter("what should be tried? Name a task and --train", param_hint="--dry-run")
        try_out(settings, origins, as_json=as_json)
        return
    if out is None:
        raise typer.BadParameter("where should the run go? Name a folder", param_hint="--out")
    last = work.train(
        settings, out, resume=resume, tensorboard=tensorboard, trust_code=trust_code, origins=origins
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


def try_out(config: Config, origins: Sequence[Origin] = (), *, as_json: bool) -> None:
    """Everything but training: sizes, memory, an estimate of the time, and the first batch."""
    from elman.cli.training import announce
    from elman.tensors.nested import tensors_in
    from elman.training.loop import count_parameters
    from elman.training.preparing import prepare
    from elman.training.run import build
    from elman.training.settings import make_task

    task = make_task(config)
    prepared = prepare(task, origins=origins)
    trainer = build(prepared)
    announce(prepared, trainer)
    weights = count_parameters(trainer.model)
    copies = {"adam": 4, "adamw": 4}.get(str(trainer.settings.optimizer), 2)
    copies += trainer.averaging.kind != "none"
    parts: tuple[object, ...] = task.collate(prepared.train, task.epoch(prepared.train, 0)[0], trainer.device)
    shapes = ", ".join("×".join(map(str, one.shape)) for one in tensors_in(parts))
    steps = iter(trainer.run())
    for _ in range(1 if trainer.recorded.obstacle else BEFORE):
        next(steps, None)
    start, measured = time.perf_counter(), min(5, max(1, trainer.total - 1))
    for _ in range(measured):
        next(steps, None)
    seconds = (time.perf_counter() - start) / measured * trainer.total
    for name, weight in trainer.model.named_parameters():
        say(f"  {name:<40} {' × '.join(map(str, weight.shape))}")
    say(f"memory of weights, gradients and optimiser: {weights * 4 * copies / 2**20:,.1f} MiB")
    say(f"first batch: {shapes}")
    say(f"time, by {measured} updates: about {seconds / 60:.1f} minutes")
    if as_json:
        work = {"parameters": weights, "bytes": weights * 4 * copies, "updates": trainer.total}
        data = {"examples": len(prepared.train), "dev_examples": len(prepared.dev)}
        settings = task.config.model_dump()
        told = {"from": [*prepared.taken]} if origins else {}
        put_json({**work, "seconds": seconds, **data, **told, "batch": shapes, "config": settings})
