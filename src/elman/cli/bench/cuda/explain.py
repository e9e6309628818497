"""``elman bench --explain``: which form the engine takes for each case, and why."""

from __future__ import annotations

from elman.cli.bench.cuda.cases import Case
from elman.cli.bench.cuda.measure import DEVICE, in_one_line
from elman.cli.bench.cuda.sides import DTYPES, OURS, numbers
from elman.errors import ElmanError


def explain(case: Case) -> list[str]:
    """What the CUDA backend says about the cell of a case; one that it cannot serve tells why."""
    from elman.recurrence.triton.backend import explain as ask

    cell_class = OURS.get(case.ours, OURS["LSTM"])
    dtype = DTYPES[case.precision]
    with numbers(case):
        cell = cell_class(case.H, case.H, initialisation="uniform").to(DEVICE, dtype)
        try:
            return list(ask(cell, case.B, dtype, directions=2 if case.bidirectional else 1))
        except ElmanError as error:
            return [in_one_line(error)]
