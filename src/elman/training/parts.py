"""Large data in parts: what was made of each is kept, so that it is made once, whatever is killed."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from elman.storage.files import explained, read_plain, remove, write_bytes
from elman.storage.processes import in_order
from elman.tasks.base import AnyTask
from elman.tasks.examples import Examples, joined, opened
from elman.tasks.statistics import Json
from elman.tensors.threads import all_threads
from elman.text import stretches
from elman.text.records import Source
from elman.text.store import Ragged, Store

if TYPE_CHECKING:
    from elman.training.sources import Reading

EVERY_SECONDS = 20.0  # between two lines about how far it is
LEXICON = "word"  # the field that holds numbers of a lexicon
SEEN = "seen.json"

T = TypeVar("T")


def at_once() -> int:
    """Processes that work side by side."""
    return all_threads()


@dataclass
class Parts:
    """The parts of a reading, and the folder that keeps what was made of each.

    sizes: their bytes. key: of the files. say: where it is told how far it is.
    """

    readings: Sequence[Reading]
    sizes: Sequence[int]
    folder: Path
    key: str
    say: Callable[[str], None]

    def each(
        self,
        doing: str,
        how: str,
        make: Callable[[Reading, Path, str], object],
        look: Callable[[Path, str], T | None],
    ) -> Iterator[T]:
        """What ``make`` leaves of each part at a path, for a key, as ``look`` finds it; in their order.

        ``how`` is what it depends on besides the files. What is there for this key,
        and whole, is not made again.
        """
        key = hashlib.sha256(
            "\0".join([doing, self.key, str(stretches.SIZE), how]).encode(errors="surrogatepass")
        ).hexdigest()
        folder = self.folder / key[:16]
        with explained(folder):
            folder.mkdir(parents=True, exist_ok=True)

        def work(place: int) -> T | None:
            path = folder / f"{place:05}"
            found = look(path, key)
            if found is None:
                with explained(path):
                    remove(path)
                    make(self.readings[place], path, key)
            return found

        began = told = time.perf_counter()
        total, done = sum(self.sizes), 0
        for place in in_order(work, len(self.readings), at_once()):
            found = work(place) or work(place)  # what was left is looked at before it is used
            assert found is not None, f"part {place} was written to {folder} and cannot be opened"
            yield found
            done += self.sizes[place]
            now = time.perf_counter()
            if now - told >= EVERY_SECONDS and done < total:
                told, speed = now, done / (now - began) / 1e6
                left = f"{speed:.1f} MB/s, {(total - done) / 1e6 / speed:,.0f} s left"
                self.say(f"{doing}: {done / 1e6:,.0f} of {total / 1e6:,.0f} MB, {left}")

    def found(self, doing: str, how: str, make: Callable[[Reading], Json]) -> Iterator[Json]:
        """What ``make`` finds in each part."""
        yield from self.each(doing, how, lambda part, path, key: keep(path, key, make(part)), kept)


@dataclass
class Facts:
    """What is known of files, whichever examples of them are meant.

    folder: where what was made of their parts is kept. held_out: of each example. examples: how many there
    are in each part.
    """

    folder: Path | None = None
    digest: str | None = None
    say: Callable[[str], None] = lambda line: None
    held_out: list[bool] | None = None
    examples: list[int] = field(default_factory=list)


def size_of(source: Source) -> int:
    """Bytes of a source, or of what is meant of it; none where there is no file, as whoever reads it says."""
    if source.stretches:
        return sum(one.end - one.start for one in source.stretches)
    paths = [path for path in (source.path, source.target) if path is not None]
    return sum(os.stat(path).st_size for path in paths if os.path.exists(path))


def grouped(sources: Iterable[Source]) -> list[list[Source]]:
    """Sources in groups that make up parts: a stretch each, or short files together."""
    groups, room = list[list[Source]](), 0
    for source in sources:
        size = size_of(source)
        if not groups or source.stretches or size > room:
            groups.append([])
            room = 0 if source.stretches else stretches.SIZE
        groups[-1].append(source)
        room -= size
    return groups


def encoded_in_parts(task: AnyTask, reading: Reading, folder: Path, key: str) -> Examples | None:
    """As ``encoded`` has it, part by part; None where the reading has none.

    What the readers saw is kept beside the numbers, so that nothing is read twice.
    """
    parts = reading.parts
    if parts is None:
        return None
    seen, found = kept(folder / SEEN, key), opened(task, folder, key)
    if seen is None or found is None:
        lexicon, all_of_them = task.lexicon(), list[Json]()

        def make(part: Reading, path: Path, own_key: str) -> None:
            own = task.lexicon()
            Store.write(path, task.encode(part, own), own_key)
            keep(path / SEEN, own_key, {"words": [] if own is None else own.words, "seen": part.seen()})

        def look(path: Path, own_key: str) -> tuple[Store, Json] | None:
            store, about = Store.open(path, own_key), kept(path / SEEN, own_key)
            return None if store is None or about is None else (store, about)

        def stores() -> Iterator[Store]:
            for store, about in parts.each(f"encoding for {folder.name}", key, make, look):
                all_of_them.append(about["seen"])
                yield store if lexicon is None else _renumbered(store, lexicon.ids(about["words"]))

        found = joined(lexicon, stores(), folder, key)
        keep(folder / SEEN, key, {"seen": all_of_them})
    else:
        all_of_them = seen["seen"]
    reading.take(all_of_them)
    return found


def _renumbered(store: Store, places: Sequence[int]) -> Store:
    """The same examples, whose words have these numbers."""
    if not store.fields:
        return store
    words = store.fields[LEXICON]
    numbers = np.asarray(places, dtype=np.int32)[words.values]
    return Store({**store.fields, LEXICON: Ragged(numbers, words.offsets)})


def keep(path: Path, key: str, content: Json) -> None:
    """JSON for a key, with its SHA-256."""
    text = json.dumps({"key": key, **content}).encode()
    write_bytes(path, hashlib.sha256(text).hexdigest().encode() + b"\n" + text)


def kept(path: Path, key: str) -> Json | None:
    """What was kept for this key; None where there is no such thing, or a byte is another."""
    try:
        digest, _, text = read_plain(path).partition(b"\n")
    except OSError:
        return None
    if hashlib.sha256(text).hexdigest().encode() != digest:
        return None
    content: Json = json.loads(text)
    return content if content.pop("key") == key else None
