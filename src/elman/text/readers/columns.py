"""A token a line with its tags beside it, and a blank line between sentences."""

from collections.abc import Iterator

from elman.text.columns import DELIMITERS, check_width, find_columns, split_row
from elman.text.files import Line, Repairs
from elman.text.readers.base import Reader
from elman.text.records import Record, Source
from elman.text.sentences import add_row, sentences, token_columns, token_origin, without_comments

REMEDY = "name the columns, as in word=0,tag=1, and the delimiter"


class Columns(Reader):
    """Separated by tabs if the first token line has one, else by runs of spaces.

    Without named columns the roles are the columns, in order. Lines before the first word of a sentence that
    begin with # and do not fit its columns are comments.
    """

    def read_tokens(self, source: Source, roles: tuple[str, ...], repairs: Repairs) -> Iterator[Record]:
        columns = token_columns(source, roles, range(len(roles)))
        for role, column in columns.items():
            if isinstance(column, str):
                raise source.error(f"{role} is column {column!r}; only CoNLL-U has names, give a number")
        delimiter = None if source.delimiter is None else DELIMITERS.get(source.delimiter, source.delimiter)
        wanted = source.wanted(roles)
        for lines in sentences(source.open_lines(repairs), repairs):
            if delimiter is None:
                delimiter = _delimiter(lines)
            words = without_comments(lines, delimiter, repairs)
            rows = [split_row(line, delimiter, repairs) for line in words]
            first = rows[0]
            own = {role: columns[role] for role in wanted}
            if source.asked and len(first.cells) == 1:
                own = dict.fromkeys(own, 0)  # the words alone
            numbers = {role: one for role, (one,) in find_columns(first, own).items()}
            width, reason = len(roles), f"for {', '.join(roles)}"
            if source.columns is not None or source.asked:
                width, reason = len(first.cells), f"as line {first.line.number} of the sentence has"
            tokens: dict[str, list[str]] = {role: [] for role in wanted}
            for row in rows:
                check_width(row, width, reason, repairs, REMEDY)
                add_row(tokens, row, numbers)
            numbered = tuple(line.number for line in words)
            beside = delimiter if len(first.cells) > 1 else "\t"
            origin = token_origin(lines, numbered, beside) if source.asked else None
            yield Record(tokens, words[0].path, words[0].number, numbered, origin=origin)


def _delimiter(lines: list[Line]) -> str:
    """A tab if the first word's line has one; a comment tells nothing."""
    word = next((line for line in lines if not line.text.startswith("#")), lines[0])
    return "\t" if "\t" in word.text.strip(" ") else " "
