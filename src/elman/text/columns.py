"""From lines to cells: delimited rows, quoted or not, JSON objects, and the columns that a user names."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from elman.errors import ColumnError, ConfigError, NulError, SyntaxProblem, is_text, nearest, shortened
from elman.text.files import Line, Repairs

WHITE = " \t"  # what separates words and surrounds fields; every other white space is a character
DELIMITERS = {"tab": "\t", "comma": ",", "space": " "}
QUOTING = (",", ";")  # these files quote as RFC 4180 has it; tab and the others never do
LONGEST_QUOTE = 10_000  # lines; so that one forgotten quote does not swallow a whole corpus

QUOTED_WELL = 'quote the whole field, with no space outside the quotes, and double each " inside'

_WORDS = re.compile(r"[^ \t]+")
_CONSTANT = re.compile(r'"(?:[^"\\]|\\.)*"|(-?Infinity|NaN)')  # group 1: outside of every string


@dataclass(frozen=True, slots=True)
class Row:
    """The cells of a line, or of several where cells are quoted, and where each begins: line and column."""

    line: Line
    cells: list[str]
    places: list[tuple[Line, int]]
    further: tuple[Line, ...] = ()


def parse_columns(text: str) -> dict[str, int | str]:
    """Which column plays which role, as a user writes it: by number from 0, or by name.

    >>> parse_columns("text=1,label=sentiment")
    {'text': 1, 'label': 'sentiment'}
    """
    columns: dict[str, int | str] = {}
    mistakes = []
    for part in text.split(","):
        role, equals, column = (piece.strip() for piece in part.partition("="))
        if not (role and equals and column):
            mistakes.append(f"{part.strip()!r} is not of the form role=column")
        elif role in columns:
            mistakes.append(f"{role!r} is given twice")
        else:
            columns[role] = int(column) if re.fullmatch(r"-?[0-9]{1,9}", column) else column
    mistakes += column_mistakes(columns)
    if mistakes:
        raise ConfigError(f"columns {text!r}: {'; '.join(mistakes)}; write for example text=1,label=0")
    return columns


def column_mistakes(columns: Mapping[str, Any]) -> list[str]:
    """What is wrong with columns that should be numbers from 0 or names."""
    mistakes = []
    for role, column in columns.items():
        if isinstance(column, bool) or not isinstance(column, int | str) or column == "":
            mistakes.append(f"{role} is {column!r}, neither a number nor a name")
        elif isinstance(column, int) and column < 0:
            mistakes.append(f"{role} is {column}, but columns are counted from 0")
    return mistakes


def delimiter_mistake(delimiter: str) -> str | None:
    """What is wrong with a delimiter, if anything."""
    if delimiter in DELIMITERS or (len(delimiter) == 1 and delimiter not in '"\n\r'):
        return None
    return f"delimiter is {delimiter!r}; it must be tab, comma, space or a single character"


def separator_mistakes(separator: str | None, prefix: str | None) -> list[str]:
    """What is wrong with a separator and the prefix that goes with it."""
    mistakes = []
    for name, text in (("separator", separator), ("prefix", prefix)):
        if text is not None and (not text or "\n" in text):
            mistakes.append(f"{name} is {text!r}; it must be some text within a line")
    if prefix is not None and separator is None:
        mistakes.append(f"prefix is {prefix!r}, but there is no separator; only such lines have a prefix")
    return mistakes


def is_blank(line: Line) -> bool:
    return not line.text.strip(WHITE)


def stripped(cell: str, repairs: Repairs) -> str:
    """A field without the white space around it."""
    bare = cell.strip(WHITE)
    if len(bare) != len(cell):
        repairs["white space around a field removed"] += 1
    return bare


def delimited_rows(
    lines: Iterator[Line], delimiter: str, limit: int | None, repairs: Repairs
) -> Iterator[Row]:
    """Rows of lines that are not blank; ``limit`` is how many cells a space makes before it is text."""
    for line in lines:
        if is_blank(line):
            repairs["blank line skipped"] += 1
        elif delimiter in QUOTING and '"' in line.text:
            yield _quoted_row(line, lines, delimiter, repairs)
        else:
            yield split_row(line, delimiter, repairs, limit)


def single_row(line: Line, delimiter: str, repairs: Repairs) -> Row:
    """The cells of a line that is a row by itself."""
    if delimiter in QUOTING and '"' in line.text:
        return _quoted_row(line, iter(()), delimiter, repairs)
    return split_row(line, delimiter, repairs)


def row_texts(row: Row) -> list[str]:
    """The lines of a row as they stand in the file, without empty columns that were removed."""
    texts = [line.text for line in (row.line, *row.further)]
    if len(row.cells) < len(row.places):
        _, column = row.places[len(row.cells)]
        texts[-1] = texts[-1][: column - 2]
    return texts


def split_row(line: Line, delimiter: str, repairs: Repairs, limit: int | None = None) -> Row:
    """The cells of a line in which quotes mean nothing; at a space, runs of spaces and tabs count once."""
    cells, places = [], []
    if delimiter == " ":
        for word in _WORDS.finditer(line.text):
            places.append((line, word.start() + 1))
            if len(places) == limit:
                cells.append(stripped(line.text[word.start() :], repairs))
                break
            cells.append(word.group())
        return Row(line, cells, places)
    start = 1
    for cell in line.text.split(delimiter):
        cells.append(stripped(cell, repairs))
        places.append((line, start))
        start += len(cell) + 1
    return Row(line, cells, places)


def separated_rows(
    lines: Iterator[Line], separator: str, prefix: str, repairs: Repairs, *, bare: bool = False
) -> Iterator[Row]:
    """Rows of two cells, out of lines with a prefix and just one separator; blank lines are skipped.

    White space that begins or ends the separator must stand inside a line, but not at its ends: with
    ``" OUT: "`` the line ``walk OUT:`` has an empty second side. ``bare``: the second side may be missing.
    """
    core = separator.strip(WHITE) or separator
    before, _, after = separator.partition(core)
    left, inner, right = map(re.escape, (before, core, after))
    pattern = re.compile(rf"(?:\A|(?<={left})){inner}(?={right}|[{WHITE}]*\Z)")
    for line in lines:
        if is_blank(line):
            repairs["blank line skipped"] += 1
            continue
        if bare and core not in line.text:  # the second side is missing
            text = stripped(line.text.removeprefix(prefix), repairs)
            yield Row(line, [text], [(line, 1)])
            continue
        if not line.text.startswith(prefix):
            remedy = "begin every line with the prefix, or set another one"
            raise line.error(SyntaxProblem, f"the line does not begin with {prefix!r}", remedy, 1)
        text = line.text.removeprefix(prefix)
        found = [match.start() for match in pattern.finditer(text)]
        if len(found) != 1:
            said, place = f"no separator {separator!r}", len(line.text.rstrip(WHITE))
            remedy = "write it between the two sides, or set another separator"
            if found:
                said, place = f"{len(found)} separators {separator!r} instead of 1", len(prefix) + found[1]
                remedy = "set a separator that the texts themselves do not hold"
            raise line.error(ColumnError, said, remedy, place + 1)
        first = text[: found[0]].removesuffix(before)
        second = text[found[0] + len(core) :].removeprefix(after)
        columns = (len(prefix) + 1, len(line.text) - len(second) + 1)
        cells = [stripped(first, repairs), stripped(second, repairs)]
        yield Row(line, cells, [(line, column) for column in columns])


def check_width(row: Row, width: int, reason: str, repairs: Repairs, remedy: str) -> None:
    """Refuse a row that is not ``width`` cells wide; ``reason`` says why it should be."""
    cells, places = row.cells, row.places
    while len(cells) > width and not cells[-1]:
        cells.pop()
        repairs["empty column at the end of a line removed"] += 1
    if len(cells) != width:
        end = (row.line, len(row.line.text.rstrip(WHITE)) + 1)
        line, column = places[width] if len(cells) > width else end
        said = f"{counted(len(cells), 'column')} instead of {width}, {reason}"
        raise line.error(ColumnError, said, remedy, column)


def find_columns(first: Row, columns: Mapping[str, int | str]) -> dict[str, tuple[int, ...]]:
    """The numbers of each role's columns; names are looked up in the first row, which then is a header.

    ``title+body`` are two columns, unless one is called so.
    """
    found = {}
    for role, column in columns.items():
        several = isinstance(column, str) and column not in first.cells and "+" in column
        parts = parts_of(str(column)) if several else [column]
        found[role] = tuple(_column_number(first, role, part) for part in parts)
    return found


def parts_of(column: str) -> list[int | str]:
    """
    >>> parts_of("title+2")
    ['title', 2]
    """
    parts = [part.strip() for part in column.split("+")]
    return [int(part) if part.isdecimal() and part.isascii() else part for part in parts]


def is_numbered(column: int | str) -> bool:
    """Does a column, or do all that make up one, go by number?"""
    return all(isinstance(part, int) for part in ([column] if isinstance(column, int) else parts_of(column)))


def _column_number(first: Row, role: str, column: int | str) -> int:
    if isinstance(column, int):
        matches = [column] if column < len(first.cells) else []
        said = f"the line has {counted(len(first.cells), 'column')}, counted from 0"
        remedy = "check the numbers of the columns, and the delimiter"
    else:
        matches = [index for index, cell in enumerate(first.cells) if cell == column]
        said = f"{len(matches) or 'none'} of the header's columns is named so"
        remedy = nearest(column, set(first.cells) - {""})
    if len(matches) != 1:
        end = (first.line, len(first.line.text) + 1)
        line, place = first.places[matches[1]] if matches else end
        raise line.error(ColumnError, f"{role} is column {column!r}, but {said}", remedy, place)
    return matches[0]


def counted(number: int, thing: str) -> str:
    """
    >>> counted(1, "column"), counted(3000, "column")
    ('1 column', '3,000 columns')
    """
    return f"{number:,} {thing}{'s' * (number != 1)}"


def json_object(line: Line) -> dict[str, Any]:
    """A line of JSON that must be one object; numbers stay the text that they are."""
    remedy = 'each line must be one whole JSON object, as in {"text": "…"}'
    if line.number == 1 and line.text.lstrip().startswith("["):
        remedy = "the file is one list: jq -c '.[]' FILE > FILE.jsonl writes an object a line"
    problem = partial(line.error, SyntaxProblem, remedy=remedy)

    def constant(name: str) -> None:
        place = next(match.start(1) for match in _CONSTANT.finditer(line.text) if match.group(1))
        raise problem(f"{name} is no JSON value", column=place + 1)

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                raise problem(f"the key {shortened(key)!r} stands twice in one object")
            found[key] = value
        return found

    try:
        value = json.loads(
            line.text, object_pairs_hook=unique, parse_constant=constant, parse_int=str, parse_float=str
        )
    except json.JSONDecodeError as mistake:
        raise problem(f"not JSON, {mistake.msg}", column=mistake.pos + 1) from None
    except RecursionError:
        raise problem("JSON nested too deeply") from None
    if not isinstance(value, dict):
        raise problem("JSON, but no object")
    return value


def json_text(line: Line, value: dict[str, Any], key: str) -> str:
    """The value of a key as text; strings, numbers and booleans have one, null, lists and objects do not."""
    if key not in value:
        raise line.error(ColumnError, f"there is no key {key!r}", nearest(key, value))
    found = value[key]
    if isinstance(found, bool):
        return "true" if found else "false"
    if not isinstance(found, str):
        kind = "null" if found is None else "a list" if isinstance(found, list) else "an object"
        remedy = "give a string, a number or a boolean"
        raise line.error(SyntaxProblem, f"the value of {key!r} is {kind}", remedy)
    if "\0" in found:
        raise line.error(NulError, f"the value of {key!r} has a NUL character", r"take \u0000 out")
    if not is_text(found):
        remedy = r"write both halves, as in \ud83d\ude00"
        raise line.error(SyntaxProblem, f"the value of {key!r} has half a surrogate pair", remedy)
    return found


def _quoted_row(first: Line, rest: Iterator[Line], delimiter: str, repairs: Repairs) -> Row:
    """A row that has quotes: a quoted cell may hold delimiters, doubled quotes and line ends (RFC 4180).

    What that does not allow is read as Python's csv reads it, and counted.
    """
    line, position = first, 0
    cells: list[str] = []
    places: list[tuple[Line, int]] = []
    lines: list[Line] = []
    while True:
        places.append((line, position + 1))
        quoted = line.text.startswith('"', position)
        cell = ""
        if quoted:
            cell, more, position = _quoted_cell(line, rest, position)
            lines += more
            line = lines[-1] if lines else first
        end = line.text.find(delimiter, position)
        end = len(line.text) if end < 0 else end
        bare = line.text[position:end]
        if quoted and bare:
            repairs["text after a closing quote kept"] += 1
        elif '"' in bare:
            repairs["quote inside an unquoted field kept"] += 1
        cells.append(cell + bare if quoted else stripped(bare, repairs))
        if end == len(line.text):
            return Row(first, cells, places, tuple(lines))
        position = end + 1


def _quoted_cell(first: Line, rest: Iterator[Line], opening: int) -> tuple[str, list[Line], int]:
    """The text between quotes, the lines after the first that it takes, and where its closing quote ends."""
    parts, line, position = [], first, opening + 1
    lines: list[Line] = []
    while True:
        end = line.text.find('"', position)
        if end >= 0 and line.text.startswith('"', end + 1):
            parts.append(line.text[position : end + 1])
            position = end + 2
        elif end >= 0:
            parts.append(line.text[position:end])
            return "".join(parts), lines, end + 1
        else:
            parts.append(line.text[position:] + "\n")
            following = next(rest, None) if line.number - first.number < LONGEST_QUOTE else None
            if following is None:
                raise first.error(SyntaxProblem, "this quote is never closed", QUOTED_WELL, opening + 1)
            line, position = following, 0
            lines.append(line)
