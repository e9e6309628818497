"""This module shows alignments as a page of shaded tables, in one file that needs no other."""

from collections.abc import Sequence
from html import escape

from elman.inspection.alignment import Alignment
from elman.inspection.labels import shortened, stands, visible

STYLE = """
:root { color-scheme: light dark; --paper: #fbfaf7; --card: #fff; --ink: 29 33 41; --faint: #6b7280;
  --line: #e4e2dc; --lit: 47 111 222; }
@media screen and (prefers-color-scheme: dark) { :root { --paper: #14161a; --card: #1c1f25;
  --ink: 231 230 227; --faint: #9aa1ad; --line: #30343c; --lit: 122 167 255; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: rgb(var(--ink)); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1500px; margin: 0 auto; padding: 32px 24px 64px; }
h1 { font-size: 26px; line-height: 1.2; letter-spacing: -.02em; margin: 0 0 4px; }
p { color: var(--faint); margin: 0 0 24px; }
figure { margin: 0 0 20px; padding: 14px 16px 16px; background: var(--card); border: 1px solid var(--line);
  border-radius: 12px; width: fit-content; min-width: min(100%, 260px); max-width: 100%;
  break-inside: avoid; }
figcaption { font-weight: 600; margin-bottom: 10px; overflow-wrap: anywhere; }
.box { overflow: auto; max-height: 85vh; }
table { border-collapse: separate; border-spacing: 0; }
th { font-weight: 400; background: var(--card); white-space: nowrap; }
thead th { position: sticky; top: 0; z-index: 1; vertical-align: bottom; padding: 0 0 5px; }
tbody th { position: sticky; left: 0; z-index: 1; text-align: right; padding: 0 8px 0 0; }
thead th:first-child { left: 0; z-index: 2; color: var(--faint); font-size: 11px; text-align: right;
  padding: 0 8px 5px 0; }
.turned span { writing-mode: vertical-rl; display: inline-block; line-height: 1.2; }
td { width: 36px; min-width: 36px; height: 28px; padding: 0; text-align: center; font-size: 11px;
  font-variant-numeric: tabular-nums; background: rgb(var(--ink) / var(--w, 0)); color: rgb(var(--ink));
  border: solid var(--line); border-width: 0 1px 1px 0; }
td.dark { color: var(--card); }
tbody tr:first-child td { border-top-width: 1px; } td:nth-child(2) { border-left-width: 1px; }
.dense { font-size: 12px; line-height: 1.2; }
.dense td { width: 19px; min-width: 19px; height: 19px; font-size: 0; }
tbody tr:hover td, td.lit { box-shadow: inset 0 0 0 99px rgb(var(--lit) / .16); }
tbody tr:hover th, th.lit { color: rgb(var(--lit)); font-weight: 600; }
td:hover { outline: 2px solid rgb(var(--lit)); outline-offset: -1px; }
@media print { :root { --paper: #fff; } .box { max-height: none; overflow: visible; }
  td { print-color-adjust: exact; -webkit-print-color-adjust: exact; } th { position: static !important; } }
"""

# Only the column under the pointer needs it: rows are the style sheet's.
SCRIPT = """
document.addEventListener("pointerover", ({ target }) => {
  document.querySelectorAll(".lit").forEach(cell => cell.classList.remove("lit"));
  const under = target.closest("td");
  if (under) for (const row of under.closest("table").rows) row.cells[under.cellIndex].classList.add("lit");
});
"""


def alignment_page(alignments: Sequence[Alignment]) -> str:
    """Return the page with all alignments, one table each.

    >>> import numpy as np
    >>> found = Alignment(["das", "Haus"], ["the", "house"], np.array([[0.9, 0.1], [0.2, 0.8]]))
    >>> alignment_page([found]).count("<td")
    4
    """
    tables = "\n".join(_table(one, number) for number, one in enumerate(alignments, 1))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Alignments</title>
<style>{STYLE}</style>
</head>
<body>
<main>
<h1>Alignments</h1>
<p>Columns are source tokens, rows are output tokens; a cell shows how much of its attention an output
token gave to a source token. Every row sums to 1.</p>
{tables}
</main>
<script>{SCRIPT}</script>
</body>
</html>
"""


def _table(alignment: Alignment, number: int) -> str:
    source, output = [*map(visible, alignment.source)], [*map(visible, alignment.output)]
    title = visible(alignment.title, space=" ") or f"Alignment {number}"
    dense = len(source) > 24
    turned = max(map(len, source), default=0) > (1 if dense else 3)
    heads = "".join(_head(label, "col", turned=turned and not stands(label)) for label in source)
    rows = "\n".join(
        f"<tr>{_head(label, 'row')}{''.join(map(_cell, weights))}</tr>"
        for label, weights in zip(output, alignment.weights, strict=True)
    )
    kind = ' class="dense"' if dense else ""
    return f"""<figure>
<figcaption id="title-{number}" dir="auto" lang="">{escape(title)}</figcaption>
<div class="box" tabindex="0" role="group" aria-labelledby="title-{number}">
<table{kind} lang="" aria-labelledby="title-{number}">
<thead><tr><th scope="col" lang="en">output ╲ source</th>{heads}</tr></thead>
<tbody>
{rows}
</tbody>
</table>
</div>
</figure>"""


def _head(label: str, scope: str, *, turned: bool = False) -> str:
    short, kind = shortened(label), ' class="turned"' if turned else ""
    whole = "" if short == label else f' title="{escape(label)}"'
    return f'<th scope="{scope}"{kind}{whole}><span dir="auto">{escape(short)}</span></th>'


def _cell(weight: float) -> str:
    """The shade, the number, and more of its digits under the pointer; next to nothing stays empty."""
    if weight < 0.005:
        return f'<td title="{weight:.3f}"></td>'
    dark = ' class="dark"' if weight > 0.5 else ""
    return f'<td{dark} style="--w:{weight:.2f}" title="{weight:.3f}">{weight:.2f}</td>'
