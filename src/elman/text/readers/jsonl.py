"""JSON Lines: an object a line, with a key for each role."""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from elman.errors import ColumnError, EmptyError, SyntaxProblem, UnbalancedError, nearest
from elman.text.columns import counted, is_blank, json_object, json_text
from elman.text.files import Line, Repairs
from elman.text.readers.base import Reader
from elman.text.records import Origin, Record, Source, columns_of, filled, joined
from elman.text.sentences import token_columns

Value = Callable[[Line, dict[str, Any], str], Any]  # of a key of an object, in this line


class JsonLines(Reader):
    """Without named columns the roles are the keys; ``doc.text`` is one of an object within."""

    cut = "lines"

    def read(self, source: Source, roles: tuple[str, ...], repairs: Repairs) -> Iterator[Record]:
        """A text beside which nothing stands may be blank, as a line of text may."""
        keys = columns_of(source, roles, roles)
        lists = [keys[role] for role in source.lists if role in keys]

        def value(line: Line, found: dict[str, Any], key: str) -> str | list[str]:
            own = found.get(key) if key in lists else None
            if not isinstance(own, list):
                return _text(line, found, key)
            return [json_text(line, {key: one}, key) for one in own]

        for line, record in _records(source, keys, value, repairs):
            alone = len(record.fields) == 1
            yield record if alone else filled(record, [line] * len(record.fields), source.blank)

    def read_tokens(self, source: Source, roles: tuple[str, ...], repairs: Repairs) -> Iterator[Record]:
        """Lists of one length, ``{"words": […], "tags": […]}``; the keys may be ``word`` and ``tag``."""
        keys = token_columns(source, roles, roles)
        wanted = {role: keys[role] for role in source.wanted(roles)}
        for line, record in _records(source, wanted, _tokens, repairs):
            lengths = {role: len(tokens) for role, tokens in record.fields.items()}
            if len({*lengths.values()}) > 1:
                said = " for ".join(counted(length, role) for role, length in reversed(lengths.items()))
                raise line.error(UnbalancedError, said, f"give one {roles[-1]} to each {roles[0]}")
            if not source.asked and not record.fields[roles[0]]:
                raise line.error(EmptyError, f"no {roles[0]}", "fill it in, or take the line out")
            yield record


def _records(
    source: Source, keys: dict[str, int | str], value: Value, repairs: Repairs
) -> Iterator[tuple[Line, Record]]:
    """The records of a file, each with its line."""
    for role, key in keys.items():
        if isinstance(key, int):
            raise source.error(f"{role} is column {key}; JSON has no numbers, name a key")
    dotted = [part.strip() for key in keys.values() for part in str(key).split("+") if "." in part]
    for line in source.open_lines(repairs):
        if is_blank(line):
            repairs["blank line skipped"] += 1
            continue
        found = json_object(line)
        known = _reached(found, dotted) if dotted else found
        fields = {role: value(line, known, str(key)) for role, key in keys.items()}
        origin = Origin((line.text,), _cells(line, found), list(found))
        yield line, Record(fields, line.path, line.number, origin=origin if source.asked else None)


def _reached(value: dict[str, Any], dotted: Iterable[str]) -> dict[str, Any]:
    """An object with what dotted keys reach in the objects within it, unless it has keys that are called so.

    >>> _reached({"doc": {"text": "a"}, "n.b": 1}, ["doc.text", "n.b", "doc.title"])
    {'doc.text': 'a', 'doc': {'text': 'a'}, 'n.b': 1}
    """
    reached: dict[str, Any] = {}
    for key in dotted:
        *outer, last = key.split(".")
        place: Any = value
        for name in outer:
            place = place.get(name) if isinstance(place, dict) else None
        if isinstance(place, dict) and last in place:
            reached[key] = place[last]
    return reached | value


def _cells(line: Line, value: dict[str, Any]) -> list[str]:
    """The values of an object as cells of a table: lists and objects as JSON, null as nothing."""
    if all(isinstance(one, str) for one in value.values()):
        return list(value.values())
    try:
        plain = json.loads(line.text)  # in which numbers are numbers
    except ValueError:  # unless one has more digits than Python reads
        plain = value
    return [
        one if isinstance(one, str) else "" if one is None else json.dumps(plain[key], ensure_ascii=False)
        for key, one in value.items()
    ]


def _text(line: Line, value: dict[str, Any], key: str) -> str:
    """The text of a key, or of several, as in ``title+body``, unless one is called so."""
    if key in value or "+" not in key:
        return json_text(line, value, key)
    return joined(json_text(line, value, part.strip()) for part in key.split("+"))


def _tokens(line: Line, value: dict[str, Any], key: str) -> list[str]:
    """The list of a key, each token of it a text; ``word`` may be called ``words``."""
    key = f"{key}s" if key not in value and f"{key}s" in value else key
    tokens = value.get(key, ())
    if not isinstance(tokens, list):
        if key in value:
            raise line.error(SyntaxProblem, f"the value of {key!r} is no list", "give a list of strings")
        raise line.error(ColumnError, f"there is no key {key!r}", nearest(key, value))
    found = []
    for place, token in enumerate(tokens):
        name = f"{key}[{place}]"
        found.append(json_text(line, {name: token}, name))
        if not found[-1]:
            raise line.error(EmptyError, f"{name} is empty", "fill it in, or take it out")
    return found
