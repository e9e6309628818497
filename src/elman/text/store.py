"""Ragged arrays of ids, on disk and mapped into memory, so that a corpus is encoded once and never loaded."""

from __future__ import annotations

import hashlib
import io
import os
import sys
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elman.errors import ArgumentError
from elman.storage.files import open_own, read_plain, remove, rename, sync, write_bytes
from elman.storage.locks import take_lock
from elman.storage.sealed import fits, sealed, unsealed

FORMAT = {"format": 2, "byteorder": sys.byteorder}
META = "meta.json"
CHUNK = 2**20  # bytes of a file that are held before they are written

Row = Mapping[str, Sequence[int] | NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Ragged:
    """Rows of unequal length in one array: row i is ``values[offsets[i]:offsets[i + 1]]``."""

    values: NDArray[np.int32]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> NDArray[np.int32]:
        row = range(len(self))[row]  # the range refuses what is outside
        return self.values[self.offsets[row] : self.offsets[row + 1]]

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.offsets)


class Store:
    """Examples as named fields of ids; ``fields["source"][i]`` is that field of example i, read-only.

    On disk a field is two raw files, ``<field>.values`` (int32) and ``<field>.offsets`` (int64).
    ``meta.json`` has the key, which says what was encoded and how, the size and SHA-256 of every file, and
    its own SHA-256. It comes last, so a folder whose ``meta.json`` fits is complete.

    >>> store = Store.in_memory([{"words": [4, 5, 6], "tags": [0, 1, 0]}, {"words": [7], "tags": [1]}])
    >>> len(store), store.fields["words"][0].tolist(), store.fields["tags"].lengths.tolist()
    (2, [4, 5, 6], [3, 1])
    """

    def __init__(self, fields: Mapping[str, Ragged]) -> None:
        self.fields = dict(fields)

    def __len__(self) -> int:
        return next((len(field) for field in self.fields.values()), 0)

    @classmethod
    def in_memory(cls, rows: Iterable[Row]) -> Store:
        """The rows in memory, for what is read once."""
        sinks: defaultdict[str, io.BytesIO] = defaultdict(io.BytesIO)
        _write_rows(rows, sinks.__getitem__)
        return cls(_fields(sinks, lambda name, dtype: np.frombuffer(sinks[name].getvalue(), dtype)))

    @classmethod
    def write(cls, folder: str | os.PathLike[str], rows: Iterable[Row], key: str) -> Store:
        """Streams the rows to ``folder`` and opens it; whatever it held is replaced at the very end.

        Without any row there is no field either. A failure on the way leaves the folder as it was, or
        such that :meth:`open` refuses it.
        """
        return cls._replace(folder, lambda open_file: _write_rows(rows, open_file), key)

    @classmethod
    def join(cls, folder: str | os.PathLike[str], stores: Iterable[Store], key: str) -> Store:
        """As ``write`` of all rows of these stores, in their order."""
        return cls._replace(folder, lambda open_file: _write_stores(stores, open_file), key)

    @classmethod
    def _replace(cls, folder: str | os.PathLike[str], write: Callable[[OpenFile], None], key: str) -> Store:
        folder = Path(folder)
        if not folder.is_dir():
            remove(folder)
        folder.mkdir(parents=True, exist_ok=True)
        with open_own(folder / "lock", "a") as lock:
            take_lock(lock)  # two runs may encode the same corpus at the same time
            try:
                _put_in_place(folder, _write_parts(folder, write), key)
            finally:
                _remove_parts(folder)
            store = cls.open(folder, key)
        assert store is not None, f"{folder} was written and cannot be opened"
        return store

    @classmethod
    def open(cls, folder: str | os.PathLike[str], key: str) -> Store | None:
        """What was written for this key, every byte verified; or None where there is no such thing."""
        folder = Path(folder)
        try:
            meta = read_plain(folder / META)
            about = unsealed(meta)
            files = about.pop("files", None)
            if about != {**FORMAT, "key": key} or not isinstance(files, dict):
                return None  # written for another key, or by another version
            if not all(fits(folder / name, description) for name, description in files.items()):
                return None
            fields = _fields(files, lambda name, dtype: _mapped(folder / name, dtype))
            if read_plain(folder / META) != meta:  # replaced in this very moment
                return None
        except (OSError, ValueError):
            return None
        return cls(fields)


class _Part:
    """A file that is written beside its final place, and what it will be known by."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("xb")
        self.digest = hashlib.sha256()

    def write(self, data: bytes, /) -> None:
        self.digest.update(data)
        self.file.write(data)

    def finished(self) -> dict[str, Any]:
        """Bring it to the disk; its size and SHA-256."""
        self.file.flush()
        os.fsync(self.file.fileno())
        return {"size": self.file.tell(), "sha256": self.digest.hexdigest()}


OpenFile = Callable[[str], _Part | io.BytesIO]  # one more file of a store, by its name


class _Column:
    """One field while it is written: at most a chunk of each file is held."""

    def __init__(self, name: str, open_file: OpenFile) -> None:
        self.files = open_file(f"{name}.values"), open_file(f"{name}.offsets")
        self.values, self.offsets = array("i"), array("q", [0])
        self.written = 0

    def add(self, row: Sequence[int] | NDArray[Any]) -> None:
        self.values.extend(row.tolist() if isinstance(row, np.ndarray) else iter(row))
        self.offsets.append(self.written + len(self.values))
        if max(4 * len(self.values), 8 * len(self.offsets)) >= CHUNK:
            self.flush()

    def flush(self) -> None:
        self.written += len(self.values)
        for file, chunk in zip(self.files, (self.values, self.offsets), strict=True):
            file.write(chunk.tobytes())
            del chunk[:]


def _write_rows(rows: Iterable[Row], open_file: OpenFile) -> None:
    columns: dict[str, _Column] = {}
    for number, row in enumerate(rows):
        if number == 0:
            if not row or not all(name.isidentifier() for name in row):
                raise ArgumentError(f"an example has the fields {list(row)}; names like 'source' are needed")
            columns = {name: _Column(name, open_file) for name in row}
        if row.keys() != columns.keys():
            fields = f"the fields {list(row)}, those before it had {list(columns)}"
            raise ArgumentError(f"example {number} has {fields}; all examples must have the same")
        for name, column in columns.items():
            try:
                column.add(row[name])
            except (TypeError, OverflowError) as error:
                said = f"example {number}, field {name!r} cannot be stored ({error})"
                raise ArgumentError(f"{said}; it must be a sequence of whole numbers of 32 bits") from None
    for column in columns.values():
        column.flush()


def _write_stores(stores: Iterable[Store], open_file: OpenFile) -> None:
    files: dict[str, _Part | io.BytesIO] = {}
    written: defaultdict[str, int] = defaultdict(int)
    for store in stores:
        for name, field in store.fields.items():
            if f"{name}.values" not in files:
                files |= {one: open_file(one) for one in (f"{name}.values", f"{name}.offsets")}
                files[f"{name}.offsets"].write(np.zeros(1, np.int64).tobytes())
            files[f"{name}.values"].write(field.values.tobytes())
            files[f"{name}.offsets"].write((field.offsets[1:] + written[name]).tobytes())
            written[name] += len(field.values)


def _write_parts(folder: Path, write: Callable[[OpenFile], None]) -> dict[str, dict[str, Any]]:
    """Writes every file beside its final place; their final names, sizes and SHA-256."""
    _remove_parts(folder)  # of a writer that was killed
    with ExitStack() as stack:
        parts: dict[str, _Part] = {}

        def part(name: str) -> _Part:
            parts[name] = _Part(folder / f"{name}.part")
            stack.enter_context(parts[name].file)
            return parts[name]

        write(part)
        return {name: one.finished() for name, one in parts.items()}


def _remove_parts(folder: Path) -> None:
    for part in folder.glob("*.part"):
        remove(part)


def _put_in_place(folder: Path, files: dict[str, dict[str, Any]], key: str) -> None:
    """Old description away, new files in, new description in: each safely on disk before the next."""
    remove(folder / META)
    sync(folder)
    for old in [*folder.glob("*.values"), *folder.glob("*.offsets")]:
        remove(old)  # whoever has it mapped keeps it
    for name in files:
        rename(folder / f"{name}.part", folder / name)
    sync(folder)
    write_bytes(folder / META, sealed({**FORMAT, "key": key, "files": files}))
    sync(folder)


def _fields(names: Iterable[str], read: Callable[[str, Any], NDArray[Any]]) -> dict[str, Ragged]:
    return {
        name.removesuffix(".values"): Ragged(read(name, np.int32), read(f"{name[:-6]}offsets", np.int64))
        for name in names
        if name.endswith(".values")
    }


def _mapped(path: Path, dtype: Any) -> NDArray[Any]:
    if path.stat().st_size == 0:
        return np.zeros(0, dtype)  # nothing cannot be mapped
    return np.memmap(path, dtype, mode="r").view(np.ndarray)  # plain views are cut faster
