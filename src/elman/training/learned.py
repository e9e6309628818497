"""What a task learned from the training text, as files of its run."""

import hashlib
import json
from pathlib import Path
from typing import Any

from elman.config import to_toml
from elman.errors import RunError
from elman.storage.files import read_plain, write_text
from elman.storage.sealed import parsed
from elman.tasks.base import AnyTask

FORMAT = 1
VOCABULARY, TOKENIZER = "vocabulary.json", "tokenizer.json"


def save_learned(task: AnyTask, run: Path) -> None:
    for name, text in learned_files(task).items():
        write_text(run / name, text)


def encoding(task: AnyTask) -> str:
    """The SHA-256 of what decides how text becomes numbers: settings, and what was learned."""
    sections = (task.config.data, task.config.text, task.config.model)
    parts = [task.config.task, *map(to_toml, sections), *learned_files(task).values()]
    return hashlib.sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()


def before_counting(task: AnyTask) -> str:
    """What decides how text becomes tokens: settings, and units that have learned theirs."""
    sections = (task.config.data, task.config.text, task.config.model)
    units = {name: field.unit_state() for name, field in task.text_fields.items()}
    return "\0".join([task.config.task, *map(to_toml, sections), json.dumps(units)])


def load_learned(task: AnyTask, run: Path) -> None:
    """What ``save_learned`` wrote, checked."""
    path, name = run / VOCABULARY, task.config.task
    tables = read_json(path)
    if tables.get("format") != FORMAT:
        raise RunError(f"{path}: format {tables.get('format')!r}; this version reads {FORMAT}")
    if tables.get("task") != name:
        raise RunError(
            f"{path} is of the task {tables.get('task')!r}, the run is a {name} model; restore the file or "
            "train again"
        )
    try:
        _load_units(task, run)
        task.restore(tables)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunError(
            f"{path} does not hold what a {name} model needs ({type(error).__name__}: {error}); restore the "
            "file or train again"
        ) from None


def _load_units(task: AnyTask, run: Path) -> None:
    """One unit stands in its file by itself, several by their names."""
    learned = {name: field for name, field in task.text_fields.items() if field.unit.learned}
    saved = read_json(run / TOKENIZER) if learned else {}
    for name, field in learned.items():
        field.restore_unit(saved[name] if name else saved)


def learned_files(task: AnyTask) -> dict[str, str]:
    """What was learned, as the texts of files by their names."""
    files: dict[str, Any] = {VOCABULARY: {"format": FORMAT, "task": task.config.task, **task.state()}}
    states = ((name, field.unit_state()) for name, field in task.text_fields.items())
    learned = {name: state for name, state in states if state is not None}
    if learned:
        files[TOKENIZER] = learned.get("", learned)
    return {
        name: json.dumps(content, ensure_ascii=False, indent=1, sort_keys=True) + "\n"
        for name, content in files.items()
    }


def read_json(path: Path) -> dict[str, Any]:
    """An object from a file of a run; anything else is a damaged run."""
    try:
        return parsed(read_plain(path))
    except FileNotFoundError:
        raise RunError(f"{path} is missing; restore the file or train again") from None
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read: {error}; restore the file or train again") from None
