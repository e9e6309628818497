"""Checkpoints: folders that appear whole or not at all, every byte of which is verified when read.

A checkpoint is ``RUN/checkpoints/update-00001200/`` with

    model.safetensors       the weights
    optimizer.safetensors   the tensors of the optimiser
    extra.safetensors       whatever else is a tensor: averages, random state
    state.json              everything that is not a tensor
    MANIFEST.json           the format's version, size and SHA-256 of each file, and its own SHA-256

It is written into a hidden folder, brought to the disk, and renamed into place last, so that a
crash or a full disk leaves the earlier checkpoints as they were. Nothing here is pickled.
"""

import os
import re
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from elman.errors import ArgumentError, DivergedError, RunError
from elman.storage import files as disk
from elman.storage.files import explained, read_plain
from elman.storage.folders import OLD, remove_folder, set_link, standing, write_folder
from elman.storage.sealed import canonical, described, parsed, sealed, unsealed

FORMAT = 1
TENSORS = ("model", "optimizer", "extra")
STATE = "state.json"
FILES = (*(f"{part}.safetensors" for part in TENSORS), STATE)
MANIFEST = "MANIFEST.json"
POINTERS = ("best", "last")

_NAME = re.compile(r"update-([0-9]+)")


@dataclass(frozen=True)
class Checkpoint:
    """What was saved, on the CPU, and where it lay."""

    folder: Path
    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    extra: dict[str, Tensor]
    state: dict[str, Any]


def checkpoint_name(update: int) -> str:
    """The name of the checkpoint after this many updates.

    >>> checkpoint_name(1200)
    'update-00001200'
    """
    return f"update-{update:08d}"


def update_of(name: str) -> int:
    """The number of updates after which the checkpoint of this name was saved; -1 for other names."""
    match = _NAME.fullmatch(name.removesuffix(OLD))
    return int(match[1]) if match else -1


def save_checkpoint(
    run: Path,
    name: str,
    *,
    model: Mapping[str, Tensor],
    optimizer: Mapping[str, Tensor],
    state: dict[str, Any],
    extra: Mapping[str, Tensor],
) -> Path:
    """Write a checkpoint and return its folder; one of the same name is replaced.

    Weights that are not finite are a ``DivergedError``, and nothing is written.
    """
    if not _NAME.fullmatch(name):
        raise ArgumentError(f"name is {name!r}; it must be as {checkpoint_name(1200)!r}")
    _check_finite(model)
    contents = [packed(part) for part in (model, optimizer, extra)] + [_json_of(state)]
    files = dict(zip(FILES, contents, strict=True))
    listed = {file: described(data) for file, data in files.items()}
    files[MANIFEST] = sealed({"format": FORMAT, "files": listed})

    folder = run / "checkpoints" / name
    with explained(f"{folder}:", "cannot save the checkpoint"):
        write_folder(folder, files)
        disk.sync(run)
    return folder


def load_checkpoint(folder: Path) -> Checkpoint:
    """Read a checkpoint (or what ``RUN/best`` points to); a ``RunError`` names the file that is damaged."""
    folder = standing(folder)
    files = _read_files(folder)
    model, optimizer, extra = (_unpacked(folder / file, files[file]) for file in FILES[: len(TENSORS)])
    return Checkpoint(folder, model, optimizer, extra, _parsed(folder / STATE, files[STATE]))


def load_state(folder: Path) -> dict[str, Any]:
    """What of a checkpoint is no tensor; the other files are not looked at."""
    folder = standing(folder)
    data = _read_verified(folder / STATE, _read_manifest(folder / MANIFEST))
    return _parsed(folder / STATE, data)


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr)


def newest_checkpoint(
    run: Path,
    report: Callable[[str], None] = _to_stderr,
    check: Callable[[Checkpoint], None] = lambda checkpoint: None,
) -> Checkpoint | None:
    """The newest checkpoint that can be loaded, or None where there is none at all.

    Each that is damaged, or for which ``check`` raises a ``RunError``, is named in a line given to
    ``report``, and the one before it is tried. That none is left is a ``RunError``: a run must not begin
    anew unseen.
    """
    folders = list_checkpoints(run)
    problems: list[RunError] = []
    for folder in folders:
        try:
            checkpoint = load_checkpoint(folder)
            check(checkpoint)
            return checkpoint
        except RunError as error:
            problems.append(error)
            report(f"{error}; looking for an earlier one")
    if problems:
        raise RunError(
            f"{run / 'checkpoints'}: none of the {len(folders)} checkpoints can be loaded; "
            f"of the newest: {problems[0].args[0]}"
        )
    return None


def put_back(run: Path) -> None:
    """Let a checkpoint that was set aside, and whose replacement a crash kept away, take its place again."""
    for aside in (run / "checkpoints").glob(f"*{OLD}"):
        folder = aside.with_name(aside.name.removesuffix(OLD))
        if _NAME.fullmatch(folder.name) and not folder.exists():
            with explained(f"{folder}:", "cannot put the checkpoint back"):
                disk.rename(aside, folder)


def point(run: Path, pointer: str, name: str) -> None:
    """Let ``RUN/best`` or ``RUN/last`` be a relative link to a checkpoint, at once."""
    if pointer not in POINTERS:
        raise ArgumentError(f"pointer is {pointer!r}; it must be one of {', '.join(map(repr, POINTERS))}")
    if not (run / "checkpoints" / name / MANIFEST).is_file():
        raise RunError(f"{run / 'checkpoints' / name}: there is no such checkpoint to point to")
    link = run / pointer
    with explained(f"{link}:", "cannot set the link"):
        set_link(link, Path("checkpoints") / name)


def mend_link(run: Path, pointer: str, name: str) -> None:
    """Let a pointer that a kill or a copy lost be a link again, if its checkpoint is sound.

    What was copied as a folder may be the only good copy of a damaged checkpoint.
    """
    link, place = run / pointer, Path("checkpoints") / name
    if link.is_symlink() and link.readlink() == place:
        return
    try:
        load_checkpoint(run / place)
    except RunError:
        return
    point(run, pointer, name)


def prune(run: Path, keep: Collection[str]) -> None:
    """Remove all checkpoints but those named and those that ``best`` and ``last`` point to."""
    pointed = {os.path.basename(os.readlink(run / p)) for p in POINTERS if (run / p).is_symlink()}
    for folder in list_checkpoints(run):
        if folder.name.removesuffix(OLD) not in {*keep, *pointed}:
            with explained(f"{folder}:", "cannot remove the checkpoint"):
                remove_folder(folder)


# The folder.


def list_checkpoints(run: Path) -> list[Path]:
    """Newest first: by falling number, one that was set aside after the one that replaced it."""
    parent = run / "checkpoints"
    with explained(f"{parent}:", "cannot list"):
        folders = list(parent.iterdir()) if parent.exists() else []
    found = [folder for folder in folders if update_of(folder.name) >= 0]
    return sorted(found, key=lambda folder: (-update_of(folder.name), folder.name))


# The bytes of each file.


def _check_finite(model: Mapping[str, Tensor]) -> None:
    for name, tensor in model.items():
        wrong = tensor.numel() - int(torch.isfinite(tensor).sum())
        if wrong:
            raise DivergedError(
                f"{wrong} of the {tensor.numel()} numbers in {name!r} are NaN or infinite, so no checkpoint "
                "is written; resume from the last one with a lower learning rate or gradient clipping"
            )


def packed(tensors: Mapping[str, Tensor]) -> bytes:
    """As safetensors, which wants each tensor in its own contiguous memory: tied weights are copied."""
    found: dict[str, Tensor] = {}
    memories: set[int] = set()
    for name, tensor in tensors.items():
        flat = tensor.detach().cpu().contiguous()
        memory = flat.untyped_storage().data_ptr()
        found[name] = flat.clone() if memory in memories else flat
        memories.add(memory)
    return safetensors.torch.save(found)


def _unpacked(path: Path, data: bytes) -> dict[str, Tensor]:
    try:
        return safetensors.torch.load(data)
    except SafetensorError as error:
        _damaged(path, str(error))


def _json_of(state: dict[str, Any]) -> bytes:
    try:
        return canonical(state)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"state cannot be written as JSON: {error}") from error


def _parsed(path: Path, data: bytes) -> dict[str, Any]:
    try:
        return parsed(data)
    except ValueError as error:
        _damaged(path, str(error))


# The manifest.


def _read_files(folder: Path) -> dict[str, bytes]:
    """Each file, read once, as the manifest describes it."""
    with explained(f"{folder}:", "cannot read the checkpoint"):
        found = {path.name for path in folder.iterdir()}
    if MANIFEST not in found:
        _damaged(folder / MANIFEST, "it is missing")
    listed = _read_manifest(folder / MANIFEST)
    for name in sorted(found ^ {*FILES, MANIFEST}):
        _damaged(folder / name, "it does not belong here" if name in found else "it is missing")
    return {name: _read_verified(folder / name, listed) for name in FILES}


def _read_verified(path: Path, listed: Mapping[str, Any]) -> bytes:
    data = _read(path)
    if described(data) != listed[path.name]:
        _damaged(path, f"it is {described(data)} but was saved as {listed[path.name]}")
    return data


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        content = unsealed(_read(path))
    except ValueError as error:
        _damaged(path, str(error))
    version, listed = content.get("format"), content.get("files")
    if isinstance(version, int) and version > FORMAT:
        raise RunError(
            f"{path}: the checkpoint has format {version}, newer than the {FORMAT} that this Elman reads; "
            "upgrade Elman"
        )
    if version != FORMAT or not isinstance(listed, dict) or listed.keys() != set(FILES):
        _damaged(path, f"it does not describe a checkpoint of format {FORMAT}")
    return listed


def _read(path: Path) -> bytes:
    with explained(f"{path}:", "cannot read"):
        return read_plain(path)


def _damaged(path: Path, problem: str) -> NoReturn:
    raise RunError(f"{path} is damaged: {problem}; restore the file or use another checkpoint")
