"""Single values as dots over a number or over words, in SVG, each with a word that the pointer shows."""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from elman.presentation.curves import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Axis, tick_label


class Dot(NamedTuple):
    """A value at a place; ``word`` is shown under the pointer, ``style`` is a class of the style sheet."""

    x: float | str
    y: float
    word: str
    style: str = "train"


def scatter(
    title: str, dots: Sequence[Dot], *, log: bool = False, line: Sequence[tuple[float, float]] = ()
) -> str:
    """A figure of dots; ``log``: of the numbers across; ``line`` is drawn behind them. Words have columns."""
    words = (
        [*dict.fromkeys(str(dot.x) for dot in dots)] if any(isinstance(dot.x, str) for dot in dots) else []
    )
    places = [float(words.index(str(dot.x))) if words else float(dot.x) for dot in dots]
    low, high = min(places), max(places)
    across = (
        Axis(-0.5, len(words) - 0.5, LEFT, WIDTH - RIGHT)
        if words
        else Axis.around((low, high), LEFT, WIDTH - RIGHT, log=log and low > 0)
    )
    up = Axis.around([dot.y for dot in dots], HEIGHT - BOTTOM, TOP, log=False)
    drawing = []
    for tick in up.ticks():
        y = up.place(tick)
        drawing.append(f'<path class="grid" d="M{LEFT} {y}H{WIDTH - RIGHT}"/>')
        drawing.append(
            f'<text class="tick" x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{tick_label(tick)}</text>'
        )
    drawing.append(f'<path class="axis" d="M{LEFT} {up.start}H{WIDTH - RIGHT}"/>')
    for tick, label in enumerate(words) if words else [(one, tick_label(one)) for one in across.ticks()]:
        x = across.place(tick)
        drawing.append(f'<path class="axis" d="M{x} {up.start}v4"/>')
        drawing.append(
            f'<text class="tick" x="{x}" y="{up.start + 17}" text-anchor="middle">{escape(label)}</text>'
        )
    if line:
        steps = "L".join(f"{across.place(x)} {up.place(y)}" for x, y in line)
        drawing.append(f'<path class="curve best" d="M{steps}"/>')
    for dot, place in zip(dots, places, strict=True):
        radius = 6 if dot.style == "best" else 4.5
        at = f'cx="{across.place(place)}" cy="{up.place(dot.y)}" r="{radius}"'
        drawing.append(f'<circle class="dot {dot.style}" {at}><title>{escape(dot.word)}</title></circle>')
    return (
        f"<figure><figcaption><b>{escape(title)}</b></figcaption>"
        f'<div class="plot"><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">\n'
        + "\n".join(drawing)
        + "\n</svg></div></figure>\n"
    )
