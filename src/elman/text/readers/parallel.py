"""Two files side by side: a line of the one belongs to the same line of the other."""

from collections.abc import Iterator

from elman.text.columns import stripped
from elman.text.files import Repairs
from elman.text.readers.base import LineReader
from elman.text.records import Record, Source, filled, paired_lines


class Parallel(LineReader):
    """As many files as roles, with as many lines, and as many words in a line."""

    paired = True
    cut = "lines"

    def read(self, source: Source, roles: tuple[str, ...], repairs: Repairs) -> Iterator[Record]:
        for lines in paired_lines(source, roles, repairs):
            texts = (stripped(line.text, repairs) for line in lines)
            fields = dict(zip(source.wanted(roles), texts, strict=True))
            target = lines[-1].path if len(lines) > 1 else None
            yield filled(Record(fields, lines[0].path, lines[0].number, target=target), lines, source.blank)
