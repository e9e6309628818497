"""Inputs without end: a row is an entry point's name, what makes an input, and what must hold of it.

In the suite Hypothesis plays the random numbers: the cases are the same every time, and one that fails is
made small. ``ELMAN_FUZZ=1000000`` draws so many from Python's own generator, which is far faster; a case that
fails is named by its number, and ``ELMAN_FUZZ_FROM`` begins there.
"""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elman.errors import ElmanError

LONG = int(os.environ.get("ELMAN_FUZZ", "0"))
FIRST = int(os.environ.get("ELMAN_FUZZ_FROM", "0"))
LONGEST_MESSAGE = 3000  # characters: a message is read by people

# What parsers trip over, whatever they parse.
TOKENS = (
    *(b"\0", b"\r", b"\n", b"\r\n", b"\n\n", b"\t", b" ", b"  ", b'"', b'""', b"'", b"\\", b",", b";", b"="),
    *(b"\xef\xbb\xbf", b"\xff\xfe", b"\x1f\x8b", b"\x80", b"\xc3", b"\xed\xa0\x80", b"\xf0\x9f\x98\x80"),
    *("\u2028".encode(), "\u0085".encode(), "\u00a0".encode(), "e\u0301".encode(), "İ".encode()),
    *(
        b"[",
        b"]",
        b"{",
        b"}",
        b"[[",
        b"#",
        b"-",
        b"_",
        b".",
        b":",
        b"<",
        b">",
        b"&",
        b"|",
        b"$",
        b"%s",
        b"{0}",
    ),
    *(b"0", b"-1", b"1e999", b"nan", b"inf", b"NaN", b"-Infinity", b"null", b"true", b"9" * 20, b"9" * 5000),
    *(b"[" * 3000, b'{"a":' * 3000, b"a." * 3000, b"0x" + b"f" * 5000, b"\\ud800", b"\\u0000", b"x" * 300),
)


class Entry(NamedTuple):
    """A row: ``check`` uses the entry point as its users do; an ElmanError that it lets go is a refusal.

    ``examples`` is how many cases the suite tries, about a second's worth.
    """

    name: str
    make: Callable[[Random], Any]
    check: Callable[[Any, Path], None]
    examples: int = 250


def fuzz(entry: Entry, folder: Path) -> None:
    """Every case is accepted or refused in words; ``folder`` is for the files of a case."""
    if LONG:
        began = time.perf_counter()
        for number in range(FIRST, FIRST + LONG):
            case = entry.make(Random(number))
            try:
                attempt(entry, case, folder)
            except BaseException as error:
                error.add_note(f"{entry.name}, case {number}: {case!r:.2000}")
                raise
        seconds = time.perf_counter() - began
        print(f"\n{entry.name}: {LONG:,} cases in {seconds:.0f} s, {LONG / seconds:,.0f} a second")
        return

    @settings(
        max_examples=entry.examples,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.randoms(use_true_random=False))
    def every(random: Random) -> None:
        attempt(entry, entry.make(random), folder)

    every()


def attempt(entry: Entry, case: Any, folder: Path) -> None:
    try:
        entry.check(case, folder)
    except ElmanError as error:
        check_message(error)


def check_message(error: ElmanError) -> None:
    """Whatever was refused, the message is short, has its number, and steers no terminal."""
    message = str(error)
    assert error.number in message, message
    assert len(message) < LONGEST_MESSAGE, (len(message), message[:200])
    assert message.replace("\n", "").isprintable(), repr(message)


def mutated(random: Random, corpus: Sequence[bytes], tokens: Sequence[bytes] = ()) -> bytes:
    """One of the corpus with a few changes: bytes flipped, cut out, repeated, moved, or put in."""
    data = random.choice(corpus)
    for _ in range(random.randint(0, 4)):
        start = random.randint(0, len(data))
        end = min(len(data), start + random.choice((1, 1, 2, 5, 20, 100)))
        before, part, after = data[:start], data[start:end], data[end:]
        match random.randrange(7):
            case 0:
                part = bytes([random.randrange(256)]) + part[1:]
            case 1:
                part = b""
            case 2:
                part = part * random.choice((2, 3, 10))
            case 3:
                part = random.choice(corpus)[start:]
            case 4:
                before, part = b"", before + after + part
                after = b""
            case _:
                part = random.choice(random.choice((TOKENS, tokens)) or TOKENS) + part
        data = before + part + after
    return data


def text(random: Random, letters: str, longest: int = 12) -> str:
    """Some of the letters, and now and then any character at all, half of a surrogate pair included."""
    drawn = random.choices(letters, k=random.randint(0, longest))
    if drawn and random.random() < 0.1:
        drawn[random.randrange(len(drawn))] = chr(random.choice((random.randrange(0x300), 0xD800, 0x10FFFF)))
    return "".join(drawn)


def damaged(random: Random, value: Any) -> Any:
    """A value as JSON has them, with one of its parts lost or replaced by something else."""
    if random.random() < 0.9 and value and isinstance(value, (dict, list)):
        keys = list(value) if isinstance(value, dict) else range(len(value))
        key = random.choice(keys)
        changed = damaged(random, value[key])
        parts = dict(value) if isinstance(value, dict) else dict(enumerate(value))
        if random.random() < 0.1:
            del parts[key]
        else:
            parts[key] = changed
        return parts if isinstance(value, dict) else list(parts.values())
    other = (
        None,
        True,
        0,
        -1,
        1 << 70,
        1e308,
        "",
        "a",
        "\ud800",
        "x" * 300,
        [],
        ["a", "a"],
        {},
        {"a": [{}]},
        value,
    )
    return random.choice(other)
