"""Small step functions to decode with, and plain searches to compare with."""

import itertools
from typing import NamedTuple

import torch
from torch import Tensor

from elman.decoding.base import decode
from elman.decoding.rows import select

V, H, END, STOP = 7, 5, 6, 4


class Memory(NamedTuple):
    h: Tensor
    seen: Tensor


class Model:
    """A recurrent step function with a nested state; it notes the rows that it was given.

    ``grain`` rounds the log probabilities to its multiples, so that there are ties.
    """

    def __init__(self, seed=0, sharpness=2.0, size=V, grain=None):
        generator = torch.Generator().manual_seed(seed)
        self.embedding = torch.randn(size, H, generator=generator, dtype=torch.float64)
        self.W = torch.randn(H, H, generator=generator, dtype=torch.float64)
        self.U = torch.randn(H, size, generator=generator, dtype=torch.float64) * sharpness
        self.size, self.grain = size, grain
        self.sizes, self.names = [], []

    def start(self, N, seed=5):
        h = torch.randn(N, H, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        return {
            "layers": (Memory(h, torch.zeros(N, dtype=torch.long)),),
            "names": torch.arange(N),
            "none": None,
        }

    def __call__(self, tokens, state):
        self.sizes.append(len(tokens))
        self.names.append(state["names"].tolist())
        (memory,) = state["layers"]
        h = torch.tanh(
            self.embedding[tokens] + (memory.h[:, None, :] * self.W.T).sum(-1)
        )  # alike for every N
        log_probs = (h[:, None, :] * self.U.T).sum(-1).log_softmax(-1)
        if self.grain is not None:
            log_probs = (log_probs / self.grain).round() * self.grain
        after = {**state, "layers": (Memory(h, memory.seen + 1),)}
        return log_probs, after, {"name": state["names"], "step": memory.seen, "read": tokens}


class Table(NamedTuple):
    """A step function of fixed probabilities, whatever was read."""

    p: list[float]

    def __call__(self, tokens, state):
        return torch.tensor(self.p).log().expand(len(tokens), -1), state, None


def run(strategy, N=6, model=None, start=None, first=None, **options):
    model = model or Model()
    first = torch.arange(N) % 4 if first is None else first
    options = {"end": END, "max_length": 9, **options}
    return decode(model, first, start or model.start(N), strategy, **options)


def row_of(model, N, row):
    """The state that one row of a batch starts from."""
    return select(model.start(N), torch.tensor([row]))


def produced(hypothesis, end=END):
    return [*hypothesis.tokens, *([end] if hypothesis.stopped == "end" else [])]


def log_probability(model, first, state, tokens):
    """By feeding the tokens one after the other: of all of them together."""
    total, previous = 0.0, first
    for token in tokens:
        log_probs, state, _ = model(torch.tensor([previous]), state)
        total += log_probs[0, token].item()
        previous = token
    return total


def every_sequence(most, *, size=V, end=END, stop=(), min_length=0):
    """All that may be produced, the end marker included."""
    ending = {end, *stop}
    others = [token for token in range(size) if token not in ending]
    for length in range(most + 1):
        for tokens in itertools.product(others, repeat=length):
            if length == most:
                yield list(tokens)
            elif length >= min_length:
                yield from ([*tokens, last] for last in ending)


def plain_beam(model, first, state, *, beam, end, max_length, length_penalty=1.0, min_length=0, stop=()):
    """Beam search as it is told, one example at a time, to its very end: (score, tokens), best first."""
    live, finished = [([], 0.0, first, state)], []
    for length in range(1, max_length + 1):
        candidates = []
        for row, (tokens, total, last, memory) in enumerate(live):
            log_probs, after, _ = model(torch.tensor([last]), memory)
            for token, value in enumerate(log_probs[0].tolist()):
                if length > min_length or token not in {end, *stop}:
                    candidates.append((total + value, row, token, tokens, after))
        candidates.sort(key=lambda one: (-one[0], one[1], one[2]))
        live, room = [], beam - len(finished)
        for total, _, token, tokens, after in candidates[:room]:
            tokens = [*tokens, token]
            if token in {end, *stop} or length == max_length:
                finished.append((total / length**length_penalty, tokens))
            else:
                live.append((tokens, total, token, after))
    return sorted(finished, key=lambda one: -one[0])
