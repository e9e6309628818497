"""Where examples come from: a user's files, a built-in corpus, or a part of the training data held out."""

import hashlib
import zlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from elman.config import Config, DataSettings
from elman.errors import ConfigError, FileError, nearest
from elman.registry import CORPORA
from elman.tasks.base import AnyTask
from elman.text.files import Repairs, file_digest, inner_ending
from elman.text.records import Record, Source

BUILTIN = "builtin:"
MOST = 5000  # examples that are held out: a large file needs no larger part to be judged on
TABLES = (".tsv", ".csv", ".jsonl", ".ndjson", ".json")  # names of files that have no separator
TOKENS = (".conll", ".conllu", ".iob2", ".iob", ".bio")  # names of files with a word a line
ONE_FILE = ("data.columns", "data.delimiter", "data.separator", "data.prefix")
LAYOUT = ("data.format", *ONE_FILE)


@dataclass
class Reading:
    """Examples of a task as text; each time it is gone through, the files are read anew.

    ``part`` is ``"kept"`` or ``"held-out"`` where a share of one file serves as validation data.
    """

    task: AnyTask
    path: str
    target: str | None = None
    part: str | None = None
    repairs: Repairs = field(default_factory=Repairs)

    def __iter__(self) -> Iterator[Record]:
        self.repairs.clear()
        share = self.task.config.data.held_out
        block = self.task.held_out_block
        kept_back = 0
        for number, record in enumerate(self._all()):
            out = self.part is not None and kept_back < MOST and held_out(number, share, block)
            kept_back += out
            if self.part is None or out == (self.part == "held-out"):
                yield record

    def digest(self) -> str:
        """What identifies the data: the SHA-256 of the files, or a corpus and its version."""
        if self.path.startswith(BUILTIN):
            corpus, split = corpus_of(self.path)
            texts = repr(list(corpus.examples(split)))  # generated: the examples are what there is
            return hashlib.sha256(f"{self.path}\n{texts}".encode()).hexdigest()
        digest = file_digest(self.path)
        return digest if self.target is None else f"{digest}+{file_digest(self.target)}"

    def _all(self) -> Iterator[Record]:
        if not self.path.startswith(BUILTIN):
            yield from self.task.read(source_of(self.task.config.data, self.path, self.target), self.repairs)
            return
        corpus, split = corpus_of(self.path)
        if corpus.task != self.task.config.task:
            raise ConfigError(
                f"{self.path} is a corpus for the task {corpus.task!r}, not {self.task.config.task!r}"
            )
        for number, fields in enumerate(corpus.examples(split), 1):
            yield Record(dict(fields), self.path, number)


def held_out(number: int, share: float, block: int) -> bool:
    """Is example ``number`` held out? Blocks are, by a hash; a block of a stream is some lines."""
    return zlib.crc32(str(number // block).encode()) < share * 2**32


def training_data(task: AnyTask) -> tuple[Reading, Reading]:
    """Training and validation data, as the settings name them."""
    data = task.config.data
    if data.train is None:
        raise ConfigError("no training data; name a file with --train, or a corpus with --train builtin:NAME")
    train = Reading(task, data.train, data.train_target)
    if data.dev is not None:
        return train, Reading(task, data.dev, data.dev_target)
    if data.train.startswith(BUILTIN):
        return train, Reading(task, f"{data.train.partition('/')[0]}/dev")
    if not task.holds_out or not data.held_out:
        return train, Reading(task, data.train, data.train_target)
    return (
        Reading(task, data.train, data.train_target, "kept"),
        Reading(task, data.train, data.train_target, "held-out"),
    )


def source_of(data: DataSettings, path: str, target: str | None = None) -> Source:
    """Files in the layout of the training data, unless they cannot be laid out so.

    One file is not laid out as two, nor two as one; and where training read lines with a separator, a
    file whose name tells of columns or JSON has none.
    """
    bare = Source(path, target, encoding=data.encoding)
    if target is not None and data.train_target is None:
        return bare
    ending = inner_ending(path)
    if data.separator is not None and ending in TABLES and ending != inner_ending(data.train or ""):
        return bare
    one_for_two = target is None and data.train_target is not None
    layout = None if one_for_two and data.format == "parallel" else data.format
    return Source(
        path,
        target,
        data.columns,
        data.delimiter,
        layout,
        separator=data.separator,
        prefix=data.prefix,
        options=data.format_options if layout is not None else {},
        encoding=data.encoding,
    )


def asked_source(data: DataSettings, path: str, said: Collection[str] = ()) -> Source:
    """A file that a model is asked about: lines, unless its name or what is ``said`` tells of a layout."""
    lines = data.format == "lines" and "data.format" in said
    if not lines and (inner_ending(path) in (*TABLES, *TOKENS) or any(key in LAYOUT for key in said)):
        return replace(source_of(data, path), asked=True)
    return Source(path, format="lines", encoding=data.encoding, asked=True)


def corpus_of(path: str) -> tuple[Any, str]:
    """``builtin:NAME`` or ``builtin:NAME/SPLIT``: the corpus and the split, by default that of training."""
    name, _, split = path.removeprefix(BUILTIN).partition("/")
    if split not in ("", "train", "dev", "test"):
        raise ConfigError(f"{path}: the splits of a built-in corpus are train, dev and test")
    if ":" in name:
        raise ConfigError(f"{path}: a built-in corpus has a plain name; {nearest(name, CORPORA.names())}")
    return CORPORA.find(name)(), split or "train"


def corpus_settings(path: str | None, task: str) -> dict[str, Any]:
    """The settings that suit a built-in corpus, as dotted keys; none for a file."""
    if path is None or not path.startswith(BUILTIN):
        return {}
    corpus, _ = corpus_of(path)
    if corpus.task != task:
        raise ConfigError(f"{path} is a corpus for the task {corpus.task!r}, not {task!r}")
    return dict(corpus.settings)


def check_layout(second: str | None, said: Iterable[str]) -> None:
    """Two files are read line by line: a setting about the layout of one file would not be heard."""
    wrong = [key for key in said if key in ONE_FILE]
    if second is not None and wrong:
        raise ConfigError(f"{second} is a second file, which {wrong[0]} does not fit; leave out one of them")


def exists(config: Config) -> None:
    """Every file that the settings name is there and can be read more than once; said before any work."""
    data = config.data
    for path in (data.train, data.train_target, data.dev, data.dev_target):
        if path is None or path == "-" or path.startswith(BUILTIN):
            continue
        if not Path(path).exists():
            raise FileError("there is no such file", path=path, remedy="look at the path")
        if not Path(path).is_file() and not Path(path).is_dir():
            raise FileError("a pipe or a device can be read only once", path=path, remedy="save it as a file")
