"""From the files of a user to encoded examples, with vocabularies built and open settings filled."""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from elman.config import Config, changed, given_keys, lookup, to_toml
from elman.errors import EmptyError, LabelError, RunError
from elman.storage.files import explained, remove
from elman.tasks.base import AnyTask
from elman.tasks.examples import Examples, encoded, opened, unseen_note
from elman.tasks.looking import look_at
from elman.tasks.statistics import Json, Statistics
from elman.tasks.words import WordTask
from elman.training.budget import Speed
from elman.training.folder import SETTINGS, seal
from elman.training.learned import encoding, read_json, save_learned
from elman.training.origin import Origin
from elman.training.parts import SEEN, encoded_in_parts
from elman.training.session import write_text
from elman.training.sources import Reading, training_data

FORMAT = 1
PARTS = "parts"  # of a cache: what was made of parts of large data


@dataclass
class Prepared:
    """A task that knows its data, the data, and what is known about them.

    statistics: of the training data, where they were read anew; notes for the user are among them.
    about: by part, where its examples come from, as ``data.json`` has it.
    origins: runs whose weights fresh ones start from; taken: what was taken, once it is.
    chosen: settings that the user left open, and their values. speed: of the training, where it was measured.
    """

    task: AnyTask
    train: Examples
    dev: Examples
    statistics: Statistics
    about: dict[str, Any] = field(default_factory=dict)
    origins: Sequence[Origin] = ()
    taken: Sequence[str] = ()
    chosen: dict[str, object] = field(default_factory=dict)
    speed: Speed | None = None


def prepare(
    task: AnyTask,
    cache: Path | None = None,
    origins: Sequence[Origin] = (),
    say: Callable[[str], None] | None = None,
) -> Prepared:
    """Read the data: vocabularies first, then the examples as numbers; open settings are filled.

    Vocabularies keep the tokens of the ``origins``. ``say`` is told how far it is with large data.
    """
    train, dev = training_data(task, None if cache is None else cache / PARTS, say)
    if dev.held_out and task.config.data.stratified is None:  # open in runs of earlier versions
        task.config = changed(task.config, {"data.stratified": True})
    given = task.config
    reasons = looked_at(task, train, dev)
    for origin in origins:
        keep_tokens(task, origin.task)
    statistics = task.build_vocabularies(train)
    statistics.reasons |= reasons
    task.fill_defaults(statistics)
    prepared = _encoded(task, train, dev, cache, statistics)
    prepared.origins, prepared.chosen = origins, choices_after(given, task.config)
    return prepared


def looked_at(task: AnyTask, train: Reading, dev: Reading) -> dict[str, str]:
    """Let a task choose what tokens are; the reasons. What is held out is looked at with the rest."""
    together = train.held_out is not None or dev.files == train.files
    return look_at(task, replace(train, held_out=None), None if together else dev)


def choices_after(given: Config, filled: Config) -> dict[str, object]:
    """The settings that were filled, by their keys."""
    pairs = ((key, lookup(filled, key)) for key in given_keys(filled))
    return {key: value for key, value in pairs if value != lookup(given, key)}


def keep_tokens(task: AnyTask, other: AnyTask) -> None:
    """Let vocabularies that are to be built have the tokens of another task's, whose weights are taken.

    Of another kind of task, the field that is read gives its tokens to the one that is read here.
    """
    if type(other) is type(task):
        pairs = [(one, other.text_fields[name]) for name, one in task.text_fields.items()]
    else:
        first = ([*one.text_fields.values()][:1] for one in (task, other))
        pairs = [*zip(*first, strict=False)]
    for ours, theirs in pairs:
        ours.keep(theirs)
    if isinstance(task, WordTask) and isinstance(other, WordTask):
        task.words.keep_letters(other.words)


def prepare_run(
    run: Path,
    task: AnyTask,
    *,
    fresh: bool,
    origins: Sequence[Origin] = (),
    say: Callable[[str], None] | None = None,
) -> Prepared:
    """What a run needs before training: all from the data if it is fresh, else from its own files too."""
    if fresh:
        # Fresh weights take from the data what no file of the run keeps: counts, notes, pretrained vectors.
        # Of large data the parts are kept, which know what they are of, and what was seen in them.
        for place in (run / "cache").glob("*"):
            if place.name != PARTS and not (place / SEEN).exists():
                remove(place)
        prepared = prepare(task, run / "cache", origins, say)
        with suppress(RunError):  # of a run that begins again, some settings were chosen before
            known = {key: why for key, why in _reasons(run).items() if key not in prepared.chosen}
            prepared.statistics.reasons = known | prepared.statistics.reasons
        return prepared
    train, dev = training_data(task, run / "cache" / PARTS, say)
    known = read_json(run / "data.json")
    if not all(isinstance(known.get(name), dict) and "sha256" in known[name] for name in ("train", "dev")):
        raise RunError(f"{run / 'data.json'} lacks a part; restore the file or train again")
    prepared = _encoded(task, train, dev, run / "cache", Statistics(reasons=_reasons(run)), known)
    forget_parts(run)
    return prepared


def has_parts(run: Path) -> bool:
    return (run / "cache" / PARTS).exists()


def forget_parts(run: Path) -> None:
    """What was made of parts is needed no longer than until the first checkpoint."""
    with explained(run / "cache"):
        remove(run / "cache" / PARTS)


def _reasons(run: Path) -> dict[str, str]:
    """Why settings of a run were chosen as they are; runs of earlier versions kept none."""
    known = read_json(run / "data.json").get("reasons")
    return dict(known) if isinstance(known, dict) else {}


def keep_prepared(run: Path, prepared: Prepared) -> None:
    """Write down what was read and chosen, so that training can go on from here."""
    with explained(run / "vocabulary.json"):
        save_learned(prepared.task, run)
    about = prepared.about | {"reasons": prepared.statistics.reasons}
    write_text(run / "data.json", json.dumps(about, indent=1, ensure_ascii=False) + "\n")
    write_text(run / SETTINGS, seal(to_toml(prepared.task.config)))  # the last: it says that all is chosen


def _encoded(
    task: AnyTask,
    train: Reading,
    dev: Reading,
    cache: Path | None,
    statistics: Statistics,
    known: Json | None = None,
) -> Prepared:
    parts: dict[str, Examples] = {}
    about: dict[str, Any] = {"format": FORMAT}
    how, notes = encoding(task), statistics.notes
    digests: dict[str, str] = {}  # both parts may come from the same files
    for name, reading in (("train", train), ("dev", dev)):
        expected = None if known is None else known[name]
        files = repr(reading.files)
        if expected is None or not reading.builtin:  # a sound cache stands for a corpus
            digests[files] = digests.get(files) or reading.digest()
            _check_same(reading, digests[files], expected)
        key = expected["sha256"] if expected else digests[files]
        folder = None if cache is None else cache / name
        with explained(folder or Path(reading.path)):
            for place in (cache, folder):
                if place is not None and not place.is_dir():
                    remove(place)
            full_key = f"{FORMAT} {name} {key} {how}"
            examples = None if expected is None or folder is None else opened(task, folder, full_key)
            if examples is None and expected is not None:
                _tell(reading, notes, folder, expected)
            if examples is None and folder is not None:
                examples = encoded_in_parts(task, reading, folder, full_key)
            if examples is None:
                examples = encoded(task, reading, folder, full_key)
        notes += [note for note in reading.repairs.notes if note not in notes]
        if not len(examples) and reading.held_out:
            notes.append("too few examples to hold some out: validation is on the training data")
            examples = parts["train"]
        if expected is None and (unseen := examples.unseen):
            if unseen.total() == len(examples.store.fields[task.roles[-1]].values):
                raise no_known_label(reading)
            notes.append(unseen_note(unseen))
        if not len(examples):
            raise EmptyError("no examples", path=reading.path, remedy="give a file that has some")
        parts[name] = examples
        about[name] = expected or {
            "path": reading.path,
            "target": reading.files[0][1],
            "part": reading.part,
            "sha256": key,
            "examples": len(examples),
            "repairs": dict(reading.repairs),
            **({"files": dict(reading.counts)} if len(reading.files) > 1 else {}),
        }
    return Prepared(task, parts["train"], parts["dev"], statistics, about)


def no_known_label(reading: Reading) -> LabelError:
    """An error to raise where validation data have other labels than training, and no others."""
    remedy = "look whether the right column was read in both"
    return LabelError("no label is one of the training data", path=reading.path, remedy=remedy)


def _tell(reading: Reading, notes: list[str], folder: Path | None, expected: Json) -> None:
    """The cache of a run that is continued was not sound."""
    notes.append(f"{folder} is missing, damaged or not of this run: it is made again")
    if reading.builtin:
        _check_same(reading, reading.digest(), expected)


def _check_same(reading: Reading, digest: str, expected: Json | None) -> None:
    if expected is not None and digest != expected["sha256"]:
        raise RunError(
            f"{reading.path} has changed since the run began, so it cannot be continued; restore the file"
        )
