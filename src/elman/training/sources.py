"""Where examples come from: a user's files, a built-in corpus, or a part of the training data held out."""

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from glob import glob
from itertools import chain, repeat
from pathlib import Path
from typing import Any

from elman.config import Config, DataSettings, Files, to_toml
from elman.errors import ConfigError, FileError, nearest
from elman.registry import CORPORA
from elman.tasks.base import AnyTask
from elman.tasks.statistics import Json, Tally
from elman.text.files import UTF8, Repairs, file_digest, inner_ending
from elman.text.reading import in_stretches
from elman.text.records import ENDINGS, Record, Source
from elman.training.holding_out import by_number, by_strata
from elman.training.learned import before_counting
from elman.training.parts import Facts, Parts, grouped, size_of

BUILTIN = "builtin:"
TABLES = (".tsv", ".csv", ".jsonl", ".ndjson", ".json")  # names of files that have no separator
TOKENS = (".conll", ".conllu", ".iob2", ".iob", ".bio")  # names of files with a word a line
ONE_FILE = ("data.columns", "data.delimiter", "data.separator", "data.prefix")
LAYOUT = ("data.format", *ONE_FILE)
FILES = ("train", "train_target", "dev", "dev_target")


@dataclass
class Reading:
    """Examples of a task as text; each time it is gone through, the files are read anew.

    ``files`` are read one after the other; one that has a second, line-aligned file comes with it.
    ``held_out`` is which part of them is meant, where a share of them serves as validation data.
    """

    task: AnyTask
    files: Sequence[tuple[str, str | None]]
    held_out: bool | None = None
    said: Collection[str] = ()  # settings of the layout that are meant for these very files
    repairs: Repairs = field(default_factory=Repairs)
    counts: Counter[str] = field(default_factory=Counter)  # of examples, by file
    facts: Facts = field(default_factory=Facts)
    sources: Sequence[Source] | None = None  # of a part
    own: list[bool] | None = None  # of a part: which of its examples are held out
    begins: bool = True  # is the first example of all among these?

    @property
    def path(self) -> str:
        """What the files are called together."""
        (first, _), *more = self.files
        return first if not more else f"{first} and {len(more)} more"

    @property
    def part(self) -> str | None:
        return None if self.held_out is None else "held-out" if self.held_out else "kept"

    @property
    def builtin(self) -> bool:
        return self.path.startswith(BUILTIN)

    @cached_property
    def parts(self) -> Parts | None:
        """The parts of large data; None where they are read in one go."""
        facts, data = self.facts, self.task.config.data
        if facts.folder is None or self.builtin or not self.task.parted:
            return None
        if self.held_out is not None and not data.stratified:
            return None
        groups = grouped([part for source in self._sources() for part in self._in_stretches(source)])
        if len(groups) < 2:
            return None
        readings = [
            replace(self, sources=group, repairs=Repairs(), counts=Counter(), begins=not place)
            for place, group in enumerate(groups)
        ]
        sizes = [sum(map(size_of, group)) for group in groups]
        facts.digest = facts.digest or self.digest()
        parts = Parts(readings, sizes, facts.folder, f"{facts.digest} {self.files}", facts.say)
        if self.held_out is not None:
            self._divide(parts)
        return parts

    def tallied(self, count: Callable[[Iterable[Record]], Tally]) -> Tally:
        """What a task counts of all examples, part by part if there are parts."""
        if self.parts is None:
            return count(self)
        tally = Tally()
        how = f"{self.held_out} {count.__name__} {before_counting(self.task)}"
        for found in self.parts.found("counting", how, lambda part: count(part).as_json()):
            tally.join(found)
        return tally

    def seen(self) -> Json:
        """What was put right and counted, as JSON."""
        return {"repairs": self.repairs, "notes": self.repairs.notes, "counts": self.counts}

    def take(self, seen: Iterable[Json]) -> None:
        """Have seen what its parts saw."""
        self.repairs.clear()
        self.counts.clear()
        for one in seen:
            self.repairs.update(one["repairs"])
            self.repairs.notes.update(one["notes"])
            self.counts.update(one["counts"])

    def __iter__(self) -> Iterator[Record]:
        parts = repeat(self.held_out) if self.held_out is None else self._parts()
        self.repairs.clear()
        self.counts.clear()
        for record, part in zip(self._all(), parts, strict=False):
            if part == self.held_out:
                self.counts[record.path] += 1
                yield record

    def digest(self) -> str:
        """What identifies the data: the SHA-256 of the files, or a corpus and its version."""
        if self.builtin:
            corpus, split = corpus_of(self.path)
            texts = repr(list(corpus.examples(split)))  # generated: the examples are what there is
            return hashlib.sha256(f"{self.path}\n{texts}".encode()).hexdigest()
        pairs = ([file_digest(path) for path in pair if path is not None] for pair in self.files)
        digests = ["+".join(pair) for pair in pairs]
        return digests[0] if len(digests) == 1 else hashlib.sha256("\n".join(digests).encode()).hexdigest()

    def _parts(self) -> Iterator[bool]:
        """Is an example held out? One after the other."""
        data, block = self.task.config.data, self.task.held_out_block
        if self.own is not None:
            return iter(self.own)
        if not data.stratified:
            return by_number(data.held_out, block)
        return iter(by_strata(map(self._labels, self._all()), data.held_out, block))

    def _divide(self, parts: Parts) -> None:
        """Tell each part which of its examples are held out."""
        data, facts = self.task.config.data, self.facts
        if facts.held_out is None:
            how = to_toml(data) + self.task.config.task

            def labels() -> Iterator[Sequence[str]]:
                for found in parts.found("looking at labels", how, Reading.labels):
                    facts.examples.append(found["examples"])
                    yield from found["labels"] or repeat((), found["examples"])

            facts.examples.clear()
            facts.held_out = by_strata(labels(), data.held_out, self.task.held_out_block)
        start, before = 0, False
        for part, length in zip(parts.readings, facts.examples, strict=True):
            part.own = facts.held_out[start : start + length]
            part.begins, before = not before, before or self.held_out in part.own
            start += length

    def labels(self) -> Json:
        """How many examples there are, held out or not, and their labels if they have some."""
        labels = [*map(self._labels, self._all())]
        return {"examples": len(labels), "labels": labels if any(labels) else None}

    def _labels(self, record: Record) -> list[str]:
        """The labels of an example, of which each is trained and judged.

        That a text has not one label is one more: it decides what a model is.
        """
        own = [] if self.task.stratum is None else listed(record.fields[self.task.stratum])
        return own if len(own) == 1 or self.task.listed or self.task.stratum is None else [*own, "\0"]

    def _all(self) -> Iterator[Record]:
        if not self.builtin:
            for source in self._sources():
                yield from self.task.read(source, self.repairs)
            return
        corpus, split = corpus_of(self.path, self.task.config.task)
        if corpus.task != self.task.config.task:
            raise ConfigError(
                f"{self.path} is a corpus for the task {corpus.task!r}, not {self.task.config.task!r}"
            )
        for number, fields in enumerate(corpus.examples(split), 1):
            yield Record(dict(fields), self.path, number)

    def _sources(self) -> Sequence[Source]:
        """The files as they are laid out; of a part, what of them belongs to it."""
        data = self.task.config.data
        if self.sources is not None:
            return self.sources
        return [source_of(data, path, target, self.said) for path, target in self.files]

    def _in_stretches(self, source: Source) -> Sequence[Source]:
        return in_stretches(source, self.task.roles, listed=self.task.listed) or [source]


def training_data(
    task: AnyTask, folder: Path | None = None, say: Callable[[str], None] | None = None
) -> tuple[Reading, Reading]:
    """Training and validation data, as the settings name them.

    ``folder`` keeps what is made of parts of large data, and ``say`` is told how far that is.
    """
    data = task.config.data
    facts = Facts(folder) if say is None else Facts(folder, say=say)
    train = paired(data.train, data.train_target, "data.train")
    if not train:
        raise ConfigError("no training data; name a file with --train, or a corpus with --train builtin:NAME")
    if data.dev:
        dev = paired(data.dev, data.dev_target, "data.dev")
        others = replace(facts, examples=[])
        return Reading(task, train, facts=facts), Reading(task, dev, facts=others)
    (first, _), *_ = train
    if first.startswith(BUILTIN):
        return Reading(task, train), Reading(task, [(f"{first.partition('/')[0]}/dev", None)])
    if not task.holds_out or not data.held_out:
        return Reading(task, train, facts=facts), Reading(task, train, facts=facts)
    return Reading(task, train, held_out=False, facts=facts), Reading(task, train, held_out=True, facts=facts)


def paired(first: Files, second: Files, name: str) -> list[tuple[str, str | None]]:
    """The files of a setting, each with the one beside it."""
    paths, targets = listed(first), listed(second)
    if targets and len(targets) != len(paths):
        raise ConfigError(
            f"{name} and {name}_target are {len(paths)} and {len(targets)} files; name as many of both"
        )
    several = len(paths) > 1
    if several and any(path.startswith(BUILTIN) for path in paths):
        raise ConfigError(f"{name} names a built-in corpus among others; it stands alone")
    return list(zip(paths, targets or repeat(None), strict=False))


def listed(files: Files) -> list[str]:
    return [] if files is None else [files] if isinstance(files, str) else files


def found(files: Files) -> Files:
    """The files that are meant, in a fixed order: patterns and folders become what is there now."""
    paths: list[str] = []
    for name in listed(files):
        place = Path(name)
        if (
            name.startswith(BUILTIN)
            or place.is_file()
            or not (place.is_dir() or any(c in name for c in "*?["))
        ):
            paths.append(name)
            continue
        inside = place.rglob("*") if place.is_dir() else map(Path, glob(name, recursive=True))
        own = sorted(str(path) for path in inside if path.is_file() and not _hidden(path, place))
        if not own:
            raise FileError("there is no file", path=name, remedy="look at the folder or the pattern")
        paths += own
    places = [path if path.startswith(BUILTIN) else os.path.realpath(path) for path in paths]
    twice = [path for path, place in zip(paths, places, strict=True) if places.count(place) > 1]
    if twice:
        raise ConfigError(f"{twice[-1]} is named twice; name every file once")
    return paths[0] if len(paths) == 1 else paths or None


def _hidden(path: Path, folder: Path) -> bool:
    """Is it, or a folder on the way to it, one that a listing leaves out?"""
    inside = path.relative_to(folder) if path.is_relative_to(folder) else Path(path.name)
    return any(part.startswith(".") for part in inside.parts)


def source_of(data: DataSettings, path: str, target: str | None = None, said: Collection[str] = ()) -> Source:
    """Files in the layout of the training data, unless they cannot be laid out so.

    One file is not laid out as two, nor two as one; and where training read lines with a separator, a
    file whose name tells of columns or JSON has none. Numbers of columns are those of one kind of file,
    unless they are ``said`` of this one.
    """
    bare = Source(path, target, encoding=data.encoding)
    if target is not None and data.train_target is None:
        return bare
    ending, trained = inner_ending(path), inner_ending((listed(data.train) or [""])[0])
    if data.separator is not None and ending in TABLES and ending != trained:
        return bare
    columns = data.columns
    if "data.columns" not in said and ENDINGS.get(ending) != ENDINGS.get(trained):
        columns = {
            role: column for role, column in (columns or {}).items() if isinstance(column, str)
        } or None
    one_for_two = target is None and data.train_target is not None
    layout = None if one_for_two and data.format == "parallel" else data.format
    return Source(
        path,
        target,
        columns,
        data.delimiter,
        layout,
        separator=data.separator,
        prefix=data.prefix,
        options=data.format_options if layout is not None else {},
        encoding=data.encoding,
    )


def asked_source(data: DataSettings, path: str, said: Collection[str] = ()) -> Source:
    """A file that a model is asked about: lines, unless its name or what is ``said`` tells of a layout.

    Standard input is UTF-8, whatever the training data are, unless an encoding is said.
    """
    if path == "-" and "data.encoding" not in said:
        data = data.model_copy(update={"encoding": UTF8})
    lines = data.format == "lines" and "data.format" in said
    if not lines and (inner_ending(path) in (*TABLES, *TOKENS) or any(key in LAYOUT for key in said)):
        return replace(source_of(data, path, said=said), asked=True)
    return Source(path, format="lines", encoding=data.encoding, asked=True)


def corpus_of(path: str, task: str | None = None) -> tuple[Any, str]:
    """``builtin:NAME`` or ``builtin:NAME/SPLIT``: the corpus and the split, by default that of training.

    A mistake in the name lists the corpora of the ``task``.
    """
    name, _, split = path.removeprefix(BUILTIN).partition("/")
    if split not in ("", "train", "dev", "test"):
        raise ConfigError(f"{path}: the splits of a built-in corpus are train, dev and test")
    if ":" in name or CORPORA.unknown(name):
        kinds: dict[str, Any] = {one: CORPORA.find(one) for one in CORPORA.names()}
        known = [one for one, kind in kinds.items() if task in (None, kind.task)]
        CORPORA.check(name, known)
        raise ConfigError(f"{path}: a built-in corpus has a plain name; {nearest(name, known)}")
    return CORPORA.find(name)(), split or "train"


def corpus_settings(path: str | None, task: str) -> dict[str, Any]:
    """The settings that suit a built-in corpus, as dotted keys; none for a file."""
    if path is None or not path.startswith(BUILTIN):
        return {}
    corpus, _ = corpus_of(path, task)
    if corpus.task != task:
        raise ConfigError(f"{path} is a corpus for the task {corpus.task!r}, not {task!r}")
    return dict(corpus.settings)


def check_layout(second: Files, said: Iterable[str]) -> None:
    """Two files are read line by line: a setting about the layout of one file would not be heard."""
    wrong = [key for key in said if key in ONE_FILE]
    if second is not None and wrong:
        raise ConfigError(
            f"{listed(second)[0]} is a second file, which {wrong[0]} does not fit; leave out one of them"
        )


def exists(config: Config) -> None:
    """Every file that the settings name is there and can be read more than once; said before any work."""
    data = config.data
    for path in chain(*(listed(getattr(data, key)) for key in FILES)):
        if path == "-" or path.startswith(BUILTIN):
            continue
        if not Path(path).exists():
            raise FileError("there is no such file", path=path, remedy="look at the path")
        if not Path(path).is_file() and not Path(path).is_dir():
            raise FileError("a pipe or a device can be read only once", path=path, remedy="save it as a file")
