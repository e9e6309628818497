"""A token a line with its tags beside it, and a blank line between sentences."""

from collections.abc import Iterator
from itertools import chain

from elman.text.columns import Row, check_width, find_columns, is_numbered, single_row
from elman.text.files import Line, Repairs, inner_ending
from elman.text.headers import is_header, table_delimiter, unnamed_columns
from elman.text.readers.base import Reader
from elman.text.records import Record, Source
from elman.text.sentences import add_row, sentences, token_columns, token_origin, without_comments

SAME = "give every line the same columns; see whether a word holds the delimiter"
TABLES = (".csv", ".tsv")  # names of files that may have a header, and whose delimiter is known


class Columns(Reader):
    """Separated by tabs if the first token line has one, else by runs of spaces; tables as other tables are.

    Without named columns the roles are the columns, in order, or what the header of a table calls so. Lines
    before the first word of a sentence that begin with # and do not fit its columns are comments.
    """

    cut = "sentences"
    headed = True

    def read_tokens(self, source: Source, roles: tuple[str, ...], repairs: Repairs) -> Iterator[Record]:
        columns = token_columns(source, roles, range(len(roles)))
        for role, column in columns.items():
            if isinstance(column, str) and "+" in column:
                raise source.error(f"{role} is column {column!r}; a word has one column")
        lines = source.open_lines(repairs)
        first_line = next(lines, None)
        if first_line is None:
            return
        lines = chain([first_line], lines)
        delimiter, header = None, None
        if source.delimiter is not None or inner_ending(source.path) in TABLES:
            delimiter = table_delimiter(source, first_line, repairs)
        wanted = source.wanted(roles)
        found = sentences(lines, repairs, delimiter)
        start = list(_to_first_word(found))
        if not start:
            return
        sure = next(filter(_is_word, start[-1]), start[-1][0])  # unless there are but comments
        if delimiter is None:
            delimiter = "\t" if "\t" in sure.text.strip(" ") else " "
        width = len(single_row(sure, delimiter, Repairs()).cells) if _is_word(sure) else len(roles)
        for sentence in chain(start, found):
            words = without_comments(sentence, delimiter, width, repairs)
            rows = [single_row(line, delimiter, repairs) for line in words]
            if header is None and rows:
                header, columns = _header(source, roles, columns, rows[0], repairs)
                if header:
                    rows, sentence = rows[1:], [line for line in sentence if line is not words[0]]
            if not rows:
                continue
            first = rows[0]
            own = {role: columns[role] for role in wanted}
            if source.asked and len(first.cells) == 1:
                own = dict.fromkeys(own, 0)  # the words alone
            numbers = {role: one for role, (one,) in find_columns(first, own).items()}
            width, reason, remedy = len(roles), f"for {', '.join(roles)}", SAME
            if header:
                width, reason = len(header), "as the header has"
            elif source.columns is not None or source.asked:
                width, reason = len(first.cells), f"as line {first.line.number} of the sentence has"
            elif len(first.cells) > width:  # in such files the tag mostly is the last
                likely = dict.fromkeys(roles, len(first.cells) - 1) | {roles[0]: 0}
                named = ",".join(f"{role}={number}" for role, number in likely.items())
                remedy = f"name the columns, as in --columns {named}, or the --delimiter"
            tokens: dict[str, list[str]] = {role: [] for role in wanted}
            for row in rows:
                check_width(row, width, reason, repairs, remedy)
                add_row(tokens, row, numbers)
            beside = "\t" if delimiter == " " and len(first.cells) == 1 else delimiter
            origin = token_origin(sentence, rows, beside, names=header or ()) if source.asked else None
            numbered = tuple(row.line.number for row in rows)
            yield Record(tokens, first.line.path, first.line.number, numbered, origin=origin)


def _header(
    source: Source, roles: tuple[str, ...], columns: dict[str, int | str], first: Row, repairs: Repairs
) -> tuple[list[str], dict[str, int | str]]:
    """The header, if the first row is one, and the numbers of the columns."""
    cells = first.cells
    if source.columns is None and inner_ending(source.path) in TABLES:
        if len(cells) > 1 and not is_header(cells) and not {*roles} <= {cell.lower() for cell in cells}:
            return [], columns  # a word that is called so is not enough
        header, named = unnamed_columns(source, roles, [cells], repairs)
        columns = columns | named
    else:
        header = not all(map(is_numbered, columns.values()))
    if not header:
        return [], columns
    wanted = {role: columns[role] for role in source.wanted(roles)}
    return cells, columns | {role: one for role, (one,) in find_columns(first, wanted).items()}


def _to_first_word(found: Iterator[list[Line]]) -> Iterator[list[Line]]:
    """Sentences up to the first that tells the columns: more than what may be comments."""
    for sentence in found:
        yield sentence
        if any(map(_is_word, sentence)):
            return


def _is_word(line: Line) -> bool:
    """Is a line a word for sure? One that begins with # may be."""
    return not line.text.startswith("#")
