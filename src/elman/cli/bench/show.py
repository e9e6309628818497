"""How figures look: numbers, ratios and errors as text, and lines that are aligned."""

from __future__ import annotations

from collections.abc import Sequence

from elman.cli.bench.measure import Times

NOTHING = "–"


def show_number(value: float | None) -> str:
    """Three digits at least, and no powers of ten.

    >>> show_number(3.14159), show_number(31.4159), show_number(3141.59), show_number(None)
    ('3.14', '31.4', '3142', '–')
    """
    return NOTHING if value is None else f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"


def show_times(times: Times | None, scale: float) -> str:
    """The median in units of which a second has ``scale``."""
    return show_number(None if times is None else times.median * scale)


def show_ratio(ratio: float | None) -> str:
    return NOTHING if ratio is None else f"{ratio:.2f}×"


def show_error(error: float | None) -> str:
    return NOTHING if error is None else f"{error:.0e}"


def align(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Columns under each other: the first to the left, the others to the right.

    >>> align([("case", "ms"), ("a", "10.5")])
    ['case    ms', 'a     10.5']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
