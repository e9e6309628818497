"""What a training says while it runs: one live line on a terminal, sparse plain lines elsewhere."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, TextIO

from elman.presentation.events import Event, measures
from elman.presentation.wording import duration, number, printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

EVERY_SECONDS = 30.0  # of training that lie between two plain lines about updates
SAMPLES = 3  # shown after a validation
WIDE = 105  # columns of a terminal where the live line has room for everything


class Progress:
    """An observer that talks to ``stream`` (stderr): a bar and a line a validation, or plain lines.

    Plain lines come where the stream is no terminal: one a validation, and one about the updates every 30 s
    of training. ``quiet`` says nothing at all; ``only`` names the one measure of a validation that is shown.

    >>> progress = Progress(stream=sys.stdout)
    >>> progress({"event": "start", "update": 0, "task": "tag", "updates": 20})
    >>> progress({"event": "validation", "update": 10, "epoch": 1.0, "loss": 0.5, "improved": True})
    epoch 1.00  update 10  loss 0.5000  ★
    >>> progress.close()
    """

    def __init__(self, *, stream: TextIO | None = None, quiet: bool = False, only: str | None = None) -> None:
        self.stream = sys.stderr if stream is None else stream
        self.quiet, self.only = quiet, only
        self._pace = Pace(None)
        self._said: float | None = None  # seconds of training at the last plain line about updates
        self._screen: _Screen | None = None
        if not quiet and self.stream.isatty() and os.environ.get("TERM") != "dumb":
            self._screen = _Screen(self.stream)

    def __call__(self, event: Event) -> None:
        if self.quiet:
            return
        match event["event"]:
            case "start":
                self._pace = Pace(event.get("updates"))
                self._pace.begin(int(event.get("resumed_at") or 0), event.get("time", {}).get("seconds"))
            case "update":
                self._update(event)
            case "validation":
                self._validation(event)
            case "end":
                self.close()

    def close(self) -> None:
        """Leave the terminal as it was; may be called at any time, and twice."""
        if self._screen is not None:
            self._screen.stop()

    def _update(self, event: Event) -> None:
        seconds = float(event["time"]["seconds"])
        self._pace.note(event["update"], seconds)
        if self._screen is not None:
            self._screen.show(event["update"], self._pace.total, self._line(event))
            return
        if self._said is None:
            self._said = self._pace.start[1] if self._pace.start else seconds
        if seconds - self._said >= EVERY_SECONDS:
            self._said = seconds
            print(f"update {self._line(event)}", file=self.stream, flush=True)

    def _line(self, event: Event) -> str:
        """``50/7,840 (1%)  loss 1.2300  rate 0.0012  norm 0.8000  6,600 tokens/s  12 min 30 s left``."""
        total = self._pace.total
        share = f"/{total:,} ({event['update'] / total:.0%})" if total else ""
        parts = [f"loss {number(event['loss'])}"]
        if self._screen is None or self._screen.console.width >= WIDE:
            parts += [f"rate {number(event['rate'])}", f"norm {number(event['gradient_norm'])}"]
        speed, left = event["time"].get("tokens_per_second"), self._pace.left()
        parts += [f"{speed:,.0f} tokens/s"] if speed is not None else []
        parts += [f"{duration(left)} left"] if left is not None else []
        return "  ".join([f"{event['update']:,}{share}", *parts])

    def _validation(self, event: Event) -> None:
        known = measures(event) if self.only is None else {self.only: event[self.only]}
        shown = "  ".join(f"{name} {number(value)}" for name, value in known.items())
        line = f"epoch {event['epoch']:.2f}  update {event['update']:,}  {shown}"
        line += "  ★" if event.get("improved") else ""
        if self._screen is None:
            print(line, file=self.stream, flush=True)
            return
        self._screen.say(line, style="bold" if event.get("improved") else "")
        for sample in event.get("samples", ())[: SAMPLES if self.only is None else 0]:
            self._screen.say(f"    {printable(sample)}", style="dim", short=True)


class Pace:
    """How long the rest takes, by the updates of this session alone: an earlier one may have run elsewhere.

    >>> pace = Pace(100)
    >>> pace.begin(60, 500.0)  # continued at update 60, after 500 s of earlier sessions
    >>> pace.note(80, 510.0)
    >>> pace.left()
    10.0
    """

    def __init__(self, total: int | None) -> None:
        self.total = total
        self.start: tuple[int, float] | None = None
        self.now: tuple[int, float] | None = None

    def begin(self, update: int, seconds: float | None) -> None:
        """A session starts here; where its clock is unknown, the first note takes the place of the start."""
        if seconds is not None or update == 0:
            self.start = update, seconds or 0.0

    def note(self, update: int, seconds: float) -> None:
        self.now = update, seconds
        self.start = self.start or self.now

    def left(self) -> float | None:
        """Seconds to the end, or None where nothing can be said yet."""
        if self.total is None or self.now is None or self.start is None or self.now[0] <= self.start[0]:
            return None
        pace = (self.now[1] - self.start[1]) / (self.now[0] - self.start[0])
        return max(0.0, (self.total - self.now[0]) * pace)


class _Screen:
    """The live line; rich is needed only here. It draws when told to: no thread beside the training."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console

        self.console: Console = Console(file=stream, highlight=False, markup=False, emoji=False)
        self.bar: Bar | None = None
        self.task: TaskID | None = None

    def show(self, update: int, total: int | None, line: str) -> None:
        if self.bar is None or self.task is None:
            self.bar = self._make_bar()
            self.task = self.bar.add_task("", total=total, completed=update, line=line)
            self.bar.start()
        self.bar.update(self.task, completed=update, line=line, refresh=True)

    def _make_bar(self) -> Bar:
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bar
        from rich.table import Column

        line = TextColumn("{task.fields[line]}", markup=False, table_column=Column(no_wrap=True))
        bar = BarColumn(bar_width=None, table_column=Column(ratio=1, min_width=6))
        # stdout is for data
        told = Bar(bar, line, console=self.console, auto_refresh=False, transient=True, redirect_stdout=False)
        told.expand = True
        return told

    def say(self, line: str, *, style: str = "", short: bool = False) -> None:
        from rich.text import Text  # a style given to print would colour the bar below as well

        self.console.print(Text(line, style), no_wrap=short, overflow="ellipsis" if short else None)

    def stop(self) -> None:
        if self.bar is not None:
            self.bar.stop()
        self.bar = self.task = None
