"""The contract of a unit: a text is cut into tokens and put together again."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal

from elman.errors import RunError
from elman.registry import UNITS, construct

Grain = Literal["word", "piece", "character"]
PIECES = 8_000  # tokens that a unit learns where nothing else is said


class Unit(ABC):
    """Cuts a text into tokens and puts it together again.

    A class writes ``cut`` and ``join``. ``lowercase`` is applied before cutting. ``join`` shows a token that
    no text gives, such as a marker, as it is spelt.

    grain: how large a token is, which decides what suits a model of them.
    counted: whether people count by it; error rates of others count words.
    learned: it learns its tokens from the training texts, and keeps them in the run.

    >>> from elman.text.units.word import Word
    >>> Word(lowercase=True).split("The  cat"), Word().join(["the", "cat"])
    (['the', 'cat'], 'the cat')
    """

    grain: ClassVar[Grain] = "word"
    counted: ClassVar[bool] = True
    learned: ClassVar[bool] = False

    def __init__(self, *, lowercase: bool = False) -> None:
        self.lowercase = lowercase

    def split(self, text: str) -> list[str]:
        return self.cut(text.lower() if self.lowercase else text)

    @abstractmethod
    def cut(self, text: str) -> list[str]:
        """The tokens of a text, whose case is as it should be."""

    @abstractmethod
    def join(self, tokens: Sequence[str]) -> str:
        """The text that tokens stand for."""

    def alphabet(self) -> list[str]:
        """Tokens that a vocabulary must have whatever their counts, for then nothing is unknown."""
        return []

    def learn(self, texts: Iterable[str], size: int) -> None:
        """Learn at most so many tokens from texts, whose case is as it should be."""
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        """What was learned, as JSON."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take back what ``state`` gave; anything else is an error."""
        raise NotImplementedError


def empty_unit(name: str, *, lowercase: bool, options: Mapping[str, Any] | None = None) -> Unit:
    """A unit by its name, which has learned nothing yet.

    >>> empty_unit("word", lowercase=True).split("The cat  sat.")
    ['the', 'cat', 'sat.']
    """
    given = {"lowercase": lowercase, **(options or {})}
    unit: Unit = construct(UNITS.find(name), options=given, named="text.unit_options")
    return unit


def unit_to_json(name: str, unit: Unit) -> dict[str, Any]:
    return {"unit": name, "lowercase": unit.lowercase, **unit.state()}


def unit_from_json(name: str, saved: Any, options: Mapping[str, Any] | None = None) -> Unit:
    """The unit that :func:`unit_to_json` described, checked.

    >>> unit_from_json("character", {"unit": "character", "lowercase": False}).split("né")
    ['n', 'é']
    """
    kind, lowercase = (saved.get("unit"), saved.get("lowercase")) if isinstance(saved, dict) else (None, None)
    if kind != name or not isinstance(lowercase, bool):
        found = f"a saved unit has 'unit' {kind!r} and 'lowercase' {lowercase!r}"
        raise RunError(f"{found}; they must be {name!r} and true or false")
    unit = empty_unit(name, lowercase=lowercase, options=options)
    if unit.learned:
        unit.restore({key: value for key, value in saved.items() if key not in ("unit", "lowercase")})
    return unit
