"""JSON Lines: an object a line, with a key for each role."""

from collections.abc import Iterator

from elman.text.columns import is_blank, json_object, json_text
from elman.text.files import Repairs, open_lines
from elman.text.readers.base import Reader
from elman.text.records import Record, Source, columns_of, filled


class JsonLines(Reader):
    """Without named columns the roles are the keys."""

    def read(self, source: Source, roles: tuple[str, ...], repairs: Repairs) -> Iterator[Record]:
        keys = columns_of(source, roles, roles)
        for role, key in keys.items():
            if isinstance(key, int):
                raise source.error(f"{role} is column {key}; JSON has no numbers, name a key")
        for line in open_lines(source.path, repairs):
            if is_blank(line):
                repairs["blank line skipped"] += 1
                continue
            value = json_object(line)
            fields = {role: json_text(line, value, str(key)) for role, key in keys.items()}
            yield filled(Record(fields, line.path, line.number), [line] * len(fields))
