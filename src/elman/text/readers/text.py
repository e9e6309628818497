"""Plain text: a line is a text, or a sentence of words."""

from collections.abc import Iterator

from elman.text.files import Repairs, open_lines
from elman.text.readers.base import LineReader
from elman.text.records import Record, Source


class Text(LineReader):
    """Every line, blank ones too, unchanged but for the line end."""

    def read(self, source: Source, roles: tuple[str, ...], repairs: Repairs) -> Iterator[Record]:
        if len(roles) != 1:
            raise source.error(f"a line of the format 'text' is one thing, not {' and '.join(roles)}")
        if source.columns is not None:
            raise source.error("a line of the format 'text' has no columns; name none")
        for line in open_lines(source.path, repairs):
            yield Record({roles[0]: line.text}, line.path, line.number)
