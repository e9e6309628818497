"""Inspections as files: a page, the numbers, or the picture of a part."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from elman.errors import ArgumentError, nearest
from elman.inspection.labels import visible
from elman.inspection.plain import Plain, decimals_of, many
from elman.inspection.states import Strip
from elman.storage.files import explained, replacing, write_bytes

if TYPE_CHECKING:
    from elman.inspection.inspection import Inspection

PARTS = ("unrolled", "gates", "gradients", "attention", "beam", "influence", "neighbours", "example")
ENDINGS = (".html", ".json", ".png", ".svg", ".pdf")
PAGE = Path(__file__).parent / "page"
SCRIPTS = ("drawing.js", "parts.js", "page.js")  # modules; a page of one file has them as one script
MODULE_LINES = re.compile(r"^import .*\n|^export ", re.MULTILINE)
SHORT = 40  # tokens, up to which a page stays small
NUMBERS = {True: 300_000, False: 1_800_000}  # of gates and states that a page holds, of a short text or not


def check_ending(path: Path) -> None:
    if path.suffix.lower() not in ENDINGS:
        raise ArgumentError(f"path is '{path}'; its ending must be one of {', '.join(ENDINGS)}")
    if not path.parent.is_dir():
        raise ArgumentError(f"path is '{path}'; there is no folder {path.parent}")


def check_parts(parts: Sequence[str] | None) -> Sequence[str]:
    for part in parts or ():
        if part not in PARTS:
            raise ArgumentError(f"part is {part!r}; {nearest(part, PARTS)}")
    return PARTS if parts is None else parts


def written(inspections: Sequence[Inspection]) -> str:
    """Inspections as JSON: an object, or of several a list."""
    rows = [one.as_json() for one in inspections]
    return json.dumps(rows[0] if len(rows) == 1 else rows, ensure_ascii=False, allow_nan=False) + "\n"


def save(path: Path, inspections: Sequence[Inspection], part: str | None = None) -> None:
    """Write inspections side by side; a picture is of one part."""
    check_ending(path)
    ending = path.suffix.lower()
    with explained(path):
        if part is not None and ending != ".json":
            check_parts([part])
            if all(getattr(one, part) in (None, []) for one in inspections):
                raise ArgumentError(
                    f"{part} has no meaning for {inspections[0].task} here: there is nothing to draw"
                )
        if ending in (".html", ".json"):
            text = page(inspections) if ending == ".html" else written(inspections)
            write_bytes(path, text.encode("utf-8", errors="replace"))
            return
        if part is None:
            raise ArgumentError(f"{path}: a picture is of one part; name it, as in part='gates'")
        from elman.inspection.part_figures import part_figure  # alone needs matplotlib

        figure = part_figure(part, inspections)
        with replacing(path) as temporary:
            figure.savefig(temporary, format=ending[1:], bbox_inches="tight", pad_inches=0.15)


def page(inspections: Sequence[Inspection]) -> str:
    """One file that needs no other: the numbers, what draws them, and its style."""
    data = [_packed(one) for one in inspections]
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # No tag and no end of a script may stand in the data; half of a surrogate pair is no UTF-8.
    text = text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    parts = {name: (PAGE / name).read_text(encoding="utf-8") for name in ("page.html", "page.css")}
    script = "".join((PAGE / name).read_text(encoding="utf-8") for name in SCRIPTS)
    title = visible(f"{inspections[0].text} – {inspections[0].run or inspections[0].task}", space=" ")[:100]
    filled = parts["page.html"].replace("/* style */", parts["page.css"])
    filled = filled.replace("/* script */", '"use strict";\n' + MODULE_LINES.sub("", script))
    filled = filled.replace("<title></title>", f"<title>{_text(title)}</title>")
    return filled.replace("/* data */", text)


def _text(value: str) -> str:
    return value.replace("&", "&amp;").replace("<", "&lt;")


def _packed(one: Inspection) -> dict[str, Plain]:
    """As its JSON, with gates and states as 16-bit numbers; of very many units those that follow most."""
    found = one.as_json()
    if one.gates is None:
        return found
    total = sum(strip.values.size for strip in one.gates)
    longest = max((len(strip.tokens) for strip in one.gates), default=0)
    share = min(1.0, NUMBERS[longest <= SHORT] / max(total, 1))
    rows = found["gates"]
    assert isinstance(rows, list)
    for row, strip in zip(rows, one.gates, strict=True):
        assert isinstance(row, dict)
        row |= _units(strip, max(1, int(share * strip.values.shape[1])))
    return found


def _units(strip: Strip, count: int) -> dict[str, Plain]:
    kept = sorted(strip.order[:count])
    decimals = decimals_of(strip.values)
    numbers = np.round(many(strip.values)[:, kept] * 10.0**decimals).clip(-32768, 32767).astype("<i2")
    places = {unit: place for place, unit in enumerate(kept)}
    return {
        "values": base64.b64encode(numbers.tobytes()).decode(),
        "decimals": decimals,
        "units": [*kept],
        "all": strip.values.shape[1],
        "order": [places[unit] for unit in strip.order[:count]],
        "follows": [[strip.follows[unit][0], round(strip.follows[unit][1], 3)] for unit in kept],
    }
