"""From examples to batches: which ones go together, padding, and a stream cut into segments."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from elman.errors import ArgumentError

FULL = 0.95  # share of segments of varied length that are about as long as was said
BATCHES_IN_A_POOL = 100  # enough for even lengths in a batch, few enough for a new mixture every epoch

Integers = NDArray[np.integer[Any]]


def plan_batches(
    lengths: Integers, *, size: int | None, tokens: int | None, seed: int, epoch: int, shuffle: bool
) -> list[NDArray[np.int64]]:
    """The indices of the examples of each batch; every example is in exactly one.

    A batch has at most ``size`` examples, and at most ``tokens`` positions when padded: examples ×
    longest, an empty example counted as one position. An example longer than ``tokens`` is a batch of
    its own. None lifts one of the two limits.

    With ``shuffle`` the examples are shuffled, cut into pools of about a hundred batches, sorted by
    length inside a pool and cut; then the batches are shuffled. All of it depends on ``seed`` and
    ``epoch`` alone. Without it, examples and batches go from short to long and equal lengths keep
    their order.

    >>> plan = plan_batches(np.array([3, 1, 2, 9]), size=None, tokens=6, seed=0, epoch=0, shuffle=False)
    >>> [batch.tolist() for batch in plan]
    [[1, 2], [0], [3]]
    """
    lengths = _checked_lengths(lengths)
    if size is None and tokens is None:
        raise ArgumentError("size and tokens are both None; give one of them, or batches have no limit")
    for name, value, least in (
        ("size", size, 1),
        ("tokens", tokens, 1),
        ("seed", seed, 0),
        ("epoch", epoch, 0),
    ):
        if value is not None and value < least:
            raise ArgumentError(f"{name} is {value}; it must be at least {least}")
    if len(lengths) == 0:
        return []
    if not shuffle:
        return _cut(np.argsort(lengths, kind="stable"), lengths, size, tokens)
    random = np.random.Generator(np.random.PCG64([seed, epoch]))
    order = random.permutation(len(lengths))
    pool = _pool_size(lengths, size, tokens)
    batches: list[NDArray[np.int64]] = []
    for start in range(0, len(order), pool):
        part = order[start : start + pool]
        batches += _cut(part[np.argsort(lengths[part], kind="stable")], lengths, size, tokens)
    return [batches[place] for place in random.permutation(len(batches))]


def pad(rows: Sequence[Integers], value: int = 0) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows as one array ``(B, T)``, filled with ``value`` on the right, and their lengths ``(B,)``.

    >>> pad([np.array([5, 6]), np.array([7])])
    (array([[5, 6],
           [7, 0]]), array([2, 1]))
    """
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    padded = np.full((len(rows), lengths.max(initial=0)), value, dtype=np.int64)
    if padded.size:
        padded[np.arange(padded.shape[1]) < lengths[:, None]] = np.concatenate(rows)
    return padded, lengths


class EpochBatches(Protocol):
    """The batches of an epoch, in order; ``examples`` is how many there are in all of them."""

    examples: int

    def __len__(self) -> int: ...

    def __getitem__(self, place: int, /) -> Any: ...


def rate_share(batches: EpochBatches, places: Sequence[int]) -> float:
    """The share of the learning rate that suits some batches: less where they are small on purpose."""
    return sum(map(batches.rate_share, places)) / len(places) if isinstance(batches, Segments) else 1.0


class Shuffled(list[NDArray[np.int64]]):
    """Batches of examples of these lengths, in an order that seed and epoch decide.

    among: the examples that take part, if not all do.
    """

    def __init__(
        self,
        lengths: Integers,
        *,
        size: int | None,
        tokens: int | None,
        seed: int,
        epoch: int,
        among: NDArray[np.int64] | None = None,
    ) -> None:
        own = lengths if among is None else lengths[among]
        plan = plan_batches(own, size=size, tokens=tokens, seed=seed, epoch=epoch, shuffle=True)
        super().__init__(plan if among is None else (among[batch] for batch in plan))
        self.examples, self._lengths = len(own), np.asarray(lengths)

    @property
    def positions(self) -> list[int]:
        """Of each batch, padding included."""
        return [len(batch) * max(1, int(self._lengths[batch].max())) for batch in self]


class Segments:
    """One long sequence as ``rows`` parallel parts, cut in time for truncated backpropagation.

    N ids make N - 1 predictions: each id but the last is an input, and its target is the id after it.
    Row r holds the ``steps = (N - 1) // rows`` predictions from number r · steps on, so a row is a
    contiguous part of the stream and its last target is the first input of the row below. Segment k
    holds the next ``length`` steps of every row: it continues where segment k - 1 ended, and the state
    may be carried over. The last segment is shorter where ``length`` does not divide ``steps``. What is
    not served are the last ``remainder = (N - 1) % rows`` predictions, fewer than there are rows;
    with one row there are none, so evaluation covers every id but the first, which nothing precedes.

    ``varied``, by a seed and the number of an epoch: segments are longer and shorter, as ``varied_lengths``
    says, and the learning rate goes with their lengths.

    >>> stream = Segments(np.arange(12), rows=2, length=3)
    >>> len(stream), stream.steps, stream.remainder
    (2, 5, 1)
    >>> inputs, targets = stream[1]
    >>> inputs.tolist(), targets.tolist()
    ([[3, 4], [8, 9]], [[4, 5], [9, 10]])
    """

    def __init__(
        self, ids: Integers, rows: int, length: int, *, varied: tuple[int, int] | None = None
    ) -> None:
        for name, value in (("rows", rows), ("length", length)):
            if value < 1:
                raise ArgumentError(f"{name} is {value}; it must be at least 1")
        if len(ids) <= rows:
            short = f"a stream of {len(ids)} ids is too short for {rows} rows, which take at least {rows + 1}"
            raise ArgumentError(f"{short}; give more text or ask for fewer rows")
        self.rows, self.length = rows, length
        self.steps, self.remainder = divmod(len(ids) - 1, rows)
        if varied is None:
            ends = [*range(length, self.steps, length), self.steps]
        else:
            ends = varied_lengths(self.steps, length, *varied).cumsum().tolist()
        self.spans = [slice(start, end) for start, end in pairwise([0, *ends])]
        self.varied = varied is not None
        served = rows * self.steps
        self.examples = rows * len(self)  # an example of a stream is a segment of a row
        self._inputs = ids[:served].reshape(rows, self.steps)  # views: a memory-mapped file stays on disk
        self._targets = ids[1 : served + 1].reshape(rows, self.steps)

    def __len__(self) -> int:
        return len(self.spans)

    def __getitem__(self, segment: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        now = self.spans[segment]
        return self._inputs[:, now].astype(np.int64), self._targets[:, now].astype(np.int64)

    def __iter__(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        return (self[segment] for segment in range(len(self)))

    def rate_share(self, place: int) -> float:
        span = self.spans[place]
        return (span.stop - span.start) / self.length if self.varied else 1.0


def varied_lengths(steps: int, length: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """Lengths of segments that make up so many steps, about ``length`` each, and about half in one of twenty.

    Merity et al. (2018) draw every length, so that a stream is cut elsewhere in every epoch. Here the seed
    alone draws them, of five lengths around ``length`` and five around its half, and the epoch decides their
    order: so the shapes of all epochs are the same few, and every epoch has as many segments.

    >>> varied_lengths(400, 70, seed=1, epoch=0), varied_lengths(400, 70, seed=1, epoch=1)
    (array([70, 65, 35, 70, 70, 15, 75]), array([15, 35, 70, 65, 75, 70, 70]))
    """
    random = np.random.Generator(np.random.PCG64(seed))
    unit, most = max(1, round(length / 14)), 1 + 2 * steps // length
    about = np.where(random.random(most) < FULL, length, length // 2)
    drawn = np.maximum(1, about + unit * random.standard_normal(most).round().clip(-2, 2).astype(np.int64))
    while drawn.sum() < steps:  # hardly ever
        drawn = np.concatenate([drawn, drawn])
    lengths = np.diff(np.minimum(drawn.cumsum(), steps), prepend=0)
    lengths = lengths[lengths > 0]
    order: NDArray[np.int64] = np.random.Generator(np.random.PCG64([seed, epoch])).permutation(lengths)
    return order


def _checked_lengths(lengths: Integers) -> NDArray[np.int64]:
    lengths = np.asarray(lengths)
    if lengths.ndim != 1 or (len(lengths) and not np.issubdtype(lengths.dtype, np.integer)):
        found = f"an array of {lengths.dtype} with shape {lengths.shape}"
        raise ArgumentError(f"lengths is {found}; it must be one row of whole numbers")
    if (lengths < 0).any():
        raise ArgumentError(f"lengths[{lengths.argmin()}] is {lengths.min()}; a length is at least 0")
    return lengths.astype(np.int64)


def _pool_size(lengths: NDArray[np.int64], size: int | None, tokens: int | None) -> int:
    """How many examples make about a hundred batches."""
    in_a_batch = [] if size is None else [size]
    if tokens is not None:
        in_a_batch.append(max(1, int(tokens / max(1.0, float(lengths.mean())))))
    return BATCHES_IN_A_POOL * min(in_a_batch)


def _cut(
    order: NDArray[np.int64], lengths: NDArray[np.int64], size: int | None, tokens: int | None
) -> list[NDArray[np.int64]]:
    """Examples in order of length as batches, each as large as the limits allow."""
    widths = np.maximum(lengths[order], 1).tolist()  # an empty example still takes a row
    batches, start = [], 0
    while start < len(order):
        count = len(order) - start
        if size is not None:
            count = min(count, size)
        if tokens is not None:  # the last of these is the longest, so the positions only grow with the count
            counts = range(1, min(count, tokens) + 1)
            count = max(1, bisect_right(counts, tokens, key=lambda n: n * widths[start + n - 1]))
        batches.append(order[start : start + count])
        start += count
    return batches
