"""Pairs of texts: those that hardly belong together, and those whose sides are the same."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator
from heapq import heappushpop

import numpy as np

from elman.examination.examples import Check, Example, View
from elman.examination.findings import SHOWN, Cases, Finding, Place, counted, graded, share

ENOUGH = 20  # characters of the longer side, below which a ratio of lengths says nothing
FACTOR = 3.0  # times the usual ratio, at least, of a pair that is said to be wrong
WIDE = 6.0  # times the usual deviation from the usual ratio


class Pairs(Check):
    """Both sides of the training pairs, compared by length and letter by letter."""

    def __init__(self, view: View) -> None:
        self.source, self.target = view.texts
        self.count, self.same = 0, Cases()
        self.ratios = array("f")
        self.lowest: list[tuple[float, int, Place]] = []  # the pairs of the lowest and the highest ratios
        self.highest: list[tuple[float, int, Place]] = []

    def see(self, example: Example, *, dev: bool) -> None:
        if dev:
            return
        self.count += 1
        source, target = example.texts[self.source], example.texts[self.target]
        if source == target and len(source) >= ENOUGH:
            self.same.add(example.record, self.source)
        if max(len(source), len(target)) >= ENOUGH and source and target:
            ratio = math.log(len(target) / len(source))
            self.ratios.append(ratio)
            self._keep(self.highest, ratio, example)
            self._keep(self.lowest, -ratio, example)

    def _keep(self, kept: list[tuple[float, int, Place]], rank: float, example: Example) -> None:
        if len(kept) == SHOWN and rank <= kept[0][0]:
            return
        place = Place.of(example.record, self.source)
        source, target = (len(example.texts[role]) for role in (self.source, self.target))
        said = f"{source:,} and {target:,} characters: {place.excerpt}"
        entry = (rank, -self.count, place._replace(excerpt=said))
        if len(kept) < SHOWN:
            kept.append(entry)
            kept.sort()
        else:
            heappushpop(kept, entry)

    def findings(self) -> Iterator[Finding]:
        yield from self._ratios()
        if self.same.count:
            part = self.same.count / self.count
            yield graded(
                0.01 < part < 0.2,
                "identical",
                f"{counted(self.same.count, 'pair')} ({share(self.same.count, self.count)}) "
                "with the same text on both sides.",
                "Take them out, unless copying is meant.",
                self.same,
            )

    def _ratios(self) -> Iterator[Finding]:
        if len(self.ratios) < 20:
            return
        ratios = np.frombuffer(self.ratios, dtype=np.float32)
        middle = float(np.median(ratios))
        spread = float(np.median(np.abs(ratios - middle))) * 1.4826
        most = max(math.log(FACTOR), WIDE * spread)
        outside = int((np.abs(ratios - middle) > most).sum())
        if outside:
            ranked = [(rank - middle, place) for rank, _, place in self.highest]
            ranked += [(rank + middle, place) for rank, _, place in self.lowest]
            worst = [place for rank, place in sorted(ranked, key=lambda one: -one[0]) if rank > most][:SHOWN]
            yield graded(
                outside > 0.01 * self.count,
                "length-ratio",
                f"{counted(outside, 'pair')} ({share(outside, self.count)}) whose sides differ in length far "
                f"more than others; usually a {self.target} has {math.exp(middle):.2g} characters for one.",
                "Look whether they belong together: a line too many in one file shifts all that follow.",
                Cases(outside, worst),
            )
