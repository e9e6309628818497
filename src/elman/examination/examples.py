"""An example as an examination sees it, whatever the task: texts, labels, a question and its answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from elman.config import has_key, lookup
from elman.examination.findings import Finding
from elman.tasks.base import AnyTask
from elman.tasks.looking import LABELS, texts_of
from elman.text.fields import TextField
from elman.text.records import Record


class Example(NamedTuple):
    """The texts of an example by their roles, their tokens, its labels; what is asked, and what is right."""

    record: Record
    texts: Mapping[str, str]
    tokens: Mapping[str, list[str]]
    labels: list[str]
    question: str
    answer: str

    @property
    def pair(self) -> str:
        return f"{self.question}\n{self.answer}"


@dataclass(frozen=True)
class View:
    """How the records of a task become examples.

    texts: the roles that are texts. label: the role of labels. decided: labels are what a model decides.
    listed: a record has words, each with a label.
    """

    texts: tuple[str, ...]
    label: str | None
    decided: bool
    listed: bool
    fields: Mapping[str, TextField]
    features: str | None = None  # of class to sequence: what a class is

    @classmethod
    def of(cls, task: AnyTask) -> View:
        label = next((role for role in task.roles if role in LABELS), None)
        kind = str(lookup(task.config, "text.classes")) if has_key(task.Settings, "text.classes") else None
        return cls(texts_of(task), label, task.stratum is not None, task.listed, task.text_fields, kind)

    @property
    def paired(self) -> bool:
        """Is a text asked for another one?"""
        return len(self.texts) == 2

    def noun(self, role: str) -> str:
        """What the texts of a role are called: words in a row are a sentence."""
        return "sentence" if self.listed else role

    def by_words(self, role: str) -> bool:
        """Are the tokens of a text what white space separates?"""
        field = self._field(role)
        return self.listed or field is None or field.unit.grain == "word"

    def splits(self, role: str) -> bool:
        """Does the unit cut at more than spaces?"""
        field = self._field(role)
        return field is not None and field.unit_name != "word"

    def unit_noun(self, role: str) -> str:
        """What lengths are counted in."""
        field = self._field(role)
        return "words" if self.by_words(role) or (field and field.unit.learned) else "characters"

    def unit_key(self, role: str) -> str:
        """The setting that says what a token of a text is."""
        return f"text.{role}.unit" if self.paired else "text.unit"

    def example(self, record: Record) -> Example:
        own = {role: record.fields[role] for role in self.texts}
        if self.listed:
            tokens = own
            texts = {role: " ".join(words) for role, words in own.items()}
        else:
            texts = own
            tokens = {role: self._tokens(role, text) for role, text in own.items()}
        labels = self._labels(record)
        question, *more = texts.values()
        answer = "\t".join([*labels, *more])
        if self.label is not None and not self.decided:  # a class may well have many sequences
            question, answer = f"{answer}\t{question}", ""
        return Example(record, texts, tokens, labels, question, answer)

    def _labels(self, record: Record) -> list[str]:
        if self.label is None or self.features == "vector":
            return []
        value = record.fields[self.label]
        if isinstance(value, str):
            return value.split() if self.features == "features" else [value]
        return list(value)

    def _tokens(self, role: str, text: str) -> list[str]:
        """As training cuts it; a unit that is still to be learned begins with words."""
        field = self._field(role)
        if field is None or field.unit.learned:
            return text.split()
        return field.split(text)

    def _field(self, role: str) -> TextField | None:
        return self.fields.get(role, self.fields.get(""))


class Check:
    """One thing that is looked for: it sees every example once, and then says what it found."""

    def see(self, example: Example, *, dev: bool) -> None:
        """One more example, of the training or of the validation data."""

    def findings(self) -> Iterator[Finding]:
        """What was found, when all has been seen."""
        yield from ()
