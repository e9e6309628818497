"""Which examples serve as validation data, where no file is named for it."""

import zlib
from array import array
from collections.abc import Iterable, Iterator
from itertools import count

import numpy as np
from numpy.typing import NDArray

MOST = 5000  # examples that are held out: a large file needs no larger part to be judged on


def by_strata(labels: Iterable[Iterable[str]], share: float, block: int = 1) -> list[bool]:
    """Is an example held out? Of every label the same share is, and never all that have it.

    The stratum of an example is the rarest of its labels; ``block`` examples stay together. The answer is the
    same for all seeds of a training, so that runs can be compared.

    >>> held_out = by_strata([["a"]] * 80 + [["b"]] * 20 + [["c"]], 0.1)
    >>> sum(held_out[:80]), sum(held_out[80:100]), held_out[100]
    (8, 2, False)
    """
    numbers, values, holders, examples = dict[str, int](), array("q"), array("q"), 0
    for examples, own in enumerate(labels, 1):
        for label in {*own}:
            values.append(numbers.setdefault(label, len(numbers)))
            holders.append((examples - 1) // block)
    value, holder = np.asarray(values, dtype=np.int64), np.asarray(holders, dtype=np.int64)
    often = np.bincount(value, minlength=len(numbers))
    strata = np.full(-(-examples // block), -1)
    order = np.argsort(-often[value], kind="stable")
    strata[holder[order]] = value[order]  # of several the last stays, the rarest
    out = _drawn(strata, share, max(1, MOST // block))
    kept = np.bincount(value, weights=~out[holder], minlength=len(numbers))
    out[holder[kept[value] == 0]] = False  # a label that training would not see
    found: list[bool] = np.repeat(out, block)[:examples].tolist()
    return found


def _drawn(strata: NDArray[np.int64], share: float, most: int) -> NDArray[np.bool_]:
    """(U,) which units are held out: drawn from each stratum by its size, but for one of each."""
    random = np.random.Generator(np.random.PCG64(0))
    order = random.permutation(len(strata))
    order = order[np.argsort(strata[order], kind="stable")]
    _, first, own, sizes = np.unique(
        strata[order], return_index=True, return_inverse=True, return_counts=True
    )
    rank = np.arange(len(strata)) - first[own]
    place = (rank + random.random(len(sizes))[own]) / sizes[own]  # how much of its stratum comes before it
    place[rank == sizes[own] - 1] = np.inf
    wanted = min(round(share * len(strata)), most, int(np.isfinite(place).sum()))
    out = np.zeros(len(strata), dtype=np.bool_)
    out[order[np.argsort(place, kind="stable")[:wanted]]] = True
    return out


def by_number(share: float, block: int) -> Iterator[bool]:
    """The same for runs of earlier versions: of the first examples, blocks by a hash of their number."""
    kept_back = 0
    for number in count():
        out = kept_back < MOST and zlib.crc32(str(number // block).encode()) < share * 2**32
        kept_back += out
        yield out
