"""Records out of users' files: the reader that a source asks for, and what it must be able to give."""

from collections.abc import Iterator
from dataclasses import replace

from elman.errors import EmptyError
from elman.registry import READERS, construct
from elman.text.columns import DELIMITERS, QUOTING
from elman.text.files import Repairs, inner_ending
from elman.text.readers.base import Reader
from elman.text.records import Record, Source
from elman.text.stretches import cut


def read_text(source: Source, repairs: Repairs | None = None) -> Iterator[Record]:
    """Every line as ``{"text": …}``, blank ones too, unchanged but for the line end.

    JSON Lines, tables, and any file of which a column is named, give that field instead.
    """
    return _read(source, _of_texts(source), "read", ("text",), repairs, paired=False)


def read_fields(source: Source, roles: tuple[str, ...], repairs: Repairs | None = None) -> Iterator[Record]:
    """One record a line, ``{role: text}``, out of columns, JSON Lines, two parallel files or sides."""
    return _read(source, "delimited", "read", roles, repairs)


def read_tokens(
    source: Source, roles: tuple[str, ...] = ("word", "tag"), repairs: Repairs | None = None
) -> Iterator[Record]:
    """One record a sentence: ``{role: [one text a token]}`` out of CoNLL-U, column or parallel files."""
    return _read(source, "columns", "read_tokens", roles, repairs)


def _of_texts(source: Source) -> str:
    table = source.columns is not None or inner_ending(source.path) in (".csv", ".tsv")
    return "delimited" if table else "lines"


def in_stretches(source: Source, roles: tuple[str, ...], *, listed: bool) -> list[Source]:
    """A source in stretches that can be read one by one; none if it is short, or cannot be cut.

    ``listed``: records are lists of words; else they are texts, of which one alone is a line.
    """
    usual = "columns" if listed else _of_texts(source) if roles == ("text",) else "delimited"
    reader: type[Reader] = READERS.find(source.kind(usual))
    if reader.cut is None or "\n".encode(source.encoding) != b"\n":
        return []
    delimiter = source.delimiter or ("comma" if inner_ending(source.path) == ".csv" else "tab")
    quotes = reader.quotes and DELIMITERS.get(delimiter, delimiter) in QUOTING
    found = cut(source.path, source.target, reader.cut, headed=reader.headed, quotes=quotes)
    return [replace(source, stretches=one) for one in found]


def _read(
    source: Source,
    usual: str,
    method: str,
    roles: tuple[str, ...],
    repairs: Repairs | None,
    paired: bool = True,
) -> Iterator[Record]:
    """What a method of the source's reader gives, if it can give such records.

    ``usual`` is the format of a file of which nothing is said; ``paired``: it may be one of two sides.
    """
    kind = source.kind(usual)
    if not _gives(kind, method, paired):
        allowed = ", ".join(formats(method, paired=paired))
        raise source.error(f"the format {kind!r} cannot be read for this; set one of {allowed} with --format")
    reader = construct(READERS.find(kind), options=source.options, named="data.format_options")
    records = getattr(reader, method)(source, roles, Repairs() if repairs is None else repairs)
    if source.stretches:
        head = source.stretches[0].head_lines
        return (record for record in records if record.line > head) if head else records
    return records if source.asked else _at_least_one(source, records)


def formats(method: str, *, paired: bool = True) -> list[str]:
    """The formats whose readers give records by this method: ``read`` or ``read_tokens``."""
    return [name for name in READERS.names() if _gives(name, method, paired)]


def _gives(name: str, method: str, paired: bool) -> bool:
    kind: type[Reader] = READERS.find(name)
    return getattr(kind, method) is not getattr(Reader, method) and (paired or not kind.paired)


def _at_least_one(source: Source, records: Iterator[Record]) -> Iterator[Record]:
    """The same records; none at all is an error."""
    record = None
    for record in records:
        yield record
    if record is None:
        path = "<stdin>" if source.path == "-" else source.path
        raise EmptyError("nothing to read in this file", path=path, remedy="check that it is the right one")
