"""From the words of a command line to a run: its settings, its training, and what is said of it."""

import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from elman.cli.output import is_quiet, say, warn
from elman.config import (
    Config,
    Files,
    changed,
    has_key,
    lookup,
    merge,
    parse_settings,
    part_names,
    read_toml,
    toml_value,
    validate,
)
from elman.cores import crowding
from elman.distributed.group import Group
from elman.errors import ConfigError, ElmanError, FileError, RunError
from elman.presentation.card import write_card
from elman.presentation.events import Event
from elman.presentation.progress import Progress
from elman.presentation.report import write_report
from elman.presentation.summary import Table
from elman.presentation.tensorboard import TensorBoard
from elman.presentation.wording import roughly
from elman.registry import named_code
from elman.text.columns import counted, parse_columns
from elman.training.budget import Speed
from elman.training.folder import SETTINGS
from elman.training.following import follow_run
from elman.training.inheriting import check_origins, inherited
from elman.training.loop import Trainer, count_parameters
from elman.training.origin import Origin, check_same_origins, open_origin
from elman.training.preparing import Prepared
from elman.training.run import begin, discard, train_run
from elman.training.session import Interrupted
from elman.training.settings import nested, read_config, settings_class, settled
from elman.training.sources import FILES, check_layout, corpus_settings, exists, found, listed
from elman.trust import Trust

MATTERS = re.compile(  # settings whose reasons are said before every training
    r"text\.(\w+\.)?unit|model\.(hidden|layers|embedding)|training\.(epochs|max_steps)"
)


def collect(
    task: str | None,
    config: Path | None,
    files: Mapping[str, Files],
    columns: str | None,
    pairs: list[str],
    baseline: str | None,
    origins: Sequence[Origin] = (),
) -> Config:
    """The settings of a new run: the file's, then the command line's; later ones win.

    What they leave open of weights that are taken is as the ``origins`` have it.
    """
    tables = read_toml(config) if config else {}
    name = task or tables.get("task") or next((str(one.config.task) for one in origins), None)
    if name is None:
        raise ConfigError("no task; name one: elman train lm|tag|classify|seq2seq|class2seq")
    if task and tables.get("task", task) != task:
        raise ConfigError(f"{config} is for the task {tables['task']!r}, the command line says {task!r}")
    options: Table = {"task": name, **{f"data.{key}": value or None for key, value in files.items()}}
    options["data.columns"] = None if columns is None else parse_columns(columns)
    options["model.network"] = baseline
    kind = settings_class(str(name))
    if baseline is not None and not has_key(kind, "model.network"):
        raise ConfigError(f"{name} has no comparator without recurrence; leave out --baseline")
    said = parse_settings(pairs)
    if said.get("task", name) != name:
        raise ConfigError(f"--set says the task {said['task']!r}, not {name!r}; name one of them")
    merged = merge(tables, nested(options), said)
    data = merged.get("data")
    train = data.get("train") if isinstance(data, dict) else None
    if isinstance(train, list) and len(train) == 1:
        train = train[0]
    suited = corpus_settings(train if isinstance(train, str) else None, str(name))
    check_origins(str(name), origins)
    merged = merge(nested(suited), inherited(kind, str(name), merged, origins), merged)
    settings = with_files(validate(kind, merged, config))
    exists(settings)
    paths = settings.data
    layout = [f"data.{key}" for key in ("columns", "delimiter") if getattr(paths, key) is not None]
    paired = paths.dev is None or paths.dev_target is not None  # else the one file may have columns
    check_layout(paths.train_target if paired else None, layout)
    if any("-" in listed(getattr(paths, key)) for key in FILES):
        problem = "training reads its files more than once, standard input can be read only once"
        raise FileError(problem, path="<stdin>", remedy="save it as a file")
    return settled(settings)


def open_origins(runs: Sequence[Path], out: Path | None, *, resume: bool, trust_code: bool) -> list[Origin]:
    """The runs that weights are taken from; a run that goes on needs them no longer, and they must be its."""
    if out is not None and resume and (out / SETTINGS).is_file():
        check_same_origins(out, runs)
        return []
    if out is not None and any(out.resolve() == run.resolve() for run in runs):
        raise ConfigError(f"--out is {out}, which --from names, too; a new run needs a folder of its own")
    return [open_origin(run, trust_code=trust_code) for run in runs]


def with_files(config: Config) -> Config:
    """The settings with the files that patterns and folders stand for."""
    named = {f"data.{key}": getattr(config.data, key) for key in FILES}
    return changed(config, {key: found(files) for key, files in named.items() if files is not None})


def train(
    config: Config | None,
    run: Path,
    *,
    resume: bool = False,
    tensorboard: bool = False,
    trust_code: bool = False,
    origins: Sequence[Origin] = (),
    began: float | None = None,
    group: Group | None = None,
) -> Event:
    """Begin or continue a run and see it to its end; its last event.

    ``group``: the workers that train it, of which this process is the first.

    ``began``: when its minutes began, where ``training.minutes`` says how many there are.
    """
    observers: list[Progress | TensorBoard] = []
    if tensorboard:  # first of all: where its package is missing, nothing begins
        observers.append(TensorBoard(run / "tensorboard"))
    there, continued = run.exists(), resume and (run / "config.toml").is_file()
    trust = Trust(run, everything=trust_code)
    if config is not None:
        trust.add(named_code((name for _, name in part_names(config)), None).values())
    if continued:
        check_same(config, read_config(run, trust))
    elif config is None and (run / "config.toml").is_file():
        raise ConfigError(f"{run} is a run; add --resume to continue it, or name a task and another folder")
    elif config is None:
        raise ConfigError(f"{run} holds nothing to resume; start it with a task and --train")
    else:
        begin(run, config, origins)
    observers.insert(0, Progress(quiet=is_quiet()))
    try:
        return see_through(
            run,
            observers,
            announce,
            trust,
            continued=continued,
            there=there,
            began=began,
            timed=not is_quiet(),
            group=group,
        )
    except FileError as error:
        path = Path(str(error.path))
        if continued and not path.is_absolute() and not path.exists():
            error.remedy = (
                "paths of a run are relative to the folder where its training began: continue it from there, "
                f"or write whole paths into {run / 'config.toml'} and delete its first line"
            )
        raise


def see_through(
    run: Path,
    observers: Sequence[Progress | TensorBoard],
    announce: Callable[[Prepared, Trainer], None],
    trust: Trust | None = None,
    *,
    continued: bool = False,
    there: bool = False,
    began: float | None = None,
    timed: bool = False,
    group: Group | None = None,
) -> Event:
    """Train a run that has begun to its end, and write its report and card; its last event.

    A signal ends the program, and says how to go on. A start that fails takes its folder away again,
    or empties one that was ``there`` before. A run that is ``continued`` stays: what is in it may be a
    user's, or another process's. ``began`` and ``timed`` are as of ``train_run``.
    """
    try:
        return train_run(run, [*observers], say, announce, trust, warn, began=began, timed=timed, group=group)
    except Interrupted as stop:
        warn(f"{stop}. Continue with:\n  elman train --out {shlex.quote(str(run))} --resume")
        raise SystemExit(stop.exit_code) from None
    except KeyboardInterrupt:  # before the first update, or a second one, which does not wait
        again = f"elman train --out {shlex.quote(str(run))} --resume"
        otherwise = (
            "" if (run / "last").exists() else "\nTo begin with other settings, delete the folder first."
        )
        warn(f"stopped by SIGINT; what was saved before is kept. Continue with:\n  {again}{otherwise}")
        raise
    except OSError:  # who read the messages has gone, or a disk is full: it can go on
        raise
    except Exception:  # a user's class may raise any
        if not continued:
            discard(run, empty=there)
        raise
    finally:
        for observer in observers:
            observer.close()
        with suppress(OSError, ElmanError):  # what stopped the training is to be said, not this
            if not isinstance(sys.exception(), RunError):  # nothing is told of a run that is damaged
                write_report(run)
                write_card(run)


def follow(run: Path, group: Group) -> None:
    """Train along as a worker that is not the first; a signal ends the program as it does the first one's."""
    try:
        follow_run(run, group)
    except Interrupted as stop:
        raise SystemExit(stop.exit_code) from None


def check_same(config: Config | None, kept: Config) -> None:
    """A continued run keeps its settings: what is said again must be the same."""
    tables = {} if config is None else config.model_dump(exclude_unset=True)
    wrong = list(differences(tables, kept.model_dump()))
    if tables and tables["task"] != kept.task:
        wrong = [f"task is {tables['task']!r}, the run has {kept.task!r}"]
    if wrong:
        raise ConfigError("a continued run keeps its settings\n  " + "\n  ".join(wrong))


def differences(said: Table, kept: Table, prefix: str = "") -> Iterator[str]:
    """What is said otherwise than it was kept; some tables are the value of one setting."""
    for key, value in said.items():
        one_setting = key == "columns" or key.endswith("_options")
        if isinstance(value, dict) and isinstance(kept.get(key), dict) and not one_setting:
            yield from differences(value, kept[key], f"{prefix}{key}.")
        elif value != kept.get(key):
            yield f"{prefix}{key} is {value!r}, the run has {kept.get(key)!r}"


def announce(prepared: Prepared, trainer: Trainer) -> None:
    for name, part in (("train", prepared.train), ("dev", prepared.dev)):
        about = prepared.about[name]
        same = part is prepared.train and name == "dev"
        held = " (the training data)" if same else " (held out)" if about["part"] == "held-out" else ""
        say(f"{name}: {counted(len(part), 'example')} from {about['path']}{held}")
        for path, count in about.get("files", {}).items():
            say(f"  {path}: {count:,}")
        for repair, count in about["repairs"].items():
            say(f"  repaired: {repair}: {count:,}")
    for note in prepared.statistics.notes:
        say(note)
    network, *more = prepared.task.describe(trainer.model)
    say(f"network: {network}, {count_parameters(trainer.model):,} parameters")
    for line in more:
        say(f"  {line}")
    for key, why in prepared.statistics.reasons.items():
        if MATTERS.fullmatch(key):
            say(f"{key}: {lookup(prepared.task.config, key)}, {why}")
    s = trainer.settings
    trained = f"{counted(trainer.total, 'update')} of {s.optimizer}, rate {s.learning_rate}, {s.schedule}"
    say(f"training: {'none, the model is counted' if trainer.counted else trained}")
    if trainer.device.type != "cpu" and not trainer.counted:
        say(f"updates: {trainer.recorded.summary}")
    if prepared.speed is not None and prepared.speed.update:
        say(f"time: {expected(prepared.speed)}")
        several = trainer.device.type == "cpu" and prepared.chosen.get("training.threads", 1) != 1
        if several and (load := crowding()):
            say(f"  {load:.1f} processes a core want to run: --set training.threads=1 may be much faster")


def choice_lines(prepared: Prepared) -> list[str]:
    """All settings that were left open, as they were chosen, and why where the data decided."""
    reasons = prepared.statistics.reasons
    rows = [(key, toml_value(value), reasons.get(key, "")) for key, value in prepared.chosen.items()]
    wide = [max((len(row[part]) for row in rows), default=0) for part in (0, 1)]
    return [f"{key:<{wide[0]}}  {value:<{wide[1]}}  {why}".rstrip() for key, value, why in rows]


def expected(speed: Speed) -> str:
    """How long a training will take.

    >>> expected(Speed(update=0.11, validation=2.0, start=0.5, total=1200, every=150))
    'about 2 minutes: 1,200 updates of 0.11 s, 8 validations'
    """
    updates = f"{counted(speed.total, 'update')} of {speed.update:.2g} s"
    return f"about {roughly(speed.seconds)}: {updates}, {counted(speed.validations, 'validation')}"
