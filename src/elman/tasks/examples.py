"""Examples as numbers, in memory or in a cache on disk, and batches of them on a device."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from elman.errors import shortened
from elman.tensors.transfer import moved
from elman.text.batches import plan_batches
from elman.text.lexicon import Lexicon
from elman.text.records import Record
from elman.text.store import Ragged, Store

if TYPE_CHECKING:
    from elman.tasks.base import AnyTask

MOST_SHOWN = 10  # labels of a sentence about them

Batches = Sequence[NDArray[np.int64]]  # the numbers of the examples of each


@dataclass
class Examples:
    """Encoded examples: their numbers, and the words of a lexicon where the task keeps one."""

    store: Store
    words: list[str] = field(default_factory=list)
    lexicon: Lexicon | None = None

    @classmethod
    def asked(cls, texts: Iterable[Sequence[str]], lexicon: Lexicon) -> Examples:
        """Texts of words that a model is asked about, as the lexicon numbers them."""
        rows = [lexicon.ids(words) for words in texts]
        offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
        values = np.fromiter(chain.from_iterable(rows), np.int32, int(offsets[-1]))
        return cls(Store({"word": Ragged(values, offsets)}), lexicon=lexicon)

    def __len__(self) -> int:
        return len(self.store)

    def every(self, step: int) -> Examples:
        """Every so manieth of the examples, in memory."""
        rows = ({name: one[i] for name, one in self.store.fields.items()} for i in range(0, len(self), step))
        return self if step == 1 else replace(self, store=Store.in_memory(rows))

    def same_as(self, other: Examples) -> bool:
        """Are they the same examples in the same order?"""
        if self is other or len(self) != len(other):
            return self is other
        mine, theirs = self.store.fields, other.store.fields
        return self.words == other.words and all(
            name in theirs
            and np.array_equal(one.offsets, theirs[name].offsets)
            and np.array_equal(one.values, theirs[name].values)
            for name, one in mine.items()
        )

    def lengths(self, *names: str) -> NDArray[np.int64]:
        """(N,) the numbers that each example has in these fields together."""
        total: NDArray[np.int64] = np.sum([self.store.fields[name].lengths for name in names], axis=0)
        return total

    def rows(self, name: str, indices: Iterable[int]) -> list[NDArray[np.int32]]:
        """The numbers of a field of some examples."""
        stored = self.store.fields[name]
        return [stored[i] for i in indices]

    def texts(self, name: str, indices: Iterable[int]) -> list[list[str]]:
        """The texts that a field keeps of some examples; caches of earlier versions may lack it."""
        stored = self.store.fields.get(name)
        return [[] if stored is None else unlisted(stored[i]) for i in indices]

    @property
    def unseen(self) -> Counter[str]:
        """Labels that training never saw, and how often they occur."""
        return Counter(label for own in self.texts("unseen", range(len(self))) for label in own)

    def in_order(self, *names: str, tokens: int, size: int | None = None) -> Batches:
        """Every example once, short ones first, in batches of so many positions of these fields at most."""
        return plan_batches(self.lengths(*names), size=size, tokens=tokens, seed=0, epoch=0, shuffle=False)


def encoded(task: AnyTask, records: Iterable[Record], folder: Path | None = None, key: str = "") -> Examples:
    """Encoded examples: in memory, or in a cache folder that is used again if its key fits.

    The words of a lexicon lie beside the numbers, in a second store.
    """
    lexicon = task.lexicon()
    if folder is None:
        store = Store.in_memory(task.encode(records, lexicon))
        return Examples(store) if lexicon is None else Examples(store, lexicon.words, lexicon)
    found = opened(task, folder, key)
    if found is None:
        place = folder if lexicon is None else folder / "examples"
        found = _with_words(Store.write(place, task.encode(records, lexicon), key), lexicon, folder, key)
    return found


def joined(lexicon: Lexicon | None, stores: Iterable[Store], folder: Path, key: str) -> Examples:
    """Encoded examples out of those of parts, as ``encoded`` would have written them."""
    place = folder if lexicon is None else folder / "examples"
    return _with_words(Store.join(place, stores, key), lexicon, folder, key)


def opened(task: AnyTask, folder: Path, key: str) -> Examples | None:
    """What a cache folder has for this key; None where it lacks a part of it."""
    if task.lexicon() is None:
        store = Store.open(folder, key)
        return None if store is None else Examples(store)
    store, spelled = Store.open(folder / "examples", key), Store.open(folder / "words", f"{key} words")
    if store is None or spelled is None:
        return None
    letters = [spelled.fields["bytes"][i] for i in range(len(spelled))]
    return Examples(store, [bytes(one.astype(np.uint8)).decode() for one in letters])


def _with_words(store: Store, lexicon: Lexicon | None, folder: Path, key: str) -> Examples:
    """Examples whose numbers were written; the words of their lexicon are written, too."""
    if lexicon is None:
        return Examples(store)
    rows = ({"bytes": list(word.encode())} for word in lexicon.spellings)
    Store.write(folder / "words", rows, f"{key} words")
    return Examples(store, lexicon.words, lexicon)


def packed(text: str) -> NDArray[np.int32]:
    """The bytes of a text, four to a number.

    >>> unpacked(packed("déjà vu"))
    'déjà vu'
    """
    data = text.encode()
    return np.frombuffer(data + bytes(-len(data) % 4), dtype=np.int32)


def unpacked(numbers: NDArray[np.int32]) -> str:
    return np.ascontiguousarray(numbers, dtype=np.int32).tobytes().rstrip(b"\0").decode()


def kept_texts(texts: Sequence[str]) -> Sequence[int] | NDArray[np.int32]:
    """Texts as numbers, for a field that ``Examples.texts`` gives back; none are no number."""
    return packed(json.dumps(texts)) if texts else ()


def unlisted(numbers: NDArray[np.int32]) -> list[str]:
    texts: list[str] = json.loads(unpacked(numbers)) if len(numbers) else []
    return texts


def unseen_measures(unseen: Counter[str]) -> dict[str, Any]:
    """What an evaluation tells of labels that training never saw."""
    return {"unseen": dict(unseen.most_common()), "notes": [unseen_note(unseen)]} if unseen else {}


def unseen_note(unseen: Counter[str]) -> str:
    """What is said of labels that training never saw.

    >>> unseen_note(Counter({"B-LOC": 3}))
    "1 label that training never saw counts as wrong: 'B-LOC' (3)"
    """
    shown = [f"{shortened(label)!r} ({count:,})" for label, count in unseen.most_common(MOST_SHOWN)]
    shown += [f"{len(unseen) - MOST_SHOWN:,} more"] if len(unseen) > MOST_SHOWN else []
    said = (
        "1 label that training never saw counts"
        if len(unseen) == 1
        else (f"{len(unseen):,} labels that training never saw count")
    )
    return f"{said} as wrong: {', '.join(shown)}"


def tensor(array: NDArray[Any], device: torch.device) -> Tensor:
    """The numbers of an array on the device."""
    return moved(torch.from_numpy(np.ascontiguousarray(array)), device)


def shifted(first: NDArray[np.int64], tokens: NDArray[np.int64]) -> NDArray[np.int64]:
    """(B, T) what comes before each of the tokens (B, T): the first (B,), then all but the last."""
    return np.concatenate([first[:, None], tokens[:, :-1]], 1)


def device_of(model: nn.Module) -> torch.device:
    """Where a model computes; one without weights, which is counted, on the CPU."""
    weight = next(model.parameters(), None)
    return torch.device("cpu") if weight is None else weight.device
