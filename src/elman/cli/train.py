"""``elman train``: from a file to a run."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from elman.cli.output import put_json, say
from elman.config import (
    Config,
    DataSettings,
    ModelSettings,
    NetworkSettings,
    changed,
    merge,
    parse_settings,
    part_names,
    put,
    read_toml,
    validate,
)
from elman.errors import ConfigError, ElmanError, FileError, RunError, RunExistsError
from elman.registry import named_code
from elman.tasks.base import Task
from elman.text.readers import parse_columns
from elman.training.card import write_card
from elman.training.loop import Trainer, count_parameters
from elman.training.progress import Progress
from elman.training.report import write_report
from elman.training.run import (
    Prepared,
    begin,
    build,
    make_task,
    prepare,
    read_config,
    settings_class,
    train_run,
)
from elman.training.session import LOCK, Interrupted, run_lock
from elman.training.sources import check_layout, corpus_settings, exists
from elman.trust import Trust

OPTIONS = ("cell_options", "attention_options", "columns")  # tables that are one setting


def collect(
    task: str | None,
    config: Path | None,
    files: dict[str, str | None],
    columns: str | None,
    pairs: list[str],
    baseline: str | None,
) -> Config:
    """The settings of a new run: the file's, then the command line's; later ones win."""
    tables = read_toml(config) if config else {}
    name = task or tables.get("task")
    if name is None:
        raise ConfigError("no task; name one: elman train lm|tag|classify|seq2seq|class2seq")
    if task and tables.get("task", task) != task:
        raise ConfigError(f"{config} is for the task {tables['task']!r}, the command line says {task!r}")
    given: dict[str, Any] = {"task": name}
    for key, value in files.items():
        if value is not None:
            put(given, f"data.{key}", value)
    if columns is not None:
        put(given, "data.columns", parse_columns(columns))
    if baseline is not None:
        if name == "seq2seq":
            raise ConfigError("seq2seq has no comparator without recurrence; leave out --baseline")
        put(given, "model.encoder", baseline)
    kind = settings_class(str(name))
    said = parse_settings(pairs)
    if said.get("task", name) != name:
        raise ConfigError(f"--set says the task {said['task']!r}, not {name!r}; name one of them")
    merged = merge(tables, given, said)
    data = merged.get("data")
    train = data.get("train") if isinstance(data, dict) else None
    suited: dict[str, Any] = {}
    for key, value in corpus_settings(train if isinstance(train, str) else None, str(name)).items():
        put(suited, key, value)
    settings = validate(kind, merge(suited, merged), config)
    exists(settings)
    check_pairs(settings.data)
    if "-" in (settings.data.train, settings.data.train_target, settings.data.dev, settings.data.dev_target):
        raise FileError(
            "training reads its files more than once, standard input can be read only once",
            path="<stdin>",
            remedy="save it as a file",
        )
    return changed(settings, dict(users_files(settings)))


def check_pairs(data: DataSettings) -> None:
    """Of two files for training and two or none for validation; where one of them is one, it has columns."""
    said = [f"data.{key}" for key in ("columns", "delimiter") if getattr(data, key) is not None]
    check_layout(data.train_target if data.dev is None or data.dev_target is not None else None, said)


def users_files(config: Config) -> Iterator[tuple[str, str]]:
    """Settings that name a class in a user's file, by its whole path: a run finds it from any folder."""
    for key, name in part_names(config):
        file, _, part = name.rpartition(":")
        if file.endswith(".py"):
            yield key, f"{Path(file).resolve()}:{part}"


def train(
    config: Config | None,
    run: Path,
    *,
    resume: bool,
    as_json: bool,
    quiet: bool,
    tensorboard: bool,
    trust_code: bool,
) -> None:
    """Begin or continue a run and see it to its end."""
    observers: list[Any] = []
    if tensorboard:  # first of all: where its package is missing, nothing begins
        from elman.training.tensorboard import TensorBoard

        observers.append(TensorBoard(run / "tensorboard"))
    there, continued = run.exists(), resume and (run / "config.toml").is_file()
    trust = Trust(run, everything=trust_code)
    if config is not None:
        trust.add(named_code((name for _, name in part_names(config)), None).values())
    if continued:
        check_same(config, read_config(run, trust))
    elif config is None:
        raise ConfigError(f"{run} holds nothing to resume; start it with a task and --train")
    else:
        begin(run, config)
    talkers = [Progress(quiet=quiet), *observers]
    try:
        last = see_through(run, talkers, announce, trust, continued=continued, there=there)
    except FileError as error:
        path = Path(str(error.path))
        if continued and not path.is_absolute() and not path.exists():
            error.remedy = (
                "paths of a run are relative to the folder where its training began: continue it from there, "
                f"or write whole paths into {run / 'config.toml'} and delete its first line"
            )
        raise
    say(f"best {last['metric']} {last['best']:.4f} at update {last['best_update']} ({last['reason']})")
    say(f"curves and samples: {run / 'report.html'}")
    name = shlex.quote(str(run))
    say(f"use it: elman predict {name} · elman evaluate {name} FILE")
    if as_json:
        put_json(last)


def see_through(
    run: Path,
    observers: list[Any],
    announce: Callable[[Prepared, Trainer], None],
    trust: Trust | None = None,
    *,
    continued: bool = False,
    there: bool = False,
) -> dict[str, Any]:
    """Train a run that has begun to its end, and write its report and card; the last figures.

    A signal ends the program, and says how to go on. A start that fails takes its folder away again,
    or empties one that was ``there`` before. A run that is ``continued`` stays: what is in it may be a
    user's, or another process's.
    """
    try:
        return train_run(run, observers, say, announce, trust)
    except Interrupted as stop:
        say(f"{stop}. Continue with:\n  elman train --out {shlex.quote(str(run))} --resume")
        raise SystemExit(stop.exit_code) from None
    except OSError:  # who read the messages has gone, or a disk is full: it can go on
        raise
    except Exception:  # a user's class may raise any
        if not continued:
            with suppress(OSError, RunExistsError), run_lock(run):  # else another process goes on with it
                if not (run / "last").exists():  # there is nothing to go on from
                    remove(run, empty=there)
        raise
    finally:
        for observer in observers:
            observer.close()
        with suppress(OSError, ElmanError):  # what stopped the training is to be said, not this
            if not isinstance(sys.exception(), RunError):  # nothing is told of a run that is damaged
                write_report(run)
                write_card(run)


def remove(run: Path, *, empty: bool = False) -> None:
    """The folder with all that is in it; or to be ``empty``, or where no more can go (a link, "."), that."""
    for path in sorted(run.iterdir(), key=lambda path: path.name == LOCK):  # which holds others off
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    with suppress(OSError):
        if not empty:
            run.rmdir()


def check_same(config: Config | None, kept: Config) -> None:
    """A continued run keeps its settings: what is said again must be the same."""
    tables = {} if config is None else config.model_dump(exclude_unset=True)
    other = kept.model_dump()
    wrong = list(differences(tables, other))
    if tables and tables["task"] != kept.task:
        wrong = [f"task is {tables['task']!r}, the run has {kept.task!r}"]
    if wrong:
        raise ConfigError("a continued run keeps its settings\n  " + "\n  ".join(wrong))


def differences(said: Mapping[str, Any], kept: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """What is said otherwise than it was kept."""
    for key, value in said.items():
        if isinstance(value, dict) and isinstance(kept.get(key), dict) and key not in OPTIONS:
            yield from differences(value, kept[key], f"{prefix}{key}.")
        elif value != kept.get(key):
            yield f"{prefix}{key} is {value!r}, the run has {kept.get(key)!r}"


def announce(prepared: Prepared, trainer: Trainer) -> None:
    """What is about to be trained, in a few lines."""
    task = prepared.task
    for name, part in (("train", prepared.train), ("dev", prepared.dev)):
        about = prepared.data[name]
        same = part is prepared.train and name == "dev"
        held = " (the training data)" if same else " (held out)" if about["part"] == "held-out" else ""
        say(f"{name}: {len(part):,} examples from {about['path']}{held}")
        for repair, count in about["repairs"].items():
            say(f"  repaired: {repair}: {count:,}")
    for note in task.notes:
        say(note)
    say(f"network: {networks(task)}, {count_parameters(trainer.model):,} parameters")
    for line in task.describe(trainer.model):
        say(f"  {line}")
    settings = trainer.settings
    if trainer.counted:
        say("training: none, the model is counted")
        return
    say(
        f"training: {trainer.total:,} updates of {settings.optimizer}, "
        f"rate {settings.learning_rate}, {settings.schedule}"
    )


def networks(task: Task[Any]) -> str:
    """The networks of a task in the order in which they work."""
    return " → ".join(network(settings) for settings in task.networks())


def network(model: NetworkSettings) -> str:
    """The network in a few words, with its widths."""
    if isinstance(model, ModelSettings) and model.encoder != "rnn":
        return "ngram, counted" if model.encoder == "ngram" else f"{model.encoder} {model.hidden}"
    widths = " + ".join(map(str, model.hidden)) if isinstance(model.hidden, list) else model.hidden
    deep = f" × {model.layers}" if not isinstance(model.hidden, list) else ""
    return f"{model.cell} {widths}{deep}{', both directions' if model.bidirectional else ''}"


def dry_run(config: Config, *, as_json: bool) -> None:
    """Everything but training: sizes, memory, an estimate of the time, and the first batch."""
    import time

    task = make_task(config)
    prepared = prepare(task)
    trainer = build(task, prepared.train, prepared.dev)
    announce(prepared, trainer)
    weights = count_parameters(trainer.model)
    copies = {"adam": 4, "adamw": 4}.get(str(trainer.settings.optimizer), 2) + (
        trainer.averaging.kind != "none"
    )
    batch = task.collate(prepared.train, task.plan(prepared.train, 0)[0])
    shapes = describe(batch)
    steps = iter(trainer.run())
    next(steps)
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
        put_json(
            {
                "parameters": weights,
                "bytes": weights * 4 * copies,
                "updates": trainer.total,
                "seconds": seconds,
                "examples": len(prepared.train),
                "dev_examples": len(prepared.dev),
                "batch": shapes,
                "config": task.config.model_dump(),
            }
        )


def describe(batch: Any) -> str:
    """The shapes of the tensors of a batch."""
    import torch

    parts = batch if isinstance(batch, tuple) else (batch,)
    flat = [
        value
        for part in parts
        for value in (
            vars(part).values()
            if hasattr(part, "__dict__") and not isinstance(part, torch.Tensor)
            else [part]
        )
    ]
    return ", ".join("×".join(map(str, tensor.shape)) for tensor in flat if isinstance(tensor, torch.Tensor))
