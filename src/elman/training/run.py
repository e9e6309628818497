"""A run: a folder that training fills, that survives a kill at any moment, and that holds a model."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from elman.config import Config, to_toml
from elman.distributed.group import Group
from elman.errors import RunExistsError
from elman.storage.files import explained, remove
from elman.tasks.base import chosen_metric
from elman.training.building import build
from elman.training.checkpoint import Checkpoint, checkpoint_name, mend_link, newest_checkpoint, put_back
from elman.training.code import keep_code
from elman.training.folder import LOCK, ORIGIN, SETTINGS, seal
from elman.training.following import send, tell
from elman.training.learned import load_learned
from elman.training.loading import misfit
from elman.training.loop import Trainer
from elman.training.measuring import keep_within, measured_shortly
from elman.training.origin import Origin, record_origins, recorded_origins
from elman.training.position import Position
from elman.training.preparing import Prepared, forget_parts, has_parts, keep_prepared, prepare_run
from elman.training.session import (
    Interrupted,
    Observer,
    Session,
    check_log,
    closing,
    cut,
    end_of,
    log_size,
    run_lock,
    signals,
    write_text,
)
from elman.training.settings import check_code, make_task, read_config
from elman.training.ties import TRAINING, check_ties
from elman.trust import CODE, Trust

UNBEGUN = (
    ".config.toml.tmp",
    f".{ORIGIN}.tmp",
    ORIGIN,
    LOCK,
    CODE,
)  # what a kill leaves before there is a run


def begin(run: Path, config: Config, origins: Sequence[Origin] = ()) -> None:
    """Make the folder of a new run; one that is there already is refused, of two that begin at once one.

    ``origins`` are the runs whose weights it starts from.
    """
    text = to_toml(config)
    _check_free(run)
    with explained(run):
        run.mkdir(parents=True, exist_ok=True)
    with run_lock(run):
        _check_free(run)
        keep_code(run, config)
        if origins:
            record_origins(run, origins)
        else:
            remove(run / ORIGIN)  # of one that never began
        write_text(run / SETTINGS, seal(text))


def _check_free(run: Path) -> None:
    if run.exists() and (not run.is_dir() or any(path.name not in UNBEGUN for path in run.iterdir())):
        raise RunExistsError(f"{run} is there already; continue it with --resume, or name another folder")


def discard(run: Path, *, empty: bool = False) -> None:
    """Take away a run that failed before its first checkpoint, or leave its folder ``empty``.

    One that another process goes on with stays; and of a link, or of ".", no more than the contents go.
    """
    with suppress(OSError, RunExistsError), run_lock(run):
        if (run / "last").exists():
            return
        for path in sorted(run.iterdir(), key=lambda path: path.name == LOCK):  # which holds others off
            remove(path)
        if not empty:
            run.rmdir()


def train_run(
    run: Path,
    observers: list[Observer],
    say: Callable[[str], None],
    announce: Callable[[Prepared, Trainer], None],
    trust: Trust | None = None,
    warn: Callable[[str], None] | None = None,
    *,
    began: float | None = None,
    timed: bool = False,
    group: Group | None = None,
) -> dict[str, Any]:
    """Train the run in this folder to its end, from its newest checkpoint if it has one; its last event.

    ``calibration`` stands in it where the task's probabilities have one.
    ``warn`` is told of checkpoints that are damaged; unset, ``say`` is.
    ``began`` is the time from which on ``training.minutes`` count, by ``time.perf_counter``; unset, now.
    ``timed``: ``announce`` is to know how long a new training will take, unless that takes no time at all.

    ``group``: the workers that train it, of which this process is the first; the others ``follow_run``.

    A signal (Ctrl-C, SIGTERM) saves and raises ``Interrupted``.
    """
    began = time.perf_counter() if began is None else began
    with run_lock(run):
        trust = trust or Trust(run)
        config = read_config(run, trust)
        check_code(config, trust)
        task = make_task(config)
        put_back(run)
        checkpoint = newest_checkpoint(
            run, warn or say, lambda one: check_ties(run, one.folder, one.state, TRAINING)
        )
        log = run / "metrics.jsonl"
        if checkpoint is not None:
            load_learned(task, run)
            rest = check_log(log, checkpoint.state)
            now = Position(**checkpoint.state["position"])
            for pointer, update in (("last", now.update), ("best", now.best_update)):
                mend_link(run, pointer, checkpoint_name(update))
            if now.finished and (last := end_of(rest, closing(now, chosen_metric(task)[0]))):
                say(f"{run} has ended already at update {now.update} ({now.finished}); nothing is changed")
                if group is not None:
                    tell(group, over=True)
                return last | now.outcome()
        origins = [] if checkpoint else recorded_origins(run, trust_code=trust.everything)
        prepared = prepare_run(run, task, fresh=checkpoint is None, origins=origins, say=say)
        if checkpoint is None:
            keep_within(prepared, began)
            keep_prepared(run, prepared)
            if timed and prepared.speed is None:
                prepared.speed = measured_shortly(prepared)
        if group is not None:
            tell(group, over=False)
        trainer = build(prepared, fresh=checkpoint is None, group=group)
        if checkpoint is None:
            write_text(log, "")
            if origins:
                record_origins(run, origins, prepared.taken)
        else:
            _restore(trainer, checkpoint)
            cut(log, log_size(checkpoint.state))
            say(f"continuing after update {trainer.position.update}")
        if group is not None:
            send(group, trainer)
        announce(prepared, trainer)
        names = [str(one.run) for one in origins]
        with (
            Session(run, trainer, observers, checkpoint, prepared.statistics, names) as session,
            signals() as received,
        ):
            session.start()
            if origins or has_parts(run):
                session.save()  # from here on, neither the other runs nor the parts are needed
                forget_parts(run)
            if group is not None:
                group.wish = lambda: received[0] if received else 0
            for event in trainer.run():
                session.take(event)
                asked = group.asked if group is not None else received[0] if received else 0
                if asked:
                    session.save()
                    if group is not None:
                        group.leave()
                    raise Interrupted(asked, trainer.position.update)
            last = session.end()
            if group is not None:
                group.leave()
            return last | trainer.position.outcome()


def _restore(trainer: Trainer, checkpoint: Checkpoint) -> None:
    try:
        trainer.restore(checkpoint.model, checkpoint.optimizer, checkpoint.extra, checkpoint.state)
    except (RuntimeError, LookupError, TypeError, ValueError) as error:  # of an earlier version, and not tied
        raise misfit(checkpoint, error) from None
