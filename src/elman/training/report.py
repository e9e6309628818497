"""What a run leaves for those who train: ``report.html`` with learning curves, figures and samples."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from elman.training.curves import Point, Series, chart, curve
from elman.training.progress import Event, duration, figures, number, printable
from elman.training.summary import Summary, all_figures, write_whole

ROWS = 100  # of the table of samples, at most
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


def write_report(run: Path) -> Path:
    """Write ``RUN/report.html``, one file that needs nothing else, from what the run holds by now."""
    return write_whole(run / "report.html", _page(Summary.of(run)))


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
    shown = all_figures(best)
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
