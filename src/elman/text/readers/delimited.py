"""Columns, separated by tabs, commas or another character; one example a line."""

from collections.abc import Iterator
from itertools import chain

from elman.text.columns import DELIMITERS, check_width, delimited_rows, find_columns
from elman.text.files import Repairs, inner_ending, open_lines
from elman.text.readers.base import Reader
from elman.text.records import Record, Source, columns_of, record_of


class Delimited(Reader):
    """Without named columns the roles are the columns, in order.

    Columns that are named by words are looked up in the first line, which then is a header; numbers mean no
    header. Every line is as wide as the first. Comma and semicolon files quote as in RFC 4180, others never;
    between spaces the last column wanted keeps the rest of the line.
    """

    def read(self, source: Source, roles: tuple[str, ...], repairs: Repairs) -> Iterator[Record]:
        delimiter = source.delimiter or ("comma" if inner_ending(source.path) == ".csv" else "tab")
        delimiter = DELIMITERS.get(delimiter, delimiter)
        columns = columns_of(source, roles, range(len(roles)))
        numbers = [column for column in columns.values() if isinstance(column, int)]
        limit = max(numbers) + 1 if len(numbers) == len(columns) else None
        lines = open_lines(source.path, repairs)
        first = next(delimited_rows(lines, delimiter, limit, repairs), None)
        if first is None:
            return
        if source.columns is None and len(roles) > 1 and sorted(first.cells) == sorted(roles):
            repairs["header line skipped"] += 1
            columns, limit = {role: role for role in roles}, None
        places = find_columns(first, columns)
        width = len(roles) if source.columns is None else len(first.cells)
        reason = f"for {', '.join(roles)}" if source.columns is None else "as the first line has"
        remedy = "name the columns, for example " + ",".join(f"{role}={i}" for i, role in enumerate(roles))
        if source.columns is not None:
            remedy = "give every line the same columns; see whether the text itself holds the delimiter"
        rows = delimited_rows(lines, delimiter, width, repairs)
        for row in rows if limit is None else chain([first], rows):
            check_width(row, width, reason, repairs, remedy)
            yield record_of(row, places)
