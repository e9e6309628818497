"""From lists in memory to a trained model: ``elman.fit("classify", texts, labels)``."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from signal import SIGINT
from tempfile import TemporaryDirectory
from threading import RLock
from typing import Any

import torch

from elman.config import Config, changed, merge, part_names, validate
from elman.errors import ArgumentError, DataError, ElmanError
from elman.predictor import Predictor, load
from elman.presentation.card import write_card
from elman.presentation.progress import Progress
from elman.presentation.report import write_report
from elman.registry import TASKS, named_code
from elman.tasks.base import AnyTask
from elman.text.asked import checked
from elman.text.columns import counted
from elman.training.inheriting import inherited
from elman.training.origin import Origin, open_origin
from elman.training.run import begin, discard, train_run
from elman.training.session import Interrupted, write_text
from elman.training.settings import nested, settings_class, settled
from elman.trust import Trust

Example = str | Sequence[str]
Columns = dict[str, list[Any]]  # the values of each role, one an example
_TURNS = RLock()
OPEN = ("data.held_out",)  # the one setting of the data that remains to be said


def fit(
    task: str,
    inputs: Iterable[Example],
    outputs: Iterable[Example] | None = None,
    *,
    dev: Iterable[Example] | tuple[Iterable[Example], Iterable[Example]] | None = None,
    out: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    start: str | Path | None = None,
    minutes: float | None = None,
    verbose: bool = False,
) -> Predictor:
    """Train a model from lists: what ``elman train`` does with a file, and what ``elman.load`` gives then.

    task: ``"classify"`` learns from texts and labels, or lists of them, ``"tag"`` from lists of words and
    lists of tags, ``"seq2seq"`` from sources and targets, ``"class2seq"`` from classes and texts, ``"lm"``
    from texts alone.
    dev: the same for validation; without it, a part of the examples is held out.
    out: the folder of a run to keep, with the examples in it; without it, nothing stays on the disk.
    settings: as ``{"model.hidden": 64, "training.epochs": 3}``. verbose: progress on stderr.
    start: a run whose weights it starts from, as ``elman train --from``.
    minutes: that it may take; updates, and if need be the size of the network, are chosen for it.

    The same examples, settings and seed give the same model as from a file, and the random numbers of the
    caller stay as they were. Ctrl-C ends a training with ``KeyboardInterrupt``; a run that is kept can be
    continued with ``elman train --out RUN --resume``.

    >>> texts = ["good film", "bad film", "a good day", "a bad day"] * 5
    >>> labels = ["pos", "neg", "pos", "neg"] * 5
    >>> model = fit("classify", texts, labels, settings={"model.hidden": 16})
    >>> model.predict(["a good film"])
    ['pos']
    """
    began = time.perf_counter()
    kind: type[AnyTask] = TASKS.find(task)
    columns, first = {"train": _columns(kind, task, inputs, outputs)}, _plural(kind.roles[0])
    names = {"train": first, "dev": f"dev {first}"}
    if dev is not None:
        columns["dev"] = _columns(kind, task, *_dev_parts(kind, dev), within="dev ")
    origins = [] if start is None else [open_origin(Path(start))]
    said = {**(settings or {}), **({} if minutes is None else {"training.minutes": minutes})}
    config = _config(task, said, origins)
    with _folder(out) as run, _own_state():
        there = run.exists()
        files = {part: run.resolve() / f"{part}.jsonl" for part in columns}
        config = changed(config, {f"data.{part}": str(path) for part, path in files.items()})
        begin(run, config, origins)
        try:
            for part, path in files.items():
                write_text(path, "".join(_lines(columns[part])))
            _train(run, config, began, verbose=verbose)
        except Exception as error:
            if isinstance(error, DataError):
                _name_place(error, {str(path): names[part] for part, path in files.items()})
            discard(run, empty=there)
            raise
        finally:
            if out is not None:
                with suppress(OSError, ElmanError):  # what stopped the training is to be said, not this
                    write_report(run)
                    write_card(run)
        found = load(run)
    return Predictor(None if out is None else run, found.task, found.model, best=found.best)


def _config(task: str, settings: Mapping[str, Any], origins: Sequence[Origin]) -> Config:
    for key in settings:
        if key == "task" or (key.startswith("data.") and key not in OPEN):
            raise ArgumentError(f"settings has {key!r}, which the arguments of fit decide; leave it out")
    kind, said = settings_class(task), nested(settings)
    known = inherited(kind, task, merge({"task": task, "data": {"train": "lists"}}, said), origins)
    return settled(validate(kind, merge(known, {"task": task}, said)))


def _columns(
    kind: type[AnyTask],
    task: str,
    inputs: Iterable[Example],
    outputs: Iterable[Example] | None,
    within: str = "",
) -> Columns:
    """The values of each role of a task, checked; ``within`` stands before their names in messages."""
    names = {role: f"{within}{_plural(role)}" for role in kind.roles}
    wanted = " and ".join(map(_plural, kind.roles))
    given = [inputs] if outputs is None else [inputs, outputs]
    if len(given) != len(kind.roles):
        raise ArgumentError(f"{task} learns from {wanted}: give {counted(len(kind.roles), 'list')}")
    columns = {
        role: checked(values, names[role], lists=kind.listed or role == kind.stratum)
        for role, values in zip(kind.roles, given, strict=True)
    }
    for role, values in columns.items():
        if not values:
            raise ArgumentError(f"{names[role]} is empty; give at least one")
        for number, value in enumerate(values):
            if kind.listed and isinstance(value, str):
                raise ArgumentError(f"{names[role]}[{number}] is {value!r}; it must be a list of strings")
    first, *_, last = kind.roles if len(kind.roles) > 1 else kind.roles * 2
    counts = len(columns[first]), len(columns[last])
    if counts[0] != counts[1]:
        longer = names[first if counts[0] > counts[1] else last]
        said = f"{counts[0]:,} {names[first]}, but {counts[1]:,} {names[last]}"
        raise ArgumentError(f"{said}: {longer}[{min(counts)}] has no partner")
    for number, (one, other) in enumerate(zip(columns[first], columns[last], strict=True)):
        if kind.listed and len(one) != len(other):
            said = f"{names[last]}[{number}] has {len(other)} for the {len(one)} of {names[first]}[{number}]"
            raise ArgumentError(f"{said}; give one to each")
    return columns


def _dev_parts(kind: type[AnyTask], dev: Any) -> tuple[Any, Any]:
    """What dev holds: a pair of lists, or one list where a task learns from texts alone."""
    if len(kind.roles) == 1:
        return dev, None
    if not isinstance(dev, tuple) or len(dev) != len(kind.roles):
        raise ArgumentError(f"dev must be a tuple ({', '.join(map(_plural, kind.roles))})")
    return dev[0], dev[1]


def _plural(role: str) -> str:
    """
    >>> _plural("class"), _plural("label")
    ('classes', 'labels')
    """
    return f"{role}es" if role.endswith("s") else f"{role}s"


def _lines(columns: Columns) -> Iterator[str]:
    """Examples as JSON Lines."""
    for values in zip(*columns.values(), strict=True):
        yield json.dumps(dict(zip(columns, values, strict=True)), ensure_ascii=False) + "\n"


def _train(run: Path, config: Config, began: float, *, verbose: bool) -> None:
    trust = Trust(run)
    trust.add(named_code((name for _, name in part_names(config)), None).values())
    progress = Progress(quiet=not verbose)
    try:
        talk = _say if verbose else _keep_quiet
        train_run(run, [progress], talk, lambda prepared, trainer: None, trust, began=began)
    except Interrupted as stop:
        if stop.number == SIGINT:
            raise KeyboardInterrupt(str(stop)) from None
        raise SystemExit(stop.exit_code) from None
    finally:
        progress.close()


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _keep_quiet(line: str) -> None:
    pass


def _name_place(error: DataError, names: Mapping[str, str]) -> None:
    """Say an error about a line of a file that was written here as one about what was given."""
    name = names.get(str(error.path))
    if name is not None:
        error.path = name if error.line is None else f"{name}[{error.line - 1}]"
        error.line = error.column = None


@contextmanager
def _folder(out: str | Path | None) -> Iterator[Path]:
    """The folder of the run: the one to keep, or one that goes again."""
    if out is not None:
        yield Path(out)
        return
    with TemporaryDirectory(prefix="elman-") as folder:
        yield Path(folder) / "run"


@contextmanager
def _own_state() -> Iterator[None]:
    """What training sets for the whole process, set back: torch's random numbers and its threads.

    It needs gradients, whatever the caller does.

    There is one of each, so threads that train take turns.
    """
    with _TURNS:
        threads = torch.get_num_threads()
        try:
            with torch.random.fork_rng(devices=()), torch.inference_mode(False), torch.enable_grad():
                yield
        finally:
            torch.set_num_threads(threads)
