"""What a first pass over the training data saw."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np

from elman.text.counts import Counts, packed
from elman.text.records import Record

Json = dict[str, Any]


@dataclass
class Statistics:
    """Counts over the training data, and notes: what a user should know about them, coverage and sizes."""

    examples: int = 0
    tokens: int = 0
    types: int = 0
    longest: int = 0
    losses: int = 0  # of all examples: one a label, or one a token that is predicted
    notes: list[str] = field(default_factory=list)
    sizes: Counter[int] = field(default_factory=Counter)  # examples by their tokens
    reasons: dict[str, str] = field(default_factory=dict)  # why open settings were chosen as they are, by key

    def add(self, *, tokens: int, losses: int, length: int) -> None:
        """One more example."""
        self.examples += 1
        self.tokens += tokens
        self.sizes[tokens] += 1
        self.losses += losses
        self.longest = max(self.longest, length)

    def join(self, other: Statistics) -> None:
        """What another part of the same pass saw."""
        self.examples += other.examples
        self.tokens += other.tokens
        self.sizes.update(other.sizes)
        self.losses += other.losses
        self.longest = max(self.longest, other.longest)

    @property
    def typical(self) -> int:
        """Tokens of an example that half of the others do not exceed."""
        reached = 0
        for size, count in sorted(self.sizes.items()):
            reached += count
            if 2 * reached >= self.examples:
                return size
        return 0

    @property
    def losses_of_example(self) -> float:
        """How many losses are summed for an update of incremental descent, in the mean."""
        return max(1.0, self.losses / max(1, self.examples))


class Tally:
    """What a first pass counts: of all examples, or of a part of them, for parts can be joined.

    counts: by a name, tokens or labels. longest: tokens of the longest text that is read, where another is
    written. texts: hashes of whole texts, where it matters which occur again. several: has a text another
    number of labels than one?

    >>> tally, part = Tally("token"), Tally("token")
    >>> part.counts["token"].update(["a", "b"])
    >>> tally.join(part.as_json())
    >>> tally.join(part.as_json())
    >>> sorted(tally.counts["token"].items())
    [('a', 2), ('b', 2)]
    """

    def __init__(self, *names: str) -> None:
        self.seen = Statistics()
        self.counts = {name: Counts() for name in names}
        self.longest = 0
        self.texts = array("q")
        self.several = False

    def note(self, text: str) -> None:
        """A text that may occur again."""
        digest = blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest()
        self.texts.append(int.from_bytes(digest, signed=True))

    @property
    def again(self) -> int:
        """How many of the texts occurred before."""
        return len(self.texts) - len(np.unique(np.asarray(self.texts, dtype=np.int64)))

    def together(self, *names: str) -> Counts:
        """The counts of several names in one."""
        both = Counts()
        for name in names:
            both.add(self.counts[name].items())
        return both

    def join(self, part: Json) -> None:
        """Add what was counted of the part after this one, as ``as_json`` gave it."""
        seen = part["seen"]
        sizes = Counter({int(size): count for size, count in seen["sizes"].items()})
        self.seen.join(Statistics(**{**seen, "sizes": sizes}))
        for name, counts in part["counts"].items():
            self.counts.setdefault(name, Counts()).join(counts)
        self.longest = max(self.longest, part["longest"])
        self.texts.extend(part["texts"])
        self.several |= part["several"]

    def as_json(self) -> Json:
        names = ("examples", "tokens", "longest", "losses", "sizes")
        return {
            "seen": {name: getattr(self.seen, name) for name in names},
            "counts": {name: packed(dict(counts.items())) for name, counts in self.counts.items()},
            "longest": self.longest,
            "texts": self.texts.tolist(),
            "several": self.several,
        }


def tallied(records: Iterable[Record], count: Callable[[Iterable[Record]], Tally]) -> Tally:
    """What is counted of all records: part by part, where they can be had so."""
    by_parts: Callable[..., Tally] | None = getattr(records, "tallied", None)
    return count(records) if by_parts is None else by_parts(count)
