"""How often tokens occur, counted exactly in bounded memory."""

from __future__ import annotations

import json
import tempfile
import weakref
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Protocol

import numpy as np

Packed = tuple[str | list[str], list[int]]  # tokens, and how often each occurs

MOST = 1_000_000  # types that are held in memory, about 130 bytes each
PLACES = 64  # files that the others lie in; one of them is held at a time


class Counted(Protocol):
    """What is asked of counted tokens: a ``Counter`` has it, and so have ``Counts``."""

    def __len__(self) -> int: ...

    def __getitem__(self, token: str, /) -> int: ...

    def items(self) -> Iterable[tuple[str, int]]: ...

    def total(self) -> int: ...


class Counts:
    """A counter of tokens that holds no more than so many types; the others lie on disk.

    Where there are more of them, what is held goes into temporary files (``$TMPDIR``), each token into the
    one that its hash names. So all that is known of a token lies in one file, and the files are added up one
    after the other. Nothing is dropped: the counts are those of a ``Counter``.

    >>> counts = Counts(most=2)
    >>> counts.update("a b c a d a b".split())
    >>> len(counts), counts.total(), counts["a"], sorted(counts.items())
    (4, 7, 3, [('a', 3), ('b', 2), ('c', 1), ('d', 1)])
    """

    def __init__(self, *, most: int | None = None) -> None:
        self.most = MOST if most is None else most
        self._held = Counter[str]()
        self._files: list[IO[str]] = []
        self._types: int | None = None  # in the files, where each has every token once
        self._total = 0  # of these

    def update(self, tokens: Iterable[str]) -> None:
        """Some tokens more."""
        self._held.update(tokens)
        if len(self._held) > self.most:
            self._put_away()

    def add(self, counts: Iterable[tuple[str, int]]) -> None:
        """Tokens that were counted elsewhere."""
        held, most = self._held, self.most
        for token, count in counts:
            held[token] += count
            if len(held) > most:
                self._put_away()

    def join(self, counts: Packed) -> None:
        """Tokens that were counted elsewhere, as ``packed`` put them together."""
        pairs = unpacked(counts)
        if self._files:
            self._file(*pairs)
        else:
            self.add(zip(*pairs, strict=True))

    def items(self) -> Iterator[tuple[str, int]]:
        """Every token and its count, in no particular order; only where all are held, as they came."""
        if not self._files:
            yield from self._held.items()
            return
        self._settle()
        for file in self._files:
            yield from _read(file).items()

    def of(self, tokens: Iterable[str]) -> list[int]:
        """The counts of some tokens, found in one go."""
        tokens = list(tokens)
        if not self._files:
            return [self._held[token] for token in tokens]
        wanted = set(tokens)
        found = {token: count for token, count in self.items() if token in wanted}
        return [found.get(token, 0) for token in tokens]

    def __getitem__(self, token: str) -> int:
        return self.of([token])[0]

    def __len__(self) -> int:
        if not self._files:
            return len(self._held)
        self._settle()
        return self._types or 0

    def total(self) -> int:
        if not self._files:
            return self._held.total()
        self._settle()
        return self._total

    def _put_away(self) -> None:
        if not self._files:
            for _ in range(PLACES):
                self._files.append(tempfile.TemporaryFile("w+", encoding="ascii"))  # noqa: SIM115
            weakref.finalize(self, _close, self._files)
        self._file([*self._held], [*self._held.values()])
        self._held.clear()

    def _file(self, tokens: Sequence[str], counts: Sequence[int]) -> None:
        """Write each token into the file that it belongs to."""
        hashes = [zlib.crc32(token.encode(errors="surrogatepass")) for token in tokens]
        places = (np.array(hashes, dtype=np.uint32) % PLACES).astype(np.uint8)
        order = places.argsort(kind="stable")
        ends = places[order].searchsorted(np.arange(1, PLACES))
        parts = [
            np.split(np.array(values, dtype=kind)[order], ends)
            for values, kind in ((tokens, object), (counts, np.int64))
        ]
        for file, names, numbers in zip(self._files, *parts, strict=True):
            _append(file, dict(zip(names.tolist(), numbers.tolist(), strict=True)))
        self._types = None

    def _settle(self) -> None:
        """Bring each token together in its file, so that what comes next reads it once."""
        if self._held:
            self._put_away()
        if self._types is None:
            self._types = self._total = 0
            for file in self._files:
                found = _read(file)
                self._types += len(found)
                self._total += sum(found.values())
                file.seek(0)
                file.truncate()
                _append(file, found)


def counts_of(counts: Counted, tokens: Iterable[str]) -> list[int]:
    """The counts of some tokens."""
    return counts.of(tokens) if isinstance(counts, Counts) else [counts[token] for token in tokens]


def _close(files: Iterable[IO[str]]) -> None:
    for file in files:
        file.close()


def packed(counts: Mapping[str, int]) -> Packed:
    """Tokens and their counts as JSON writes and reads them soon: one text, where no token has a space.

    >>> packed({"a": 2, "b": 1}), packed({" ": 1})
    (('a b', [2, 1]), ([' '], [1]))
    """
    tokens = [*counts]
    text = " ".join(tokens)
    return text if tokens and text.count(" ") == len(tokens) - 1 else tokens, [*counts.values()]


def unpacked(found: Packed) -> tuple[list[str], list[int]]:
    tokens, counts = found
    return tokens.split(" ") if isinstance(tokens, str) else tokens, counts


def _append(file: IO[str], counts: Mapping[str, int]) -> None:
    file.seek(0, 2)
    file.write(json.dumps(packed(counts)) + "\n")


def _read(file: IO[str]) -> dict[str, int]:
    file.seek(0)
    found: dict[str, int] = {}
    for line in file:
        for token, count in zip(*unpacked(json.loads(line)), strict=True):
            found[token] = found.get(token, 0) + count
    return found
