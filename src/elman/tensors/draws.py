"""Random numbers of a batch: drawn for all of its rows, also by who computes only some of them.

Several workers share a batch row by row. What one of them draws by these functions is drawn for the whole
batch, as a single process does it, and the worker takes its own rows out: so all of their generators stay
alike, and a mask does not depend on who computes with it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from elman.errors import WorkersError
from elman.tensors.rows import length_mask


@dataclass(frozen=True)
class Share:
    """Which rows of a batch are computed here: ``rows`` (B',) out of ``of``.

    lengths: (B,) of all rows, with the CPU, where real steps are computed side by side without padding.
    """

    rows: Tensor
    of: int
    lengths: Tensor | None = None

    def taken(self, drawn: Tensor) -> Tensor:
        """What was drawn for all rows, of those that are here."""
        return drawn[self.rows.to(drawn.device)]

    def steps(self, T: int) -> Share:
        """The share of the real steps of rows of up to T steps, as they stand one after the other."""
        here = torch.zeros(self.of, dtype=torch.bool)
        here[self.rows.cpu()] = True
        if self.lengths is None:
            mine = here.repeat_interleave(T)
        else:
            mine = here[:, None].expand(-1, T)[length_mask(self.lengths, T)]
        return Share(mine.nonzero().squeeze(1), len(mine))


_share: ContextVar[Share | None] = ContextVar("_share", default=None)
_seen: ContextVar[list[int] | None] = ContextVar("_seen", default=None)  # of the generator, after each draw


def _here() -> Share | None:
    """The rows that are computed here; None: all. Code that is being compiled, which cannot ask, has all."""
    return None if torch.compiler.is_compiling() else _share.get()


@contextmanager
def shared(share: Share | None) -> Iterator[None]:
    """Inside, the first dimension of what is drawn is that of these rows; None: all rows are here."""
    before = _share.set(share)
    try:
        yield
    finally:
        _share.reset(before)


@contextmanager
def among(share: Share | None) -> Iterator[None]:
    """The same for what does not stand in rows, such as distinct words, where rows are shared at all."""
    with shared(share if _share.get() is not None else None):
        yield


@contextmanager
def guarded(device: torch.device) -> Iterator[None]:
    """Inside, whoever draws random numbers by other means is found out: workers would draw other ones."""
    before = _seen.set([generator_digest(device)])
    try:
        yield
        _look(device)
    finally:
        _seen.reset(before)


def generator_digest(device: torch.device) -> int:
    """A short number of the state of the generators."""
    states = [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]
    return zlib.crc32(torch.cat(states).numpy().tobytes())


def rand(*shape: int, device: torch.device) -> Tensor:
    """Uniform numbers, the first dimension is of rows."""
    share = _here()
    if share is None:
        return torch.rand(*shape, device=device)
    with _looking(device):
        drawn = torch.rand(share.of, *shape[1:], device=device)
    return share.taken(drawn)


def dropout(x: Tensor, rate: float, training: bool = True) -> Tensor:
    """Dropout of x, whose first dimension is of rows."""
    share = _here()
    if share is None or not (training and rate):
        return F.dropout(x, rate, training)
    with _looking(x.device):
        kept = F.dropout(x.new_ones(share.of, *x.shape[1:]), rate)
    return x * share.taken(kept)


def step_dropout(x: Tensor, rate: float, training: bool, T: int) -> Tensor:
    """The same, where x (N, ·) are real steps of rows of up to T."""
    share = _here()
    if share is None or not (training and rate):
        return F.dropout(x, rate, training)
    with shared(share.steps(T)):
        return dropout(x, rate)


def weight_dropout(weight: Tensor, rate: float) -> Tensor:
    """Dropout of what no row has a part of: every worker draws all of it."""
    with _looking(weight.device):
        return F.dropout(weight, rate)


def bernoulli(like: Tensor, probability: float) -> Tensor:
    """Ones with this probability, else zeros, as many as there are in ``like``, whose rows come first."""
    share = _here()
    if share is None:
        return torch.empty_like(like).bernoulli_(probability)
    with _looking(like.device):
        drawn = like.new_empty(share.of, *like.shape[1:]).bernoulli_(probability)
    return share.taken(drawn)


@contextmanager
def _looking(device: torch.device) -> Iterator[None]:
    seen = _seen.get()
    if seen is None:
        yield
        return
    _look(device)
    yield
    seen[0] = generator_digest(device)


def _look(device: torch.device) -> None:
    seen = _seen.get()
    if seen is not None and seen[0] != generator_digest(device):
        raise WorkersError(
            "a part of the model draws random numbers by itself, so several workers would disturb it "
            "otherwise than one; let it draw by elman.tensors.draws, or train with one worker"
        )
