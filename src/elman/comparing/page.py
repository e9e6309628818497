"""A comparison as one page: the table, what differs from what, and the learning curves."""

from html import escape
from pathlib import Path

from elman.comparing.results import Comparison, rows
from elman.presentation.curves import Series, chart
from elman.presentation.pages import template, write_page
from elman.presentation.wording import number

HUES = 8  # of the template


def write_comparison(found: Comparison, path: Path) -> Path:
    curves = [
        Series(one.name, f"hue{place % HUES}", one.curve)
        for place, one in enumerate(found.results)
        if len(one.curve) > 1
    ]
    differences = [
        (
            *(one, other, number(some.mean)),
            f"{number(some.low)} to {number(some.high)}" if found.seeds > 1 else "unknown from one seed",
            some.excludes_zero,
        )
        for (one, other), some in found.differences.items()
    ]
    log = found.metric == "perplexity"
    metric = found.metric.replace("_", " ")
    page = template("comparison.html", escape).render(
        title=found.title,
        facts=f"{found.seeds} seed{'s' * (found.seeds > 1)} · equal {found.equal} · {metric} on {found.data}",
        head=rows(found)[0],
        rows=rows(found)[1:],
        differences=differences,
        chart=chart(f"{metric.capitalize()} on validation data", curves, log=log) if curves else "",
        seeds=[(one.name, [number(value) for value in one.figures]) for one in found.results],
    )
    return write_page(path, page)
