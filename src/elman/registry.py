"""Names for parts: the file ``cells/lstm.py`` is ``"lstm"`` in a config; users add their own."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from traceback import walk_tb
from typing import Any

from elman.errors import ArgumentError, UnknownNameError, nearest, shortened
from elman.trust import Trust
from elman.users_code import Code

_USERS_FILES: set[str] = set()  # that classes were loaded from
UNREADABLE = (ImportError, OSError, SyntaxError)


class PartName(str):
    """The name of a part in settings, and whose word it is: a run's has its ``trust``, the user's has none.

    Code is read once, and what was read is what runs; of a run's, only if it is trusted.
    """

    trust: Trust | None

    def __new__(cls, name: str, trust: Trust | None = None) -> PartName:
        self = super().__new__(cls, name)
        self.trust = trust
        return self

    @property
    def of_code(self) -> bool:
        """Is it a class in a file or module, as ``"cells.py:Leaky"``, and no plain name?"""
        return ":" in self

    @cached_property
    def code(self) -> Code:
        """What it stands for; nothing of it runs."""
        return Code.find(self.rpartition(":")[0])


class Registry:
    """Finds the class that a folder's file holds, importing that one file only when asked.

    The file ``base`` and what else the package names in ``SHARED`` is not a part; every other file of the
    folder defines exactly one class derived from ``base``, and the file's name is its name.
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

        ``"cells.py:Leaky"`` and ``"package.module:Leaky"`` are classes of the user's own files. A string
        is the user's word and is obeyed; a ``PartName`` out of a run must be trusted before its code runs.
        """
        if name in self._added:
            return self._added[name]
        if ":" in name:
            return self._load(name)
        shown = shortened(name)
        if name.endswith(".py"):
            raise UnknownNameError(f"{shown!r} is a file; name the class in it, too, as in {shown}:Mine")
        if name not in self._files():
            raise UnknownNameError(f"no {self.base.lower()} named {shown!r}; {nearest(name, self.names())}")
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
        """A class from a Python file, or from a module: the one place where users' code is imported."""
        named = name if isinstance(name, PartName) else PartName(name)
        place, _, attribute = name.rpartition(":")
        try:
            code = named.code
            if named.trust is not None:
                named.trust.check({name: code})
            _USERS_FILES.update(file.path for file in code.files)
            module = code.module
        except UNREADABLE as error:
            raise UnknownNameError(
                f"{shortened(name, 300)!r} cannot be loaded: {shortened(str(error), 1000)}"
            ) from None
        part = getattr(module, attribute, None)
        if not inspect.isclass(part) or not issubclass(part, self.kind):
            if inspect.isclass(part):
                raise UnknownNameError(f"{name!r} is no {self.base.lower()}; derive it from {self.base}")
            classes = {key: value for key, value in vars(module).items() if inspect.isclass(value)}
            known = [key for key, value in classes.items() if issubclass(value, self.kind)]
            raise UnknownNameError(
                f"{place} has no {self.base.lower()} named {attribute!r}; {nearest(attribute, known)}"
            )
        return part

    def _files(self) -> list[str]:
        package = importlib.import_module(self.package)
        shared = {"base", *getattr(package, "SHARED", ())}
        return [m.name for m in pkgutil.iter_modules(package.__path__) if m.name not in shared]


CELLS = Registry("elman.cells", "Cell")
ATTENTIONS = Registry("elman.attention", "Attention")
STRATEGIES = Registry("elman.decoding", "Strategy")
CORPORA = Registry("elman.corpora", "Corpus")
TASKS = Registry("elman.tasks", "Task")
REGISTRIES = (CELLS, ATTENTIONS, STRATEGIES, CORPORA, TASKS)


def named_code(names: Iterable[PartName], trust: Trust | None) -> dict[str, Code]:
    """The code that names stand for which are this run's word (its ``trust``) or the user's (None).

    A name whose code cannot be found is left out: where it is needed, that is an error.
    """
    found: dict[str, Code] = {}
    for name in names:
        if name.of_code and name.trust is trust:
            with suppress(*UNREADABLE):
                found[name] = name.code
    return found


def construct(part: type, *sizes: int, options: Mapping[str, Any] | None, named: str) -> Any:
    """A part with the options of its constructor; an unknown or missing option is an error that names it."""
    if options is not None and not isinstance(options, Mapping):
        raise ArgumentError(f"{named} is {options!r}; it must be a mapping of names to values")
    given, signature = options or {}, inspect.signature(part.__init__)  # type: ignore[misc]
    parameters = list(signature.parameters.values())[1:]
    places = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    kinds = {one.kind for one in parameters}
    if len(places) < len(sizes) and inspect.Parameter.VAR_POSITIONAL not in kinds:
        raise ArgumentError(
            f"the constructor of {part.__name__} is __init__{signature}, but it gets {len(sizes)} sizes "
            f"first; begin it as {_base_of(part)} does"
        )
    known = [*places[len(sizes) :], *(one for one in parameters if one.kind is one.KEYWORD_ONLY)]
    names = [one.name for one in known]
    if inspect.Parameter.VAR_KEYWORD in kinds:  # they go on to the constructors of its base classes
        names += [name for base in part.__mro__[1:] for name in _keywords(base)]
    for name in given:
        if name not in names:
            raise ArgumentError(f"{named} has {name!r}, unknown to {part.__name__}; {nearest(name, names)}")
    for one in known:
        if one.default is one.empty and one.name not in given:
            raise ArgumentError(f"{part.__name__} needs the option {one.name!r}; set it in {named}")
    return part(*sizes, **given)


def _keywords(part: type) -> list[str]:
    """Names that the constructor of a class takes, all of them where it takes any."""
    own = vars(part).get("__init__")
    parameters = list(inspect.signature(own).parameters.values())[1:] if inspect.isfunction(own) else []
    return [one.name for one in parameters if one.kind in (one.KEYWORD_ONLY, one.POSITIONAL_OR_KEYWORD)]


def _base_of(part: type) -> str:
    """The contract of a part: its constructor."""
    for registry in REGISTRIES:
        if issubclass(part, registry.kind):
            names = inspect.signature(registry.kind.__init__).parameters  # type: ignore[misc]
            return f"{registry.base}.__init__({', '.join(names)})"
    return part.__name__


def users_place(error: BaseException) -> str | None:
    """Where in the file of a user's class an error arose, or in a library that it called; else None."""
    frames = [(frame.f_code, line) for frame, line in walk_tb(error.__traceback__)]
    own = str(Path(__file__).parent)
    for code, line in reversed(frames):
        if code.co_filename in _USERS_FILES:
            return f"{code.co_filename}:{line}: {code.co_qualname}"
        if code.co_filename.startswith(own):
            return None
    return None


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
