"""What is searched: ranges around the defaults for some data, or those that a user says."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace

from elman.config import (
    Config,
    Numbers,
    Range,
    Tables,
    Value,
    Values,
    changed,
    check_read,
    lookup,
    parse_settings,
    why_unread,
)
from elman.errors import ConfigError, shortened

Space = dict[str, Range]
DECADE = 10  # a range whose upper end is so many times the lower one is searched by logarithms
DIVIDING = ("training.batch_size", "training.batch_tokens", "training.truncate")  # more of it, fewer updates


def parse_range(words: str) -> tuple[str, Range]:
    """What a user says.

    >>> parse_range("model.hidden=64..512")
    ('model.hidden', Numbers(low=64, high=512, log=False))
    >>> parse_range("training.learning_rate=1e-4..1e-2")
    ('training.learning_rate', Numbers(low=0.0001, high=0.01, log=True))
    >>> parse_range("model.cell=lstm,gru")
    ('model.cell', Values(values=('lstm', 'gru')))
    """
    key, _, said = (part.strip() for part in words.partition("="))
    if not (key and said):
        raise ConfigError(
            f"{shortened(words)!r} is no range; say model.hidden=64..512 or model.cell=lstm,gru"
        )
    low, dots, high = said.partition("..")
    if not dots:
        return key, Values(tuple(dict.fromkeys(_value(one) for one in said.split(","))))
    ends = [end for end in (_value(low), _value(high)) if isinstance(end, (int, float)) and end is not True]
    if len(ends) < 2:
        raise ConfigError(f"{key}: {shortened(said)!r} does not go from number to number, as 64..512 does")
    if not all(map(math.isfinite, ends)) or not ends[0] < ends[1]:
        raise ConfigError(
            f"{key}: the range {shortened(said)} is empty; say the lower end first, as in 64..512"
        )
    return key, Numbers(ends[0], ends[1], log=0 < ends[0] <= ends[1] / DECADE)


def _value(word: str) -> Value:
    value: Value = parse_settings([f"value={word.strip()}"])["value"]
    return value


def space_of(default: Config, fixed: Iterable[str], said: Mapping[str, Range]) -> Space:
    """Ranges around what was chosen for the data, but for ``fixed`` settings; and those that are ``said``."""
    kind, fixed = type(default), {*fixed}
    usual = {key: around.of(lookup(default, key)) for key, around in kind.search.items() if key not in fixed}
    found = {
        key: one for key, one in usual.items() if one is not None and why_unread(default, key) is None
    } | {key: _checked(default, key, one) for key, one in said.items()}
    if not found:
        raise ConfigError(
            "there is nothing to search: all that is usually searched is set; name a range, as in "
            "--search model.hidden=64..512"
        )
    return found


def check_values(common: Config, said: Mapping[str, Range]) -> None:
    """Whether settings may have the values that a user wants them to have, before any data are read."""
    for key, one in said.items():
        _tried(common, key, one)


def _tried(config: Config, key: str, one: Range) -> list[Config]:
    """The settings with either end of a range, or with each of its values."""
    ends = (one.low, one.high) if isinstance(one, Numbers) else one.values
    return [changed(config, {key: value}) for value in ends]


def _checked(default: Config, key: str, one: Range) -> Range:
    """A user's range, if the setting may have its values; of a fraction, if the setting may have one."""
    for tried in _tried(default, key, one):
        check_read(tried, [key])
    if isinstance(one, Numbers) and one.whole:
        try:
            changed(default, {key: one.low + 0.5})
        except ConfigError:
            return one
        return replace(one, low=float(one.low), high=float(one.high))
    return one


def with_values(default: Config, values: Mapping[str, Value], every: int) -> Config:
    """The settings of a trial; it validates as often as the default, ``every`` so many updates."""
    config = changed(default, dict(values))
    pace = 1.0
    if config.training.max_steps is None:
        for key in DIVIDING:
            if key in values:
                pace *= lookup(default, key) / values[key]
    return changed(config, {"training.validate_every": max(1, round(every * pace))})


def as_json(space: Space) -> Tables:
    return {key: asdict(one) for key, one in space.items()}


def from_json(kept: Tables) -> Space:
    return dict(_ranges(kept))


def _ranges(kept: Tables) -> Iterator[tuple[str, Range]]:
    for key, one in kept.items():
        yield key, Values(tuple(one["values"])) if "values" in one else Numbers(**one)
