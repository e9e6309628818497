"""The examination itself: the pass over the data that chooses the defaults, watched by all checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from elman.config import Config
from elman.errors import ElmanError
from elman.examination.examples import Check, View
from elman.examination.findings import (
    SEVERITIES,
    Finding,
    Json,
    counted,
    graded,
    note,
    refused,
    sentence_of,
)
from elman.examination.labels import Labels, Sentences
from elman.examination.layout import described, other_way_round
from elman.examination.pairs import Pairs
from elman.examination.repeats import Repeats
from elman.examination.spans import Spans
from elman.examination.texts import Texts
from elman.examination.words import Words
from elman.tasks.base import AnyTask
from elman.text.records import Record
from elman.training.preparing import looked_at, no_known_label
from elman.training.settings import make_task
from elman.training.sources import Reading, training_data

FEW = 50  # examples below which little can be learned, or told


@dataclass
class PartRead:
    """What was read of the training or of the validation data."""

    name: str
    path: str
    layout: str
    examples: int
    files: dict[str, int]
    repairs: dict[str, int]

    def as_json(self) -> dict[str, Json]:
        return {
            "path": self.path,
            "layout": self.layout,
            "examples": self.examples,
            "files": self.files,
            "repairs": self.repairs,
        }


@dataclass
class Examination:
    """All that is known of the data: what was read, numbers about it, and the findings, the worst first.

    chosen: the settings that training would choose, where it came so far; reasons: why, by key.
    """

    task: str
    parts: list[PartRead] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    texts: dict[str, Texts] = field(default_factory=dict)
    words: dict[str, Words] = field(default_factory=dict)
    labels: Labels | None = None
    spans: Spans | None = None
    notes: list[str] = field(default_factory=list)
    chosen: dict[str, Json] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    held_out: bool = False

    @property
    def exit_code(self) -> int:
        """0: nothing, or notes; 1: warnings; otherwise what ``elman train`` would end with."""
        return max((one.exit_code for one in self.findings), default=0)

    @property
    def scheme(self) -> str | None:
        """How tags encode spans, where they do."""
        return None if self.spans is None else self.spans.scheme

    def as_json(self) -> dict[str, Json]:
        labels = self.labels
        return {
            "task": self.task,
            "exit_code": self.exit_code,
            "read": {one.name: one.as_json() for one in self.parts},
            "texts": {role: one.as_json() | self.words[role].as_json() for role, one in self.texts.items()},
            "labels": None if labels is None else dict(labels.train.most_common()),
            "scheme": self.scheme,
            "chosen": self.chosen,
            "reasons": self.reasons,
            "findings": [one.as_json() for one in self.findings],
        }


class Observed(Iterable[Record]):
    """The records of a reading; the first time that they are gone through, all checks see them."""

    def __init__(self, reading: Reading, view: View, checks: list[Check], *, dev: bool) -> None:
        self.reading, self.view, self.checks, self.dev = reading, view, checks, dev
        self.fresh = True

    def __iter__(self) -> Iterator[Record]:
        if not self.fresh:
            yield from self.reading
            return
        self.fresh = False
        for record in self.reading:
            example = self.view.example(record)
            for check in self.checks:
                check.see(example, dev=self.dev)
            yield record


def examine(config: Config) -> Examination:
    """Read the data of these settings as training would, and say what is found.

    What training would refuse is a finding; the other findings are about what was read before it.
    """
    done = Examination(config.task)
    try:
        task = make_task(config)
        train, dev = training_data(task)
    except ElmanError as error:
        done.findings.append(refused(error))
        return done
    done.held_out = bool(dev.held_out)
    with suppress(ElmanError):  # which reading all of the data will tell
        done.reasons = looked_at(task, train, dev)
    if train.held_out is not None or dev.files == train.files:  # one file: all of it is looked at
        train, dev = replace(train, held_out=None), replace(dev, files=())
    view = View.of(task)
    done.texts = {role: Texts(view, role) for role in view.texts}
    done.words = {role: Words(view, role) for role in view.texts}
    if view.label is not None:
        done.labels = Labels(view, lambda: other_way_round(train))
    if view.listed:
        done.spans = Spans(view)
    checks = [*_checks(done, view)]
    read_train(done, task, Observed(train, view, checks, dev=False), config)
    if dev.files:
        read_dev(done, task, Observed(dev, view, checks, dev=True))
    turned = done.labels is not None and done.labels.turned
    for check in checks:
        if not turned or check is done.labels:  # of columns that were mistaken nothing else is worth saying
            done.findings += check.findings()
    done.findings.sort(key=lambda one: SEVERITIES.index(one.severity))
    return done


def _checks(done: Examination, view: View) -> Iterator[Check]:
    """All that is looked for, in the order in which it is told."""
    if done.labels is not None:
        yield done.labels
    if done.spans is not None:
        yield done.spans
        yield Sentences(view)
    yield Repeats(view)
    if view.paired:
        yield Pairs(view)
    yield from done.texts.values()
    yield from done.words.values()


def read_train(done: Examination, task: AnyTask, records: Observed, before: Config) -> None:
    """The first pass of training: vocabularies, and the settings that were left open before."""
    reading = records.reading
    try:
        statistics = task.build_vocabularies(records)
        task.fill_defaults(statistics)
        done.notes, done.reasons = statistics.notes, done.reasons | statistics.reasons
        done.chosen = dict(_differences(before.model_dump(), task.config.model_dump()))
    except ElmanError as error:
        done.findings.append(refused(error))
    count = reading.counts.total()
    done.parts.append(_part("train", reading))
    done.findings += repaired(reading)
    view = records.view
    if 0 < count < FEW and (view.decided or view.paired):
        said = f"{counted(count, 'example')}: what is found in so few may be chance."
        done.findings.append(note("few", said, "Give more examples, if there are any.", count))


def read_dev(done: Examination, task: AnyTask, records: Observed) -> None:
    """The validation data as numbers, if the training data could be read."""
    reading, labels = records.reading, done.labels
    known = not any(one.severity == "error" for one in done.findings)
    try:
        for _ in task.encode(records, task.lexicon()) if known else records:
            pass
        if known and labels is not None and labels.dev and not labels.dev.keys() & labels.train.keys():
            raise no_known_label(reading)
    except ElmanError as error:
        done.findings.append(refused(error))
    done.parts.append(_part("dev", reading))
    done.findings += repaired(reading)


def repaired(reading: Reading) -> Iterator[Finding]:
    """What the readers put right, and what they took for granted."""
    put_right = {kind: count for kind, count in sorted(reading.repairs.items()) if kind not in USUAL}
    if put_right:
        told = "; ".join(f"{kind}, {count:,} time{'s' * (count != 1)}" for kind, count in put_right.items())
        remedy = "Nothing needs to be done: every command reads it so."
        yield note("repaired", f"{reading.path}: {told}.", remedy, sum(put_right.values()))
    for sentence, kind in reading.repairs.notes.items():
        said, _, remedy = sentence.rpartition("; ")
        serious = kind in ("suspicious-header", "quotes")
        code = "header" if kind == "suspicious-header" else kind
        yield graded(serious, code, f"{said}.", sentence_of(remedy))


USUAL = ("header line skipped", "comment line skipped", "multi-word token skipped", "empty node skipped")


def _part(name: str, reading: Reading) -> PartRead:
    counts: Counter[str] = reading.counts
    files = dict(counts) if len(reading.files) > 1 else {}
    layout = described(reading)
    return PartRead(name, reading.path, layout, counts.total(), files, dict(reading.repairs))


def _differences(
    before: Mapping[str, Json], after: Mapping[str, Json], prefix: str = ""
) -> Iterator[tuple[str, Json]]:
    """The settings that have another value now, by dotted key."""
    for key, value in after.items():
        old = before.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            yield from _differences(old, value, f"{prefix}{key}.")
        elif value != old:
            yield f"{prefix}{key}", value
