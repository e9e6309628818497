"""Columns, separated by tabs, commas or another character; one example a line."""

from collections.abc import Iterator
from itertools import chain, islice

from elman.errors import ColumnError
from elman.text.columns import check_width, delimited_rows, find_columns, is_numbered, parts_of
from elman.text.files import Repairs
from elman.text.headers import table_delimiter, unnamed_columns
from elman.text.readers.base import Reader
from elman.text.records import Record, Source, columns_of, origin_of, record_of

FASTTEXT = "__label__"  # what its lines begin with
LOOKED_AT = 100  # rows that tell whether the first one is a header


class Delimited(Reader):
    """Without named columns the roles are the columns, in order, or what a header calls so.

    Columns that are named by words are looked up in the first line, which then is a header; numbers mean no
    header. Every line is as wide as the first. Comma and semicolon files quote as in RFC 4180, others never;
    between spaces the last column wanted keeps the rest of the line.
    """

    cut = "lines"
    headed = quotes = True

    def read(self, source: Source, roles: tuple[str, ...], repairs: Repairs) -> Iterator[Record]:
        lines = source.open_lines(repairs)
        first_line = next(lines, None)
        if first_line is None:
            return
        delimiter = table_delimiter(source, first_line, repairs)
        lines = chain([first_line], lines)
        columns = columns_of(source, roles, range(len(roles)))
        header = not all(map(is_numbered, columns.values()))
        highest = [number for column in columns.values() for number in parts_of(str(column))]
        limit = None if header else max(map(int, highest)) + 1
        rows = delimited_rows(lines, delimiter, limit, repairs)
        start = list(islice(rows, LOOKED_AT if source.columns is None and not source.asked else 1))
        if not start:
            return
        first = start[0]
        if delimiter == "\t" and any(map(is_quoted, chain(*(row.cells for row in start)))):
            said = "between tabs quotes are letters; where they are not, save the table with commas, as .csv"
            repairs.note(f"{source.path}: {said}", "quotes")
        if header:
            rows = delimited_rows(lines, delimiter, len(first.cells), repairs)
        if source.columns is None:
            header, columns = unnamed_columns(source, roles, [row.cells for row in start], repairs)
        elif source.asked and len(first.cells) == 1 and not header:
            columns = dict.fromkeys(columns, 0)  # the answers' columns are missing: what is there is asked
        if source.asked and source.columns is None and not header and len(first.cells) > len(roles):
            said = f"{len(first.cells)} columns, and none is called {roles[0]}"
            remedy = f"name the one that is asked about: --columns {roles[0]}=NAME, or its number from 0"
            raise first.line.error(ColumnError, said, remedy)
        free = source.columns is not None or source.asked or (header and len(first.cells) > len(roles))
        width = len(first.cells) if free else len(roles)
        reason = "as the first line has" if free else f"for {', '.join(roles)}"
        remedy = "name the columns, for example " + ",".join(f"{role}={i}" for i, role in enumerate(roles))
        if free or header:
            remedy = "give every line the same columns; see whether the text itself holds the delimiter"
        if not free:
            if len(first.cells) == 1:
                remedy = "name what separates the columns with --delimiter, or see what the first line is"
                if first.cells[0].startswith(FASTTEXT):
                    remedy = f"say --delimiter space --columns {roles[-1]}=0,{roles[0]}=1"
            check_width(first, width, reason, repairs, remedy)
        places = find_columns(first, columns)
        names = first.cells if header else ()
        for row in chain(start[header:], rows):
            check_width(row, width, reason, repairs, remedy)
            origin = origin_of(row, delimiter, names) if source.asked else None
            yield record_of(row, places, origin, source.blank)


def is_quoted(cell: str) -> bool:
    """Did somebody quote a cell that has quotes?

    >>> is_quoted('"he said ""yes"" twice"'), is_quoted('"yes"')
    (True, False)
    """
    return len(cell) > 3 and cell[0] == cell[-1] == '"' and '""' in cell[1:-1]
