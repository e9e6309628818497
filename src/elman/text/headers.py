"""What the first line of a table tells: its delimiter, and whether it is a header."""

import re
import shlex
from collections.abc import Sequence
from statistics import median

from elman.errors import DataError, SyntaxProblem
from elman.text.columns import DELIMITERS, json_object
from elman.text.files import Line, Repairs, inner_ending
from elman.text.records import Source

COLUMNS = """
    text texts sentence sentences content body title headline review comment message post tweet document
    utterance query question answer response reply summary abstract description
    label labels class classes category categories sentiment topic tag tags intent emotion rating stars
    score genre type language lang polarity is_spam spam
    source src target tgt input output translation translated original reference hypothesis
    english french german spanish italian portuguese dutch russian chinese japanese
    id ids index idx key name date time author user url split number no nr
    word words token tokens form lemma pos upos sequence seq text1 text2 sentence1 sentence2
"""
WORDS = frozenset(COLUMNS.split())  # that columns are usually called by
FEW = 20  # distinct values, at most, of a column that holds labels


def table_delimiter(source: Source, first: Line, repairs: Repairs) -> str:
    """As said, or by the name; a .csv whose first line has no comma may have semicolons or tabs.

    A table on standard input may have commas.

    A first line that is an object of JSON begins no table.
    """
    if source.format is None and source.delimiter is None and is_object(first):
        raise first.error(SyntaxProblem, "this is JSON, not a table", "say --format jsonl", 1)
    if source.delimiter is not None:
        return DELIMITERS.get(source.delimiter, source.delimiter)
    if inner_ending(source.path) != ".csv":
        if source.path != "-" or "\t" in first.text or "," not in first.text:
            return "\t"
        said = "standard input: no tab in the first line; --delimiter comma is taken for granted"
        repairs.note(said, "delimiter")
        return ","
    for other, name in ((";", "';'"), ("\t", "tab")):
        if "," not in first.text and other in first.text:
            said = f"{source.path}: no comma in the first line; --delimiter {name} is taken for granted"
            repairs.note(said, "delimiter")
            return other
    return ","


def is_object(line: Line) -> bool:
    """Is a line an object of JSON?"""
    try:
        return line.text.startswith("{") and bool(json_object(line))
    except DataError:
        return False


def unnamed_columns(
    source: Source, roles: tuple[str, ...], rows: Sequence[Sequence[str]], repairs: Repairs
) -> tuple[bool, dict[str, int | str]]:
    """Is the first row a header, and where are the roles? As a header says, or in order."""
    first, wanted = rows[0], source.wanted(roles)
    in_order: dict[str, int | str] = {role: number for number, role in enumerate(wanted)}
    lowered = [cell.lower() for cell in first]
    sure = len(first) > 1 or source.asked or inner_ending(source.path) == ".csv"
    if sure and all(lowered.count(role) == 1 for role in wanted):
        repairs["header line skipped"] += 1
        return True, {role: first[lowered.index(role)] for role in wanted}
    data = ",".join(f"{role}={number}" for role, number in in_order.items())
    named = shlex.quote(",".join(f"{role}={cell}" for role, cell in zip(wanted, first, strict=False)))
    shown = f"{source.path}: the first line, {' | '.join(first)!r}"
    if len(first) == len(roles) and is_header(first):
        repairs["header line skipped"] += 1
        said = f"is taken for a header, as by --columns {named}"
        repairs.note(f"{shown}, {said}; --columns {data} reads it as an example", "header")
        return True, in_order
    if is_header(first) or {*roles} & {*lowered} or (not source.asked and suspected_header(rows)):
        said = f"{shown}, may be a header, but is an example here; --columns {named} reads it as a header"
        repairs.note(said, "suspicious-header")
    return False, in_order


def is_header(cells: Sequence[str]) -> bool:
    """Are all cells words that columns are usually called by?

    >>> is_header(["Sentence", "Class"]), is_header(["a fine film", "positive"])
    (True, False)
    """
    return len(cells) > 1 and all(_plain(cell) in WORDS for cell in cells)


def suspected_header(rows: Sequence[Sequence[str]]) -> bool:
    """Does the first row look unlike the others? Its last cell is none of few labels, its first is short.

    What ends with a full stop is a sentence, and names no column.

    >>> others = 9 * [["ein langer Satz", "gut"], ["noch einer", "schlecht"]]
    >>> suspected_header([["Satz", "Klasse"], *others]), suspected_header([["Nein.", "selten"], *others])
    (True, False)
    """
    first, *others = [row for row in rows if len(row) == len(rows[0])]
    if len(first) < 2 or len(others) < 10:
        return False
    labels = [row[-1] for row in others]
    few = len(set(labels)) <= min(FEW, len(labels) // 3)
    words = [len(row[0].split()) for row in others]
    short = len(first[0].split()) < median(words) and not first[0].rstrip().endswith(".")
    return few and first[-1] not in labels and short


def _plain(cell: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", cell.strip().lower()).strip("_")
