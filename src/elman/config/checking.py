"""From tables to validated sections; all mistakes are reported at once, each with its place."""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from elman.config.describing import field_type
from elman.config.reading import tasks_that_read
from elman.config.sections import Config, Section
from elman.config.toml import DEEPEST, put, toml_value
from elman.config.values import UnknownPart
from elman.errors import ConfigError, is_text, nearest, shortened
from elman.trust import Trust

BITS = 128  # of a whole number
MOST = 20  # mistakes that a message lists

S = TypeVar("S", bound=Section)


def validate(
    kind: type[S], tables: Mapping[str, Any], path: str | Path | None = None, trust: Trust | None = None
) -> S:
    """A section from its tables; ``path`` is the file they came from, for the places of mistakes.

    ``trust`` is given where a run says them: then the code that they name must be trusted before it runs.
    """
    places = _Places(path)
    if unsound := [f"{places.of(keys)}{_named(keys)} {said}" for keys, said in _unsound(tables)]:
        raise _mistakes(unsound)
    found = dict(_misplaced_truths(kind, tables, places))
    try:
        valid = kind.model_validate(dict(tables), context=trust)
    except ValidationError as error:
        branches: dict[str, list[tuple[tuple[int, bool], str]]] = {}
        for problem in error.errors(include_url=False):
            if len(branches) > MOST:
                break
            key, line = _mistake(kind, tables, problem, places)
            branches.setdefault(key, []).append((_depth(problem), line))
        for key, lines in branches.items():  # of a union, the branch that fitted best is enough
            found.setdefault(key, min(lines, key=lambda one: one[0])[1])
    if found:
        raise _mistakes(list(found.values()))
    return valid


def changed(config: S, settings: Mapping[str, Any]) -> S:
    """The same settings with some dotted keys replaced, validated again."""
    tables = config.model_dump(exclude_unset=True)
    for key, value in settings.items():
        put(tables, key, value)
    return validate(type(config), tables)


class _Places:
    """Where keys stand in the file that settings came from; it is read when the first is asked for."""

    def __init__(self, path: str | Path | None) -> None:
        self.path = path

    def of(self, keys: Iterable[str]) -> str:
        """``file:12: ``, or ``file: `` where the key is not found, or nothing without a file."""
        if self.path is None:
            return ""
        line = self._lines.get(".".join(keys))
        return f"{self.path}: " if line is None else f"{self.path}:{line}: "

    @cached_property
    def _lines(self) -> dict[str, int]:
        try:
            text = Path(str(self.path)).read_text(encoding="utf-8-sig")
        except (OSError, ValueError):
            return {}
        lines: dict[str, int] = {}
        table = ""
        for number, line in enumerate(text.split("\n"), 1):
            heading = re.match(r"\s*\[([\w.]+)\]", line)
            table = heading[1] if heading else table
            entry = re.match(r"\s*([\w.]+)\s*=", line)
            if entry:
                lines.setdefault(".".join(filter(None, (table, entry[1]))), number)
        return lines


def _mistakes(said: list[str]) -> ConfigError:
    if len(said) > MOST:
        said = [f"more than {MOST} mistakes, the first of them", *said[:MOST]]
    elif len(said) > 1:
        said = [f"{len(said)} mistakes", *said]
    return ConfigError("\n  ".join(said))


def _unsound(tables: Mapping[str, Any]) -> Iterator[tuple[list[str], str]]:
    """Values that no file of settings can keep, by their keys; the first ones of very many."""
    waiting: list[tuple[list[str], Any]] = [([], tables)]
    told = 0
    for keys, value in waiting:  # which grows meanwhile
        if told > MOST:
            return
        if flaw := _flaw(value, len(keys)):
            told += 1
            yield keys, flaw
        elif isinstance(value, (Mapping, list, tuple)):
            parts = value.items() if isinstance(value, Mapping) else enumerate(value)
            waiting += [([*keys, str(key)], part) for key, part in parts]


def _flaw(value: Any, depth: int) -> str | None:
    if isinstance(value, str) and not is_text(value):
        return f"is {shortened(value)!r}, which is not UTF-8, as settings are; give the file another name"
    if isinstance(value, int) and value.bit_length() > BITS:
        return f"is a whole number of more than {BITS} bits"
    if isinstance(value, (Mapping, list, tuple)) and depth > 2 * DEEPEST:
        return f"is nested too deeply; {DEEPEST} tables or lists within each other are allowed"
    if isinstance(value, Mapping) and not all(is_text(str(key)) for key in value):
        return "has a key that is no text; write it as UTF-8"
    return None


def _named(keys: Iterable[str]) -> str:
    return shortened(".".join(keys), 100)


def _misplaced_truths(
    kind: type[Section], tables: Mapping[str, Any], places: _Places, within: tuple[str, ...] = ()
) -> Iterator[tuple[str, str]]:
    """Settings that are true or false where a number is wanted, which Python would take for 1 or 0."""
    for name, value in tables.items():
        field = kind.model_fields.get(name)
        default = None if field is None else field.get_default()
        if isinstance(default, Section) and isinstance(value, Mapping):
            yield from _misplaced_truths(type(default), value, places, (*within, name))
        elif field is not None and not isinstance(default, Section):
            wanted, parts = field_type(field), value.values() if isinstance(value, Mapping) else value
            inner = parts if isinstance(value, (Mapping, list, tuple)) else [value]
            fits = {"bool", "Any"} & set(re.findall(r"\w+", wanted))
            if not fits and any(isinstance(part, bool) for part in inner):
                key, shown = ".".join((*within, name)), shortened(toml_value(value), 200)
                yield key, f"{places.of([*within, name])}{key} is {shown}: input should be {wanted}"


def _depth(problem: Any) -> tuple[int, bool]:
    """How far a value was read before the problem, the furthest first; a wrong type is found at once."""
    return -len(problem["loc"]), problem["type"].endswith("_type")


def _mistake(
    kind: type[Section], tables: Mapping[str, Any], problem: Any, places: _Places
) -> tuple[str, str]:
    names = [str(part) for part in problem["loc"]]
    section = kind
    keys: list[str] = []
    for name in names:  # what follows a field's own name tells the branch of a union, which helps nobody
        keys.append(name)
        default = section.model_fields[name].get_default() if name in section.model_fields else None
        if not isinstance(default, Section):
            break
        section = type(default)
    key, place = _named(keys), places.of(keys)
    if problem["type"] == "extra_forbidden":
        others = tasks_that_read(".".join(keys)) if issubclass(kind, Config) else []
        reads = "reads it" if len(others) == 1 else "read it"
        said = f"no setting of this task; {' and '.join(others)} {reads}" if others else "unknown"
        return key, f"{place}{key} is {said}; {nearest(keys[-1], section.model_fields)}"
    inside = _inside(tables, problem["loc"], len(keys))
    if problem["type"] == "missing":
        return key, f"{place}{key}{inside} is missing"
    if problem["type"] == "value_error":  # settings that do not go together: the message names them
        error, usable = problem["ctx"]["error"], kind.usable if issubclass(kind, Config) else {}
        if isinstance(error, UnknownPart) and (fitting := usable.get(".".join(keys))):
            error = error.said(fitting())
        said = shortened(str(error), 500)
        return f"{key} {problem['msg']}", f"{place}{key}{inside}{': ' if key else ''}{said}"
    shown = f"{key}{inside} is {shortened(repr(problem['input']), 200)}"
    return key, f"{place}{shown}: {problem['msg'][0].lower()}{problem['msg'][1:]}"


def _inside(tables: Any, place: tuple[int | str, ...], depth: int) -> str:
    """Where in the value of a setting a problem is: ``[1]`` of a list, ``.text`` of a table, or nothing."""
    shown = ""
    for number, part in enumerate(place):
        if isinstance(tables, Mapping) and part in tables:
            tables, step = tables[part], f".{part}"
        elif isinstance(tables, (list, tuple)) and isinstance(part, int):
            tables, step = tables[part] if part < len(tables) else None, f"[{part}]"
        else:
            continue  # the branch of a union
        shown += step if number >= depth else ""
    return shortened(shown)
