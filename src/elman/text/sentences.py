"""Sentences of tagged words out of CoNLL-U, column and parallel files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from elman.errors import ConfigError, EmptyError, SyntaxProblem, UnbalancedError, nearest, shortened
from elman.text.columns import DELIMITERS, Row, check_width, counted, find_columns, is_blank, split_row
from elman.text.files import Line, Repairs, open_lines
from elman.text.records import Record, Source, at_least_one, paired_lines, record_of

CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
NEVER_MISSING = ("upos", "xpos", "head", "deprel")  # elsewhere CoNLL-U's _ is a value like any other
LONGEST_SENTENCE = 100_000  # lines; beyond it the blank lines between sentences are missing


def read_tokens(
    source: Source, roles: tuple[str, ...] = ("word", "tag"), repairs: Repairs | None = None
) -> Iterator[Record]:
    """One record a sentence: ``{role: [one text a token]}`` out of CoNLL-U, column or parallel files.

    Without named columns the roles are the columns, in order (``form`` and ``upos`` in CoNLL-U). A
    column file is separated by tabs if its first token line has one, else by runs of spaces. In two
    parallel files, or a ``text`` file of words alone, a line is a sentence.
    """
    readers: dict[str, Callable[[Source, tuple[str, ...], Repairs], Iterator[Record]]] = {
        "columns": _read_columns,
        "conllu": _read_conllu,
        "parallel": _read_parallel,
        "text": _read_parallel,
    }
    reader = readers[source.kind("columns", tuple(readers))]
    return at_least_one(source, reader(source, roles, Repairs() if repairs is None else repairs))


def _columns(source: Source, roles: tuple[str, ...], usual: Sequence[int | str]) -> dict[str, int | str]:
    """The column of each role; one that is not named keeps its usual place."""
    named = source.columns or {}
    for role in named.keys() - {*roles, "word", "tag"}:
        raise ConfigError(f"{source.path}: a column is named for {role!r}; {nearest(role, roles)}")
    return {role: named.get(role, usual[index]) for index, role in enumerate(roles)}


def _read_columns(source: Source, roles: tuple[str, ...], repairs: Repairs) -> Iterator[Record]:
    columns = _columns(source, roles, range(len(roles)))
    for role, column in columns.items():
        if isinstance(column, str):
            raise ConfigError(
                f"{source.path}: {role} is column {column!r}; only CoNLL-U has names, give a number"
            )
    delimiter = None if source.delimiter is None else DELIMITERS.get(source.delimiter, source.delimiter)
    for lines in _sentences(open_lines(source.path, repairs), repairs):
        if delimiter is None:
            delimiter = "\t" if "\t" in lines[0].text.strip(" ") else " "
        rows = [split_row(line, delimiter, repairs) for line in lines]
        numbers = find_columns(rows[0], columns)
        width, reason = len(roles), f"for {', '.join(roles)}"
        if source.columns is not None:
            width, reason = len(rows[0].cells), f"as line {lines[0].number} of the sentence has"
        tokens: dict[str, list[str]] = {role: [] for role in roles}
        for row in rows:
            check_width(
                row, width, reason, repairs, "name the columns, as in word=0,tag=1, and the delimiter"
            )
            _append(tokens, row, numbers)
        yield Record(tokens, lines[0].path, lines[0].number, tuple(line.number for line in lines))


def _append(tokens: dict[str, list[str]], row: Row, numbers: dict[str, int]) -> None:
    for role, number in numbers.items():
        cell = row.cells[number]
        if not (cell if role == "word" else cell.strip()):  # a wide or a hard space may be a word
            record_of(row, {role: number})  # says that it is empty, and where
        tokens[role].append(cell)


def _sentences(lines: Iterator[Line], repairs: Repairs) -> Iterator[list[Line]]:
    """The lines between blank lines."""
    sentence: list[Line] = []
    for line in lines:
        document = line.text.startswith("-DOCSTART-")
        if document or is_blank(line):
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
                raise SyntaxProblem(
                    f"a sentence of more than {LONGEST_SENTENCE} lines",
                    path=line.path,
                    line=line.number,
                    text=line.text,
                    remedy="put a blank line between sentences",
                )
    if sentence:
        yield sentence


def _read_conllu(source: Source, roles: tuple[str, ...], repairs: Repairs) -> Iterator[Record]:
    columns = _columns(source, roles, ("form", "upos"))
    numbers = {role: _conllu_number(source, column) for role, column in columns.items()}
    for lines in _sentences(open_lines(source.path, repairs), repairs):
        tokens: dict[str, list[str]] = {role: [] for role in roles}
        numbered: list[int] = []
        for line in lines:
            if line.text.startswith("#"):
                continue
            row = split_row(line, "\t", repairs)
            check_width(
                row, len(CONLLU), "as CoNLL-U has", repairs, "separate ten columns by tabs, _ where empty"
            )
            if _is_word(row, len(numbered) + 1, repairs):
                numbered.append(line.number)
                _check_annotated(row, numbers)
                _append(tokens, row, numbers)
        if numbered:
            yield Record(tokens, lines[0].path, numbered[0], tuple(numbered))


def _conllu_number(source: Source, column: int | str) -> int:
    if column in CONLLU:
        return CONLLU.index(str(column))
    if isinstance(column, int) and column < len(CONLLU):
        return column
    raise ConfigError(f"{source.path}: CoNLL-U has no column {column!r}; {nearest(str(column), CONLLU)}")


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
    raise SyntaxProblem(
        f"id {shown} where {due} is due" if whole else f"the id {shown!r} is none of 3, 3-4 and 8.1",
        path=row.line.path,
        line=row.line.number,
        column=1,
        text=row.line.text,
        remedy="count words from 1 in every sentence, and put a blank line between sentences",
    )


def _check_annotated(row: Row, numbers: dict[str, int]) -> None:
    for role, number in numbers.items():
        name = CONLLU[number]
        if row.cells[number] == "_" and name in NEVER_MISSING:
            raise record_of(row, numbers).error(
                EmptyError,
                f"{role} is column {name}, which is missing here",
                field=role,
                text=row.line.text,
                remedy="annotate it, or name another column, as in tag=upos",
            )


def _read_parallel(source: Source, roles: tuple[str, ...], repairs: Repairs) -> Iterator[Record]:
    for lines in paired_lines(source, roles, repairs):
        tokens = [split_row(line, " ", repairs).cells for line in lines]
        near, far = lines[0], lines[-1]
        words, tags = len(tokens[0]), len(tokens[-1])
        if words != tags:
            raise UnbalancedError(
                f"{counted(tags, roles[-1])} for {counted(words, roles[0])} in {near.path}",
                path=far.path,
                line=far.number,
                text=far.text,
                remedy=f"give one {roles[-1]} to each {roles[0]}, separated by spaces",
            )
        target = far.path if len(lines) > 1 else None
        yield Record(dict(zip(roles, tokens, strict=True)), near.path, near.number, target=target)
