"""What all readers share: a source, the records out of it, two files side by side."""

from codecs import lookup
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from elman.errors import ConfigError, DataError, EmptyError, UnbalancedError, nearest
from elman.registry import READERS
from elman.text.columns import (
    Row,
    column_mistakes,
    delimiter_mistake,
    is_blank,
    row_texts,
    separator_mistakes,
)
from elman.text.files import UTF8, Line, Repairs, encoding_mistake, inner_ending, open_lines
from elman.text.stretches import Stretch

COLUMN_FILES = (".conll", ".iob2", ".iob", ".bio")
ENDINGS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".conllu": "conllu"}
ENDINGS |= dict.fromkeys(COLUMN_FILES, "columns")


@dataclass(frozen=True, slots=True)
class Record:
    """What was read at one place.

    ``lines`` has the line of each token of a column file; ``places`` the (line, column) of each field
    that lies beside others in its line; ``target`` the second of two parallel files, where the last
    field comes from; ``origin`` how it stands in its file, where an answer will be put beside it.

    >>> Record({"text": "a cat", "label": "animal"}, "reviews.tsv", 12).fields["label"]
    'animal'
    """

    fields: dict[str, Any]
    path: str
    line: int
    lines: tuple[int, ...] = ()
    places: tuple[tuple[int, int], ...] = ()
    target: str | None = None
    origin: "Origin | None" = None

    def error(
        self,
        kind: type[DataError],
        problem: str,
        *,
        field: str | None = None,
        token: int | None = None,
        text: str | None = None,
        remedy: str | None = None,
    ) -> DataError:
        """An error to raise about this record, one of its fields, or one token of it.

        >>> record = Record({"word": ["a", "b"], "tag": ["X", "?"]}, "a.tsv", 4, lines=(4, 5))
        >>> print(record.error(DataError, "no such tag", field="tag", token=1))
        a.tsv:5: E401: no such tag: '?'
        """
        names = list(self.fields)
        line, column = self.line, None
        value = None if field is None else self.fields[field]
        if field is not None and self.places:
            line, column = self.places[names.index(field)]
        if token is not None:
            line = self.lines[token] if self.lines else line
            value = None if value is None else value[token]
        if text is None and value is not None:
            text = value if isinstance(value, str) else " ".join(value)
        path = self.target if self.target is not None and field == names[-1] else self.path
        return kind(problem, path=path, line=line, column=column, text=text, remedy=remedy)


@dataclass(frozen=True, slots=True)
class Origin:
    """A record as it stands in its file: its lines, and what is known of their layout.

    ``cells`` are those of a table, with the ``names`` of its columns if it has a header; ``words`` are the
    numbers of the lines that are words, in a column file; ``tag`` is the column of CoNLL-U that is asked for.
    """

    lines: tuple[str, ...]
    cells: Sequence[str] = ()
    names: Sequence[str] = ()
    delimiter: str = ""
    words: tuple[int, ...] = ()
    tag: int | None = None


@dataclass(frozen=True)
class Source:
    """Where records lie and how they are written; what is None follows from the name and the task.

    ``separator`` stands between the two sides of a line, and ``prefix`` before them: both are text, not
    a pattern, and their white space counts. Of a source that is ``asked``, only the first role is read: what
    a model is asked about; it may be empty, the other roles may be missing, and records have their origin.

    >>> Source("train.csv", columns={"text": "review", "label": "stars"}).format is None
    True
    """

    path: str
    target: str | None = None
    columns: dict[str, int | str] | None = None
    delimiter: str | None = None
    format: str | None = None
    separator: str | None = None
    prefix: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)  # of the reader
    encoding: str = UTF8
    asked: bool = False
    lists: tuple[str, ...] = ()  # roles that may be a list in JSON
    blank: tuple[str, ...] = ()  # roles that may be empty
    stretches: tuple[Stretch, ...] = ()  # of the file, and of the second one, where not all is read

    def __post_init__(self) -> None:
        mistakes = column_mistakes(self.columns or {})
        if wrong := encoding_mistake(self.encoding):
            mistakes.append(wrong)
        if self.format is not None and ":" not in self.format and self.format not in READERS.names():
            mistakes.append(f"format is {self.format!r}: {nearest(self.format, READERS.names())}")
        if self.delimiter is not None and (wrong := delimiter_mistake(self.delimiter)):
            mistakes.append(wrong)
        if self.target is not None and self.format not in (None, "parallel"):
            another = f"the format is {self.format!r}, not 'parallel'"
            mistakes.append(f"a second file, {self.target}, but {another}")
        mistakes += separator_mistakes(self.separator, self.prefix)
        mistakes += self._layout_mistakes()
        if self.path == self.target == "-":
            mistakes.append("both files are standard input; name one of them")
        if mistakes:
            raise self.error("; ".join(mistakes))

    def open_lines(self, repairs: Repairs, path: str | None = None) -> Iterator[Line]:
        """The lines of the file, or of the second one."""
        path = self.path if path is None else path
        stretch = None
        if self.stretches:
            stretch = self.stretches[0 if path == self.path else 1]
        return open_lines(path, repairs, lookup(self.encoding).name, stretch)

    def wanted(self, roles: tuple[str, ...]) -> tuple[str, ...]:
        """The roles that are read."""
        return roles[:1] if self.asked else roles

    def error(self, problem: str) -> ConfigError:
        """An error to raise about how this source is said to be laid out."""
        return ConfigError(f"{self.path}: {problem}")

    def _layout_mistakes(self) -> list[str]:
        """A separator says all about a file's layout; what else is said would contradict it."""
        if self.separator is None:
            return ["the format 'separated' needs a separator"] if self.format == "separated" else []
        others = {"a second file": self.target, "named columns": self.columns, "a delimiter": self.delimiter}
        if self.format != "separated":
            others[f"the format {self.format!r}"] = self.format
        too_much = [other for other, value in others.items() if value is not None]
        return [f"a separator, {self.separator!r}, and {other}; leave out one of them" for other in too_much]

    def kind(self, usual: str) -> str:
        """The format: as said, else by the separator, the second file, the name, or as is usual."""
        by_name = "parallel" if self.target is not None else ENDINGS.get(inner_ending(self.path), usual)
        return self.format or ("separated" if self.separator is not None else by_name)


def record_of(
    row: Row,
    numbers: Mapping[str, tuple[int, ...]],
    origin: Origin | None = None,
    blank: Collection[str] = (),
) -> Record:
    """The record of a row, given the columns of each role; those of one role are joined by a space.

    An empty field is an error, unless it may be ``blank``, or the record is to be answered: then it has its
    origin.
    """
    fields = {role: joined(row.cells[number] for number in own) for role, own in numbers.items()}
    places = [row.places[own[0]] for own in numbers.values()]
    numbered = tuple((line.number, column) for line, column in places)
    record = Record(fields, row.line.path, row.line.number, places=numbered, origin=origin)
    return record if origin is not None else filled(record, [line for line, _ in places], blank)


def origin_of(row: Row, delimiter: str, names: Sequence[str] = ()) -> Origin:
    return Origin(tuple(row_texts(row)), row.cells, names, delimiter)


def joined(texts: Iterable[str]) -> str:
    """Texts that make up one: what is empty leaves no space.

    >>> joined(["A title", "", "and more"])
    'A title and more'
    """
    return " ".join(text for text in texts if text)


def filled(record: Record, lines: Sequence[Line], blank: Collection[str] = ()) -> Record:
    """A record without an empty field, or an error; ``lines`` are those that the fields begin in."""
    for (role, value), line in zip(record.fields.items(), lines, strict=True):
        empty = not all(map(str.strip, [value] if isinstance(value, str) else value))
        if empty and role not in blank:
            remedy = "fill it in, or take the line out"
            raise record.error(EmptyError, f"{role} is empty", field=role, text=line.text, remedy=remedy)
    return record


def columns_of(source: Source, roles: tuple[str, ...], usual: Iterable[int | str]) -> dict[str, int | str]:
    """The column of each role that is read."""
    if source.columns is None:
        return dict(zip(source.wanted(roles), usual, strict=False))
    for role in source.columns:
        if role not in roles:
            raise source.error(f"a column is named for {role!r}; {nearest(role, roles)}")
    found = dict(source.columns)
    for role, column in zip(roles, usual, strict=False):
        if isinstance(column, str):  # a key that is called as the role is
            found.setdefault(role, column)
    for role in source.wanted(roles):
        if role not in found:
            given = ",".join(f"{name}={column}" for name, column in source.columns.items())
            raise source.error(f"no column is named for {role!r}; name it too, as --columns {given},{role}=…")
    return {role: found[role] for role in source.wanted(roles)}


def paired_lines(source: Source, roles: tuple[str, ...], repairs: Repairs) -> Iterator[tuple[Line, ...]]:
    """Lines side by side out of as many files as there are roles; lines that are blank in all are skipped."""
    roles = source.wanted(roles)
    paths = [path for path in (source.path, source.target) if path is not None][: len(roles)]
    if len(paths) < len(roles):
        raise source.error(f"{', '.join(roles)} in parallel need {len(roles)} files, not {len(paths)}")
    for lines in zip_longest(*(source.open_lines(repairs, path) for path in paths)):
        present = tuple(line for line in lines if line is not None)
        if all(is_blank(line) for line in present):
            repairs["blank line skipped"] += 1
        elif len(present) < len(roles):
            said = f"this file goes on, but {paths[lines.index(None)]} has no line {present[0].number}"
            raise present[0].error(UnbalancedError, said, "both files must have the same number of lines")
        else:
            yield present
