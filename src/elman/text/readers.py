"""Records out of users' files: lines, fields and tagged tokens, each with its place; all of it streams."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from elman.errors import ConfigError, nearest
from elman.text.columns import (
    DELIMITERS,
    check_width,
    delimited_rows,
    find_columns,
    is_blank,
    json_object,
    json_text,
    separated_rows,
    stripped,
)
from elman.text.columns import parse_columns as parse_columns
from elman.text.files import Repairs as Repairs
from elman.text.files import inner_ending, open_lines
from elman.text.records import Record as Record
from elman.text.records import Source as Source
from elman.text.records import at_least_one, check_filled, paired_lines, record_of
from elman.text.sentences import read_tokens as read_tokens


def read_text(source: Source, repairs: Repairs | None = None) -> Iterator[Record]:
    """Every line as ``{"text": …}``, blank ones too, unchanged but for the line end.

    JSON Lines, and any file of which a column is named, give that field instead.
    """
    repairs = Repairs() if repairs is None else repairs
    if source.kind("text", ("text", "jsonl", "delimited")) != "text" or source.columns is not None:
        return read_fields(source, ("text",), repairs)
    lines = open_lines(source.path, repairs)
    return at_least_one(source, (Record({"text": line.text}, line.path, line.number) for line in lines))


def read_fields(source: Source, roles: tuple[str, ...], repairs: Repairs | None = None) -> Iterator[Record]:
    """One record a line, ``{role: text}``, out of columns, JSON Lines, two parallel files or sides.

    Without named columns the roles are the columns, in order (in JSON the keys). Columns that are
    named by words are looked up in the first line, which then is a header; numbers mean no header.
    Every line is as wide as the first. Comma and semicolon files quote as in RFC 4180, others never;
    between spaces the last column wanted keeps the rest of the line. A separator that is set stands
    once in every line, between two sides.
    """
    readers: dict[str, Callable[[Source, tuple[str, ...], Repairs], Iterator[Record]]] = {
        "delimited": _read_delimited,
        "jsonl": _read_json,
        "parallel": _read_parallel,
        "separated": _read_separated,
    }
    reader = readers[source.kind("delimited", tuple(readers))]
    return at_least_one(source, reader(source, roles, Repairs() if repairs is None else repairs))


def _read_delimited(source: Source, roles: tuple[str, ...], repairs: Repairs) -> Iterator[Record]:
    delimiter = source.delimiter or ("comma" if inner_ending(source.path) == ".csv" else "tab")
    delimiter = DELIMITERS.get(delimiter, delimiter)
    columns = _columns(source, roles, range(len(roles)))
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


def _read_json(source: Source, roles: tuple[str, ...], repairs: Repairs) -> Iterator[Record]:
    keys = _columns(source, roles, roles)
    for role, key in keys.items():
        if isinstance(key, int):
            raise ConfigError(f"{source.path}: {role} is column {key}; JSON has no numbers, name a key")
    for line in open_lines(source.path, repairs):
        if is_blank(line):
            repairs["blank line skipped"] += 1
            continue
        value = json_object(line)
        fields = {role: json_text(line, value, str(key)) for role, key in keys.items()}
        record = Record(fields, line.path, line.number)
        check_filled(record, [line] * len(fields))
        yield record


def _read_parallel(source: Source, roles: tuple[str, ...], repairs: Repairs) -> Iterator[Record]:
    for lines in paired_lines(source, roles, repairs):
        fields = dict(zip(roles, (stripped(line.text, repairs) for line in lines), strict=True))
        target = lines[-1].path if len(lines) > 1 else None
        record = Record(fields, lines[0].path, lines[0].number, target=target)
        check_filled(record, lines)
        yield record


def _read_separated(source: Source, roles: tuple[str, ...], repairs: Repairs) -> Iterator[Record]:
    assert source.separator is not None  # a source of this format has one
    if len(roles) != 2:
        raise ConfigError(f"{source.path}: a separator makes 2 sides, not {len(roles)}: {', '.join(roles)}")
    for row in separated_rows(
        open_lines(source.path, repairs), source.separator, source.prefix or "", repairs
    ):
        yield record_of(row, {role: number for number, role in enumerate(roles)})


def _columns(source: Source, roles: tuple[str, ...], usual: Iterable[int | str]) -> dict[str, int | str]:
    """The column of each role."""
    if source.columns is None:
        return dict(zip(roles, usual, strict=True))
    for role in roles:
        if role not in source.columns:
            known = nearest(role, source.columns)
            raise ConfigError(f"{source.path}: no column is named for {role!r}; {known}")
    return {role: source.columns[role] for role in roles}
