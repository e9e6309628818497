"""What will be read and how, in words; and how to name columns that stand the other way round."""

from __future__ import annotations

from elman.errors import ElmanError
from elman.tasks.base import AnyTask
from elman.text.columns import Row, single_row
from elman.text.files import Line, Repairs, inner_ending
from elman.text.headers import table_delimiter
from elman.text.records import Source
from elman.training.sources import Reading, source_of


def sources_of(reading: Reading) -> list[Source]:
    data = reading.task.config.data
    return [source_of(data, path, target, reading.said) for path, target in reading.files]


def format_of(task: AnyTask, source: Source) -> str:
    """The name of the format that a source is read in."""
    table = source.columns is not None or inner_ending(source.path) in (".csv", ".tsv")
    usual = "delimited"
    if task.listed:
        usual = "columns"
    elif len(task.roles) == 1 and not table:
        usual = "lines"
    return source.kind(usual)


def described(reading: Reading) -> str:
    """The layout of the first file in a few words: format, delimiter, columns."""
    if reading.builtin:
        return "a built-in corpus"
    task, source = reading.task, sources_of(reading)[0]
    name = format_of(task, source)
    if name == "delimited":
        name = f"columns between {_delimiter(source)}"
    elif name == "columns":
        name = "a word a line"
    elif name == "parallel":
        name = f"side by side with {source.target}"
    elif name == "separated":
        name = f"two sides apart by {source.separator!r}"
    parts = [name]
    if source.encoding != "utf-8":
        parts.append(source.encoding)
    if header := reading.repairs["header line skipped"]:
        parts.append(f"{'headers' if header > 1 else 'a header'} skipped")
    if source.columns is not None:
        parts.append(", ".join(f"{role} is {column}" for role, column in source.columns.items()))
    elif name.startswith("columns") and not header:
        parts.append(", ".join(f"{role} is {number}" for number, role in enumerate(task.roles)))
    return ", ".join(parts)


def other_way_round(reading: Reading) -> str:
    """What to say where the first two roles of a table have changed places."""
    task = reading.task
    first, second = task.roles[:2]
    if reading.builtin:
        return f"Name the columns: --columns {first}=…,{second}=…."
    source = sources_of(reading)[0]
    if source.target is not None:
        return "Name the two files the other way round."
    columns = source.columns or {}
    here, there = columns.get(first, 0), columns.get(second, 1)
    if source.columns is None and reading.repairs["header line skipped"]:
        cells = _cells(source)
        lowered = [cell.lower() for cell in cells]
        if first not in lowered and len(cells) > 1:
            here, there = cells[0], cells[1]
        else:
            here, there = first, second
    elif format_of(task, source) == "jsonl":
        here, there = columns.get(first, first), columns.get(second, second)
    return f"Say which column is what: --columns {first}={there},{second}={here}."


def _first_line(source: Source) -> Line | None:
    try:
        return next(source.open_lines(Repairs()), None)
    except ElmanError:  # which reading the file will tell
        return None


def _delimiter(source: Source) -> str:
    line = _first_line(source)
    try:
        found = "\t" if line is None else table_delimiter(source, line, Repairs())
    except ElmanError:
        return "delimiters"
    return {"\t": "tabs", ",": "commas", " ": "spaces", ";": "semicolons"}.get(found, repr(found))


def _cells(source: Source) -> list[str]:
    line = _first_line(source)
    if line is None:
        return []
    row: Row = single_row(line, table_delimiter(source, line, Repairs()), Repairs())
    return row.cells
