"""Plain text: a line is a text, or a sentence of words."""

from collections.abc import Iterator

from elman.text.columns import split_row
from elman.text.files import Repairs
from elman.text.readers.base import LineReader
from elman.text.records import Origin, Record, Source


class Lines(LineReader):
    """Every line, blank ones too, unchanged but for the line end."""

    cut = "lines"

    def read(self, source: Source, roles: tuple[str, ...], repairs: Repairs) -> Iterator[Record]:
        if len(source.wanted(roles)) != 1:
            raise source.error(f"a line of the format 'lines' is one thing, not {' and '.join(roles)}")
        if source.columns is not None:
            raise source.error("a line of the format 'lines' has no columns; name none")
        for line in source.open_lines(repairs):
            yield Record({roles[0]: line.text}, line.path, line.number)

    def read_tokens(self, source: Source, roles: tuple[str, ...], repairs: Repairs) -> Iterator[Record]:
        """As pairs of lines; where a model is asked, every line, blank ones too."""
        if not source.asked:
            yield from super().read_tokens(source, roles, repairs)
            return
        for line in source.open_lines(repairs):
            words = split_row(line, " ", repairs).cells
            yield Record({roles[0]: words}, line.path, line.number, origin=Origin((line.text,)))
