"""What a setting may be: numbers within bounds, names that their owners know, and when a setting is read."""

import importlib
import typing
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, GetCoreSchemaHandler, ValidationInfo, ValidatorFunctionWrapHandler
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, core_schema

from elman.errors import nearest
from elman.registry import PartName, Registry

Rate = Annotated[float, Field(ge=0, lt=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]
Whole = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Files = str | Annotated[list[str], Field(min_length=1)] | None
Widths = Count | Annotated[list[Count], Field(min_length=1)]
Seed = Annotated[int, Field(ge=0, lt=2**64)]  # what torch takes
Options = dict[str, Any]  # of the constructor of a part


class UnknownPart(ValueError):
    """A name that a registry does not know; a message lists the parts that can be used."""

    def __init__(self, registry: Registry, name: str, others: str) -> None:
        self.registry, self.name, self.others = registry, name, others
        super().__init__(self.said())

    def said(self, usable: Collection[str] | None = None) -> str:
        return f"{self.registry.unknown(self.name, usable)}{self.others}"


@dataclass(frozen=True)
class PartOf:
    """The name of a part, checked against the registry that owns it, or a class in a user's code.

    A name remembers whose word it is, also where settings are made of settings. What a run names is looked
    up when it is needed. ``also`` are words that mean no part; ``open``: other plain words may be meant, too.
    """

    registry: Registry
    also: tuple[str, ...] = ()
    open: bool = False

    def __get_pydantic_core_schema__(self, source: type[str], handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_wrap_validator_function(self._check, handler(source))

    def _check(self, value: str, check: ValidatorFunctionWrapHandler, info: ValidationInfo) -> PartName:
        name = check(value)
        if isinstance(value, PartName):
            return value
        if info.context is None and name not in self.also and not (self.open and ":" not in name):
            others = f"; {' and '.join(self.also)} is no {self.registry.kind}" if self.also else ""
            if self.registry.unknown(name):
                raise UnknownPart(self.registry, name, others)
        return PartName(name, self.registry, info.context)

    def choices(self) -> list[str]:
        return [*self.also, *self.registry.names()]


@dataclass(frozen=True)
class OneOf:
    """A word out of the tuple ``"package.module:NAMES"``, which stands where it is used and nowhere else.

    ``usable`` is the place of a function that tells which of them this machine can use.
    """

    place: str
    usable: str | None = None

    def __get_pydantic_core_schema__(self, source: type[str], handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def _check(self, value: str) -> str:
        if value not in self.choices():
            known = self.choices() if self.usable is None else _at(self.usable)()
            raise ValueError(f"{value!r} is not one of them; {nearest(value, known)}")
        return value

    def choices(self) -> list[str]:
        return list(_at(self.place))


def _at(place: str) -> Any:
    """What stands in ``"package.module:name"``."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


@dataclass(frozen=True)
class ReadIf:
    """A setting is read only where another, by its dotted key, has one of these values; none given: any.

    ``others`` are keys of which one would do as well. ``open``: unset, the other is yet to be chosen.
    """

    key: str
    values: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    open: bool = False

    @property
    def keys(self) -> tuple[str, ...]:
        return self.key, *self.others

    def holds(self, value: Any) -> bool:
        if value is None and self.open:
            return True
        return value in self.values if self.values else value not in (None, "none", False)

    def sentence(self) -> str:
        keys, values = " or ".join(self.keys), " or ".join(map(repr, self.values))
        return f"it is read with {keys} = {values}" if values else f"it is read where {keys} is set"


def metadata(field: FieldInfo) -> Iterator[Any]:
    """What annotations say of a setting besides its type, however deep in a union or a list."""
    yield from field.metadata
    waiting: list[Any] = [field.annotation]
    for annotation in waiting:  # which grows meanwhile
        yield from getattr(annotation, "__metadata__", ())
        waiting += typing.get_args(annotation)


def registry_of(field: FieldInfo) -> Registry | None:
    """The registry that a setting names a part of, or None."""
    return next((one.registry for one in metadata(field) if isinstance(one, PartOf)), None)
