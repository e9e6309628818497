"""How results look: numbers, ratios and errors as text, the columns of tables, and lines that are aligned."""

from collections.abc import Callable, Sequence
from operator import attrgetter

from elman.bench.measure import Result
from elman.bench.timing import Times

NOTHING = "–"
show_ratio, show_error = "{:.2f}×".format, "{:.0e}".format
Column = tuple[str, Callable[[Result], str]]  # its title, and what stands in it


def show_number(value: float) -> str:
    """Three digits at least, and no powers of ten.

    >>> show_number(3.14159), show_number(31.4159), show_number(3141.59)
    ('3.14', '31.4', '3142')
    """
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"


def show_target(result: Result) -> str:
    """What is asked of a case: ratios, a limit, or that the cache served."""
    case = result.case
    if case.limit is not None:
        return f"≤ {case.limit:g} s" if case.mode == "first" else f"≤ {case.limit:g}×"
    if result.from_cache is not None:
        return "cached" if result.from_cache else "not cached"
    targets = [f"{target:g}×" for target in (case.target, case.graph_target) if target is not None]
    return ", ".join(targets) or NOTHING


def column(title: str, show: Callable[[float], str], name: str, scale: float = 1.0) -> Column:
    """A number or the median of times, by the name that a result has for it; None is nothing."""
    value = attrgetter(name)

    def text(result: Result) -> str:
        found: Times | float | None = None if "errors." in name and result.errors is None else value(result)
        number = found.median if isinstance(found, Times) else found
        return NOTHING if number is None else show(number * scale)

    return title, text


CASE: Column = ("case", lambda result: result.case.name)
ASKED: Column = ("asked", show_target)
STEP = column("µs/step", show_number, "step", 1e6)
FLOOR = column("floor", show_number, "floor", 1e6)
WAYS = (
    CASE,
    column("ours ms", show_number, "ours", 1e3),
    column("ours graph", show_number, "ours_graph", 1e3),
    column("peer ms", show_number, "peer", 1e3),
    column("peer graph", show_number, "peer_graph", 1e3),
    column("eager", show_ratio, "ratio"),
    column("graph", show_ratio, "graph_ratio"),
    ASKED,
)
CUDA_COLUMNS: dict[str, tuple[Column, ...]] = {
    "model": (
        *WAYS,
        column("tokens/s", "{:,.0f}".format, "rate"),
        column("peer's", "{:,.0f}".format, "peer_rate"),
    ),
    "floor": (CASE, STEP, FLOOR, column("ours/floor", show_ratio, "over_floor"), ASKED),
    "first": (CASE, column("s", show_number, "ours"), ASKED),
}
NETWORK_COLUMNS = (
    *WAYS,
    STEP,
    column("error", show_error, "errors.float64"),
    column("peer's", show_error, "errors.peer_float64"),
)


def cuda_columns(group: str) -> tuple[Column, ...]:
    return CUDA_COLUMNS.get(group, NETWORK_COLUMNS)


def cpu_columns(group: str) -> tuple[Column, ...]:
    unit, scale = {"stream": ("µs", 1e6), "first": ("s", 1.0)}.get(group, ("ms", 1e3))
    return (
        CASE,
        column(f"ours {unit}", show_number, "ours", scale),
        column(f"peer {unit}", show_number, "peer", scale),
        column("ratio", show_ratio, "ratio"),
        ("target", show_target),
        column("ours/floor", "{:.2f}".format, "over_floor"),
        column("worst error", show_error, "worst_error"),
    )


def align(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns under each other: the first to the left, the others to the right.

    >>> align([("case", "ms"), ("a", "10.5")])
    ['case    ms', 'a     10.5']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    (first, *others), lines = widths, []
    for name, *cells in rows:
        right = (cell.rjust(width) for cell, width in zip(cells, others, strict=True))
        lines.append("  ".join([name.ljust(first), *right]))
    return lines
