"""What goes wrong for a user, as one small tree; every error has a number and says what to do."""

import difflib
from collections.abc import Iterable
from typing import ClassVar


class ElmanError(Exception):
    """The root: catch this to catch every mistake that Elman explains."""

    number: ClassVar[str] = "E100"
    exit_code: ClassVar[int] = 2

    def __init_subclass__(cls, number: str | None = None, exit_code: int | None = None) -> None:
        cls.number, cls.exit_code = number or cls.number, exit_code or cls.exit_code

    def __str__(self) -> str:
        lines = str(self.args[0] if self.args else "").split("\n")
        return "\n".join([f"{self.number}: {_escaped(lines[0])}", *map(_escaped, lines[1:])])


class ArgumentError(ElmanError, ValueError, number="E101"):
    """An argument has a value that no rule allows."""


class ShapeError(ArgumentError, number="E102"):
    """A tensor has the wrong shape, type or place."""


class UnknownNameError(ElmanError, KeyError, number="E103"):
    """A name is not among the known ones."""


class StreamError(ArgumentError, number="E104"):
    """A model cannot read a text as it comes."""


class EquationError(ElmanError, TypeError, number="E201"):
    """A cell's equations cannot be read."""


class BackendError(ElmanError, RuntimeError, number="E301"):
    """The backend asked for cannot serve."""


class DataError(ElmanError, ValueError, number="E401", exit_code=3):
    """A file holds what cannot be read: its place, the text that stands there and what to do.

    >>> print(DataError("3 columns instead of 2", path="a.tsv", line=7, text="x y z", remedy="name two"))
    a.tsv:7: E401: 3 columns instead of 2: 'x y z'; name two
    """

    def __init__(
        self,
        problem: str,
        *,
        path: object = None,
        line: int | None = None,
        column: int | None = None,
        text: str | None = None,
        remedy: str | None = None,
    ) -> None:
        super().__init__(problem)
        self.problem, self.path, self.line, self.column = problem, path, line, column
        self.text, self.remedy = text, remedy

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.path, self.line, self.column) if part is not None)
        shown = "" if self.text is None else f": {shortened(self.text)!r}"
        remedy = "" if self.remedy is None else f"; {self.remedy}"
        said = f"{self.number}: {shortened(self.problem, 500)}{shown}{remedy}"
        return _escaped(f"{place}{': ' if place else ''}{said}")


class FileError(DataError, number="E402"):
    """A file cannot be opened, or ends too early."""


class EncodingError(DataError, number="E403"):
    """Bytes that are not UTF-8."""


class NulError(DataError, number="E404"):
    """A NUL character."""


class ColumnError(DataError, number="E405"):
    """A line has too few or too many columns."""


class EmptyError(DataError, number="E406"):
    """A side, a field or a whole file is empty."""


class LabelError(DataError, number="E407"):
    """A label that training never saw."""


class UnbalancedError(DataError, number="E408"):
    """Two sides that must agree in length do not."""


class SyntaxProblem(DataError, number="E409"):
    """A line that its format (JSON, CSV, CoNLL-U) does not allow."""


class VectorsError(DataError, number="E410"):
    """A line of pretrained vectors."""


class OneLabelError(DataError, number="E411"):
    """All labels of the training data are the same."""


class ConfigError(ElmanError, ValueError, number="E501"):
    """Settings that cannot be used; all mistakes at once."""


class DivergedError(ElmanError, ArithmeticError, number="E601", exit_code=4):
    """Training ran into NaN or infinity."""


class WorkersError(ElmanError, RuntimeError, number="E602", exit_code=7):
    """Several workers cannot share a training, or were lost again and again."""


class RunError(ElmanError, RuntimeError, number="E701", exit_code=5):
    """A run folder that is damaged."""


class RunExistsError(RunError, number="E702", exit_code=2):
    """A run folder that is already there, or is not there."""


class UntrustedCodeError(RunError, number="E703", exit_code=2):
    """A run names code that its user has not trusted."""


class ExportError(ElmanError, RuntimeError, number="E801", exit_code=6):
    """A model, or a part of it, that cannot be exported, or an export that does not answer as its model."""


class BackendNotice(UserWarning):
    """A slower path is taken, and why."""


class TrustNotice(UserWarning):
    """What was trusted cannot be remembered, or the record of it cannot be relied on."""


class FontNotice(UserWarning):
    """Characters that no installed font has are shown by their code points."""


MANY = 30  # names that a message lists
COMPARED = 2000  # names that are looked through for a near one; among more, only for another case


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: the near ones, or all of them.

    >>> nearest("ltsm", ["lstm", "gru"])
    "did you mean 'lstm'? Known: gru, lstm"
    """
    known, lower = sorted(known), name.lower()
    close = [one for one in known if one.lower() == lower]
    if not close and len(known) <= COMPARED:
        close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {shortened(close[0])!r}? " if close else ""
    listed = [shortened(one) for one in known[:MANY]]
    if len(known) > MANY:
        listed.append(f"… {len(known):,} in all")
    return f"{hint}Known: {', '.join(listed) or 'none'}"


def is_text(text: str) -> bool:
    """Whether it can be written as UTF-8; half of a surrogate pair cannot.

    >>> is_text("é"), is_text("\\ud800")
    (True, False)
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def shortened(text: str, limit: int = 60) -> str:
    """The text, or the beginning of a long one."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _escaped(text: str) -> str:
    """What steers a terminal or breaks a line, as Python writes it; all else stays."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
