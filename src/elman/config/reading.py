"""Which settings are read: a part reads what its constructor takes, and some read others only."""

from collections.abc import Collection, Iterable, Iterator
from operator import attrgetter
from typing import Any

from elman.config.sections import Config, Section
from elman.config.values import Options, ReadIf, metadata, registry_of
from elman.errors import ConfigError
from elman.registry import TASKS


def lookup(config: Section, key: str) -> Any:
    """The value of a dotted key."""
    return attrgetter(key)(config)


def given_keys(config: Section, prefix: str = "") -> Iterator[str]:
    """The dotted keys that were said and are not what they would be unsaid."""
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        if isinstance(value, Section):
            yield from given_keys(value, f"{prefix}{name}.")
        elif name in config.model_fields_set and value != field.get_default(call_default_factory=True):
            yield f"{prefix}{name}"


def options_of(section: Section, key: str, *, sizes: Collection[str] = ()) -> Options:
    """The options of the part that a setting names: settings of the same names, and its table of options.

    ``sizes`` are what its constructor gets from elsewhere.
    """
    named, table = _options(section, key), f"{key}_options"
    given: Options = getattr(section, table)
    if twice := [name for name in given if named.get(name) is not None]:
        raise ConfigError(f"{table} has {twice[0]!r}, which is a setting beside it, too; give one of them")
    return {name: value for name, value in named.items() if value is not None and name not in sizes} | given


def open_options(section: Section, key: str) -> Options:
    """The defaults of a part's options that are settings of the same names, and unset."""
    defaults = _known(section, key)
    unset = [name for name, value in _options(section, key).items() if value is None]
    return {name: defaults[name] for name in unset if defaults[name] is not None}


def _options(section: Section, key: str) -> Options:
    """The settings of a section that are options of the part that one of them names."""
    fields = type(section).model_fields
    return {name: getattr(section, name) for name in _known(section, key) if name in fields}


def _known(section: Section, key: str) -> Options:
    """What the constructor of the chosen part takes; its name goes on as it is, with whose word it is."""
    registry, part = registry_of(type(section).model_fields[key]), section.chosen(key)
    assert registry is not None, f"{key} names no part"
    assert part is not None, f"{key} is open"
    return registry.options(part)


def why_unread(config: Config, key: str) -> str | None:
    """Who would read a setting that nothing reads as the others are; None where something reads it."""
    path, _, name = key.rpartition(".")
    section: Section = lookup(config, path) if path else config
    field, said = type(section).model_fields[name], getattr(section, name)
    for condition in metadata(field):
        if isinstance(condition, ReadIf) and not any(
            condition.holds(lookup(config, other)) for other in condition.keys
        ):
            return condition.sentence()
    if name in section.read_besides():
        return None
    for plug, other in type(section).model_fields.items():
        registry = registry_of(other)
        part = None if registry is None or plug == name else section.chosen(plug)
        if registry is None or part is None or (part not in registry.names() and ":" not in part):
            continue
        readers = [] if name in registry.options(part) else registry.readers_of(name)
        # What all its readers would take by themselves changes nothing by being said.
        if readers and (said is None or any(registry.options(one)[name] != said for one in readers)):
            setting = f"{path}.{plug}" if path else plug
            return f"{part!r} of {setting} does not read it, {' and '.join(readers)} would"
    return None


def check_read(config: Config, keys: Iterable[str]) -> None:
    """A setting that nothing will read is an error that names who reads it."""
    found = [(key, why) for key in keys if (why := why_unread(config, key)) is not None]
    if found:
        said = [f"{key} is {lookup(config, key)!r}, but nothing reads it: {why}" for key, why in found]
        head = [f"{len(said)} mistakes"] if len(said) > 1 else []
        raise ConfigError("\n  ".join([*head, *said]))


def tasks_that_read(key: str) -> list[str]:
    """The built-in tasks that have a setting of this dotted key."""
    kinds: dict[str, type[Config]] = {name: TASKS.find(name).Settings for name in TASKS.names()}  # type: ignore[attr-defined]
    return [name for name, kind in kinds.items() if has_key(kind, key)]


def has_key(kind: type[Section], key: str) -> bool:
    """Does a section have a setting of this dotted key?"""
    name, _, rest = key.partition(".")
    if name not in kind.model_fields:
        return False
    default = kind.model_fields[name].get_default()
    return not rest or (isinstance(default, Section) and has_key(type(default), rest))
