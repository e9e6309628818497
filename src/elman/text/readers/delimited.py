"""Columns, separated by tabs, commas or another character; one example a line."""

from collections.abc import Iterator
from itertools import chain, islice

from elman.text.columns import (
    DELIMITERS,
    Row,
    check_width,
    delimited_rows,
    find_columns,
    is_numbered,
    parts_of,
)
from elman.text.files import Line, Repairs, inner_ending
from elman.text.headers import is_header, suspected_header
from elman.text.readers.base import Reader
from elman.text.records import Record, Source, columns_of, origin_of, record_of

LOOKED_AT = 100  # rows that tell whether the first one is a header


class Delimited(Reader):
    """Without named columns the roles are the columns, in order, or what a header calls so.

    Columns that are named by words are looked up in the first line, which then is a header; numbers mean no
    header. Every line is as wide as the first. Comma and semicolon files quote as in RFC 4180, others never;
    between spaces the last column wanted keeps the rest of the line.
    """

    def read(self, source: Source, roles: tuple[str, ...], repairs: Repairs) -> Iterator[Record]:
        lines = source.open_lines(repairs)
        first_line = next(lines, None)
        if first_line is None:
            return
        delimiter = _delimiter(source, first_line, repairs)
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
        if header:
            rows = delimited_rows(lines, delimiter, len(first.cells), repairs)
        if source.columns is None:
            header, columns = _unnamed(source, roles, start, repairs)
        elif source.asked and len(first.cells) == 1 and not header:
            columns = dict.fromkeys(columns, 0)  # the answers' columns are missing: what is there is asked
        places = find_columns(first, columns)
        free = source.columns is not None or source.asked or (header and len(first.cells) > len(roles))
        width = len(first.cells) if free else len(roles)
        reason = "as the first line has" if free else f"for {', '.join(roles)}"
        remedy = "name the columns, for example " + ",".join(f"{role}={i}" for i, role in enumerate(roles))
        if free:
            remedy = "give every line the same columns; see whether the text itself holds the delimiter"
        names = first.cells if header else ()
        for row in chain(start[header:], rows):
            check_width(row, width, reason, repairs, remedy)
            origin = origin_of(row, delimiter, names) if source.asked else None
            yield record_of(row, places, origin, source.blank)


def _delimiter(source: Source, first: Line, repairs: Repairs) -> str:
    """As said, or by the name; a .csv whose first line has no comma may have semicolons or tabs."""
    if source.delimiter is not None:
        return DELIMITERS.get(source.delimiter, source.delimiter)
    if inner_ending(source.path) != ".csv":
        return "\t"
    for other, name in ((";", "';'"), ("\t", "tab")):
        if "," not in first.text and other in first.text:
            repairs.note(
                f"{source.path}: no comma in the first line; --delimiter {name} is taken for granted"
            )
            return other
    return ","


def _unnamed(
    source: Source, roles: tuple[str, ...], start: list[Row], repairs: Repairs
) -> tuple[bool, dict[str, int | str]]:
    """Is the first row a header, and where are the roles? As a header says, or in order."""
    first, wanted = start[0].cells, source.wanted(roles)
    in_order: dict[str, int | str] = {role: number for number, role in enumerate(wanted)}
    lowered = [cell.lower() for cell in first]
    sure = len(first) > 1 or source.asked or inner_ending(source.path) == ".csv"
    if sure and all(lowered.count(role) == 1 for role in wanted):
        repairs["header line skipped"] += 1
        return True, {role: first[lowered.index(role)] for role in wanted}
    data = ",".join(f"{role}={number}" for role, number in in_order.items())
    shown = f"{source.path}: the first line, {' | '.join(first)!r}"
    if len(first) == len(roles) and is_header(first):
        repairs["header line skipped"] += 1
        repairs.note(f"{shown}, is taken for a header; --columns {data} reads it as an example")
        return True, in_order
    if not source.asked and suspected_header([row.cells for row in start]):
        named = ",".join(f"{role}={cell}" for role, cell in zip(roles, first, strict=False))
        repairs.note(
            f"{shown}, may be a header, but is an example here; --columns {named} reads it as a header"
        )
    return False, in_order
