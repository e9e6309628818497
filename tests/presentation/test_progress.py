"""What a training says: a live line on a terminal, sparse plain lines elsewhere, nothing when quiet."""

import io
import re
import subprocess
import sys
from itertools import pairwise

import pytest

from elman.presentation.progress import Pace, Progress
from elman.presentation.wording import printable
from fake_run import fake_events


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(stream, events, **options):
    progress = Progress(stream=stream, **options)
    for event in events:
        progress(event)
    progress.close()
    progress.close()  # the end event has closed it already
    return stream.getvalue()


@pytest.fixture
def terminal(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    return Terminal()


def updates_in(text):
    return [int(found.replace(",", "")) for found in re.findall(r"^update ([\d,]+)", text, re.MULTILINE)]


def test_plain_lines_are_plain_and_sparse():
    text = shown(io.StringIO(), fake_events(2000, 10, 400))  # 0.115 s an update
    assert not re.search(r"[\r\x1b━]", text)
    lines = text.splitlines()
    assert sum(line.startswith("epoch") for line in lines) == 5
    assert lines[1].startswith("epoch 1.00  update 400  loss 0.7")
    assert "accuracy 0.85" in lines[1]
    assert "tokens" not in lines[1]
    assert lines[1].endswith("★")
    said = updates_in(text)
    assert len(said) == 7  # 230 s
    assert all(b - a >= 30 / 0.115 for a, b in pairwise(said))
    assert len(lines) == 12
    assert "  rate 0.00" in lines[0]
    assert "tokens/s  3 min 1" in lines[0]


def test_a_validation_without_improvement_has_no_star():
    event = {
        "event": "validation",
        "update": 7,
        "epoch": 0.5,
        "loss": 1.0,
        "improved": False,
        "samples": ["x"],
    }
    assert shown(io.StringIO(), [event]) == "epoch 0.50  update 7  loss 1.0000\n"


def test_quiet_says_nothing(terminal):
    assert shown(io.StringIO(), fake_events(2000, 10, 400), quiet=True) == ""
    assert shown(terminal, fake_events(2000, 10, 400), quiet=True) == ""


def test_a_terminal_has_a_bar_validations_and_dim_samples(terminal):
    text = shown(terminal, fake_events(800, 40, 400))
    assert "━" in text
    assert "800/800 (100%)" in text
    assert all(word in text for word in ("loss", "rate", "norm", "tokens/s", "left"))
    assert "\x1b[1mepoch 1.00  update 400" in text
    assert "\x1b[2m    The/DET dog/NOUN" in text
    assert "[2m    <b>bold</b>" in text
    assert "\x1b[2;" not in text  # the bar itself is not dimmed
    assert text.endswith("\x1b[?25h") or "\x1b[?25h" in text.rpartition("━")[2]  # the cursor is back


def test_a_narrow_terminal_keeps_the_time_left(terminal, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = shown(terminal, fake_events(800, 40, 400))
    assert "━" in text
    assert "s left" in text
    assert "norm" not in text
    assert "…" not in text


def test_samples_cannot_steer_the_terminal(terminal):
    sample = "\x1b[31mred\r\n[bold]x[/bold] " + "long " * 100
    event = {"event": "validation", "update": 7, "epoch": 0.5, "loss": 1.0, "samples": [sample]}
    text = shown(terminal, [event])
    assert "\x1b[31m" not in text
    assert "[bold]x[/bold]" in text
    assert len(text.splitlines()) == 2
    assert "…" in text
    assert printable("a\tb\x00c\u2028dé\u200c猫") == "a b c dé\u200c猫"


def test_a_dumb_terminal_gets_plain_lines(terminal, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    assert "\x1b" not in shown(terminal, fake_events(800, 40, 400))


def test_time_left_after_a_resume_counts_only_this_session():
    pace = Pace(1000)
    pace.begin(500, None)
    assert pace.left() is None
    pace.note(510, 9000.0)
    assert pace.left() is None  # one reading of the clock tells no speed
    pace.note(520, 9010.0)
    assert pace.left() == 480.0
    pace.note(1000, 9490.0)
    assert pace.left() == 0.0


def test_a_continued_run_speaks_with_and_without_a_start():
    def events(first):
        yield from first
        for update in range(510, 600, 10):
            clock = {"seconds": 9000.0 + update, "tokens_per_second": 10.0}
            yield {
                "event": "update",
                "update": update,
                "loss": 1.0,
                "rate": 0.1,
                "gradient_norm": 1.0,
                "time": clock,
            }

    start = {
        "event": "start",
        "update": 0,
        "updates": 1000,
        "resumed_at": 500,
        "time": {"date": "2026-01-31"},
    }
    text = shown(io.StringIO(), events([start]))
    assert text.splitlines()[0] == (
        "update 540/1,000 (54%)  loss 1.0000  rate 0.1000  norm 1.0000  10 tokens/s  7 min 40 s left"
    )
    assert updates_in(text) == [540, 570]
    assert updates_in(shown(io.StringIO(), events([]))) == [540, 570]


def test_rich_is_imported_for_a_terminal_only():
    code = (
        "import sys, io; from elman.presentation.progress import Progress; "
        "Progress(stream=io.StringIO())({'event': 'start', 'update': 0, 'updates': 1}); "
        "print('rich' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_everything_goes_to_stderr(capsys):
    progress = Progress()
    for event in fake_events(800, 40, 400):
        progress(event)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "update 400" in captured.err
