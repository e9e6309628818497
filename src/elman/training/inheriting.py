"""Settings that a run takes from those that it starts from, so that their weights fit."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from elman.config import Config, Section, Tables, has_key, lookup, merge, put, validate, why_unread
from elman.errors import ConfigError
from elman.registry import PartName
from elman.training.origin import Origin
from elman.trust import Trust

OPEN = (
    "vocabulary",
    "vocabulary_size",
    "min_count",
    "backend",
)  # of words, which are kept anyhow; of a machine
SHAPING = (  # of a network that reads tokens, in all tasks
    *(
        f"text.{name}"
        for name in ("unit", "unit_options", "lowercase", "vectors", "tune_vectors", "start", "end")
    ),
    *(f"model.{name}" for name in ("cell", "cell_options", "hidden", "layers", "embedding", "initial_state")),
)
OPTIONS = "_options"


def check_origins(task: str, origins: Sequence[Origin]) -> None:
    """One run, or a network that reads forward and one that reads backward, for one that does both."""
    if len(origins) < 2:
        return
    if len(origins) > 2 or any(one.config.task == task for one in origins):
        raise ConfigError(
            f"--from names {len(origins)} runs; name one, or two language models for another task"
        )
    if origins[0].backwards == origins[1].backwards:
        way = "backward" if origins[0].backwards else "forward"
        raise ConfigError(
            f"both runs of --from read {way}; for the two directions of a network, one is to be trained with "
            f"text.reversed = {str(not origins[0].backwards).lower()}"
        )


def inherited(kind: type[Config], task: str, said: Tables, origins: Sequence[Origin]) -> Tables:
    """Tables for what the user left open: the settings that shape the weights, as the runs have them.

    Of the same task that is all of text and model and, where no file is named, the data. A user's word about
    a part keeps options of another one away, and so does one about layers where widths go with them.
    """
    if not origins:
        return {}
    first = origins[0]
    tables: Tables = {}
    same = first.config.task == task
    keys = [*_keys(first.config, same, said)]
    for key in keys:
        if has_key(kind, key) and not _contradicted(key, said):
            put(tables, key, _as_said(lookup(first.config, key), first.trust))
    widths = [one.config.model.embedding for one in origins]
    if len(origins) > 1 and all(widths):
        put(tables, "model.embedding", sum(width or 0 for width in widths))
    return _read(kind, tables, said)


def _keys(config: Config, same: bool, said: Tables) -> Iterator[str]:
    """The dotted keys whose values are taken, where they are not what they would be unsaid."""
    sections = ["text", "model", *(["data"] if not said.get("data", {}).get("train") else [])]
    every = [key for name in sections for key in _dotted(getattr(config, name), f"{name}.")]
    for key in every if same else SHAPING:
        if key.rpartition(".")[2] not in OPEN and _has(config, key) and lookup(config, key) is not None:
            yield key


def _dotted(section: Section, prefix: str) -> Iterator[str]:
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, Section):
            yield from _dotted(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _has(config: Config, key: str) -> bool:
    return has_key(type(config), key)


def _contradicted(key: str, said: Tables) -> bool:
    """Has the user said this, or something that it would not go with?"""
    names = [key, key.removesuffix(OPTIONS)]
    path, _, name = key.rpartition(".")
    if name in ("hidden", "layers"):
        names += [f"{path}.hidden", f"{path}.layers"] if _widths(said, path) else []
    return any(_said(said, one) is not None for one in names)


def _widths(said: Tables, path: str) -> bool:
    """Are widths said one a layer, which the number of layers follows from?"""
    return isinstance(_said(said, f"{path}.hidden"), list)


def _said(tables: Tables, key: str) -> Any:
    found: Any = tables
    for name in key.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _as_said(value: Any, trust: Trust) -> Any:
    """A value as the user's word: code that the run named is trusted by now, and found where it still is."""
    if isinstance(value, list):
        return [_as_said(one, trust) for one in value]
    if not isinstance(value, PartName):
        return value
    if not value.of_code:
        return str(value)
    place, _, name = value.rpartition(":")
    copy = trust.copy_of(place)
    if copy is None:
        return str(value)
    try:
        same = hashlib.sha256(Path(place).read_bytes()).hexdigest() == copy.stem
    except OSError:
        same = False
    return str(value) if same else f"{copy.resolve()}:{name}"


def _read(kind: type[Config], tables: Tables, said: Tables) -> Tables:
    """Those that are read once the user's word is in, so that none stands there idly."""
    hidden, layers = _said(tables, "model.hidden"), _said(said, "model.layers")
    if isinstance(hidden, list) and layers is not None and layers != len(hidden):
        del tables["model"]["hidden"]
    config = validate(kind, merge(tables, said))
    kept: Tables = {}
    for key in _leaves(kind, tables):
        if why_unread(config, key) is None:
            put(kept, key, _said(tables, key))
    return kept


def _leaves(kind: type[Section], tables: Tables, prefix: str = "") -> Iterator[str]:
    for name, value in tables.items():
        default = kind.model_fields[name].get_default()
        if isinstance(default, Section) and isinstance(value, dict):
            yield from _leaves(type(default), value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"
