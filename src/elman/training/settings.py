"""The settings of a run, also of one that an earlier version began."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from elman.config import (
    Config,
    Section,
    Tables,
    changed,
    check_read,
    given_keys,
    lookup,
    part_names,
    put,
    tasks_that_read,
    validate,
)
from elman.errors import ConfigError, RunError, RunExistsError
from elman.registry import TASKS, PartName, named_code
from elman.tasks.base import AnyTask
from elman.training.earlier import renamed
from elman.training.folder import SETTINGS
from elman.training.ties import read_settings
from elman.trust import Trust


def make_task(config: Config) -> AnyTask:
    task: AnyTask = TASKS.find(config.task)(config)
    return task


def settings_class(task: str) -> type[Config]:
    kind: type[Config] = TASKS.find(task).Settings  # type: ignore[attr-defined]
    return kind


def nested(dotted: Mapping[str, Any]) -> Tables:
    """Settings by dotted key as tables; None is not set."""
    tables: Tables = {}
    for key, value in dotted.items():
        if value is not None:
            put(tables, key, value)
    return tables


def settled(config: Config) -> Config:
    """The settings that a run begins with: what they name is there, and all that they say is read.

    Classes in a user's files are named by their whole paths: a run finds them from any folder.
    """
    for _, part in part_names(config):
        if part.of_code:
            part.registry.find(part)  # what is wrong with it is said before any work
    if config.training.minutes is not None and config.training.max_steps is not None:
        raise ConfigError(
            f"training.minutes is {config.training.minutes:g}, which chooses the number of updates, and "
            f"training.max_steps is {config.training.max_steps}; give one of them"
        )
    check_read(config, given_keys(config))
    return changed(config, dict(_users_files(config)))


def _users_files(config: Config) -> Iterator[tuple[str, str | list[str]]]:
    for key in {key.rstrip("0123456789").rstrip(".") for key, _ in part_names(config)}:
        value = lookup(config, key)
        if isinstance(value, list):
            yield key, [_whole_path(name) for name in value]
        elif isinstance(value, str):
            yield key, _whole_path(value)


def _whole_path(name: str) -> str:
    file, _, part = name.rpartition(":")
    return f"{Path(file).resolve()}:{part}" if file.endswith(".py") else name


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
        tables["task"] = task = PartName(str(tables.get("task")), TASKS, trust)
        kind = settings_class(task)
        return validate(kind, of_earlier_versions(kind, tables), path, trust)
    except (ConfigError, KeyError) as error:
        raise RunError(f"{path} is damaged: {error}") from None


def check_code(config: Config, trust: Trust) -> None:
    """Raise for all code that a run names and the user does not trust, before any work."""
    trust.check(named_code((name for _, name in part_names(config)), trust))


def of_earlier_versions(kind: type[Config], tables: Tables) -> Tables:
    """The tables of a run as this version says them.

    The word for the network was ``model.encoder``, and the format ``lines`` was ``text``. Files were
    complete: they held what their task never read, which is left out if some other task reads it; anything
    else that is unknown stays, and is a mistake.
    """
    return _without_unread(kind, renamed(tables))


def _without_unread(kind: type[Section], tables: Tables, prefix: str = "") -> Tables:
    found: Tables = {}
    for key, value in tables.items():
        field = kind.model_fields.get(key)
        default = None if field is None else field.get_default()
        if isinstance(default, Section) and isinstance(value, dict):
            found[key] = _without_unread(type(default), value, f"{prefix}{key}.")
        elif field is not None or not tasks_that_read(f"{prefix}{key}"):
            found[key] = value
    return found
