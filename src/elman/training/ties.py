"""What ties a run together: settings that know their SHA-256, checkpoints that know the run they belong to.

A checkpoint keeps, in its ``state.json``, the settings that it was trained with and what the files beside it
are known by. Runs of versions that did neither are taken as they are.
"""

import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elman.config import parse_toml
from elman.errors import ConfigError, RunError
from elman.storage.files import read_plain
from elman.storage.sealed import described, fits
from elman.training.checkpoint import POINTERS, checkpoint_name, update_of
from elman.training.folder import ORIGIN, SETTINGS, without_seal

PREDICTION = (
    "vocabulary.json",
    "tokenizer.json",
    "code/index.json",
)  # what a prediction reads beside settings and checkpoint
TRAINING = (*PREDICTION, "data.json", ORIGIN)
# What may differ from training where the seal is gone: paths, the machine, what is written and how often.
MEANT = re.compile(
    r"decoding\..*|evaluation\..*|data\.(train|dev)(_target)?|text\.(\w+\.)?vectors|model\.(\w+\.)?backend"
    r"|training\.(device|save_seconds|log_every|threads)"
)


@dataclass(frozen=True)
class RunSettings:
    """A ``config.toml``: its text and tables, and whether it is as Elman wrote it."""

    text: str  # without the seal
    tables: dict[str, Any]
    sealed: bool


def read_settings(run: Path) -> RunSettings:
    """The settings of a run as they stand; a ``RunError`` where they do not fit their SHA-256."""
    path = run / SETTINGS
    try:
        text = read_plain(path).decode("utf-8-sig")
        alone, sealed = without_seal(text, path)
        return RunSettings(alone, parse_toml(text, path), sealed)
    except (OSError, UnicodeDecodeError, ConfigError) as error:
        raise RunError(f"{path} is damaged: {error}; restore the file") from None


def ties(run: Path) -> dict[str, Any]:
    """What a checkpoint of this run knows of it; settings as they stand, which no later version completes."""
    files = {name: described(read_plain(run / name)) for name in TRAINING if (run / name).exists()}
    return {"settings": read_settings(run).text, "files": files}


def check_ties(run: Path, folder: Path, state: Mapping[str, Any], names: Collection[str]) -> None:
    """The checkpoint has its own name and belongs to the run: its settings, and the files of these names.

    A ``RunError`` tells what does not fit.
    """
    update = state["position"]["update"]
    if folder.name not in POINTERS and update_of(folder.name) != update:
        raise RunError(
            f"{folder} is damaged: it is the checkpoint {checkpoint_name(update)}; give it back its name"
        )
    settings = read_settings(run)
    if "settings" not in state:
        if settings.sealed:
            raise RunError(f"{folder} is damaged: it is of another run; use another checkpoint")
        return  # of an earlier version
    wrong = [
        f"{key} is {_shown(found)}, the checkpoint has {_shown(kept)}"
        for key, found, kept in _differences(settings.tables, tomllib.loads(state["settings"]))
        if settings.sealed or not _may_differ(key, found, kept)
    ]
    if wrong:
        raise RunError(
            f"{folder} was trained with other settings than {run / SETTINGS} has; restore the one or the "
            "other\n  " + "\n  ".join(wrong)
        )
    for file, description in state["files"].items():
        if file in names:
            _check_file(run / file, description, folder)


def _check_file(path: Path, description: Mapping[str, Any], folder: Path) -> None:
    try:
        same = fits(path, description)
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}; restore the file") from None
    if not same:
        raise RunError(
            f"{path} is damaged, or of another run: it is not the file that {folder} was trained with; "
            "restore it"
        )


def _shown(value: Any) -> str:
    return "unset" if value is None else repr(value)


def _differences(found: Mapping[str, Any], kept: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Dotted keys whose values differ, with both."""
    here, there = dict(_dotted(found)), dict(_dotted(kept))
    for key in {**there, **here}:
        one, other = here.get(key), there.get(key)
        if one != other and repr(one) != repr(other):  # NaN is not even itself
            yield key, one, other


def _dotted(tables: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tables.items():
        if isinstance(value, Mapping) and value:
            yield from _dotted(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _may_differ(key: str, found: Any, kept: Any) -> bool:
    """Of a class of a user's own, the place of its file may."""
    if MEANT.fullmatch(key):
        return True
    classes = [str(one).rpartition(".py:")[1:] for one in (found, kept)]
    return classes[0] == classes[1] and bool(classes[0][0])
