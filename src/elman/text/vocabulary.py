"""Between tokens and their numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nsmallest
from typing import Any

from elman.errors import ArgumentError, RunError, UnknownNameError, nearest
from elman.text.counts import Counted

PAD, UNKNOWN, START, END = MARKERS = ("<pad>", "<unk>", "<s>", "</s>")


class Vocabulary:
    """Tokens in a fixed order; the place of a token is its id.

    A vocabulary of tokens begins with four markers, of which users may spell the last two. A token of the
    data that is spelt like a marker (the Penn Treebank's ``<unk>``) is that marker. A vocabulary of labels
    has no markers, and a label that it does not have is an error.

    >>> words = Vocabulary.build({"the": 9, "cat": 2, "rat": 2, "of": 1}, min_count=2)
    >>> words.tokens
    ['<pad>', '<unk>', '<s>', '</s>', 'the', 'cat', 'rat']
    >>> words.ids(["the", "dog"])
    [4, 1]
    """

    def __init__(self, tokens: Sequence[str]) -> None:
        self.tokens = list(tokens)
        for place, token in enumerate(self.tokens):
            if not isinstance(token, str):
                raise ArgumentError(f"token {place} of a vocabulary is {token!r}; it must be a string")
        self.index = {token: place for place, token in enumerate(self.tokens)}
        for place, token in enumerate(self.tokens):
            if self.index[token] != place:
                places = f"at {place} and {self.index[token]}"
                raise ArgumentError(f"a vocabulary has {token!r} twice, {places}; keep one of them")

    @classmethod
    def build(
        cls,
        counts: Mapping[str, int] | Counted,
        *,
        min_count: int = 1,
        size: int | None = None,
        markers: Sequence[str] = MARKERS,
        alphabet: Iterable[str] = (),
    ) -> Vocabulary:
        """By falling count, then by text, so that equal counts give equal vocabularies.

        Tokens seen fewer than ``min_count`` times are left out. ``size`` is the most entries there may
        be, markers and all. The tokens of ``alphabet`` are in whatever their counts.
        """
        first = tuple(markers)
        alphabet = set(alphabet).difference(first)
        left = alphabet.union(first)

        def frequent() -> Iterator[tuple[int, str]]:
            for token, count in counts.items():
                if count >= min_count and token not in left:
                    yield -count, token

        if size is None:
            others = sorted(frequent())
        else:
            places = size - len(left)
            if places < 0:
                needed = f"{len(first)} markers and an alphabet of {len(alphabet)} tokens"
                raise ArgumentError(f"size is {size}; {needed} take at least {size - places}")
            others = nsmallest(places, frequent())  # of many types, few are held
        if alphabet:
            found = {token: count for token, count in counts.items() if token in alphabet}
            others = sorted([*others, *((-found.get(token, 0), token) for token in alphabet)])
        return cls([*first, *(token for _, token in others)])

    def __len__(self) -> int:
        return len(self.tokens)

    def __contains__(self, token: object) -> bool:
        return token in self.index

    def id(self, token: str) -> int:
        """The number of a token, or of ``<unk>``; where there is no ``<unk>`` the error names near tokens."""
        found = self.index.get(token, self.index.get(UNKNOWN))
        if found is None:
            raise UnknownNameError(f"{token!r} is not in the vocabulary; {nearest(token, self.tokens)}")
        return found

    def ids(self, tokens: Iterable[str]) -> list[int]:
        unknown = self.index.get(UNKNOWN)
        if unknown is None:
            return [self.id(token) for token in tokens]
        find = self.index.get
        return [find(token, unknown) for token in tokens]

    @classmethod
    def from_json(cls, tokens: Any) -> Vocabulary:
        """The ``tokens`` of a vocabulary as they were saved, checked."""
        if not isinstance(tokens, list):
            raise RunError('a saved vocabulary is not {"tokens": [...]}; restore the file or train again')
        try:
            return cls(tokens)
        except ArgumentError as error:
            raise RunError(f"a saved vocabulary is damaged: {error.args[0]}") from None
