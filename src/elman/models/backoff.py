"""Counted distributions: a tree of contexts, each smoothed with what its shorter one says (row L6)."""

from collections.abc import Callable, Iterable
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from elman.tensors.checks import check_choice, check_size

NOTHING = -1  # in a context: there is nothing here, nor further on
IDS = 2**31  # an id of a context is smaller
ROWS = 512  # distributions that are made at once: what they are made of takes several times their room
PENDING = 2_000_000  # keys that are kept before they are counted

Events = Callable[[], Iterable[tuple[Tensor, Tensor]]]
Array = NDArray[Any]


class Counted(nn.Module):
    """A module whose buffers are as large as the data made them: loading takes the sizes that it finds."""

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *others: Any) -> None:
        for name, buffer in self.named_buffers(recurse=False):
            if prefix + name in state_dict:
                setattr(self, name, buffer.new_empty(state_dict[prefix + name].shape))
        super()._load_from_state_dict(state_dict, prefix, *others)


class Level(Counted):
    """The contexts of one length, as rows of a sparse table; a context is numbered by its place in ``keys``.

    keys (R,), rising: shorter context · IDS + one id more; starts (R + 1,): where a row's entries begin;
    outcomes and values, one an entry; rest (R,): the share that is left to the shorter context.
    """

    keys: Tensor
    starts: Tensor
    outcomes: Tensor
    values: Tensor
    rest: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(1, dtype=torch.int64))  # one context, the empty
        self.register_buffer("starts", torch.zeros(2, dtype=torch.int64))
        self.register_buffer("outcomes", torch.zeros(0, dtype=torch.int32))
        self.register_buffer("values", torch.zeros(0))
        self.register_buffer("rest", torch.ones(1))

    def fill(self, outcomes: Array, values: Array, sizes: Array, rest: Array) -> None:
        """Take the entries, row by row, with the number of them in each row."""
        device = self.keys.device
        self.starts = torch.from_numpy(np.concatenate([[0], sizes.cumsum()])).to(device)
        self.outcomes = torch.from_numpy(outcomes.astype(np.int32)).to(device)
        self.values = torch.from_numpy(values.astype(np.float32)).to(device)
        self.rest = torch.from_numpy(rest.astype(np.float32)).to(device)

    def share(self, rows: Tensor) -> Tensor:
        """What each row (N,) leaves to the shorter context: all of it where the row is −1."""
        if not len(self.rest):
            return torch.ones(len(rows), device=rows.device)
        return self.rest[rows.clamp_min(0)].where(rows >= 0, 1.0)

    def add(self, rows: Tensor, weights: Tensor, into: Tensor, places: Tensor) -> None:
        """``into[places[n]] += weights[n] · values of rows[n]``; row −1 adds nothing."""
        real = (rows >= 0).nonzero().squeeze(1)
        first = self.starts[rows[real]]
        sizes = self.starts[rows[real] + 1] - first
        before = sizes.cumsum(0) - sizes
        N = int(sizes.sum())
        entries = torch.arange(N, device=rows.device) + (first - before).repeat_interleave(sizes)
        origin = real.repeat_interleave(sizes)
        flat = places[origin] * into.shape[-1] + self.outcomes[entries]
        into.view(-1).index_add_(0, flat, self.values[entries] * weights[origin])


class Backoff(nn.Module):
    """``p(w | c_1 … c_n)``, interpolated: what was counted after a context, and what a shorter one says.

        p(w | c_1 … c_k) = value(c_1 … c_k, w) + rest(c_1 … c_k) · p(w | c_1 … c_{k-1}),

    down to 1/V. c_1 is what matters most (the token just before); c_n is given up first. A context that was
    never seen leaves everything to the shorter one. With n the count of a context, t the number of different
    outcomes that it had and c the count of one of them,

    * ``witten-bell``: value = c / (n + t), rest = t / (n + t) (Witten and Bell 1991, method C).
    * ``kneser-ney``: value = (c − D_c) / n, rest = Σ D_c / n, with ``discounts`` D_1, D_2 and D_3 (for 3 and
      more); below the longest contexts, c is not how often an outcome came but with how many different
      c_{k+1} (modified and interpolated, Chen and Goodman 1999). Where there was none, each time counts.

    Contexts (N, n) are ids from 0 on; from the first ``NOTHING`` on, there is none.
    """

    def __init__(self, outcomes: int, depth: int, *, smoothing: str = "witten-bell") -> None:
        super().__init__()
        self.outcomes = check_size("outcomes", outcomes)
        self.smoothing = check_choice("smoothing", smoothing, tuple(SMOOTHINGS))
        self.depth = check_size("depth", depth, least=0)
        self.contexts = nn.ModuleList(Level() for _ in range(depth + 1))

    @property
    def levels(self) -> list[Level]:
        """By the length of their contexts, the empty one first."""
        return cast("list[Level]", list(self.contexts))

    def find_nodes(self, contexts: Tensor) -> Tensor:
        """The numbers of the contexts (…, k ≤ n) and of all the shorter ones: (…, k), −1 where never seen."""
        ids = contexts.flatten(0, -2)
        row = torch.zeros_like(ids[:, 0]) if ids.shape[-1] else ids
        found = []
        for level, one in zip(self.levels[1:], ids.unbind(-1), strict=False):
            row = numbers_of(row * IDS + one, level.keys).where((row >= 0) & (one >= 0), NOTHING)
            found.append(row)
        return torch.stack(found, -1).view_as(contexts) if found else contexts

    def distribution(self, nodes: Tensor, base: Tensor | None = None) -> Tensor:
        """p (N, V) after contexts (N, n) as found by ``find_nodes``; ``base`` (N, V) is after no token."""
        p = torch.zeros(len(nodes), self.outcomes, device=nodes.device)
        if base is None:
            base = self._shortest().expand_as(p)
        for some, into, shorter in zip(nodes.split(ROWS), p.split(ROWS), base.split(ROWS), strict=True):
            here, weights = torch.arange(len(some), device=p.device), torch.ones(len(some), device=p.device)
            for level, rows in reversed(list(zip(self.levels[1:], some.unbind(-1), strict=True))):
                level.add(rows, weights, into, here)
                weights = weights * level.share(rows)
            into.addcmul_(weights[:, None], shorter)
        return p

    def fit(self, events: Events) -> None:
        """Count contexts (N, n) and what came after them (N,); ``events`` goes over them once a level."""
        entries, counts = self.count(events)
        for depth in reversed(range(self.depth + 1)):
            level, keys = self.levels[depth], entries[depth]
            rows = keys // self.outcomes
            used = counts[depth]
            if self.smoothing == "kneser-ney" and depth < self.depth:
                used = self._kinds(keys, counts[depth], entries[depth + 1], counts[depth + 1], depth)
            values, rest = SMOOTHINGS[self.smoothing](used, rows, len(level.keys))
            sizes = np.bincount(rows, minlength=len(level.keys))
            level.fill(keys % self.outcomes, values, sizes, rest)

    def count(self, events: Events) -> tuple[list[Array], list[Array]]:
        """What occurred in each level, context · outcomes + outcome, and how often; sets ``keys``."""
        entries, counts = [], []
        for depth, level in enumerate(self.levels):
            tally, further = Tally(), Tally()
            for contexts, outcomes in events():
                row = self.find_nodes(contexts[:, :depth])[:, -1] if depth else torch.zeros_like(outcomes)
                tally.add((row * self.outcomes + outcomes)[row >= 0])
                if depth < self.depth:
                    one = contexts[:, depth]
                    further.add((row * IDS + one)[(row >= 0) & (one >= 0)])
            keys, numbers = tally.total()
            entries.append(keys)
            counts.append(numbers)
            if depth < self.depth:
                self.levels[depth + 1].keys = torch.from_numpy(further.total()[0]).to(level.keys.device)
        return entries, counts

    def _kinds(self, keys: Array, counts: Array, longer: Array, longer_counts: Array, depth: int) -> Array:
        """How many different ids stood before each entry, plus how often nothing did."""
        parents = self.levels[depth + 1].keys.cpu().numpy() // IDS
        shorter = parents[longer // self.outcomes] * self.outcomes + longer % self.outcomes
        place = np.searchsorted(keys, shorter)
        kinds = np.bincount(place, minlength=len(keys))
        preceded = np.bincount(place, longer_counts, minlength=len(keys)).astype(np.int64)
        return kinds + counts - preceded

    def _shortest(self) -> Tensor:
        """p (V,) of the empty context."""
        level = self.levels[0]
        p = torch.full((self.outcomes,), 1 / self.outcomes, device=level.values.device) * level.rest
        return p.index_add_(0, level.outcomes, level.values)


class Tally:
    """Keys counted as they come, in memory for the different ones."""

    def __init__(self) -> None:
        self._keys, self._counts = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._pending: list[Array] = []
        self._size = 0

    def add(self, keys: Tensor) -> None:
        self._pending.append(keys.cpu().numpy())
        self._size += len(keys)
        if self._size > PENDING:
            self.total()

    def total(self) -> tuple[Array, Array]:
        """The different keys, rising, and how often each came."""
        new, counts = np.unique(np.concatenate([self._keys[:0], *self._pending]), return_counts=True)
        self._pending, self._size = [], 0
        self._keys, place = np.unique(np.concatenate([self._keys, new]), return_inverse=True)
        both = np.concatenate([self._counts, counts])
        self._counts = np.bincount(place, both, minlength=len(self._keys)).astype(np.int64)
        return self._keys, self._counts


def numbers_of(keys: Tensor, known: Tensor) -> Tensor:
    """The places of keys (N,) among the known ones, which rise; −1 for others."""
    if not len(known):
        return torch.full_like(keys, NOTHING)
    places = torch.searchsorted(known, keys).clamp_max(len(known) - 1)
    return places.where(known[places] == keys, NOTHING)


def witten_bell(counts: Array, rows: Array, R: int) -> tuple[Array, Array]:
    """(values of the entries, rest of the rows) from the counts of entries that lie in rows."""
    n, t = np.bincount(rows, counts, minlength=R), np.bincount(rows, minlength=R)
    whole = np.maximum(n + t, 1)
    return counts / whole[rows], np.where(t > 0, t / whole, 1.0)


def kneser_ney(counts: Array, rows: Array, R: int) -> tuple[Array, Array]:
    """(values of the entries, rest of the rows), discounted; see ``discounts``."""
    n = np.bincount(rows, counts, minlength=R)
    off = discounts(counts)[np.minimum(counts, 3)]
    rest = np.bincount(rows, off, minlength=R) / np.maximum(n, 1)
    return (counts - off) / n[rows], np.where(n > 0, rest, 1.0)


def discounts(counts: Array) -> Array:
    """0 and D_1, D_2, D_3: ``D_i = i − (i + 1) Y n_{i+1} / n_i`` with ``Y = n_1 / (n_1 + 2 n_2)``.

    Where there are too few counts for that (an n_i is zero, or a D_i would not be positive): ½, 1 and 1½.

    >>> discounts(np.array([1, 1, 1, 1, 2, 2, 3, 4])).round(2).tolist()
    [0.0, 0.5, 1.25, 1.0]
    """
    ones, twos, threes, fours = (int((counts == i).sum()) for i in range(1, 5))
    found = np.zeros(4)
    if ones and twos and threes and fours:
        Y = ones / (ones + 2 * twos)
        found[1:] = 1 - 2 * Y * twos / ones, 2 - 3 * Y * threes / twos, 3 - 4 * Y * fours / threes
    return found if (found[1:] > 0).all() else np.array([0, 0.5, 1, 1.5])


SMOOTHINGS = {"witten-bell": witten_bell, "kneser-ney": kneser_ney}
