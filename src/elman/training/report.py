"""What a run leaves for people: ``report.html`` with learning curves and samples, and ``card.md``."""

from __future__ import annotations

import json
import math
import shlex
import tomllib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any

from elman.errors import RunError
from elman.tasks.base import read_json
from elman.training.progress import Event, duration, figures, number, printable

POINTS = 200  # of a curve, at most; more are averaged, and the band behind the curve shows their range
ROWS = 100  # of the table of samples, at most

TASKS = {
    "lm": "Language model",
    "tag": "Tagger",
    "classify": "Classifier",
    "seq2seq": "Sequence to sequence",
    "class2seq": "Class to sequence",
}
ACRONYMS = {"lstm", "gru", "mgu", "sru", "rnn"}
REASONS = {
    "epochs": "all epochs done",
    "max_steps": "all updates done",
    "patience": "no improvement for a while",
    "converged": "the objective no longer changes",
}
USES = {"lm": ("generate {run} --prompt 'Once upon'", "score {run} FILE")}


def write_report(run: Path) -> Path:
    """Write ``RUN/report.html``, one file that needs nothing else, from what the run holds by now."""
    return _write(run / "report.html", _page(Summary.of(run)))


def write_card(run: Path) -> Path:
    """Write ``RUN/card.md``: task, data, network, training, figures, use and limits of the model."""
    return _write(run / "card.md", _card(Summary.of(run)))


# What happened


@dataclass(frozen=True)
class Summary:
    """A run as its files tell it."""

    run: Path
    text: str  # of config.toml
    settings: dict[str, Any]
    data: dict[str, Any]  # of data.json
    start: Event
    updates: list[Event]
    validations: list[Event]
    end: Event | None

    @classmethod
    def of(cls, run: Path) -> Summary:
        events = read_events(run / "metrics.jsonl")
        text = _read(run / "config.toml").decode("utf-8", errors="replace")
        try:
            settings = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise RunError(f"{run / 'config.toml'}: {error}; restore the file or train again") from None
        data = read_json(run / "data.json") if (run / "data.json").exists() else {}
        kinds: dict[str, list[Event]] = {"start": [], "update": [], "validation": [], "end": []}
        for event in events:
            kinds.setdefault(event["event"], []).append(event)
        first, last = kinds["start"][:1], kinds["end"][-1:]
        start, end = first[0] if first else {}, last[0] if last else None
        return cls(run, text, settings, data, start, kinds["update"], kinds["validation"], end)

    @property
    def task(self) -> str:
        return str(self.settings.get("task", self.start.get("task", "")))

    @property
    def metric(self) -> str:
        return str((self.end or {}).get("metric") or self.start.get("metric") or "loss")

    @property
    def best(self) -> Event | None:
        """The validation whose weights are kept: the last one that improved."""
        return next((event for event in reversed(self.validations) if event.get("improved")), None)

    @property
    def last_update(self) -> int:
        return max((event["update"] for event in (*self.updates, *self.validations)), default=0)

    @property
    def seconds(self) -> float:
        """Of training, in all sessions."""
        events = (*self.updates, *self.validations, *([self.end] if self.end else []))
        return max((float(event.get("time", {}).get("seconds", 0.0)) for event in events), default=0.0)

    @property
    def speed(self) -> float | None:
        speeds = [event["time"]["tokens_per_second"] for event in self.updates if "time" in event]
        return median(speeds) if speeds else None

    @property
    def ending(self) -> str:
        if self.end is None:
            return "not finished"
        return f"finished: {REASONS.get(self.end['reason'], self.end['reason'])}"

    def title(self) -> str:
        return f"{TASKS.get(self.task, self.task)} · {network_name(self.settings.get('model', {}))}"

    def commands(self, run: str) -> list[str]:
        """How the run is used and, unless it is finished, continued."""
        uses = USES.get(self.task, ("predict {run} FILE",))
        lines = [f"elman {use.format(run=run)}" for use in (*uses, "evaluate {run} FILE")]
        return lines if self.end else [*lines, f"elman train --out {run} --resume"]


def read_events(path: Path) -> list[Event]:
    """The lines of ``metrics.jsonl``; a last line that a crash cut short is left out.

    Any other damaged line is a ``RunError`` that names it.
    """
    lines = _read(path).split(b"\n")
    events: list[Event] = []
    for place, line in enumerate(lines, 1):
        try:
            event = json.loads(line, parse_constant=lambda name: None) if line.strip() else None
        except ValueError as error:
            if place == len(lines):
                break
            raise RunError(f"{path}:{place} is damaged: {error}; restore the file or train again") from None
        if isinstance(event, dict) and "event" in event:
            events.append(event)
    return events


def network_name(model: Mapping[str, Any]) -> str:
    """The network in two or three words.

    >>> network_name({"cell": "lstm", "bidirectional": True}), network_name({"encoder": "bag"})
    ('bidirectional LSTM', 'bag of words')
    """
    encoder = model.get("encoder", "rnn")
    if isinstance(encoder, Mapping):  # an encoder and a decoder, each with what differs from the whole
        sides = [
            network_name({**model, "encoder": "rnn", **model.get(side, {})})
            for side in ("encoder", "decoder")
        ]
        return " → ".join(sides)
    if encoder != "rnn":
        return {"bag": "bag of words", "window": f"window of {model.get('window')}"}.get(
            encoder, str(encoder)
        )
    cell = str(model.get("cell", "rnn"))
    shown = " ".join(word.upper() if word in ACRONYMS else word for word in cell.split("_"))
    return f"bidirectional {shown}" if model.get("bidirectional") else shown


# Curves


@dataclass(frozen=True)
class Point:
    """One place of a curve; ``low`` and ``high`` bound the values that it stands for."""

    x: int
    y: float
    low: float
    high: float


@dataclass(frozen=True)
class Series:
    name: str
    style: str  # a class of the style sheet
    points: list[Point]


def curve(events: Sequence[Event], key: str, *, positive: bool = False) -> list[Point]:
    """The finite values of ``key`` over updates, thinned to ``POINTS`` by averaging neighbours."""
    values = [(event["update"], event.get(key)) for event in events]
    real = [(x, float(y)) for x, y in values if isinstance(y, (int, float)) and math.isfinite(y)]
    real = [(x, y) for x, y in real if y > 0 or not positive]
    size = max(1, math.ceil(len(real) / POINTS))
    parts = (real[i : i + size] for i in range(0, len(real), size))
    return [Point(part[-1][0], fmean(y for _, y in part), *_range(y for _, y in part)) for part in parts]


def linear_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers from ``low`` to ``high``, about ``count`` of them.

    >>> linear_ticks(0, 7840), linear_ticks(0.0, 0.5)
    ([0.0, 2000.0, 4000.0, 6000.0], [0.0, 0.1, 0.2, 0.3, 0.4, 0.5])
    """
    rough = (high - low) / count
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough * 0.8)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{i * step:.10g}") for i in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Round numbers of a logarithmic axis: 1, 2, 5 of each decade, or decades only, or every few of them.

    >>> log_ticks(0.3, 30), log_ticks(0.001, 1000)
    ([0.5, 1.0, 2.0, 5.0, 10.0, 20.0], [0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0])
    """
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    inside = [float(f"{digit}e{ten}") for ten in decades for digit in (1, 2, 5)]
    inside = [value for value in inside if low * (1 - 1e-9) <= value <= high * (1 + 1e-9)]
    if len(inside) < 3:
        return linear_ticks(low, high)
    if len(inside) > 7:
        inside = [value for value in inside if f"{value:e}".startswith("1.")]
    return inside[:: math.ceil(len(inside) / 7)]


def tick_label(value: float) -> str:
    """
    >>> tick_label(2000.0), tick_label(0.25), tick_label(0.00001), tick_label(0.0)
    ('2,000', '0.25', '1e-5', '0')
    """
    if value == 0 or 1e-4 <= abs(value) < 1e6:
        return f"{value:,.6f}".rstrip("0").rstrip(".")
    mantissa, _, exponent = f"{value:.2e}".partition("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"


@dataclass(frozen=True)
class Axis:
    """From values to places on the page."""

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    @classmethod
    def around(cls, values: Iterable[float], start: float, stop: float, *, log: bool) -> Axis:
        """An axis with a little air around the values; a single value stands in the middle."""
        low, high = _range(values)
        if log:
            air = (high / low) ** 0.06 if high > low * 1.01 else 1.5
            return cls(low / air, high * air, start, stop, log)
        air = (high - low) * 0.06 if high - low > 1e-9 * abs(high) else abs(high) * 0.1 or 1.0
        return cls(0.0 if 0 <= low < air else low - air, high + air, start, stop)

    def place(self, value: float) -> float:
        scale: Callable[[float], float] = math.log if self.log else float
        share = (scale(value) - scale(self.low)) / (scale(self.high) - scale(self.low))
        return round(self.start + share * (self.stop - self.start), 1)

    def ticks(self) -> list[float]:
        return log_ticks(self.low, self.high) if self.log else linear_ticks(self.low, self.high)


WIDTH, HEIGHT = 560, 270
LEFT, RIGHT, TOP, BOTTOM = 58, 26, 26, 34  # the value under the pointer stands in the upper margin


def chart(title: str, series: Sequence[Series], *, log: bool = False, best: Point | None = None) -> str:
    """A figure with axes, curves, and at every update the values under the pointer; "" without points."""
    series = [one for one in series if one.points]
    points = [point for one in series for point in one.points] + ([best] if best and series else [])
    if not points:
        return ""
    across = Axis(0, max(max(point.x for point in points), 1), LEFT, WIDTH - RIGHT)
    bounds = [bound for point in points for bound in (point.low, point.high)]
    up = Axis.around(bounds, HEIGHT - BOTTOM, TOP, log=log)
    keys = [(one.name, one.style) for one in series if len(series) > 1] + ([("best", "best")] if best else [])
    legend = "".join(f'<span class="key {style}">{escape(name)}</span>' for name, style in keys)
    drawing = [*_grid(across, up)]
    for one in series:
        drawing += _curve(one, across, up)
    if best:
        drawing.append(_dot(best, across, up, "best", 5))
    drawing += _readings(series, across, up)
    scale = " <small>log scale</small>" if log else ""
    label = escape(f"{title} over {points[-1].x:,} updates")
    return (
        f"<figure><figcaption><b>{escape(title)}</b>{scale}{legend}</figcaption>"
        f'<div class="plot"><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">\n'
        + "\n".join(drawing)
        + "\n</svg></div></figure>\n"
    )


def _grid(across: Axis, up: Axis) -> Iterator[str]:
    bottom = up.start
    for tick in up.ticks():
        y = up.place(tick)
        yield f'<path class="grid" d="M{LEFT} {y}H{WIDTH - RIGHT}"/>'
        yield f'<text class="tick" x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{tick_label(tick)}</text>'
    yield f'<path class="axis" d="M{LEFT} {bottom}H{WIDTH - RIGHT}"/>'
    for tick in filter(float.is_integer, across.ticks()):
        x, label = across.place(tick), tick_label(tick)
        yield f'<path class="axis" d="M{x} {bottom}v4"/>'
        yield f'<text class="tick" x="{x}" y="{bottom + 17}" text-anchor="middle">{label}</text>'
    yield f'<text class="tick" x="{WIDTH - RIGHT}" y="{HEIGHT - 3}" text-anchor="end">updates</text>'


def _curve(series: Series, across: Axis, up: Axis) -> Iterator[str]:
    places = [(across.place(point.x), point) for point in series.points]
    if any(point.high > point.low for point in series.points):
        edge = [f"{x} {up.place(point.high)}" for x, point in places]
        back = [f"{x} {up.place(point.low)}" for x, point in reversed(places)]
        yield f'<path class="band {series.style}" d="M{"L".join(edge + back)}Z"/>'
    if len(places) > 1:
        line = "L".join(f"{x} {up.place(point.y)}" for x, point in places)
        yield f'<path class="curve {series.style}" d="M{line}"/>'
    if len(places) <= 40:
        for point in series.points:
            yield _dot(point, across, up, series.style, 2.5)


def _dot(point: Point, across: Axis, up: Axis, style: str, radius: float) -> str:
    return f'<circle class="dot {style}" cx="{across.place(point.x)}" cy="{up.place(point.y)}" r="{radius}"/>'


def _readings(series: Sequence[Series], across: Axis, up: Axis) -> Iterator[str]:
    """Invisible strips, one an update that has a point; the style sheet shows the strip under the pointer."""
    updates = sorted({point.x for one in series for point in one.points})
    places = [across.place(x) for x in updates]
    edges = [LEFT, *((a + b) / 2 for a, b in pairwise(places)), WIDTH - RIGHT]
    for update, x, (left, right) in zip(updates, places, pairwise(edges), strict=True):
        words, dots = [f"update {update:,}"], ""
        for one in series:
            before = bisect_right(one.points, update, key=lambda point: point.x) - 1
            if before >= 0:
                words.append(f"{one.name} {number(one.points[before].y)}")
                dots += _dot(one.points[before], across, up, one.style, 3.5)
        yield (
            f'<g class="at"><rect x="{left:.1f}" y="{TOP}" width="{right - left:.1f}" '
            f'height="{HEIGHT - TOP - BOTTOM}"/><path d="M{x} {TOP}V{HEIGHT - BOTTOM}"/>{dots}'
            f'<text x="{WIDTH - RIGHT}" y="15" text-anchor="end">{escape(" · ".join(words))}</text></g>'
        )


# The page

STYLE = """
:root { color-scheme: light dark; --paper: #fbfaf7; --card: #fff; --ink: #1d2129; --faint: #6b7280;
  --line: #e4e2dc; --train: #2f6fde; --dev: #d9730d; --best: #b4236b; --other: #128a74; }
@media screen and (prefers-color-scheme: dark) { :root { --paper: #14161a; --card: #1c1f25; --ink: #e7e6e3;
  --faint: #9aa1ad; --line: #30343c; --train: #7aa7ff; --dev: #f5a259; --best: #ff7fb6; --other: #4fd1b5; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 40px 24px 64px; }
h1 { font-size: 32px; line-height: 1.2; letter-spacing: -.02em; margin: 4px 0 6px; }
h2 { font-size: 18px; margin: 40px 0 12px; }
p, small { color: var(--faint); margin: 0; }
.over { text-transform: uppercase; letter-spacing: .12em; font-size: 12px; font-weight: 600;
  color: var(--train); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(190px, 1fr)); gap: 14px;
  margin-top: 28px; }
.tile, figure, .box { background: var(--card); border: 1px solid var(--line); border-radius: 12px; }
.tile { padding: 14px 18px; }
.tile b { display: block; font-size: 26px; line-height: 1.3; letter-spacing: -.01em; white-space: nowrap;
  font-variant-numeric: tabular-nums; }
.tile.first b { color: var(--best); }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 480px), 1fr)); gap: 14px; }
figure { margin: 0; padding: 14px 14px 8px; break-inside: avoid; }
figcaption { display: flex; flex-wrap: wrap; align-items: baseline; gap: 4px 14px; padding: 0 4px; }
.key { font-size: 13px; color: var(--faint); }
.key::before { content: ""; display: inline-block; width: 14px; height: 3px; border-radius: 2px;
  margin-right: 6px; vertical-align: middle; background: var(--hue); }
.key.best::before { width: 9px; height: 9px; border-radius: 50%; }
.train { --hue: var(--train); } .dev { --hue: var(--dev); } .best { --hue: var(--best); }
.other { --hue: var(--other); }
.plot { overflow-x: auto; } svg { display: block; width: 100%; min-width: 320px; height: auto; }
svg text { font: 12px system-ui, sans-serif; fill: var(--faint); font-variant-numeric: tabular-nums; }
.grid { stroke: var(--line); } .axis { stroke: var(--faint); } .at path { stroke: var(--faint); opacity: .6; }
.curve { fill: none; stroke: var(--hue); stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
.band { fill: var(--hue); opacity: .18; } .dot { fill: var(--hue); }
.dot.best { stroke: var(--card); stroke-width: 2; }
.at rect { fill: transparent; } .at :not(rect) { visibility: hidden; pointer-events: none; }
.at:hover :not(rect) { visibility: visible; } .at text { fill: var(--ink); }
.box { overflow: auto; max-height: 460px; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th { position: sticky; top: 0; background: var(--card); text-align: start; font-size: 12px;
  color: var(--faint); }
th, td { padding: 8px 16px; vertical-align: top; border-bottom: 1px solid var(--line); }
td.n { white-space: nowrap; font-variant-numeric: tabular-nums; } tr:last-child td { border-bottom: 0; }
th.n { white-space: nowrap; } .box:has(> .figures) { width: fit-content; max-width: 100%; }
td.text { width: 100%; } td.text div { overflow-wrap: anywhere; white-space: pre-wrap; }
tr.improved td.n:first-child::after { content: " ★"; color: var(--best); }
details { margin-top: 32px; } summary { cursor: pointer; font-size: 18px; font-weight: 600; }
details .box { margin-top: 12px; max-height: none; }
pre { margin: 0; padding: 16px 18px; font: 13px/1.55 ui-monospace, monospace; white-space: pre-wrap;
  overflow-wrap: anywhere; }
@media print { :root { --paper: #fff; } main { padding: 0; } h2 { break-after: avoid; }
  .box { max-height: none; overflow: visible; } th { position: static; }
  .tiles { grid-template-columns: repeat(5, 1fr); gap: 8px; } .tile { padding: 8px 10px; }
  .tile b { font-size: 17px; }
  .charts { grid-template-columns: 1fr 1fr; gap: 8px; } svg { min-width: 0; }
  tr, .tile { break-inside: avoid; } }
"""


def _page(summary: Summary) -> str:
    best = summary.best
    date = str(summary.start.get("time", {}).get("date", ""))
    facts = [str(summary.run.resolve().name), date, summary.ending]
    commands = "\n".join(summary.commands(shlex.quote(str(summary.run))))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{_html(summary.title())}</title>
<style>{STYLE}</style>
</head>
<body>
<main>
<header>
<div class="over">Elman run report</div>
<h1>{_html(summary.title())}</h1>
<p>{" · ".join(_html(fact) for fact in facts if fact)}</p>
</header>
{_tiles(summary)}
<h2>Learning curves</h2>
<div class="charts">
{"".join(_charts(summary)) or "<p>Nothing has been recorded yet.</p>"}</div>
{_figures_table(best) if best else ""}
{_samples_table(summary.validations)}
<h2>Use</h2>
<div class="box"><pre>{_html(commands, lines=True)}</pre></div>
<details>
<summary>Settings</summary>
<div class="box"><pre>{_html(summary.text, lines=True)}</pre></div>
</details>
</main>
</body>
</html>
"""


def _tiles(summary: Summary) -> str:
    start, best, metric = summary.start, summary.best, summary.metric
    total = start.get("updates")
    reached = f"{summary.last_update:,} of {total:,} updates" if total else f"{summary.last_update:,} updates"
    value = best.get(metric) if best else None
    examples = f"{start['examples']:,} training examples" if "examples" in start else ""
    tiles = [
        ("–" if value is None else number(value), f"best {metric.replace('_', ' ')}", "validation data"),
        (f"{best['update']:,}" if best else "–", "best update", f"epoch {best['epoch']:.1f}" if best else ""),
        (duration(summary.seconds), "training time", reached),
        (_count(start["parameters"]) if "parameters" in start else "–", "parameters", examples),
        (number(round(summary.speed)) if summary.speed is not None else "–", "tokens/s", "median"),
    ]
    shown = [
        f'<div class="tile{" first" if place == 0 else ""}"><small>{_html(name)}</small><b>{_html(value)}</b>'
        f"<small>{_html(note)}</small></div>"
        for place, (value, name, note) in enumerate(tiles)
    ]
    return f'<div class="tiles">\n{"".join(shown)}\n</div>'


def _charts(summary: Summary) -> Iterator[str]:
    updates, validations, best = summary.updates, summary.validations, summary.best
    training = Series("training", "train", curve(updates, "loss"))
    checked = Series("validation", "dev", curve(validations, "loss"))
    measured = [name for event in validations[:1] for name in figures(event) if name != "loss"]
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
    value = figures(event or {}).get(key)
    return None if event is None or value is None else Point(event["update"], value, value, value)


def _figures_table(best: Event) -> str:
    shown = _all_figures(best)
    heads = "".join(f'<th class="n">{_html(name.replace("_", " "))}</th>' for name in shown)
    cells = "".join(f'<td class="n">{number(value)}</td>' for value in shown.values())
    return (
        f"<h2>Figures at the best update</h2>\n"
        f'<div class="box"><table class="figures"><tr>{heads}</tr><tr>{cells}</tr></table></div>'
    )


def _samples_table(validations: Sequence[Event]) -> str:
    """What the network said at each validation, or at some of very many."""
    told = [event for event in validations if event.get("samples")]
    if not told:
        return ""
    step = math.ceil(len(told) / ROWS)
    chosen = told[::-step][::-1]  # the last one is always there
    note = f"<p>{len(chosen):,} of {len(told):,} validations</p>" if step > 1 else ""
    rows = []
    for event in chosen:
        texts = "".join(f'<div dir="auto">{_html(text)}</div>' for text in event["samples"])
        kind = ' class="improved"' if event.get("improved") else ""
        rows.append(
            f'<tr{kind}><td class="n">{event["update"]:,}</td><td class="n">{event["epoch"]:.2f}</td>'
            f'<td class="text">{texts}</td></tr>'
        )
    head = "<tr><th>update</th><th>epoch</th><th>samples</th></tr>"
    return (
        f'<h2>Samples</h2>\n{note}\n<div class="box"><table>{head}\n' + "\n".join(rows) + "\n</table></div>"
    )


# The card

NETWORK = ("hidden", "layers", "embedding", "dropout", "attention", "pooling", "crf")
TEXT = ("unit", "lowercase", "min_count", "vocabulary_size", "vectors")
TRAINING = (
    *("optimizer", "learning_rate", "schedule", "epochs", "max_steps", "batch_size", "batch_tokens"),
    *("clip", "averaging", "precision", "device", "seed"),
)


def _card(summary: Summary) -> str:
    model, text, training = (summary.settings.get(name, {}) for name in ("model", "text", "training"))
    name = summary.run.resolve().name
    commands = "\n".join(summary.commands(shlex.quote(name)))
    size = f", {summary.start['parameters']:,} parameters" if "parameters" in summary.start else ""
    done = f"{summary.last_update:,} updates in {duration(summary.seconds)}, {summary.ending}"
    sections = {
        "Data": _data_part(summary),
        "Network": _list([network_name(model) + size, *_named(model, NETWORK), *_named(text, TEXT)]),
        "Training": _list([done, *_named(training, TRAINING)]),
        "Figures on the validation data": _figures_part(summary),
        "Use": f"```sh\n{commands}\n```\n\n```python\nimport elman\n\n"
        f'elman.load({name!r}).predict(["a line of text"])\n```',
        "Limits": _limits(summary),
    }
    body = "\n\n".join(f"## {heading}\n\n{part}" for heading, part in sections.items())
    return f"# {summary.title()}\n\nThe run {_cell(name)}, trained with Elman.\n\n{body}\n"


def _data_part(summary: Summary) -> str:
    start = summary.start
    seen = {
        "train": {"examples": start.get("examples"), "tokens": start.get("tokens")},
        "dev": {"examples": start.get("dev_examples")},
    }
    rows = []
    for part, name in (("train", "training"), ("dev", "validation")):
        known = seen[part] | summary.data.get(part, {})
        counts = [f"{known[key]:,}" if known.get(key) is not None else "" for key in ("examples", "tokens")]
        digest = f"`{known['sha256']}`" if known.get("sha256") else ""
        rows.append(f"| {name} | {_data_name(summary, part)} | {' | '.join(counts)} | {digest} |")
        repairs = known.get("repairs") or {}
        rows += [f"| | repaired: {_cell(repair)}, {count:,} × | | | |" for repair, count in repairs.items()]
    return "\n".join(["| part | file | examples | tokens | SHA-256 |", "|---|---|---:|---:|---|", *rows])


def _figures_part(summary: Summary) -> str:
    best = summary.best
    if best is None:
        return "None: training ended before its first validation."
    shown = _all_figures(best)
    rows = [f"| {_cell(name)} | {number(value)} |" for name, value in shown.items()]
    chosen = f"At update {best['update']:,}, chosen by {summary.metric}:"
    return "\n".join([chosen, "", "| figure | value |", "|---|---:|", *rows])


def _limits(summary: Summary) -> str:
    trained, judged = _data_name(summary, "train"), _data_name(summary, "dev")
    return (
        f"Trained on {trained}, judged on {judged}. The validation data also chose the update that is kept, "
        "so that these figures are a little better than those on fresh text of the same kind, and they say "
        "nothing about text of another kind. Measure on your own data with `elman evaluate` before relying "
        "on them."
    )


def _data_name(summary: Summary, part: str) -> str:
    """The name of a file, without its folders, which are nobody else's business; and whether it is a part."""
    known = summary.data.get(part, {})
    settings = summary.settings.get("data", {})
    paths = [str(known.get("path") or settings.get(part) or ""), str(known.get("target") or "")]
    names = [path if path.startswith("builtin:") else Path(path).name for path in paths if path]
    if not names:
        return "unnamed data" if part == "train" else f"a part of {_data_name(summary, 'train')}"
    portion = {"held-out": " (the part held out)", "kept": " (all but the part held out)"}
    return _cell(" and ".join(names)) + portion.get(known.get("part") or "", "")


def _named(settings: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """``name: value`` of those settings that say something; of a path, the file's name."""
    told = {name: settings[name] for name in names if settings.get(name) not in (None, "", "none", 0, False)}
    if "vectors" in told:
        told["vectors"] = Path(str(told["vectors"])).name
    return [f"{name.replace('_', ' ')}: {value}" for name, value in told.items()]


def _list(lines: Iterable[str]) -> str:
    return "\n".join(f"- {_cell(line)}" for line in lines)


def _cell(text: str) -> str:
    """Text that no Markdown table takes for its own marks."""
    return printable(text).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("`", "\\`")


# Small parts


def _html(text: str, *, lines: bool = False) -> str:
    if lines:
        return "\n".join(_html(line) for line in text.split("\n"))
    return escape(printable(text))


def _count(value: int) -> str:
    """A large count in three digits.

    >>> _count(912), _count(1_234_567), _count(999_999)
    ('912', '1.23 M', '1 M')
    """
    for size, unit in ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")):
        if value >= 0.9995 * size:
            return f"{value / size:.3g} {unit}"
    return str(value)


def _all_figures(event: Event) -> dict[str, float]:
    """Every number of a validation, counts included."""
    known = {name: value for name, value in event.items() if name not in ("update", "epoch", "improved")}
    return {name: v for name, v in known.items() if isinstance(v, (int, float)) and math.isfinite(v)}


def _range(values: Iterable[float]) -> tuple[float, float]:
    known = list(values)
    return min(known), max(known)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise RunError(f"{path} is missing; name the folder of a run") from None
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}") from None


def _write(path: Path, text: str) -> Path:
    """Write into a temporary file beside it and rename it, so that a reader never sees half of it."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_bytes(text.encode("utf-8", errors="replace"))
    return temporary.replace(path)
