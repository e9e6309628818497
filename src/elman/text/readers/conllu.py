"""CoNLL-U: ten columns a word, as the treebanks of Universal Dependencies have them."""

import re
from collections.abc import Iterator

from elman.errors import EmptyError, SyntaxProblem, nearest, shortened
from elman.text.columns import Row, check_width, split_row
from elman.text.files import Repairs
from elman.text.readers.base import Reader
from elman.text.records import Record, Source, record_of
from elman.text.sentences import add_row, sentences, token_columns, token_origin

CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
NEVER_MISSING = ("upos", "xpos", "head", "deprel")  # elsewhere CoNLL-U's _ is a value like any other
REMEDY = "separate ten columns by tabs, _ where empty"


class Conllu(Reader):
    """Words and, unless other columns are named, ``form`` and ``upos`` of each."""

    cut = "sentences"

    def read_tokens(self, source: Source, roles: tuple[str, ...], repairs: Repairs) -> Iterator[Record]:
        columns = token_columns(source, roles, ("form", "upos"))
        answer = _conllu_number(source, columns[roles[-1]])
        if CONLLU[answer] not in NEVER_MISSING:
            answer = CONLLU.index("misc")  # it cannot be told whether one is there
        roles = source.wanted(roles)
        numbers = {role: _conllu_number(source, columns[role]) for role in roles}
        for lines in sentences(source.open_lines(repairs), repairs):
            tokens: dict[str, list[str]] = {role: [] for role in roles}
            words: list[Row] = []
            for line in lines:
                if line.text.startswith("#"):
                    continue
                row = split_row(line, "\t", repairs)
                check_width(row, len(CONLLU), "as CoNLL-U has", repairs, REMEDY)
                if _is_word(row, len(words) + 1, repairs):
                    words.append(row)
                    _check_annotated(row, numbers)
                    add_row(tokens, row, numbers)
            if words:
                numbered = tuple(row.line.number for row in words)
                origin = token_origin(lines, words, "\t", tag=answer) if source.asked else None
                yield Record(tokens, lines[0].path, numbered[0], numbered, origin=origin)


def _conllu_number(source: Source, column: int | str) -> int:
    if column in CONLLU:
        return CONLLU.index(str(column))
    if isinstance(column, int) and column < len(CONLLU):
        return column
    raise source.error(f"CoNLL-U has no column {column!r}; {nearest(str(column), CONLLU)}")


def _is_word(row: Row, due: int, repairs: Repairs) -> bool:
    """Whether a line is the word that is due; ranges (3-4) and empty nodes (8.1) are passed over."""
    identity = row.cells[0]
    if identity == str(due):
        return True
    if re.fullmatch(r"[0-9]+-[0-9]+", identity):
        repairs["multi-word token skipped"] += 1
        return False
    if re.fullmatch(r"[0-9]+\.[0-9]+", identity):
        repairs["empty node skipped"] += 1
        return False
    whole, shown = re.fullmatch(r"[0-9]+", identity), shortened(identity)
    said = f"id {shown} where {due} is due" if whole else f"the id {shown!r} is none of 3, 3-4 and 8.1"
    remedy = "count words from 1 in every sentence, and put a blank line between sentences"
    raise row.line.error(SyntaxProblem, said, remedy, 1)


def _check_annotated(row: Row, numbers: dict[str, int]) -> None:
    for role, number in numbers.items():
        name = CONLLU[number]
        if row.cells[number] == "_" and name in NEVER_MISSING:
            said = f"{role} is column {name}, which is missing here"
            remedy = "annotate it, or name another column, as in tag=upos"
            raise record_of(row, {role: (number,) for role, number in numbers.items()}).error(
                EmptyError, said, field=role, text=row.line.text, remedy=remedy
            )
