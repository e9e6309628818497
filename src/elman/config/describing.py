"""The reference of settings: key, type, default and description of each."""

import json
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from elman.config.sections import Section
from elman.config.toml import toml_value
from elman.config.values import OneOf, PartOf


def describe(kind: type[Section], prefix: str = "") -> Iterator[tuple[str, str, str, str]]:
    """(key, type, default, description) of every setting: the reference is made of these."""
    for name, field in kind.model_fields.items():
        default = field.get_default(call_default_factory=True)
        if isinstance(default, Section):
            yield from describe(type(default), f"{prefix}{name}.")
        else:
            shown = "" if field.is_required() else "from the data" if default is None else toml_value(default)
            yield f"{prefix}{name}", field_type(field), shown, field.description or ""


def field_type(field: FieldInfo) -> str:
    """The type of a setting as the reference shows it: a list of names where there is one."""
    return _named(field.metadata) or type_name(field.annotation)


def type_name(annotation: Any) -> str:
    """A type, or what an annotation says of it, in the words of the reference."""
    if get_origin(annotation) is Annotated:
        return _named(annotation.__metadata__) or type_name(annotation.__origin__)
    if get_origin(annotation) is Literal:
        return " | ".join(map(json.dumps, get_args(annotation)))
    arguments = [one for one in get_args(annotation) if one is not type(None) and one is not Ellipsis]
    if get_origin(annotation) in (list, dict, tuple):
        return f"{annotation.__origin__.__name__}[{', '.join(map(type_name, arguments))}]"
    if arguments:
        return " | ".join(dict.fromkeys(map(type_name, arguments)))
    return getattr(annotation, "__name__", str(annotation))


def _named(metadata: Iterable[Any]) -> str:
    """The names that a setting may have, as its owner knows them; empty where anything may stand."""
    for one in metadata:
        if isinstance(one, PartOf) and not one.open:
            return " | ".join([*map(json.dumps, one.choices()), '"file.py:Class"'])
        if isinstance(one, OneOf):
            return " | ".join(map(json.dumps, one.choices()))
    return ""
