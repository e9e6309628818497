"""What a first look at the data decides: the tokens of each text, where the settings leave them open."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from elman.config import VocabularySettings, changed, has_key, lookup
from elman.registry import UNITS
from elman.tasks.defaults import Choice
from elman.text.choosing import Look, Purpose, choose_pieces, choose_unit, looks
from elman.text.fields import TextField
from elman.text.records import Record
from elman.text.units.base import Unit

if TYPE_CHECKING:
    from elman.tasks.base import AnyTask

LABELS = ("label", "tag", "class")  # roles that hold names of things
WORDS = {True: "wordpunct", False: "word", None: "word"}  # by whether a text is raw


def texts_of(task: AnyTask) -> tuple[str, ...]:
    """The roles of a task that are texts, not names of things."""
    return tuple(role for role in task.roles if role not in LABELS)


def purpose_of(task: AnyTask) -> Purpose:
    """What its texts are cut into tokens for."""
    if len(texts_of(task)) > 1:
        return "translate"
    if task.stratum is not None:
        return "label"
    return "model" if len(task.roles) == 1 else "write"


def look_at(task: AnyTask, train: Iterable[Record], dev: Iterable[Record] | None = None) -> dict[str, str]:
    """Settle what tokens are, where the settings leave it open, by a sample of the data; why, by key.

    Without validation data, a part of the training data stands for them.
    """
    choices = TextLook(task).choices(train, dev)
    task.config = changed(task.config, {key: choice.value for key, choice in choices.items()})
    for name, field in task.text_fields.items():
        field.settle(task.config.text.of_field(name))
    return {key: choice.reason for key, choice in choices.items()}


class TextLook:
    """A look at the texts of a task's records, and what it tells for the settings of their fields."""

    def __init__(self, task: AnyTask) -> None:
        self.config, self.purpose = task.config, purpose_of(task)
        self.fields: dict[str, TextField] = {}  # by the roles of their texts; words that are listed are cut
        for role in () if task.listed else texts_of(task):
            found = task.text_fields.get(role, task.text_fields.get(""))
            self.fields |= {} if found is None else {role: found}
        self._looks: dict[str, Look] = {}

    def choices(self, train: Iterable[Record], dev: Iterable[Record] | None) -> dict[str, Choice]:
        """Values for open settings, by key; the data are read only if some are."""
        settings = {role: field.settings for role, field in self.fields.items()}
        if any(
            field.unit is None or _size_open(field, self._kind(role, {})) for role, field in settings.items()
        ):
            found = looks(len(settings), self._rows(train), None if dev is None else self._rows(dev))
            self._looks = dict(zip(settings, found, strict=True))
        units = dict(self._units())
        return units | dict(self._sizes(units)) | dict(self._case(units))

    def _rows(self, records: Iterable[Record]) -> Iterator[tuple[str, ...]]:
        for record in records:
            yield tuple(field.clean(record.fields[role]) for role, field in self.fields.items())

    @property
    def _joint(self) -> bool:
        """Have all fields one vocabulary?"""
        if len(self.fields) == 1:
            return True
        kind = type(self.config)
        shared = has_key(kind, "text.shared") and bool(lookup(self.config, "text.shared"))
        return shared or (has_key(kind, "model.form") and lookup(self.config, "model.form") != "two")

    def _units(self) -> Iterator[tuple[str, Choice]]:
        chosen = {role: self._unit(role) for role, field in self.fields.items() if not field.settings.unit}
        values = {choice.value for choice in chosen.values()}
        if not chosen:
            return
        if len(chosen) == len(self.fields) and (self._joint or len(values) == 1):
            unit = next(iter(values)) if len(values) == 1 else "character" if "character" in values else "bpe"
            yield "text.unit", Choice(unit, _joined({role: one.reason for role, one in chosen.items()}))
        else:
            yield from ((f"text.{role}.unit", choice) for role, choice in chosen.items())

    def _unit(self, role: str) -> Choice:
        settings, look = self.fields[role].settings, self._looks[role]
        if settings.vocabulary:
            letters = all(len(token) == 1 for token in settings.vocabulary)
            return Choice("character" if letters else "word", "since text.vocabulary has such tokens")
        others = [other for name, other in self._looks.items() if name != role]
        chosen = Choice(*choose_unit(look, self.purpose, *others))
        if getattr(settings, "vectors", None) and chosen.value not in WORDS.values():
            return Choice(WORDS[look.raw], "since text.vectors has vectors of words")
        return chosen

    def _sizes(self, units: Mapping[str, Choice]) -> Iterator[tuple[str, Choice]]:
        """How many tokens units learn that learn them."""
        learning = [
            role for role in self.fields if _size_open(self.fields[role].settings, self._kind(role, units))
        ]
        if learning and len(learning) == len(self.fields):  # of one size, for they may become one vocabulary
            yield "text.vocabulary_size", Choice(*choose_pieces([*self._looks.values()]))
        else:
            for role in learning:
                yield f"text.{role}.vocabulary_size", Choice(*choose_pieces([self._looks[role]]))

    def _case(self, units: Mapping[str, Choice]) -> Iterator[tuple[str, Choice]]:
        """A comparator that labels words knows no letters; otherwise the case tells something."""
        if self.config.text.lowercase is not None:
            return
        network = has_key(type(self.config), "model.network") and lookup(self.config, "model.network")
        words = any(self._kind(role, units).grain == "word" for role in self.fields)
        if words and self.purpose == "label" and network not in (False, "rnn"):
            yield "text.lowercase", Choice(True, f"since {network} knows no letters of words")
        else:
            yield "text.lowercase", Choice(False, "since capitals tell something")

    def _kind(self, role: str, units: Mapping[str, Choice]) -> type[Unit]:
        """The unit of a field, as it is set or chosen."""
        chosen = units.get(f"text.{role}.unit") or units.get("text.unit")
        kind: type[Unit] = UNITS.find(
            self.fields[role].settings.unit or (str(chosen.value) if chosen else "word")
        )
        return kind


def _size_open(settings: VocabularySettings, kind: type[Unit]) -> bool:
    return kind.learned and settings.vocabulary_size is None and not settings.vocabulary


def _joined(reasons: Mapping[str, str]) -> str:
    """The reasons of several roles as one."""
    first, *_ = reasons.values()
    return "; ".join([first, *(f"{role}: {one}" for role, one in reasons.items() if one != first)])
