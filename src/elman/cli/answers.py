"""Answers beside what was asked: a line each, or the file back with columns for them."""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from elman.cli.output import Json, put, put_json
from elman.errors import ArgumentError, FileError
from elman.storage.files import explained, replacing
from elman.tasks.predictions import Prediction
from elman.text.records import Origin, Record

TABLES = {".csv": ",", ".tsv": "\t"}
ENDINGS = (".csv", ".tsv", ".jsonl", ".conll", ".conllu")


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
        if self.top is not None:
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
    with explained(path), replacing(path) as new, new.open("w", encoding="utf-8", newline="") as out:
        yield Table(out, kind, top)


class Table:
    """Records with their answers beside them."""

    def __init__(self, out: TextIO, kind: str, top: int | None) -> None:
        self._out, self.kind, self.top = out, kind, top
        self._names: Sequence[str] = ()  # of the columns that the header has
        self._begun = False

    def add(self, record: Record, answer: Prediction, *, traced: bool = True) -> None:
        origin = record.origin or Origin(("",))
        columns = answer_columns(answer, self.top)
        if self.kind in TABLES:
            self._add_row(record, origin, columns)
        elif self.kind == ".jsonl":
            self._out.write(json_line(record, origin, answer, columns) + "\n")
        else:
            self._out.writelines(f"{line}\n" for line in token_lines(origin, answer, self.kind))
            self._out.write("\n")
        self._begun = True

    def _add_row(self, record: Record, origin: Origin, columns: dict[str, str]) -> None:
        delimiter = TABLES[self.kind]
        cells, names = cells_of(record, origin)
        if not self._begun and names:
            self._names = names
            self._out.write(row_text([*names, *free_names(columns, names)], delimiter) + "\n")
        if origin.cells and not origin.names:
            cells = list(origin.cells)
        elif self._names and names != self._names:  # objects with other keys
            cells = [dict(zip(names, cells, strict=True)).get(name, "") for name in self._names]
        new = row_text(list(columns.values()), delimiter)
        old = "\n".join(origin.lines) if origin.delimiter == delimiter else row_text(cells, delimiter)
        self._out.write(f"{old}{delimiter}{new}\n")


def answer_columns(answer: Prediction, top: int | None) -> dict[str, str]:
    """Names of new columns and what stands in them."""
    columns = {"prediction": answer.line, "confidence": number(answer.confidence)}
    for place, (text, chance) in enumerate(answer.best(top or 1)[1:], 2):
        columns |= {f"prediction_{place}": text, f"confidence_{place}": number(chance)}
    return columns


def free_names(names: Iterable[str], taken: Iterable[str]) -> list[str]:
    """The names of new columns, other than those that are there.

    >>> free_names(["prediction"], ["text", "prediction"])
    ['elman_prediction']
    """
    known = set(taken)
    return [f"elman_{name}" if name in known else name for name in names]


def cells_of(record: Record, origin: Origin) -> tuple[Sequence[str], Sequence[str]]:
    """What stands in a record, and what it is called: by a header, by keys, or by the role that is asked."""
    if origin.cells:
        return origin.cells, origin.names
    role, value = next(iter(record.fields.items()))
    return [value if isinstance(value, str) else " ".join(value)], [role]


def json_line(record: Record, origin: Origin, answer: Prediction, columns: dict[str, str]) -> str:
    """An object with the answer; one that was an object keeps all that it was, letter by letter."""
    several = isinstance(answer.probabilities, list)
    found: dict[str, Json] = {"prediction": answer.value, "confidence": answer.confidence}
    if several:
        found["confidence"] = answer.probabilities
        if answer.spans is not None:
            found["spans"] = placed_spans(record, answer)
    for name, text in columns.items():
        if "_" in name:  # further answers
            found[name] = float(text) if name.startswith("confidence") and text else text
    whole = origin.lines[0].strip() if len(origin.lines) == 1 else ""
    if origin.names and whole.startswith("{"):
        named = dict(zip(free_names(found, origin.names), found.values(), strict=True))
        new = json.dumps(named, ensure_ascii=False)[1:]
        return f"{whole[:-1].rstrip()}, {new}"
    cells, names = cells_of(record, origin)
    names = names or [f"column_{place}" for place in range(len(cells))]
    old: dict[str, Json] = dict(zip(names, cells, strict=True))
    if several:
        old = {"words": answer.asked}
    named = dict(zip(free_names(found, old), found.values(), strict=True))
    return json.dumps({**old, **named}, ensure_ascii=False)


def token_lines(origin: Origin, answer: Prediction, kind: str) -> list[str]:
    """A sentence in columns: as it was, with the tag and its probability after what stood there."""
    if not isinstance(answer.value, list) or not isinstance(answer.probabilities, list):
        raise ArgumentError(f"--output {kind} is for tags; write .csv, .tsv or .jsonl")
    words, tags, chances = list(answer.asked), answer.value, [number(one) for one in answer.probabilities]
    tagged = zip(words, tags, chances, strict=True)
    if not origin.words:
        if kind == ".conll":
            return [f"{word}\t{tag}\t{chance}" for word, tag, chance in tagged]
        return [
            f"{place}\t{word}\t_\t{tag}\t_\t_\t_\t_\t_\tConfidence={chance}"
            for place, (word, tag, chance) in enumerate(tagged, 1)
        ]
    lines = list(origin.lines)
    for place, (_, tag, chance) in zip(origin.words, tagged, strict=True):
        cells = lines[place].split("\t")
        if kind == ".conllu" and len(cells) == 10:
            extra = f"Prediction={tag}|Confidence={chance}"
            cells[9] = extra if cells[9] == "_" else f"{cells[9]}|{extra}"
            lines[place] = "\t".join(cells)
        else:
            space = origin.delimiter
            lines[place] = f"{lines[place].rstrip()}{space}{tag}{space}{chance}"
    return lines


def placed_spans(record: Record, answer: Prediction) -> list[Json]:
    origin = record.origin
    line = None if origin is None or origin.words or origin.names else origin.lines[0]
    found: list[Json] = [*answer.placed_spans(line)]
    return found


def span_line(span: Json) -> str:
    assert isinstance(span, dict)
    first, last = span["words"]
    return f"{span['type']} {first}-{last} {span['start']}-{span['end']} {span['text']}"


def number(chance: float | None) -> str:
    return "" if chance is None else f"{chance:.6g}"


def row_text(cells: Sequence[str], delimiter: str) -> str:
    """Cells as one row: quoted where commas need it; where tabs separate, no cell may hold one."""
    if delimiter == "\t":
        return "\t".join(" ".join(cell.split("\t")).replace("\n", " ") for cell in cells)
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, lineterminator="").writerow(cells)
    return out.getvalue()
