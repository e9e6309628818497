"""What readers of tagged words share: sentences between blank lines, and the columns of their tokens."""

from collections.abc import Iterator, Sequence

from elman.errors import SyntaxProblem, nearest
from elman.text.columns import QUOTING, WHITE, Row, row_texts, single_row
from elman.text.files import Line, Repairs
from elman.text.records import Origin, Source, record_of

LONGEST_SENTENCE = 100_000  # lines; beyond it the blank lines between sentences are missing


def token_columns(source: Source, roles: tuple[str, ...], usual: Sequence[int | str]) -> dict[str, int | str]:
    """The column of each role; one that is not named keeps its usual place."""
    named = source.columns or {}
    for role in named.keys() - {*roles, "word", "tag"}:
        raise source.error(f"a column is named for {role!r}; {nearest(role, roles)}")
    return {role: named.get(role, usual[index]) for index, role in enumerate(roles)}


def add_row(tokens: dict[str, list[str]], row: Row, numbers: dict[str, int]) -> None:
    """The cells of a row, each put to the tokens of its role."""
    for role, number in numbers.items():
        cell = row.cells[number]
        if not (cell if role == "word" else cell.strip()):  # a wide or a hard space may be a word
            record_of(row, {role: (number,)})  # says that it is empty, and where
        tokens[role].append(cell)


def token_origin(
    lines: Sequence[Line],
    rows: Sequence[Row],
    delimiter: str,
    *,
    names: Sequence[str] = (),
    tag: int | None = None,
) -> Origin:
    """A sentence as it stands in its file, given the rows of its words."""
    texts = {line.number: line.text for line in lines} | {row.line.number: row_texts(row)[0] for row in rows}
    places = tuple(row.line.number - lines[0].number for row in rows)
    return Origin(tuple(texts.values()), names=names, delimiter=delimiter, words=places, tag=tag)


def without_comments(lines: list[Line], delimiter: str, width: int, repairs: Repairs) -> list[Line]:
    """The words of a sentence: lines before the first one that begin with # and do not fit its columns go.

    width: how many columns a word has, where all lines begin so.
    """
    words = next((number for number, line in enumerate(lines) if not line.text.startswith("#")), len(lines))
    if not words:
        return lines
    if words < len(lines):
        width = _cells(lines[words], delimiter)
    comments = [_cells(line, delimiter) != width for line in lines[:words]]
    first = comments.index(False) if False in comments else words
    if first:
        repairs["comment line skipped"] += first
    return lines[first:]


def _cells(line: Line, delimiter: str) -> int:
    """How many cells a line has that may be none of a table; none, if its quotes do not close."""
    try:
        return len(single_row(line, delimiter, Repairs()).cells)
    except SyntaxProblem:
        return 0


def sentences(lines: Iterator[Line], repairs: Repairs, delimiter: str | None = None) -> Iterator[list[Line]]:
    """The lines between blank lines; in a table, empty cells alone are one."""
    sentence: list[Line] = []
    blank = WHITE + (delimiter if delimiter in QUOTING else "")
    for line in lines:
        document = line.text.startswith("-DOCSTART-")
        if document or not line.text.strip(blank):
            if document:
                repairs["-DOCSTART- line skipped"] += 1
            elif not sentence:
                repairs["blank line skipped"] += 1
            if sentence:
                yield sentence
            sentence = []
        else:
            sentence.append(line)
            if len(sentence) > LONGEST_SENTENCE:
                said = f"a sentence of more than {LONGEST_SENTENCE} lines"
                raise line.error(SyntaxProblem, said, "put a blank line between sentences")
    if sentence:
        yield sentence
