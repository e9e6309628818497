"""Two sides in a line, with a separator between them."""

from collections.abc import Iterator

from elman.text.columns import separated_rows
from elman.text.files import Repairs
from elman.text.readers.base import Reader
from elman.text.records import Origin, Record, Source, record_of


class Separated(Reader):
    """The separator stands once in every line."""

    paired = True
    cut = "lines"

    def read(self, source: Source, roles: tuple[str, ...], repairs: Repairs) -> Iterator[Record]:
        assert source.separator is not None  # a source of this format has one
        if len(roles) != 2:
            raise source.error(f"a separator makes 2 sides, not {len(roles)}: {', '.join(roles)}")
        lines = source.open_lines(repairs)
        places = {role: (number,) for number, role in enumerate(source.wanted(roles))}
        for row in separated_rows(lines, source.separator, source.prefix or "", repairs, bare=source.asked):
            origin = Origin((row.line.text,), row.cells, roles[: len(row.cells)], source.separator)
            yield record_of(row, places, origin if source.asked else None, source.blank)
