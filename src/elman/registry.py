"""Names for parts: the file ``cells/lstm.py`` is ``"lstm"`` in a config; users add their own."""

import importlib
import importlib.util
import inspect
import pkgutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elman.errors import ArgumentError, UnknownNameError, nearest


class Registry:
    """Finds the class that a folder's file holds, importing that one file only when asked.

    A file named ``base`` or starting with ``_`` is not a part; every other file of the folder
    defines exactly one class derived from ``base``, and the file's name is its name.
    """

    def __init__(self, package: str, base: str) -> None:
        self.package = package
        self.base = base
        self._added: dict[str, type] = {}

    @property
    def kind(self) -> type:
        """The class that every part of this registry derives from."""
        return getattr(importlib.import_module(f"{self.package}.base"), self.base)  # type: ignore[no-any-return]

    def names(self) -> list[str]:
        return sorted({*self._files(), *self._added})

    def find(self, name: str) -> type:
        """The class of that name; an unknown name is an error that lists the near ones.

        ``"cells.py:Leaky"`` and ``"package.module:Leaky"`` are classes of the user's own files.
        """
        if name in self._added:
            return self._added[name]
        if ":" in name:
            return self._load(name)
        if name not in self._files():
            raise UnknownNameError(f"no {self.base.lower()} named {name!r}; {nearest(name, self.names())}")
        module = importlib.import_module(f"{self.package}.{name}")
        for part in vars(module).values():
            if inspect.isclass(part) and issubclass(part, self.kind) and part.__module__ == module.__name__:
                return part
        raise UnknownNameError(f"{module.__name__} defines no {self.base}")

    def add(self, name: str, part: type) -> None:
        """Give a user's class a name; a later class of the same name replaces an earlier one."""
        if not isinstance(name, str) or not name.isidentifier():
            raise ArgumentError(f"name {name!r} is not a plain word; use letters, digits and _")
        if name in self._files():
            raise ArgumentError(f"{name!r} is a built-in {self.base.lower()}; choose another name")
        self._added[name] = part

    def _load(self, name: str) -> type:
        """A class from a Python file, or from a module that can be imported."""
        place, _, attribute = name.rpartition(":")
        try:
            if place.endswith(".py"):
                spec = importlib.util.spec_from_file_location(f"elman_user_{Path(place).stem}", place)
                assert spec is not None
                assert spec.loader is not None
                module = importlib.util.module_from_spec(spec)
                spec.loader.exec_module(module)
            else:
                module = importlib.import_module(place)
        except (ImportError, OSError, SyntaxError) as error:
            raise UnknownNameError(f"{name!r} cannot be loaded: {error}") from None
        part = getattr(module, attribute, None)
        if not inspect.isclass(part) or not issubclass(part, self.kind):
            known = [key for key, value in vars(module).items() if inspect.isclass(value)]
            raise UnknownNameError(
                f"{place} has no {self.base.lower()} named {attribute!r}; {nearest(attribute, known)}"
            )
        return part

    def _files(self) -> list[str]:
        path = importlib.import_module(self.package).__path__
        return [m.name for m in pkgutil.iter_modules(path) if m.name != "base" and m.name[0] != "_"]


CELLS = Registry("elman.cells", "Cell")
ATTENTIONS = Registry("elman.attention", "Attention")
STRATEGIES = Registry("elman.decoding", "Strategy")
CORPORA = Registry("elman.corpora", "Corpus")
TASKS = Registry("elman.tasks", "Task")
REGISTRIES = (CELLS, ATTENTIONS, STRATEGIES, CORPORA, TASKS)


def construct(part: type, *sizes: int, options: Mapping[str, Any] | None, named: str) -> Any:
    """A part with the options of its constructor; a wrong option is an error that names the right ones."""
    if options is not None and not isinstance(options, Mapping):
        raise ArgumentError(f"{named} is {options!r}; it must be a mapping of names to values")
    known = list(inspect.signature(part.__init__).parameters)[1 + len(sizes) :]  # type: ignore[misc]
    for name in options or {}:
        if name not in known:
            raise ArgumentError(f"{named} has {name!r}, unknown to {part.__name__}; {nearest(name, known)}")
    return part(*sizes, **(options or {}))


def register(name: str, part: type) -> None:
    """Make ``part`` usable by name wherever a name is accepted.

    >>> from elman import Cell, RNN, register
    >>> from torch import tanh
    >>> class Leaky(Cell):
    ...     state, gates = ("h",), ("a",)
    ...     def R(self, x, h, s):
    ...         return self.State(h=0.9 * s.h + 0.1 * tanh(x.a + h.a))
    >>> register("leaky", Leaky)
    >>> RNN("leaky", 3, 5).cell_class.__name__
    'Leaky'
    """
    for registry in REGISTRIES:
        if inspect.isclass(part) and issubclass(part, registry.kind):
            registry.add(name, part)
            return
    kinds = ", ".join(registry.base for registry in REGISTRIES)
    raise ArgumentError(f"cannot register {part!r} as {name!r}: it is no class derived from {kinds}")
