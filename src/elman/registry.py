"""Names for parts: the file ``cells/lstm.py`` is ``"lstm"`` in a config; users add their own."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from traceback import walk_tb
from typing import Any

from elman.errors import ArgumentError, UnknownNameError, nearest, shortened
from elman.trust import Trust
from elman.users_code import Code, mistake_in, tell_later

_USERS_FILES: set[str] = set()  # that classes were loaded from
UNREADABLE = (ImportError, OSError, SyntaxError)


class PartName(str):
    """The name of a part in settings, and whose word it is: a run's has its ``trust``, the user's has none.

    Code is read once, and what was read is what runs; of a run's, only if it is trusted.
    """

    registry: Registry
    trust: Trust | None

    def __new__(cls, name: str, registry: Registry, trust: Trust | None = None) -> PartName:
        self = super().__new__(cls, name)
        self.registry, self.trust = registry, trust
        return self

    def __deepcopy__(self, memo: object) -> PartName:
        return self

    def __reduce__(self) -> tuple[type[PartName], tuple[str, Registry, Trust | None]]:
        return PartName, (str(self), self.registry, self.trust)

    @property
    def of_code(self) -> bool:
        """Is it a class in a file or module, as ``"cells.py:Leaky"``, and no plain name?"""
        return ":" in self

    @cached_property
    def code(self) -> Code:
        """What it stands for, in the copy that a run brings along if it does; nothing of it runs."""
        place = self.rpartition(":")[0]
        return Code.find(place, None if self.trust is None else self.trust.copy_of(place))


class Registry:
    """Finds the class that a folder's file holds, importing that one file only when asked.

    ``kind`` says what a part is to a reader of messages: a cell, a schedule. ``base`` is the class that
    parts derive from, ``"package.module:Name"``.

    The file ``base`` and what else the package names in ``SHARED`` is not a part; every other file of the
    folder defines exactly one class derived from ``base``, and the file's name is its name.
    """

    def __init__(self, kind: str, package: str, base: str) -> None:
        self.kind, self.package, self._base = kind, package, base
        self._added: dict[str, type] = {}
        self._found: dict[str, type] = {}  # built-in parts
        self._options: dict[type, dict[str, Any]] = {}

    def __reduce__(self) -> str:
        return next(name for name, value in globals().items() if value is self)

    @property
    def base(self) -> type:
        """The class that every part of this registry derives from."""
        module, _, name = self._base.partition(":")
        found: type = getattr(importlib.import_module(module), name)
        return found

    @property
    def base_name(self) -> str:
        return self._base.partition(":")[2]

    def names(self) -> list[str]:
        return sorted({*self._files, *self._added})

    def check(self, name: str, usable: Collection[str] | None = None) -> None:
        """An unknown plain name is an error that lists the near ones; nothing is imported.

        ``usable`` are the parts that can be used where it was said, if not all of them.
        """
        if said := self.unknown(name, usable):
            raise UnknownNameError(said)

    def unknown(self, name: str, usable: Collection[str] | None = None) -> str | None:
        """What ``check`` says of a name; None of one that is known, or may be a user's."""
        shown = shortened(name)
        if name.endswith(".py"):
            return f"{shown!r} is a file; name the class in it, too, as in {shown}:Mine"
        if ":" in name or name in self._added or name in self._files:
            return None
        return f"no {self.kind} named {shown!r}; {nearest(name, self.names() if usable is None else usable)}"

    def find(self, name: str) -> type:
        """The class of that name; an unknown name is an error that lists the near ones.

        ``"cells.py:Leaky"`` and ``"package.module:Leaky"`` are classes of the user's own files. A string
        is the user's word and is obeyed; a ``PartName`` out of a run must be trusted before its code runs.
        """
        if known := self._added.get(name) or self._found.get(name):
            return known
        if ":" in name:
            return self._load(name)
        self.check(name)
        module = importlib.import_module(f"{self.package}.{self._files[name]}")
        for part in vars(module).values():
            if inspect.isclass(part) and issubclass(part, self.base) and part.__module__ == module.__name__:
                return self._found.setdefault(name, part)
        raise UnknownNameError(f"{module.__name__} defines no {self.base_name}")

    def add(self, name: str, part: type) -> None:
        """Give a user's class a name; a later class of the same name replaces an earlier one."""
        if not isinstance(name, str) or not name.isidentifier():
            raise ArgumentError(f"name {name!r} is not a plain word; use letters, digits and _")
        if name in self._files:
            raise ArgumentError(f"{name!r} is a built-in {self.kind}; choose another name")
        self._added[name] = part

    def _load(self, name: str) -> type:
        """A class from a Python file, or from a module: the one place where users' code is imported."""
        named = name if isinstance(name, PartName) else PartName(name, self)
        place, _, attribute = name.rpartition(":")
        try:
            code = named.code
            if named.trust is not None:
                named.trust.check({name: code})
            _USERS_FILES.update(file.path for file in code.files)
            module = code.module
        except UNREADABLE as error:
            said = f"{shortened(name, 300)!r} cannot be loaded: {shortened(str(error), 1000)}"
            raise UnknownNameError(said) from None
        part = getattr(module, attribute, None)
        if not inspect.isclass(part):
            classes = {key: value for key, value in vars(module).items() if inspect.isclass(value)}
            own = [key for key, kind in classes.items() if self._usable(kind)]
            known = nearest(attribute, own)
            raise UnknownNameError(f"{place} has no {self.kind} named {attribute!r}; {known}")
        if not issubclass(part, self.base):
            raise UnknownNameError(f"{name!r} is no {self.kind}; derive it from {self.base_name}")
        if mistake := mistake_in(part):
            raise mistake
        return part

    def _usable(self, part: type) -> bool:
        """Is a class one of these parts, and not the contract itself, and nothing wrong with it?"""
        return issubclass(part, self.base) and part is not self.base and mistake_in(part) is None

    def options(self, name: str) -> dict[str, Any]:
        """What the constructor of a part takes, with its defaults."""
        part = self.find(name)
        return self._options.get(part) or self._options.setdefault(part, parameters_of(part))

    def readers_of(self, option: str) -> list[str]:
        """The built-in parts whose constructors take this option."""
        return [name for name in self._files if option in self.options(name)]

    @cached_property
    def _files(self) -> dict[str, str]:
        """The file of each part by its name, which has hyphens for underscores if the package says so."""
        package = importlib.import_module(self.package)
        shared = {"base", *getattr(package, "SHARED", ())}
        files = [module.name for module in pkgutil.iter_modules(package.__path__)]
        hyphens = getattr(package, "HYPHENS", False)
        return {file.replace("_", "-") if hyphens else file: file for file in files if file not in shared}


CELLS = Registry("cell", "elman.cells", "elman.cells.base:Cell")
ATTENTIONS = Registry("attention", "elman.attention", "elman.attention.base:Attention")
NETWORKS = Registry("network", "elman.models.networks", "elman.models.networks.base:Network")
POOLINGS = Registry("pooling", "elman.models.poolings", "elman.models.poolings.base:Pooling")
STRATEGIES = Registry("strategy", "elman.decoding", "elman.decoding.base:Strategy")
METRICS = Registry("metric", "elman.metrics", "elman.metrics.base:Metric")
UNITS = Registry("unit", "elman.text.units", "elman.text.units.base:Unit")
READERS = Registry("reader", "elman.text.readers", "elman.text.readers.base:Reader")
CORPORA = Registry("corpus", "elman.corpora", "elman.corpora.base:Corpus")
TASKS = Registry("task", "elman.tasks", "elman.tasks.base:Task")
OPTIMIZERS = Registry("optimizer", "elman.training.optimizers", "torch.optim:Optimizer")
SCHEDULES = Registry("schedule", "elman.training.schedules", "elman.training.schedules.base:Schedule")
REGISTRIES = tuple(one for one in [*globals().values()] if isinstance(one, Registry))


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


def construct(part: type, *sizes: Any, options: Mapping[str, Any] | None, named: str) -> Any:
    """A part with the options of its constructor; an unknown or missing option is an error that names it."""
    if options is not None and not isinstance(options, Mapping):
        raise ArgumentError(f"{named} is {options!r}; it must be a mapping of names to values")
    given, signature = options or {}, inspect.signature(part.__init__)  # type: ignore[misc]
    parameters = list(signature.parameters.values())[1:]
    places = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    kinds = {one.kind for one in parameters}
    if len(places) < len(sizes) and inspect.Parameter.VAR_POSITIONAL not in kinds:
        begin = f"begin it as {_base_of(part)} does"
        found = f"the constructor of {part.__name__} is __init__{signature}"
        raise ArgumentError(f"{found}, but it gets {len(sizes)} sizes first; {begin}")
    known = [*places[len(sizes) :], *(one for one in parameters if one.kind is one.KEYWORD_ONLY)]
    names = [one.name for one in known]
    if inspect.Parameter.VAR_KEYWORD in kinds:  # they go on to the constructors of its base classes
        names += parameters_of(part)
    names += getattr(part, "of_all", ())
    for name in given:
        if name not in names:
            raise ArgumentError(f"{named} has {name!r}, unknown to {part.__name__}; {nearest(name, names)}")
    for one in known:
        if one.default is one.empty and one.name not in given:
            raise ArgumentError(f"{part.__name__} needs the option {one.name!r}; set it in {named}")
    return part(*sizes, **given)


def parameters_of(part: type) -> dict[str, Any]:
    """What the constructor of a class takes, with its defaults; None where there is none.

    Where it takes any keyword, what its base classes take counts, too.
    """
    found: dict[str, Any] = {}
    for base in part.__mro__:
        own = vars(base).get("__init__")
        if inspect.isfunction(own):
            parameters = list(inspect.signature(own).parameters.values())[1:]
            for one in parameters:
                if one.kind in (one.KEYWORD_ONLY, one.POSITIONAL_OR_KEYWORD):
                    found.setdefault(one.name, None if one.default is one.empty else one.default)
            if not any(one.kind is one.VAR_KEYWORD for one in parameters):
                break
    return {**getattr(part, "of_all", {}), **found}


def _base_of(part: type) -> str:
    """The contract of a part: its constructor."""
    for registry in REGISTRIES:
        if issubclass(part, registry.base):
            names = inspect.signature(registry.base.__init__).parameters  # type: ignore[misc]
            return f"{registry.base_name}.__init__({', '.join(names)})"
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
        if inspect.isclass(part) and issubclass(part, registry.base):
            try:
                registry.add(name, part)
            except ArgumentError as mistake:
                tell_later(part, mistake)
            return
    kinds = ", ".join(registry.base_name for registry in REGISTRIES)
    raise ArgumentError(f"cannot register {part!r} as {name!r}: it is no class derived from {kinds}")
