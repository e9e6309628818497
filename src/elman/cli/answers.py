"""Answers beside what was asked: a line each, or the file back with columns for them."""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import TextIO

from elman.cli.output import Json, put, put_json
from elman.errors import ArgumentError, ColumnError, FileError
from elman.storage.files import explained, replacing
from elman.tasks.predictions import Prediction
from elman.text.columns import QUOTING, single_row
from elman.text.files import Line, Repairs
from elman.text.records import Origin, Record

TABLES = {".csv": ",", ".tsv": "\t"}
ENDINGS = (".csv", ".tsv", ".jsonl", ".conll", ".conllu")
UPOS, MISC = 3, 9  # columns of CoNLL-U
EMPTY = "\t_" * 8


class Lines:
    """On standard output, one record in, one line out."""

    def __init__(self, *, top: int | None = None, spans: bool = False, as_json: bool = False) -> None:
        self.top, self.spans, self.as_json = top, spans, as_json

    def add(self, record: Record, answer: Prediction, *, traced: bool = True) -> None:
        if self.as_json:
            found = answer.as_json(traced=traced)
            if answer.spans is not None:
                found["spans"] = placed_spans(record, answer)
            put_json(found)
            return
        if self.top is not None and answer.tags is not None:
            words = ([f"{tag} {number(chance)}" for tag, chance in best] for best in answer.tags)
            line = "\t".join(map(" ".join, words))
        elif self.top is not None:
            line = "\t".join(f"{text} {number(chance)}" for text, chance in answer.best(self.top))
        elif self.spans:
            line = "\t".join(map(span_line, placed_spans(record, answer)))
        else:
            line = answer.line
        put(line.replace("\n", "⏎"))


@contextmanager
def answers_in(path: Path, *, top: int | None = None) -> Iterator["Table"]:
    """The records of a file with their answers, in a file of their own; it is there when it is whole."""
    kind = path.suffix.lower()
    if kind not in ENDINGS:
        raise ArgumentError(f"--output is '{path}'; its ending must be one of {', '.join(ENDINGS)}")
    if not path.parent.is_dir():
        raise FileError("there is no such folder", path=path.parent, remedy="create it, or name another")
    with (
        explained(path),
        replacing(path) as new,
        new.open("w", encoding="utf-8", errors="backslashreplace", newline="") as out,
    ):
        yield Table(out, kind, top)


class Table:
    """Records with their answers beside them."""

    def __init__(self, out: TextIO, kind: str, top: int | None) -> None:
        self._out, self.kind, self.top = out, kind, top
        self._names: Sequence[str] = ()  # of the columns that the header has
        self._begun = False

    def add(self, record: Record, answer: Prediction, *, traced: bool = True) -> None:
        origin = record.origin or Origin(("",))
        if self.kind == ".jsonl":
            self._out.write(json_line(record, origin, answer, self.top) + "\n")
        elif self.kind in TABLES and not origin.words:
            self._add_row(record, origin, answer_columns(answer, self.top))
        else:
            self._add_words(origin, answer)
        self._begun = True

    def _add_row(self, record: Record, origin: Origin, columns: dict[str, str]) -> None:
        delimiter = TABLES[self.kind]
        cells, names = cells_of(record, origin)
        if not self._begun and names:
            self._names = names
            self._out.write(row_text([*names, *free_names(columns, names)], delimiter) + "\n")
        if names != self._names:  # objects with other keys
            found = dict(zip(names, cells, strict=True))
            if more := [name for name in names if name not in self._names]:
                said = f"the key {more[0]!r} is none of the first object's, which are the columns of a table"
                raise record.error(ColumnError, said, remedy="write --output to a .jsonl file")
            cells = [found.get(name, "") for name in self._names]
        new = row_text(list(columns.values()), delimiter)
        old = "\n".join(origin.lines) if origin.delimiter == delimiter else row_text(cells, delimiter)
        self._out.write(f"{old}{delimiter}{new}\n")

    def _add_words(self, origin: Origin, answer: Prediction) -> None:
        """A sentence, a word a line."""
        rows = tag_columns(answer, self.top)
        if rows is None:
            raise ArgumentError(f"--output {self.kind} is for tags; write .csv, .tsv or .jsonl")
        if self.kind == ".conllu":
            lines = conllu_lines(origin, answer, rows)
        else:
            delimiter = TABLES.get(self.kind) or (origin.delimiter if origin.delimiter == " " else "\t")
            if not self._begun and origin.names and origin.words:
                new = free_names(column_names(self.top), origin.names)
                self._out.write(row_text([*origin.names, *new], delimiter) + "\n")
            lines = column_lines(origin, answer, rows, delimiter)
        self._out.writelines(f"{line}\n" for line in (*lines, ""))


def column_names(top: int | None) -> list[str]:
    """
    >>> column_names(2)
    ['prediction', 'confidence', 'prediction_2', 'confidence_2']
    """
    numbers = ["", *(f"_{place}" for place in range(2, (top or 1) + 1))]
    return [f"{name}{place}" for place in numbers for name in ("prediction", "confidence")]


def answer_columns(answer: Prediction, top: int | None) -> dict[str, str]:
    """Names of new columns and what stands in them; what there is none of is empty.

    Beside a set of labels stand the most probable ones, each with its own probability.
    """
    best = [(answer.line, answer.confidence), *further(answer, top)]
    cells = [cell for text, chance in best for cell in (text, number(chance))]
    names = column_names(top)
    if answer.several:
        numbers = range(1, (top or 0) + 1)
        names = [*names[:2], *(f"{name}_{place}" for place in numbers for name in ("label", "probability"))]
    columns = dict(zip_longest(names, cells, fillvalue=""))
    if answer.withheld is not None:
        found = answer.withheld.left_out
        columns["withheld"] = found if isinstance(found, str) else answer.between.join(map(str, found or ()))
    return columns


def further(answer: Prediction, top: int | None) -> list[tuple[str, float]]:
    """What is told besides the answer: the next most probable ones, or the labels that make up a set."""
    return answer.best(top or 0) if answer.several else answer.best(top or 1)[1:]


def tag_columns(answer: Prediction, top: int | None) -> list[list[str]] | None:
    """What is put beside each word: its tag and the probability, and those of other tags, _ for none."""
    if answer.tags is None:
        return None
    rows = [[cell for tag, chance in tags for cell in (tag, number(chance))] for tags in answer.tags]
    width = len(column_names(top))
    return [[*row, *["_"] * (width - len(row))] for row in rows]


def free_names(names: Iterable[str], taken: Iterable[str]) -> list[str]:
    """The names of new columns, other than those that are there.

    >>> free_names(["prediction"], ["text", "prediction"])
    ['elman_prediction']
    """
    known, free = set(taken), []
    for name in names:
        while name in known:
            name = f"elman_{name}"
        free.append(name)
    return free


def unlike_names(names: Iterable[str]) -> list[str]:
    """The names of columns, so that there is one of each.

    >>> unlike_names(["text", "label", "label"])
    ['text', 'label', 'elman_label']
    """
    found: list[str] = []
    for name in names:
        found += free_names([name], found)
    return found


def cells_of(record: Record, origin: Origin) -> tuple[Sequence[str], Sequence[str]]:
    """What stands in a record, and what it is called: by a header, by keys, or by the role that is asked."""
    if origin.cells:
        return origin.cells, origin.names
    role, value = next(iter(record.fields.items()))
    return [value if isinstance(value, str) else " ".join(value)], [role]


def json_line(record: Record, origin: Origin, answer: Prediction, top: int | None) -> str:
    """An object with the answer; one that was an object keeps all that it was, letter by letter."""
    found: dict[str, Json] = {"prediction": answer.value, "confidence": answer.confidence}
    if answer.withheld is not None:
        found["withheld"] = answer.withheld.left_out
    if answer.tags is not None:
        found["confidence"] = answer.probabilities
        if answer.spans is not None:
            found["spans"] = placed_spans(record, answer)
        if answer.alternatives is not None:
            found["alternatives"] = answer.as_json()["alternatives"]
    else:
        kind, sure, first = ("label", "probability", 1) if answer.several else ("prediction", "confidence", 2)
        for place, (text, chance) in enumerate(further(answer, top), first):
            found |= {f"{kind}_{place}": text, f"{sure}_{place}": chance}
    if origin.names and not origin.delimiter:
        whole = origin.lines[0].strip()
        named = dict(zip(free_names(found, origin.names), found.values(), strict=True))
        new = json.dumps(named, ensure_ascii=False)[1:]
        return f"{whole[:-1].rstrip()}, {new}"
    cells, names = cells_of(record, origin)
    names = unlike_names(names) or [f"column_{place}" for place in range(len(cells))]
    old: dict[str, Json] = dict(zip(names, cells, strict=True))
    if answer.tags is not None:
        old = {"words": answer.asked}
    named = dict(zip(free_names(found, old), found.values(), strict=True))
    return json.dumps({**old, **named}, ensure_ascii=False)


def column_lines(
    origin: Origin, answer: Prediction, rows: Sequence[Sequence[str]], delimiter: str
) -> list[str]:
    """A sentence as it was, with more columns; where it becomes another kind of file, its words alone."""
    if not origin.words:
        return [row_text([word, *row], delimiter) for word, row in zip(answer.asked, rows, strict=True)]
    same, beside = origin.delimiter == delimiter, dict(zip(origin.words, rows, strict=True))
    lines = []
    for place, line in enumerate(origin.lines):
        if place in beside:
            cells = single_row(Line(line, "", 1), origin.delimiter, Repairs()).cells
            old = line.rstrip(" ") if same else row_text(cells, delimiter)
            lines.append(f"{old}{delimiter}{row_text(beside[place], delimiter)}")
        elif line.startswith("#") and same:
            lines.append(line)
    return lines


def conllu_lines(origin: Origin, answer: Prediction, rows: Sequence[Sequence[str]]) -> list[str]:
    """A sentence as it was: a tag goes into its own column where that is empty, all else into MISC."""
    texts, places, column = list(origin.lines), origin.words, origin.tag
    if column is None:  # it was no CoNLL-U
        texts = [f"{place}\t{word}{EMPTY}" for place, word in enumerate(answer.asked, 1)]
        places, column = tuple(range(len(texts))), UPOS
    for place, row in zip(places, rows, strict=True):
        cells = texts[place].split("\t")
        more = dict(zip((name.title() for name in column_names(len(row) // 2)), row, strict=True))
        if cells[column] == "_" and column != MISC:
            cells[column] = more.pop("Prediction")
        old = [] if cells[MISC] == "_" else [cells[MISC]]
        cells[MISC] = "|".join([*old, *(f"{name}={value}" for name, value in more.items() if value != "_")])
        texts[place] = "\t".join(cells)
    return texts


def placed_spans(record: Record, answer: Prediction) -> list[Json]:
    origin = record.origin
    line = None if origin is None or origin.words or origin.cells else origin.lines[0]
    found: list[Json] = [*answer.placed_spans(line)]
    return found


def span_line(span: Json) -> str:
    assert isinstance(span, dict)
    first, last = span["words"]
    return f"{span['type']} {first}-{last} {span['start']}-{span['end']} {span['text']}"


def number(chance: float | None) -> str:
    return "" if chance is None else f"{chance:.6g}"


def row_text(cells: Sequence[str], delimiter: str) -> str:
    """Cells as one row: quoted where commas need it; a delimiter that cannot be quoted becomes a space."""
    if delimiter not in QUOTING:
        return delimiter.join(cell.replace(delimiter, " ").replace("\n", " ") for cell in cells)
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, lineterminator="\n").writerow(cells)  # which it quotes in cells
    return out.getvalue().removesuffix("\n")
