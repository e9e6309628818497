"""The two sides of a case with the same weights, in its precision, and their errors."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from elman.cells.base import Cell
from elman.cells.elman import Elman
from elman.cells.gru import GRU
from elman.cells.lstm import LSTM
from elman.cli.bench.cells import UserFourGates
from elman.cli.bench.cuda.cases import Case
from elman.cli.bench.sides import Errors, Inputs, Ours, Run, Side, Torch, Values, reference, worst_error
from elman.layers.rnn import RNN

OURS: dict[str, type[Cell]] = {"LSTM": LSTM, "GRU": GRU, "Elman": Elman, "user's four gates": UserFourGates}
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "tf32": torch.float32}
COMPARED = 4  # rows: two at the beginning of the batch and two at its end


@dataclass(frozen=True)
class Pair:
    """Ours and the peer; ``same``: they have the same equations, and then the same weights."""

    ours: Ours
    peer: Torch
    same: bool


def build(case: Case, device: str) -> Pair:
    """Both sides with torch's kind of fresh weights; the peer time-major, as it is fastest."""
    torch.manual_seed(1)
    rnn = fresh(case).to(DTYPES[case.precision])
    same = rnn.cell_class is not UserFourGates
    module = time_major(rnn) if same else nn.LSTM(case.H, case.H).to(DTYPES[case.precision])
    return Pair(Ours(rnn.to(device)), Torch(module.to(device), in_order=True), same)


def fresh(case: Case, dropout: float = 0.0) -> RNN:
    """Our network of a case: float32, on the CPU."""
    return RNN(
        OURS[case.ours],
        case.H,
        case.H,
        layers=case.layers,
        bidirectional=case.bidirectional,
        dropout=dropout,
        cell_options={"initialisation": "uniform"},
    )


def time_major(rnn: RNN) -> nn.Module:
    """The same network as a module of torch that takes (T, B, D)."""
    module = rnn.to_torch()
    module.batch_first = False
    return module


def draw(case: Case, device: str) -> Inputs:
    """A batch and the gradients that arrive, the longest rows first.

    The rows that are compared are drawn before the others: they are the same for every batch size.
    """
    B, T, H = case.B, case.T, case.H
    random = torch.Generator(device).manual_seed(2)
    widths = (H, H * (2 if case.bidirectional else 1))

    def rows(count: int) -> list[torch.Tensor]:
        return [torch.randn(count, T, width, generator=random, device=device) for width in widths]

    compared, others = rows(min(B, COMPARED)), rows(max(0, B - COMPARED))
    x, d_outputs = (
        torch.cat([mine[: COMPARED // 2], other, mine[COMPARED // 2 :]])
        for mine, other in zip(compared, others, strict=True)
    )
    lengths = torch.linspace(T, max(1, T // 4), B).round().long() if case.padded else None
    return Inputs(x, lengths, d_outputs).to(DTYPES[case.precision], device)


def compare(case: Case, pair: Pair, inputs: Inputs, device: str) -> Errors:
    """Both sides in their precision against the float64 loop, on the whole batch.

    The loop walks a few rows only. Gradients arrive at these alone, so that those of the weights
    come from them; all other rows are computed as well.
    """
    which = _compared(case.B)
    d_outputs = torch.zeros_like(inputs.d_outputs)
    d_outputs[which] = inputs.d_outputs[which]
    part = replace(inputs, d_outputs=d_outputs)
    B = case.B if case.padded else min(case.B, COMPARED)
    expected = _expected(replace(case, B=B, eager=None, graph=None), device)

    def error(side: Side) -> float:
        found = Run(side, part, training=True).values()
        found |= {name: found[name][which] for name in ("outputs", "d_x")}
        return worst_error(found, expected)

    ours = error(pair.ours)
    if not math.isfinite(ours):
        raise ArithmeticError("results are not finite")
    return Errors(None, ours, error(pair.peer) if pair.same else None)


def _compared(B: int) -> list[int]:
    return sorted({*range(min(B, COMPARED // 2)), *range(max(0, B - COMPARED // 2), B)})


@functools.lru_cache(maxsize=1)
def _expected(case: Case, device: str) -> Values:
    """What the float64 loop makes of the rows that are compared; cases that differ in B share it."""
    part = draw(case, device).rows(_compared(case.B)).to(torch.float64)
    return Run(reference(build(case, device).ours), part, training=True).values()


@contextmanager
def numbers(case: Case) -> Iterator[None]:
    """Products of float32 may be TF32 where the case says so, in torch, in cuDNN and in our kernels."""
    switches: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [switch.allow_tf32 for switch in switches]
    try:
        for switch in switches:
            switch.allow_tf32 = case.precision == "tf32"
        yield
    finally:
        for switch, value in zip(switches, before, strict=True):
            switch.allow_tf32 = value
