"""What a run leaves for those who train: ``report.html`` with learning curves, measures and samples."""

import math
import shlex
from collections.abc import Iterator
from html import escape
from pathlib import Path

from elman.presentation.curves import Point, Series, chart, curve
from elman.presentation.events import Event, measures
from elman.presentation.pages import template, write_page
from elman.presentation.summary import Summary
from elman.presentation.wording import duration, number, printable, short_count

ROWS = 100  # of the table of samples, at most
MOMENTS = 6  # validations of which watched examples are drawn, evenly chosen


def write_report(run: Path) -> Path:
    """Write ``RUN/report.html``, one file that needs nothing else, from what the run holds by now."""
    summary = Summary.of(run)
    origins = [f"from {one}" for one in summary.start.get("from", ())]
    began = str(summary.start.get("time", {}).get("date", ""))
    facts = (str(run.resolve().name), began, *origins, summary.ending)
    told = [event for event in summary.validations if event.get("samples")]
    samples = _evenly(told, ROWS)
    figures = measures(summary.best or {}, counts=True)
    page = template("report.html", _html).render(
        title=summary.title(),
        facts=" · ".join(fact for fact in facts if fact),
        tiles=_tiles(summary),
        charts="".join(_charts(summary)),
        best=summary.best,
        measures=[(name.replace("_", " "), number(value)) for name, value in figures.items()],
        samples=samples,
        samples_note=f"{len(samples):,} of {len(told):,} validations" if len(samples) < len(told) else "",
        moments=_evenly([event for event in summary.validations if event.get("watched")], MOMENTS),
        commands="\n".join(summary.commands(shlex.quote(str(run)))),
        reasons=summary.reasons(),
        settings=summary.text,
    )
    return write_page(run / "report.html", page)


def _evenly(events: list[Event], most: int) -> list[Event]:
    """At most so many of them, the last one included."""
    return events[:: -max(1, math.ceil(len(events) / most))][::-1]


def _tiles(summary: Summary) -> list[tuple[str, str, str]]:
    """The value, the name and a note of each number that stands above the curves."""
    start, best, metric = summary.start, summary.best, summary.metric
    total = start.get("updates")
    reached = f"{summary.last_update:,} of {total:,} updates" if total else f"{summary.last_update:,} updates"
    value = best.get(metric) if best else None
    examples = f"{start['examples']:,} training examples" if "examples" in start else ""
    return [
        ("–" if value is None else number(value), f"best {metric.replace('_', ' ')}", "validation data"),
        (f"{best['update']:,}" if best else "–", "best update", f"epoch {best['epoch']:.1f}" if best else ""),
        (duration(summary.seconds), "training time", reached),
        (short_count(start["parameters"]) if "parameters" in start else "–", "parameters", examples),
        (number(round(summary.speed)) if summary.speed is not None else "–", "tokens/s", "median"),
    ]


def _charts(summary: Summary) -> Iterator[str]:
    updates, validations, best = summary.updates, summary.validations, summary.best
    training = Series("training", "train", curve(updates, "loss"))
    checked = Series("validation", "dev", curve(validations, "loss"))
    measured = [name for event in validations[:1] for name in measures(event) if name != "loss"]
    metric = summary.metric if summary.metric != "loss" else next(iter(measured), "loss")
    yield chart("Loss", [training, checked], best=_point(best, "loss") if summary.metric == "loss" else None)
    if metric != "loss":
        name, log = metric.replace("_", " "), metric == "perplexity"
        one = Series(name, "dev", curve(validations, metric, positive=log))
        yield chart(name.capitalize(), [one], log=log, best=_point(best, metric))
    yield chart("Learning rate", [Series("rate", "other", curve(updates, "rate"))])
    norms = curve(updates, "gradient_norm", positive=True)
    yield chart("Gradient norm", [Series("norm", "train", norms)], log=True)


def _point(event: Event | None, key: str) -> Point | None:
    value = measures(event or {}).get(key)
    return None if event is None or value is None else Point(event["update"], value, value, value)


def _html(text: str) -> str:
    return escape(printable(text))
