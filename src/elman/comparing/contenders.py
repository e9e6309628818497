"""What is compared: cells, settings and comparators, each with the settings that it is trained with."""

import copy
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from elman.config import Config, changed, check_read, given_keys, lookup, parse_settings, why_unread
from elman.config.toml import Tables
from elman.errors import ConfigError
from elman.tasks.base import AnyTask, chosen_metric
from elman.training.building import build
from elman.training.loop import count_parameters
from elman.training.preparing import Prepared, prepare
from elman.training.settings import make_task, settled
from elman.training.sources import Reading, paired
from elman.training.sources import found as files_of

EQUAL = ("updates", "tokens", "parameters", "minutes")


@dataclass(frozen=True)
class Contender:
    """A name, and what is set for it alone."""

    name: str
    settings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Entry:
    """A contender with all its settings, and how many parameters it has."""

    name: str
    config: Config
    parameters: int


def contenders(cells: Sequence[str], tried: Sequence[str], comparators: Sequence[str]) -> list[Contender]:
    """By the words of the command line: cells, ``key=value …`` or ``NAME: key=value …``, comparators.

    >>> contenders(["gru", "cells.py:Mine"], ["wide: model.hidden=512 model.layers=1"], [])[1:]
    ... # doctest: +NORMALIZE_WHITESPACE
    [Contender(name='Mine', settings=('model.cell="cells.py:Mine"',)),
     Contender(name='wide', settings=('model.hidden=512', 'model.layers=1'))]
    """
    found = [Contender(cell.rpartition(":")[2], (f'model.cell="{cell}"',)) for cell in cells]
    for words in tried:
        name, colon, rest = words.partition(": ")
        pairs = tuple((rest if colon else words).split())
        if not pairs:
            raise ConfigError(f"--try {words!r} sets nothing; say what: 'NAME: key=value …'")
        found.append(Contender(name.strip() if colon else words.strip(), pairs))
    found += [Contender(name, (f'model.network="{name}"',)) for name in comparators]
    names = [one.name for one in found]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                f"two of those compared are called {name!r}; name them: --try 'NAME: key=value'"
            )
    if len(found) < 2:
        raise ConfigError("a comparison needs two or more; name them by --cells, --try and --baselines")
    return found


def entries(
    common: Config, given: Sequence[Contender], equal: str, threads: int, test: Sequence[str] = ()
) -> tuple[list[Entry], bool]:
    """All settings of each, and whether a higher figure is better; ``threads``: of each training, at most.

    What the data choose for the first one is the others', too. A comparator without
    recurrence chooses its own: few of the first one's settings mean anything to it. Mistakes that would come
    to light late are looked for: in the settings of all, and in a ``test`` file and the one beside it.
    """
    for one in given:
        own_settings(common, one)
    first, *others = given
    prepared = prepare(make_task(with_settings(common, first)))
    if test:
        files = paired(files_of(test[0]), test[1] if len(test) > 1 else None, "the test file")
        deque(Reading(prepared.task, files), maxlen=0)
    if common.training.threads is None:
        prepared.task.config = with_threads(prepared.task.config, threads)
    frozen = frozen_settings(prepared, equal)
    size = parameters_of(prepared.task, frozen)
    found = [Entry(first.name, frozen, size)]
    for one in others:
        if any(pair.startswith("model.network") for pair in one.settings):
            config = with_settings(common, one)
            found.append(Entry(one.name, config, 0))
            continue
        config = with_settings(frozen, one)
        if equal == "parameters":
            if any(pair.startswith("model.hidden=") for pair in one.settings):
                problem = f"{one.name} sets model.hidden, which is chosen where parameters are to be equal"
                raise ConfigError(f"{problem}; leave it out, or compare by --equal updates")
            config = changed(config, {"model.hidden": fitting_width(prepared.task, config, size)})
        found.append(Entry(one.name, config, parameters_of(prepared.task, config)))
    return found, chosen_metric(prepared.task)[1]


def with_threads(config: Config, most: int) -> Config:
    """The same settings for one of several processes that share the cores."""
    return changed(config, {"training.threads": min(most, config.training.threads or most)})


def with_settings(config: Config, one: Contender) -> Config:
    """Its own settings over the others; of those, what it does not read is left out."""
    config, pairs = own_settings(config, one)
    check_read(config, pairs)
    unread = [key for key in given_keys(config) if why_unread(config, key) is not None]
    return settled(changed(config, {key: unsaid(config, key) for key in unread}))


def own_settings(config: Config, one: Contender) -> tuple[Config, dict[str, object]]:
    """The settings with its own among them, and these alone."""
    pairs = dict(flat(parse_settings([*one.settings])))
    return changed(config, pairs), pairs


def unsaid(config: Config, key: str) -> object:
    """What a setting is where nobody says it."""
    path, _, name = key.rpartition(".")
    return type(lookup(config, path)).model_fields[name].get_default(call_default_factory=True)


def flat(tables: Tables, prefix: str = "") -> list[tuple[str, object]]:
    """Tables by dotted keys; options of a part are one value."""
    found: list[tuple[str, object]] = []
    for key, value in tables.items():
        if isinstance(value, dict) and not key.endswith("_options"):
            found += flat(value, f"{prefix}{key}.")
        else:
            found.append((prefix + key, value))
    return found


def frozen_settings(prepared: Prepared, equal: str) -> Config:
    """What was chosen for the first one, for all: as many updates, as many passes, or as many minutes."""
    config: Config = prepared.task.config
    if equal == "minutes":
        if config.training.minutes is None:
            raise ConfigError("equal minutes: how many? Say --minutes")
        return changed(config, {"training.epochs": None, "training.max_steps": None})
    if equal == "tokens" and config.training.epochs is None:
        raise ConfigError("equal tokens are equal passes over the data; set training.epochs, not max_steps")
    config = changed(
        config, {"training.patience": None, "training.cooldown": None}
    )  # all have the whole budget
    if equal == "tokens" or config.training.max_steps is not None:
        return config
    return changed(config, {"training.max_steps": build(prepared).total, "training.epochs": None})


def parameters_of(task: AnyTask, config: Config) -> int:
    """How many numbers the network of these settings learns, on the data that the task has read."""
    other = copy.copy(task)
    other.config = config
    return count_parameters(other.build_model())


def fitting_width(task: AnyTask, config: Config, size: int) -> int:
    """The width of layers with which a network has about so many parameters, found by halving."""
    low, high = 1, 2 * int(lookup(config, "model.hidden") or 1)
    while parameters_of(task, changed(config, {"model.hidden": high})) < size:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        fewer = parameters_of(task, changed(config, {"model.hidden": middle})) < size
        low, high = (middle, high) if fewer else (low, middle)
    return min(
        (low, high),
        key=lambda width: abs(parameters_of(task, changed(config, {"model.hidden": width})) - size),
    )
