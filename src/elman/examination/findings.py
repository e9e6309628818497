"""What an examination finds: a typed value with its severity, its places and the remedy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from elman.errors import DataError, ElmanError, shortened
from elman.text.records import Record

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
SHOWN = 3  # places that a finding names
EXCERPT = 60  # characters of a text that are shown beside its place

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"


class Place(NamedTuple):
    """Where something stands, and the beginning of what stands there."""

    path: str
    line: int | None
    excerpt: str = ""

    @classmethod
    def of(cls, record: Record, role: str | None = None, token: int | None = None) -> Place:
        """The place of a record, of one of its fields, or of a token in it.

        >>> Place.of(Record({"word": ["a", "b"], "tag": ["O", "I-x"]}, "a.conll", 4, lines=(4, 5)), "tag", 1)
        Place(path='a.conll', line=5, excerpt='I-x')
        """
        where = record.error(DataError, "", field=role, token=token)
        return cls(str(where.path), where.line, shortened(where.text or "", EXCERPT))

    def __str__(self) -> str:
        place = self.path if self.line is None else f"{self.path}:{self.line}"
        return f"{place}  {printable(self.excerpt)}".rstrip()


@dataclass(frozen=True)
class Finding:
    """One thing that was found; a word for scripts, a sentence for people, and what to do about it.

    count: the number of cases, of which ``places`` has the first.
    exit_code: what the program ends with because of it, if nothing worse is found.
    """

    severity: Severity
    code: str
    sentence: str
    remedy: str
    count: int = 1
    places: tuple[Place, ...] = ()
    exit_code: int = 0

    def as_json(self) -> dict[str, Json]:
        return {
            "severity": self.severity,
            "code": self.code,
            "sentence": self.sentence,
            "remedy": self.remedy,
            "count": self.count,
            "places": [one._asdict() for one in self.places],
        }


def warning(code: str, sentence: str, remedy: str, cases: Cases | int = 1) -> Finding:
    return _finding("warning", code, sentence, remedy, cases, 1)


def note(code: str, sentence: str, remedy: str, cases: Cases | int = 1) -> Finding:
    return _finding("note", code, sentence, remedy, cases, 0)


def graded(serious: bool, code: str, sentence: str, remedy: str, cases: Cases | int = 1) -> Finding:
    """A warning where it is serious, otherwise a note."""
    return (warning if serious else note)(code, sentence, remedy, cases)


def refused(error: ElmanError) -> Finding:
    """What ``elman train`` would stop at, with its message; the code word is the number of the error."""
    places: tuple[Place, ...] = ()
    remedy = "see the message"
    if isinstance(error, DataError):
        remedy = error.remedy or remedy
        if error.path is not None:
            places = (Place(str(error.path), error.line, shortened(error.text or "", EXCERPT)),)
    return Finding("error", error.number, str(error), sentence_of(remedy), 1, places, error.exit_code)


def _finding(
    severity: Severity, code: str, sentence: str, remedy: str, cases: Cases | int, exit_code: int
) -> Finding:
    count, places = (cases, ()) if isinstance(cases, int) else (cases.count, tuple(cases.places))
    return Finding(severity, code, sentence, remedy, count, places, exit_code)


@dataclass
class Cases:
    """How often something was met, and where it was met first."""

    count: int = 0
    places: list[Place] = field(default_factory=list)

    def add(
        self, record: Record, role: str | None = None, token: int | None = None, *, said: str | None = None
    ) -> None:
        """One more case; ``said`` stands where otherwise the text would."""
        self.count += 1
        if len(self.places) < SHOWN:
            place = Place.of(record, role, token)
            self.places.append(
                place if said is None else place._replace(excerpt=shortened(said, EXCERPT * 2))
            )


def counted(number: int, thing: str, things: str | None = None) -> str:
    """
    >>> counted(1, "text"), counted(3000, "text"), counted(2, "class", "classes")
    ('1 text', '3,000 texts', '2 classes')
    """
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"


def share(part: int, whole: int) -> str:
    """A share in per cent, as exactly as people read it.

    >>> share(1, 3), share(1, 3000), share(0, 5), share(1, 10**6)
    ('33 %', '0.033 %', '0 %', 'less than 0.01 %')
    """
    value = 100 * part / max(1, whole)
    if part and value < 0.01:
        return "less than 0.01 %"
    return f"{value:.0f} %" if value >= 10 or not part else f"{value:.2g} %"


def some_of(names: list[str], most: int = 5) -> str:
    """A few names, and how many more there are.

    >>> some_of(["a", "b", "c"], most=2)
    "'a', 'b' and 1 more"
    """
    shown = ", ".join(repr(shortened(name, 40)) for name in names[:most])
    return f"{shown} and {len(names) - most:,} more" if len(names) > most else shown


def sentence_of(text: str) -> str:
    """A remedy of an error, which ends a line, as a sentence."""
    text = text[:1].upper() + text[1:] if text[:1].isalpha() and not text.startswith("elman") else text
    return text if text.endswith((".", "!", "?")) else f"{text}."


def printable(text: str) -> str:
    """What steers a terminal or breaks a line, as Python writes it."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
