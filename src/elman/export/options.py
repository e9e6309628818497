"""What a user decides about an export, and the contract of a format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from elman.predictor import Predictor

LONGEST = 1000  # tokens of a line, where nothing else is said


@dataclass(frozen=True)
class ExportOptions:
    """How an export is written.

    name: what its files are called, before the ending; it is a name in C and JavaScript, too.
    int8: weights of matrices in 8 bits, with a scale for each row. max_length: the most tokens of a line.
    freestanding: a C file that needs not even a C library, and has no ``main``.
    """

    name: str = "model"
    int8: bool = False
    max_length: int = LONGEST
    freestanding: bool = False


class Answer(NamedTuple):
    """What an export says about one line.

    line: the answer as ``elman predict`` prints it. log_probabilities: of a classifier those of all labels in
    their order, of a tagger those of the tags, of what is written that of the whole.
    """

    line: str
    log_probabilities: tuple[float, ...] = ()


Answering = Callable[[Sequence[str]], list[Answer]]


class Format(Protocol):
    """A module of this package that is a format."""

    def write(self, predictor: Predictor, folder: Path, options: ExportOptions) -> None:
        """Write the files of a model into a folder that is there; what it cannot write is an ExportError.

        It is refused by its name before the first file is written.
        """

    def open_written(self, folder: Path) -> Answering:
        """What answers lines by the files in the folder alone, for the proof."""
