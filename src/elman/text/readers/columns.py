"""A token a line with its tags beside it, and a blank line between sentences."""

from collections.abc import Iterator

from elman.text.columns import DELIMITERS, check_width, find_columns, split_row
from elman.text.files import Repairs, open_lines
from elman.text.readers.base import Reader
from elman.text.records import Record, Source
from elman.text.sentences import add_row, sentences, token_columns

REMEDY = "name the columns, as in word=0,tag=1, and the delimiter"


class Columns(Reader):
    """Separated by tabs if the first token line has one, else by runs of spaces.

    Without named columns the roles are the columns, in order.
    """

    def read_tokens(self, source: Source, roles: tuple[str, ...], repairs: Repairs) -> Iterator[Record]:
        columns = token_columns(source, roles, range(len(roles)))
        for role, column in columns.items():
            if isinstance(column, str):
                raise source.error(f"{role} is column {column!r}; only CoNLL-U has names, give a number")
        delimiter = None if source.delimiter is None else DELIMITERS.get(source.delimiter, source.delimiter)
        for lines in sentences(open_lines(source.path, repairs), repairs):
            if delimiter is None:
                delimiter = "\t" if "\t" in lines[0].text.strip(" ") else " "
            rows = [split_row(line, delimiter, repairs) for line in lines]
            numbers = find_columns(rows[0], columns)
            width, reason = len(roles), f"for {', '.join(roles)}"
            if source.columns is not None:
                width, reason = len(rows[0].cells), f"as line {lines[0].number} of the sentence has"
            tokens: dict[str, list[str]] = {role: [] for role in roles}
            for row in rows:
                check_width(row, width, reason, repairs, REMEDY)
                add_row(tokens, row, numbers)
            yield Record(tokens, lines[0].path, lines[0].number, tuple(line.number for line in lines))
