"""``elman demo memory``: four networks learn to remember the first word of a sentence."""

import inspect
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn, sigmoid, tanh
from torch.nn import functional as F

from elman.cells.base import Cell
from elman.inspection.figures import curve_figure, gradient_figure
from elman.inspection.gradients import measure_gradients
from elman.layers.rnn import RNN
from elman.storage.files import explained

WORDS = ("apple", "bread", "cloud", "drum", "eagle", "forest", "glass", "honey")
QUESTION = len(WORDS)
LONGEST = 40  # words between the first one and the question, in training
DISTANCES = (0, 5, 10, 20, 40, 60)
UPDATES = 400
INTRODUCTION = f"""Remember the first word.

  Up to {LONGEST} words lie between the first word and the question. One of the four networks is a
  cell written for this demonstration; its equations are all that was written:
"""


class Yours(Cell):
    """An LSTM changed by one equation: it takes in what it forgets, and has no output gate."""

    state = ("h", "c")
    gates = ("f", "z")

    def R(self, x: Any, h: Any, s: Any) -> Any:
        f = sigmoid(x.f + h.f)
        c = f * s.c + (1 - f) * tanh(x.z + h.z)
        return self.State(h=tanh(c), c=c)


def draw(random: torch.Generator, B: int, distance: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Words drawn at random, then a question mark: which word came first?

    Word numbers (B, T), lengths (B,) and answers (B,); the distance is drawn too if None.
    """
    drawn = torch.randint(0, LONGEST + 1, (B,), generator=random)
    between = drawn if distance is None else torch.full((B,), distance)
    words = torch.randint(0, len(WORDS), (B, int(between.max()) + 2), generator=random)
    words[torch.arange(B), between + 1] = QUESTION
    return words, between + 2, words[:, 0].clone()


class Rememberer(nn.Module):
    """Embedding, one recurrent layer read at its end, softmax over the words: an acceptor."""

    def __init__(self, cell: str | type[Cell]) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(WORDS) + 1, 16)
        self.rnn = RNN(cell, 16, 64)
        self.output = nn.Linear(64, len(WORDS))

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        logits: Tensor = self.output(self.rnn(self.embedding(words), lengths).last)
        return logits


def train(model: Rememberer, random: torch.Generator) -> Iterator[float]:
    """Train by Adam and yield the loss after each update."""
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(UPDATES):
        words, lengths, answers = draw(random, 64)
        loss = F.cross_entropy(model(words, lengths), answers)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        yield loss.item()


@torch.no_grad()
def accuracy(model: Rememberer, random: torch.Generator, distance: int) -> float:
    words, lengths, answers = draw(random, 512, distance)
    return float((model(words, lengths).argmax(-1) == answers).float().mean())


def show(folder: Path, seed: int) -> None:
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
    print(INTRODUCTION)
    print(inspect.getsource(Yours.R))
    random = torch.Generator()
    cells: dict[str, str | type[Cell]] = {"Elman": "elman", "GRU": "gru", "LSTM": "lstm", "yours": Yours}
    models: dict[str, Rememberer] = {}
    curves: dict[str, list[float]] = {}
    print(f"  right answers after {UPDATES} updates, by the number of words between (chance: 12.5 %)\n")
    print(f"  {'':8}" + "".join(f"{d:>7}" for d in DISTANCES) + f"{'seconds':>10}")
    for name, cell in cells.items():
        torch.manual_seed(seed)
        model = models[name] = Rememberer(cell)
        start = time.perf_counter()
        for _ in train(model, random.manual_seed(seed)):
            pass
        seconds = time.perf_counter() - start
        random.manual_seed(seed + 1000)
        curves[name] = [accuracy(model, random, distance) for distance in DISTANCES]
        print(f"  {name:8}" + "".join(f"{a:>6.0%} " for a in curves[name]) + f"{seconds:>9.1f}", flush=True)

    words, lengths, answers = draw(random.manual_seed(seed + 2000), 3, 11)
    print("\n  What they answer:\n")
    for b in range(len(words)):
        print("   ", " ".join(WORDS[w] for w in words[b][:-1]), "?")
        right, given = int(answers[b]), {n: int(m(words, lengths)[b].argmax()) for n, m in models.items()}
        print("     ", ", ".join(f"{n}: {WORDS[w]}{'' if w == right else ' ✗'}" for n, w in given.items()))

    print("\n  Why: how far back the gradient of the last output reaches, in the trained networks\n")
    words, _, _ = draw(random.manual_seed(seed + 3000), 16, LONGEST)
    reaches = {}
    for name, model in models.items():
        reaches[name] = measure_gradients(model.rnn, model.embedding(words).detach(), name=name)
        print("   ", reaches[name].sentence())
    title = "Remembering the first word, by distance"
    memory = curve_figure(DISTANCES, curves, chance=1 / len(WORDS), title=title)
    print("\n  Pictures:")
    for name, figure in {"memory.png": memory, "gradients.png": gradient_figure(reaches)}.items():
        figure.savefig(folder / name)
        print(f"    {folder / name}")
