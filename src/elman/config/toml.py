"""Settings as TOML and as ``key=value``: read into nested tables, and written to read back equal."""

import json
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from datetime import date, time
from inspect import getdoc
from pathlib import Path
from typing import Any

from elman.config.sections import Section
from elman.errors import ConfigError, shortened

DATA_VARIABLE = "ELMAN_DATA"
DEEPEST = 30  # tables and lists within each other, and parts of a key
LARGEST = 1 << 24  # characters of a file of settings

Tables = dict[str, Any]  # of TOML: nested, with whatever values a file may hold

# Strings and comments of TOML, up to the end of the text where one is not closed; and a key of many parts.
_QUOTED = re.compile(
    r'"""(?:\\.|[^\\])*?(?:"""|\\?\Z)|"(?:\\.|[^"\\\n])*+"?' r"|'''.*?(?:'''|\Z)|'[^'\n]*+'?|#[^\n]*+",
    re.DOTALL,
)
_LONG_KEY = re.compile(rf'(?<![\w"-])(?:[\w"-]++[ \t]*+\.[ \t]*+){{{DEEPEST}}}')


def read_toml(path: str | Path) -> Tables:
    """The tables of a TOML file; a mistake of syntax is an error with its line."""
    try:
        with open(path, encoding="utf-8-sig") as file:  # a byte order mark is no mistake
            text = file.read(LARGEST + 1)
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    return parse_toml(text, path)


def parse_toml(text: str, path: str | Path) -> Tables:
    """The tables of a text that stands in ``path``."""
    try:
        tables = _tables(text)
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None
    return expanded(tables)


def expanded(tables: Tables) -> Tables:
    """``$ELMAN_DATA`` at the beginning of a path replaced by the folder it names; so recipes travel."""
    folder = os.environ.get(DATA_VARIABLE)

    def expand(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: expand(part) for key, part in value.items()}
        if not isinstance(value, str) or not value.startswith(f"${DATA_VARIABLE}/"):
            return value
        if folder is None:
            raise ConfigError(f"{value}: set the variable {DATA_VARIABLE} to the folder of the corpora")
        return str(Path(folder) / value.removeprefix(f"${DATA_VARIABLE}/"))

    return {key: expand(value) for key, value in tables.items()}


def parse_settings(pairs: Iterable[str]) -> Tables:
    """``["model.hidden=200", "model.cell=gru"]`` as nested tables; values are TOML, or plain words.

    >>> parse_settings(["model.hidden=[64, 32]", "model.cell=gru"])
    {'model': {'hidden': [64, 32], 'cell': 'gru'}}
    """
    tables: Tables = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not re.fullmatch(r"\w+(\.\w+)*", key.strip()):
            raise ConfigError(f"{shortened(pair)!r} is not key=value, as in model.hidden=200")
        put(tables, key.strip(), _value(value.strip()))
    return expanded(tables)


def put(tables: Tables, key: str, value: Any) -> None:
    """Set a dotted key in nested tables."""
    *path, last = key.split(".")
    if len(path) > DEEPEST:
        raise ConfigError(f"{shortened(key)!r} has {len(path) + 1} parts; {DEEPEST} are allowed")
    for name in path:
        tables = tables.setdefault(name, {})
        if not isinstance(tables, dict):
            raise ConfigError(f"{key!r} goes through {name!r}, which is no table")
    tables[last] = value


def merge(*many: Mapping[str, Any]) -> Tables:
    """Nested tables laid over each other; later ones win."""
    result: Tables = {}
    for tables in many:
        for key, value in tables.items():
            both = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
            result[key] = merge(result[key], value) if both else value
    return result


def to_toml(config: Section, *, comments: bool = False, within: str = "") -> str:
    """The settings as TOML that reads back equal; None is left out, or stands as a comment."""
    lines: list[str] = []
    tables: list[tuple[str, Section]] = []
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        if isinstance(value, Section):
            tables.append((name, value))
        elif value is not None or comments:
            said = f"# {name} =  (unset)" if value is None else f"{name} = {toml_value(value)}"
            lines.append(f"{said}  # {field.description or ''}".rstrip() if comments else said)
    for name, table in tables:
        heading = [f"# {getdoc(type(table))}"] if comments else []
        inner = to_toml(table, comments=comments, within=f"{within}{name}.").rstrip("\n")
        lines += ["", *heading, f"[{within}{name}]", inner]
    return "\n".join(lines).strip("\n") + "\n"


def _value(text: str) -> Any:
    try:
        tables = _tables(f"value = {text}")
    except ValueError:
        return text
    return tables["value"] if len(tables) == 1 else text  # a second line would be a setting nobody asked for


def _tables(text: str) -> Tables:
    """The tables of a TOML text; whatever is wrong with it is a ValueError that says what.

    tomllib alone takes quadratic time for a key of many parts, and meets Python's own limits of depth and
    of digits unprepared.
    """
    if len(text) > LARGEST:
        raise ValueError(f"more than {LARGEST:,} characters; is this a file of settings?")
    too_deep = ValueError(f"tables or lists are nested too deeply; {DEEPEST} within each other are allowed")
    if _LONG_KEY.search(_QUOTED.sub('""', text)):
        raise too_deep
    try:
        tables = tomllib.loads(text)
    except RecursionError:
        raise too_deep from None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:
        raise ValueError("a whole number has thousands of digits") from None
    depth = 0
    level: list[Any] = [tables]
    while level:
        depth += 1
        inner = (one.values() if isinstance(one, dict) else one for one in level)
        level = [part for parts in inner for part in parts if isinstance(part, (dict, list))]
    if depth > DEEPEST:
        raise too_deep
    return tables


def toml_value(value: Any) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{toml_value(str(k))} = {toml_value(v)}" for k, v in value.items()) + "}"
    return value.isoformat() if isinstance(value, (date, time)) else repr(value)
