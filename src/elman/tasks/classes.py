"""The class side of class to sequence: one class, several features, or a vector of numbers."""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from elman.errors import LabelError, SyntaxProblem, nearest
from elman.tasks.examples import tensor
from elman.text.fields import LabelField, TextField
from elman.text.records import Record

KINDS = ("class", "features", "vector", "token")


class ClassField:
    """What a class is as numbers: its place in a vocabulary, several of them, or the bits of float32s.

    names: of all classes or features; a vector has none, and all vectors have one ``width``. A token is one
    of the ``field``'s vocabulary, in lower case where it has no other, and as wide as that.
    """

    def __init__(self, kind: str, field: TextField | None = None) -> None:
        self.kind, self.field = kind, field
        self.width = 0
        self.labels = LabelField("class")

    @property
    def names(self) -> list[str]:
        return self.labels.names

    @property
    def size(self) -> int:
        """P, the width of a class vector."""
        if self.kind == "token" and self.field is not None:
            return len(self.field.vocabulary)
        return self.width if self.kind == "vector" else len(self.names)

    def features(self, record: Record) -> list[str]:
        """The names that stand in a record; of a vector there are none, but it is looked at."""
        text: str = record.fields["class"]
        if self.kind == "vector":
            self._numbers(record)
            return []
        return text.split() if self.kind == "features" else [text]

    def key(self, record: Record) -> list[int]:
        """A class as numbers; the order of its features is nothing."""
        if self.kind == "vector":
            bits: list[int] = np.array(self._numbers(record), dtype=np.float32).view(np.int32).tolist()
            return bits
        if self.kind == "token" and self.field is not None:
            return [self._token(record)]
        return sorted({*self.labels.ids(self.features(record), record, field="class")})

    def keys(self, prompts: Iterable[str]) -> list[list[int]]:
        return [self.key(Record({"class": text}, "input", n)) for n, text in enumerate(prompts, 1)]

    def prompt(self, key: Sequence[int]) -> str:
        """The text of a class that ``key`` gives the numbers of."""
        if self.kind == "vector":
            numbers: list[float] = np.array(key, dtype=np.int32).view(np.float32).tolist()
            return " ".join(map(repr, numbers))
        names = self.names if self.kind != "token" or self.field is None else self.field.vocabulary.tokens
        return " ".join(names[place] for place in key)

    def vectors(self, keys: Sequence[Sequence[int]], device: torch.device) -> Tensor:
        """Class vectors (B, P): one-hot, many-hot, or the numbers."""
        if self.kind == "vector":
            return tensor(np.array(keys, dtype=np.int32).view(np.float32), device)
        x = np.zeros((len(keys), self.size), dtype=np.float32)
        for row, key in enumerate(keys):
            x[row, list(key)] = 1
        return tensor(x, device)

    def _token(self, record: Record) -> int:
        """The number of a class that is a word of the sequences."""
        assert self.field is not None
        index, text = self.field.vocabulary.index, record.fields["class"]
        for form in (text, text.lower()):
            if form in index:
                return index[form]
        remedy = nearest(text, self.field.vocabulary.tokens)
        raise record.error(
            LabelError, "a class outside the vocabulary", field="class", text=text, remedy=remedy
        )

    def _numbers(self, record: Record) -> list[float]:
        try:
            numbers = [float(number) for number in record.fields["class"].split()]
        except ValueError:
            numbers = []
        width = self.width or len(numbers)
        largest = float(np.finfo(np.float32).max)  # as a float32, more would be infinite
        if not numbers or len(numbers) != width or not all(abs(number) <= largest for number in numbers):
            raise record.error(
                SyntaxProblem,
                f"not {width or 'some'} finite numbers",
                field="class",
                remedy="give one vector a line",
            )
        self.width = width
        return numbers
