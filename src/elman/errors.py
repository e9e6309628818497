"""What goes wrong for a user, as one small tree; every error has a number and says what to do.

ElmanError
├── ArgumentError (ValueError)       E101  an argument has a value that no rule allows
│   └── ShapeError                   E102  a tensor has the wrong shape, type or place
├── UnknownNameError (KeyError)      E103  a name is not among the known ones
├── EquationError (TypeError)        E201  a cell's equations cannot be read
└── BackendError (RuntimeError)      E301  the backend asked for cannot serve
BackendNotice (UserWarning)                said once when a slower path is taken
"""

import difflib
from collections.abc import Iterable
from typing import ClassVar


class ElmanError(Exception):
    """The root: catch this to catch every mistake that Elman explains."""

    number: ClassVar[str] = "E100"

    def __str__(self) -> str:
        return f"{self.number}: {self.args[0] if self.args else ''}"


class ArgumentError(ElmanError, ValueError):
    number = "E101"


class ShapeError(ArgumentError):
    number = "E102"


class UnknownNameError(ElmanError, KeyError):
    number = "E103"


class EquationError(ElmanError, TypeError):
    number = "E201"


class BackendError(ElmanError, RuntimeError):
    number = "E301"


class BackendNotice(UserWarning):
    """A slower path is taken, and why."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: the near ones, or all of them.

    >>> nearest("ltsm", ["lstm", "gru"])
    "did you mean 'lstm'? Known: gru, lstm"
    """
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}Known: {', '.join(known) or 'none'}"
