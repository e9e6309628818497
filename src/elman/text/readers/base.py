"""The contract of a reader: a file in, records with their places out."""

from collections.abc import Iterator
from typing import ClassVar

from elman.errors import UnbalancedError
from elman.text.columns import counted, split_row
from elman.text.files import Repairs
from elman.text.records import Record, Source, paired_lines
from elman.text.stretches import Between


class Reader:
    """Reads files of one format; a class writes ``read``, ``read_tokens``, or both. All of it streams.

    Both are given a source (paths, and what the settings say of its layout), the roles that the task wants,
    and a counter: ``repairs["blank line skipped"] += 1`` says what was mended on the way. What cannot be
    mended is an error with its place: ``raise record.error(SyntaxProblem, "what is wrong")``.

    paired: it reads two sides, so its files are no plain text.
    cut: between what a large file may be cut, so that several processes read it; unset, nowhere.
    headed: its first lines tell how the others are to be read. quotes: a quoted cell may hold line ends.

    >>> class Numbered(Reader):
    ...     def read(self, source, roles, repairs):
    ...         for number in range(1, 3):
    ...             yield Record({"text": f"line {number}"}, source.path, number)
    >>> [record.fields["text"] for record in Numbered().read(Source("any.txt"), ("text",), Repairs())]
    ['line 1', 'line 2']
    """

    paired: ClassVar[bool] = False
    cut: ClassVar[Between | None] = None
    headed: ClassVar[bool] = False
    quotes: ClassVar[bool] = False

    def read(self, source: Source, roles: tuple[str, ...], repairs: Repairs) -> Iterator[Record]:
        """One record a line, or whatever is one example: ``{role: text}``."""
        raise NotImplementedError

    def read_tokens(self, source: Source, roles: tuple[str, ...], repairs: Repairs) -> Iterator[Record]:
        """One record a sentence: ``{role: [one text a token]}``."""
        raise NotImplementedError


class LineReader(Reader):
    """What readers share whose lines are whole sentences, in as many files as there are roles."""

    def read_tokens(self, source: Source, roles: tuple[str, ...], repairs: Repairs) -> Iterator[Record]:
        """Words separated by spaces, with one token of each role for every other."""
        roles = source.wanted(roles)
        for lines in paired_lines(source, roles, repairs):
            tokens = [split_row(line, " ", repairs).cells for line in lines]
            near, far = lines[0], lines[-1]
            words, tags = len(tokens[0]), len(tokens[-1])
            if words != tags:
                said = f"{counted(tags, roles[-1])} for {counted(words, roles[0])} in {near.path}"
                remedy = f"give one {roles[-1]} to each {roles[0]}, separated by spaces"
                raise far.error(UnbalancedError, said, remedy)
            target = far.path if len(lines) > 1 else None
            yield Record(dict(zip(roles, tokens, strict=True)), near.path, near.number, target=target)
