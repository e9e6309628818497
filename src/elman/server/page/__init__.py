"""Which file of the page is served under which name."""

from pathlib import Path

from elman.inspection.saving import PAGE

HERE = Path(__file__).parent
OWN = (
    *("index.html", "style.css", "icon.svg"),
    *("engine.js", "address.js", "answers.js", "changes.js", "views.js", "app.js"),
)
DRAWING = ("page.css", "drawing.js", "parts.js")  # those of ``elman inspect``
ASSETS: dict[str, Path] = {name: HERE / name for name in OWN} | {name: PAGE / name for name in DRAWING}
