"""JSON Lines: an object a line, with a key for each role."""

from collections.abc import Iterator
from typing import Any

from elman.text.columns import is_blank, json_object, json_text
from elman.text.files import Line, Repairs
from elman.text.readers.base import Reader
from elman.text.records import Origin, Record, Source, columns_of, filled, joined


class JsonLines(Reader):
    """Without named columns the roles are the keys."""

    def read(self, source: Source, roles: tuple[str, ...], repairs: Repairs) -> Iterator[Record]:
        keys = columns_of(source, roles, roles)
        for role, key in keys.items():
            if isinstance(key, int):
                raise source.error(f"{role} is column {key}; JSON has no numbers, name a key")
        for line in source.open_lines(repairs):
            if is_blank(line):
                repairs["blank line skipped"] += 1
                continue
            value = json_object(line)
            fields = {
                role: _texts(line, value, str(key)) if role in source.lists else _text(line, value, str(key))
                for role, key in keys.items()
            }
            if source.asked:
                origin = Origin((line.text,), list(map(str, value.values())), list(value))
                yield Record(fields, line.path, line.number, origin=origin)
            else:
                yield filled(Record(fields, line.path, line.number), [line] * len(fields), source.blank)


def _texts(line: Line, value: dict[str, Any], key: str) -> str | list[str]:
    """The text of a key, or the texts of its list."""
    own = value.get(key)
    if not isinstance(own, list):
        return _text(line, value, key)
    return [json_text(line, {key: one}, key) for one in own]


def _text(line: Line, value: dict[str, Any], key: str) -> str:
    """The text of a key, or of several, as in ``title+body``, unless one is called so."""
    if key in value or "+" not in key:
        return json_text(line, value, key)
    return joined(json_text(line, value, part.strip()) for part in key.split("+"))
