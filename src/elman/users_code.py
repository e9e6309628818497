"""Code of a user's own: found, read and hashed before anything of it runs, and then run as it was read."""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.machinery import ModuleSpec, NamespaceLoader, PathFinder, SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType

from elman.errors import ElmanError, RunError

OURS = __name__.partition(".")[0]
_MISTAKE = "_elman_mistake"  # of a class, what is wrong with it
_running: ContextVar[bool] = ContextVar("running", default=False)  # does a file of a user's run?


@dataclass(frozen=True)
class SourceFile:
    """A file of Python as it was read; ``folders`` is where a package has its modules."""

    module: str
    path: str
    content: bytes
    folders: list[str] | None = None

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    def spec(self) -> ModuleSpec:
        found = spec_from_file_location(
            self.module, self.path, loader=_ReadLoader(self), submodule_search_locations=self.folders
        )
        assert found is not None
        return found


@dataclass(frozen=True)
class Code:
    """The code that a name stands for: a file, or a module with the packages on the way to it.

    ``sourceless`` are those of them that have no source to be read: built in, or compiled.
    """

    place: str
    files: tuple[SourceFile, ...] = ()
    sourceless: tuple[str, ...] = ()

    @classmethod
    def find(cls, place: str, copy: Path | None = None) -> Code:
        """What ``"cells.py"`` or ``"package.module"`` stands for; nothing of it runs, nor of its packages.

        A ``copy`` is named by its SHA-256 and stands for the file, wherever that is now.
        """
        if place.endswith(".py"):
            module, path = f"elman_user_{Path(place).stem}", os.path.abspath(place)
            if copy is None:
                return cls(place, (SourceFile(module, path, _read(path)),))
            file = SourceFile(module, str(copy), _read(str(copy)))
            if file.digest != copy.stem:
                raise RunError(f"{copy} is damaged: it is not the file of its name; restore it")
            if os.path.isfile(path) and Path(path).read_bytes() == file.content:
                file = replace(file, path=path)  # an error is told where the user will look
            return cls(place, (file,))
        if not all(word.isidentifier() for word in place.split(".")):
            raise ImportError(f"{place!r} is neither a Python file (.py) nor the name of a module")
        if place.partition(".")[0] == OURS:
            return cls(place)
        parts = list(_on_the_way(place))
        files = tuple(part for part in parts if isinstance(part, SourceFile))
        return cls(place, files, tuple(part for part in parts if isinstance(part, str)))

    @cached_property
    def module(self) -> ModuleType:
        """The module, run once; one that is imported already is taken as it is.

        What is wrong with one of its classes is told to those who ask for that class: see ``tell_later``.
        """
        with _run():
            if self.place.endswith(".py"):
                spec = self.files[0].spec()
                module = module_from_spec(spec)
                assert spec.loader is not None
                spec.loader.exec_module(module)
                return module
            finder = _ReadFinder(self.files)
            sys.meta_path.insert(0, finder)
            try:
                return importlib.import_module(self.place)
            finally:
                sys.meta_path.remove(finder)


def tell_later(part: type, mistake: ElmanError) -> None:
    """Raise what is wrong with a class; or, while a user's file runs, when that class is asked for.

    So a mistake in one class of a file keeps nobody from the others.
    """
    if not _running.get():
        raise mistake
    setattr(part, _MISTAKE, mistake)


def mistake_in(part: type) -> ElmanError | None:
    """What is wrong with a class of a user's file, and was not raised when the file ran."""
    found: ElmanError | None = vars(part).get(_MISTAKE)
    return found


@contextmanager
def _run() -> Iterator[None]:
    before = _running.set(True)
    try:
        yield
    finally:
        _running.reset(before)


class _ReadLoader(SourceFileLoader):
    """Runs a file as it was read, whatever has become of it since; a compiled copy beside it is not used."""

    def __init__(self, file: SourceFile) -> None:
        super().__init__(file.module, file.path)
        self.content = file.content

    def get_data(self, path: str) -> bytes:
        return self.content if path == self.path else super().get_data(path)

    def get_code(self, fullname: str) -> CodeType:
        code: CodeType = self.source_to_code(self.content, self.path)
        return code


class _ReadFinder:
    """Gives the import system the files that were read, by the names of their modules."""

    def __init__(self, files: Sequence[SourceFile]) -> None:
        self.files = {file.module: file for file in files}

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return self.files[name].spec() if name in self.files else None


def _on_the_way(place: str) -> Iterator[SourceFile | str]:
    """The packages of a module and the module itself: as they are read, or the name where there is no source.

    ``importlib.util.find_spec`` would import the packages; here each is looked up where the one before it
    says that its modules are. A folder without ``__init__.py`` has no code.
    """
    folders: list[str] | None = None
    name = ""
    for word in place.split("."):
        top = not name
        name = word if top else f"{name}.{word}"
        spec = _spec(word, None if top else folders or [])
        if spec is None and top:
            raise ModuleNotFoundError(f"No module named {name!r}")
        if spec is None:  # its package may make it when it runs
            yield name
            return
        folders = None if spec.submodule_search_locations is None else list(spec.submodule_search_locations)
        if type(spec.loader) is SourceFileLoader:
            yield SourceFile(name, spec.loader.path, _read(spec.loader.path), folders)
        elif spec.loader is not None and not isinstance(spec.loader, NamespaceLoader):
            yield name


def _spec(word: str, folders: list[str] | None) -> ModuleSpec | None:
    """Where a module is, by its last word and the folders of its package (None: no package)."""
    if folders is not None:
        return PathFinder.find_spec(word, folders)
    finders = (getattr(finder, "find_spec", None) for finder in sys.meta_path)
    found = (find(word, None) for find in finders if find is not None)
    return next((spec for spec in found if spec is not None), None)


def _read(path: str) -> bytes:
    if "\0" in path or (os.path.exists(path) and not os.path.isfile(path)):
        raise ImportError(f"{path!r} is no file")
    return Path(path).read_bytes()
