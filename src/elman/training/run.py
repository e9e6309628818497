"""A run: a folder that training fills, that survives a kill at any moment, and that holds a model."""

from __future__ import annotations

import ctypes
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from elman.config import Config, changed, part_names, to_toml, validate
from elman.errors import ConfigError, EmptyError, RunError, RunExistsError
from elman.layers.rnn import RNN
from elman.registry import TASKS, PartName, named_code
from elman.tasks.base import Examples, Task, read_json
from elman.text.sealed import remove
from elman.training.checkpoint import (
    Checkpoint,
    checkpoint_name,
    list_checkpoints,
    load_checkpoint,
    load_state,
    mend_link,
    newest_checkpoint,
    put_back,
    update_of,
)
from elman.training.loop import Position, Trainer
from elman.training.session import (
    LOCK,
    Interrupted,
    Observer,
    Session,
    check_log,
    closing,
    cut,
    end_of,
    explained,
    log_size,
    run_lock,
    signals,
    write_text,
)
from elman.training.sources import BUILTIN, Reading, training_data
from elman.training.ties import PREDICTION, SETTINGS, TRAINING, check_ties, read_settings, seal
from elman.trust import Trust

FORMAT = 1
DEVICES = ("cpu", "cuda")
UNBEGUN = (".config.toml.tmp", LOCK)  # what a kill leaves before there is a run


@dataclass
class Prepared:
    """A task that knows its data, and the data."""

    task: Task[Any]
    train: Examples
    dev: Examples
    data: dict[str, Any]


def make_task(config: Config) -> Task[Any]:
    task: Task[Any] = TASKS.find(config.task)(config)
    return task


def settings_class(task: str) -> type[Config]:
    kind: type[Config] = TASKS.find(task).Settings  # type: ignore[attr-defined]
    return kind


def read_config(run: Path, trust: Trust | None = None) -> Config:
    """The settings of a run; anything wrong with them is a damaged run.

    The code that they name is trusted as ``trust`` says; unset, if the user's record has it.
    """
    path = run / SETTINGS
    if not path.is_file():
        raise RunExistsError(
            f"{run} is no run: it has no config.toml; train one with elman train … --out {run}"
        )
    trust, tables = trust or Trust(run), dict(read_settings(run).tables)
    try:
        tables["task"] = task = PartName(str(tables.get("task")), trust)
        return validate(settings_class(task), tables, path, trust)
    except (ConfigError, KeyError) as error:
        raise RunError(f"{path} is damaged: {error}") from None


def check_code(config: Config, trust: Trust) -> None:
    """Raise for all code that a run names and the user does not trust, before any work."""
    trust.check(named_code((name for _, name in part_names(config)), trust))


def begin(run: Path, config: Config) -> None:
    """Make the folder of a new run; one that is there already is refused, of two that begin at once one."""
    text = to_toml(config)
    _check_free(run)
    with explained(run):
        run.mkdir(parents=True, exist_ok=True)
    with run_lock(run):
        _check_free(run)
        write_text(run / SETTINGS, seal(text))


def _check_free(run: Path) -> None:
    if run.exists() and (not run.is_dir() or any(path.name not in UNBEGUN for path in run.iterdir())):
        raise RunExistsError(f"{run} is there already; continue it with --resume, or name another folder")


def prepare(task: Task[Any], cache: Path | None = None) -> Prepared:
    """Read the data: vocabularies first, then the examples as numbers; open settings are filled."""
    train, dev = training_data(task)
    task.learn(train)
    if dev.part is not None:
        task.meet(dev)
    task.fill_defaults()
    return _encoded(task, train, dev, cache)


def prepare_run(run: Path, task: Task[Any], *, fresh: bool) -> Prepared:
    """What a run needs before training: all from the data if it is fresh, else from its own files too."""
    if fresh:
        # Fresh weights take from the data what no file of the run keeps: counts, notes, pretrained vectors.
        shutil.rmtree(run / "cache", ignore_errors=True)
        prepared = prepare(task, run / "cache")
        task.config = changed(task.config, {"training.threads": threads(task.config)})
        with explained(run / "vocabulary.json"):
            task.save(run)
        write_text(run / SETTINGS, seal(to_toml(task.config)))
        write_text(run / "data.json", json.dumps(prepared.data, indent=1, ensure_ascii=False) + "\n")
        return prepared
    train, dev = training_data(task)
    known = read_json(run / "data.json")
    if not all(isinstance(known.get(name), dict) and "sha256" in known[name] for name in ("train", "dev")):
        raise RunError(f"{run / 'data.json'} lacks a part; restore the file or train again")
    return _encoded(task, train, dev, run / "cache", known)


def threads(config: Config) -> int:
    """Of torch, where they are not set: example by example there is nothing to share, only to wait for."""
    settings = config.training
    return settings.threads or (1 if settings.batch_size == 1 else torch.get_num_threads())


def _encoded(
    task: Task[Any], train: Reading, dev: Reading, cache: Path | None, known: dict[str, Any] | None = None
) -> Prepared:
    parts: dict[str, Examples] = {}
    data: dict[str, Any] = {"format": FORMAT}
    encoding = task.encoding()
    digests: dict[tuple[str, str | None], str] = {}  # both parts may come from one file
    for name, reading in (("train", train), ("dev", dev)):
        expected = None if known is None else known[name]
        files = reading.path, reading.target
        if expected is None or not reading.path.startswith(BUILTIN):  # a sound cache stands for a corpus
            digests[files] = digests.get(files) or reading.digest()
            _check_same(reading, digests[files], expected)
        key = expected["sha256"] if expected else digests[files]
        folder = None if cache is None else cache / name
        with explained(folder or Path(reading.path)):
            for place in (cache, folder):
                if place is not None and not place.is_dir():
                    remove(place)
            records = reading if expected is None else _told(reading, task, folder, expected)
            examples = task.examples(records, folder, f"{FORMAT} {name} {key} {encoding}")
        if not len(examples) and reading.part == "held-out":
            task.notes.append("too few examples to hold some out: validation is on the training data")
            examples = parts["train"]
        if not len(examples):
            raise EmptyError("no examples", path=reading.path, remedy="give a file that has some")
        parts[name] = examples
        data[name] = expected or {
            "path": reading.path,
            "target": reading.target,
            "part": reading.part,
            "sha256": key,
            "examples": len(examples),
            "repairs": dict(reading.repairs),
        }
    return Prepared(task, parts["train"], parts["dev"], data)


def _told(reading: Reading, task: Task[Any], folder: Path | None, expected: dict[str, Any]) -> Iterator[Any]:
    """The records, if they are read at all: then the cache of a run that is continued was not sound."""
    task.notes.append(f"{folder} is missing, damaged or not of this run: it is made again")
    if reading.path.startswith(BUILTIN):
        _check_same(reading, reading.digest(), expected)
    yield from reading


def _check_same(reading: Reading, digest: str, expected: dict[str, Any] | None) -> None:
    if expected is not None and digest != expected["sha256"]:
        raise RunError(
            f"{reading.path} has changed since the run began, so it cannot be continued; restore the file"
        )


def build(task: Task[Any], examples: Examples, dev: Examples, *, fresh: bool = True) -> Trainer:
    """A model and its trainer; seed, threads and device are set. If not fresh, its weights will be loaded."""
    settings = task.config.training
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    keep_memory()
    task.device = find_device(settings.device)
    torch.manual_seed(settings.seed)
    model = task.build_model()
    if fresh:
        task.initialise(model)
    return Trainer(task, model.to(task.device), examples, dev)


def find_device(name: str) -> torch.device:
    """The device that the settings name; one that is not there is a mistake in them."""
    try:
        device = torch.device(name)
        known = device.type in DEVICES
    except RuntimeError:
        known = False
    if not known:
        raise ConfigError(f"training.device is {name!r}; set {' or '.join(map(repr, DEVICES))}")
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device.type == "cuda" and (device.index or 0) >= found:
        raise ConfigError(
            f"training.device is {name!r}, but torch finds {found or 'no'} CUDA device{'s' * (found > 1)}; "
            f"set training.device = {'cuda' if found else 'cpu'!r} "
            "(a run that is continued: in its config.toml, without its first line)"
        )
    return device


def train_run(
    run: Path,
    observers: list[Observer],
    say: Callable[[str], None],
    announce: Callable[[Prepared, Trainer], None],
    trust: Trust | None = None,
) -> dict[str, Any]:
    """Train the run in this folder to its end, from its newest checkpoint if it has one; the last figures.

    A signal (Ctrl-C, SIGTERM) saves and raises ``Interrupted``.
    """
    with run_lock(run):
        return _train(run, observers, say, announce, trust)


def _train(
    run: Path,
    observers: list[Observer],
    say: Callable[[str], None],
    announce: Callable[[Prepared, Trainer], None],
    trust: Trust | None = None,
) -> dict[str, Any]:
    trust = trust or Trust(run)
    config = read_config(run, trust)
    check_code(config, trust)
    task = make_task(config)
    put_back(run)
    checkpoint = newest_checkpoint(run, say, lambda one: check_ties(run, one.folder, one.state, TRAINING))
    log = run / "metrics.jsonl"
    if checkpoint is not None:
        task.load(run)
        rest = check_log(log, checkpoint.state)
        now = Position(**checkpoint.state["position"])
        for pointer, update in (("last", now.update), ("best", now.best_update)):
            mend_link(run, pointer, checkpoint_name(update))
        if now.finished and (last := end_of(rest, closing(now, task.chosen_metric()))):
            say(f"{run} has ended already at update {now.update} ({now.finished}); nothing is changed")
            return last
    prepared = prepare_run(run, task, fresh=checkpoint is None)
    trainer = build(prepared.task, prepared.train, prepared.dev, fresh=checkpoint is None)
    if checkpoint is None:
        write_text(log, "")
    else:
        _restore(trainer, checkpoint)
        cut(log, log_size(checkpoint.state))
        say(f"continuing after update {trainer.position.update}")
    announce(prepared, trainer)
    with Session(run, trainer, observers, checkpoint) as session, signals() as received:
        session.start()
        for event in trainer.run():
            session.take(event)
            if received:
                session.save()
                raise Interrupted(received[0], trainer.position.update)
        return session.end()


def _restore(trainer: Trainer, checkpoint: Checkpoint) -> None:
    try:
        trainer.restore(checkpoint.model, checkpoint.optimizer, checkpoint.extra, checkpoint.state)
    except (RuntimeError, LookupError, TypeError, ValueError) as error:  # of an earlier version, and not tied
        raise _misfit(checkpoint, error) from None


def _misfit(checkpoint: Checkpoint, error: Exception) -> RunError:
    return RunError(f"{checkpoint.folder} does not fit the settings of the run: {error}")


def best_checkpoint(run: Path) -> Checkpoint:
    """The checkpoint of the best validation, or the newest where there was none; verified.

    Which one that is the newest knows. The link counts where the newest cannot tell, as in a copy that has
    nothing else; and where it is a copy itself, it may be the only good one.
    """
    folders, link = list_checkpoints(run), run / "best"
    try:
        name = _best_name(run, folders[0]) if folders else None
    except RunError:
        name = None
        if not link.exists():
            raise
    if name is None:
        link = link if link.exists() else run / "last"
        if not link.exists():
            raise RunExistsError(f"{run} has no checkpoint yet; let elman train --out {run} --resume go on")
        return _belonging(run, link, None)
    if link.is_symlink() and update_of(link.readlink().name) > update_of(name):
        raise RunError(
            f"{link} points to {link.readlink()}, but the best validation was that of {name}; restore the "
            f"checkpoint, or let elman train --out {run} --resume set the link"
        )
    try:
        return _belonging(run, run / "checkpoints" / name, name)
    except RunError:
        if link.is_symlink() or not link.is_dir():
            raise
        return _belonging(run, link, name)


def _best_name(run: Path, newest: Path) -> str:
    """The name of the best checkpoint, as the newest one knows it."""
    state = load_state(newest)
    check_ties(run, newest, state, PREDICTION)
    position = state["position"]
    return checkpoint_name(position["best_update"] or position["update"])


def _belonging(run: Path, folder: Path, name: str | None) -> Checkpoint:
    """The checkpoint in a folder, which must be the best of this run, and have this name if it is known."""
    checkpoint = load_checkpoint(folder)
    check_ties(run, checkpoint.folder, checkpoint.state, PREDICTION)
    position = checkpoint.state["position"]
    own = checkpoint_name(position["update"])
    if name not in (None, own) or position["best_update"] not in (0, position["update"]):
        wanted = name or checkpoint_name(position["best_update"])
        raise RunError(f"{folder} is the checkpoint {own}, not the best, {wanted}; restore that one")
    return checkpoint


def load_weights(checkpoint: Checkpoint, task: Task[Any]) -> nn.Module:
    """The model of a run with the weights of a checkpoint, on the CPU."""
    model = task.build_model()
    for module in model.modules():
        if isinstance(module, RNN) and module.backend == "triton":  # asked for where it was trained
            module.backend = "auto"
    try:
        model.load_state_dict(checkpoint.model)
    except RuntimeError as error:
        raise _misfit(checkpoint, error) from None
    return model.eval()


def keep_memory() -> None:
    """Ask the C library to keep what is freed: an update frees the megabytes that the next one asks for.

    Otherwise they are paged in anew; on two cores, a language model trains a quarter faster for this.
    """
    with suppress(OSError, AttributeError):  # not glibc
        mallopt = ctypes.CDLL(None).mallopt
        trim_threshold, mmap_threshold = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h
        mallopt(trim_threshold, 2**31 - 1)
        mallopt(mmap_threshold, 2**30)
