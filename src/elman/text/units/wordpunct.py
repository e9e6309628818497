"""Words with their punctuation split off, and text again with the spaces where they were."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Literal, NamedTuple

from elman.text.scripts import UNSPACED_LETTERS
from elman.text.units.base import Unit

GLUED, SPACED = MARKS = "￭", "▁"  # before a token: no space stood before it, or one did, against the rule
REMEMBERED = 100_000  # runs of characters between spaces whose pieces are kept
SHORT = 2  # letters after an apostrophe that belong to it, as 's and 't; before more of them it is l' and d'
PLAIN = ".,;:!?"  # signs that end a word
APOSTROPHES = "'’"
LATIN = "\u0250"  # what begins with a letter below is in this script

Space = Literal["space", "none", "same", "turned"]


class Habit(NamedTuple):
    """Where a token has its spaces if nothing is marked.

    after: ``same`` as before it; ``turned``: where there was one before, there is none after, and vice versa.
    """

    before: bool
    after: Space


WORD, CLOSING, OPENING = Habit(True, "space"), Habit(False, "space"), Habit(True, "none")
LOOSE, LINK, INNER = Habit(True, "same"), Habit(False, "same"), Habit(False, "none")
QUOTE, CURRENCY = Habit(True, "turned"), Habit(True, "turned")  # a quotation mark also closes what it opened
HABITS = {
    **dict.fromkeys(".,;:!?…)]}%‰°»”›።۔؟،؛।॥", CLOSING),
    **dict.fromkeys("([{«“„‹¿¡#@", OPENING),
    **dict.fromkeys("$£€¥₹₽¢", CURRENCY),
    **dict.fromkeys("-‐‑/\\_~^ʼ·’‘", LINK),
    **dict.fromkeys("。，、！？：；「」『』（）《》〈〉【】〔〕・～．", INNER),
    **dict.fromkeys("\"'`´", QUOTE),
    "...": CLOSING,
    "--": LOOSE,
    "\n": INNER,  # which a language model of lines writes
}


class WordPunct(Unit):
    """Words, numbers and signs apart; joined text is exact but for the kind and number of its spaces.

    Spaces are where they usually are: none before a full stop, none after an opening bracket. A token is
    marked where its text has it otherwise: ``￭`` for no space before it, ``▁`` for a space. So the words of a
    text are words, and nearly all signs are plain, too. Letters of scripts without spaces stand alone.

    >>> unit = WordPunct()
    >>> unit.cut("Don't (ever) pay $3.50, or 3 .")
    ['Don', "'t", '(', 'ever', ')', 'pay', '$', '3.50', ',', 'or', '3', '▁.']
    >>> unit.join(_)
    "Don't (ever) pay $3.50, or 3 ."
    """

    def __init__(self, *, lowercase: bool = False) -> None:
        super().__init__(lowercase=lowercase)
        self._known: dict[str, list[tuple[str, Habit]]] = {}

    def cut(self, text: str) -> list[str]:
        spacing, tokens = Spacing(), list[str]()
        for run in text.split():
            pieces = self._pieces(run)
            if spacing.after and len(pieces) == 1 and pieces[0][1] is WORD:
                tokens.append(run)  # a word after a word
                continue
            space = bool(tokens)
            for piece, habit in pieces:
                expected = spacing.take(piece, habit, space)
                plain = space == expected and piece[0] not in MARKS
                tokens.append(piece if plain else (SPACED if space else GLUED) + piece)
                space = False
        return tokens

    def join(self, tokens: Sequence[str]) -> str:
        spacing, parts = Spacing(), list[str]()
        for token in tokens:
            mark, piece = split_mark(token)
            habit = habit_of(piece)
            space = bool(parts) and (mark == SPACED if mark else spacing.expected(piece, habit))
            spacing.take(piece, habit, space)
            parts.append(f" {piece}" if space else piece)
        return "".join(parts)

    def _pieces(self, run: str) -> list[tuple[str, Habit]]:
        known = self._known.get(run)
        if known is None:
            if run.isascii():  # most are a word, or a word and a sign
                if run.isalpha():
                    return [(run, WORD)]
                if run[-1] in PLAIN and run[:-1].isalpha() and len(run) > 2:
                    return [(run[:-1], WORD), (run[-1], CLOSING)]
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            known = self._known[run] = [(piece, habit_of(piece)) for piece in pieces_of(run)]
        return known


class Spacing:
    """Whether a space is expected before the next token of a text, from those before it.

    after: is one expected after the token before?
    """

    def __init__(self) -> None:
        self.after = False
        self._first = True
        self._open: set[str] = set()  # quotation marks

    def expected(self, piece: str, habit: Habit) -> bool:
        return self.after and habit.before and not (habit is QUOTE and piece in self._open)

    def take(self, piece: str, habit: Habit, space: bool) -> bool:
        """A token comes, after a space or not; whether a space was expected."""
        expected = self.expected(piece, habit)
        if habit.after == "turned":
            closes = self.after and not space  # after a bracket, say, none is expected, and it opens
            if habit is QUOTE:
                (self._open.discard if closes else self._open.add)(piece)
            self.after = closes
        elif habit.after == "same":
            self.after = space or self._first
        else:
            self.after = habit.after == "space"
        self._first = False
        return expected


def habit_of(piece: str) -> Habit:
    """Where the spaces of a token usually are.

    >>> habit_of("l'") is OPENING, habit_of("'s") is CLOSING, habit_of("日") is INNER
    (True, True, True)
    """
    known = HABITS.get(piece)
    if known is not None or not piece:
        return known or WORD
    first, last = piece[0], piece[-1]
    if first in APOSTROPHES:
        return INNER if last in APOSTROPHES else CLOSING
    if last in APOSTROPHES:
        return OPENING
    if first > "\u0e00" and unspaced().match(first):
        return INNER
    word = first.isalnum() or first == "_" or (first == "<" and last == ">")
    return WORD if word else HABITS.get(first, LOOSE)


def pieces_of(run: str) -> Iterator[str]:
    """What stands between two spaces, cut.

    >>> [*pieces_of("l'homme,"), *pieces_of("U.S.-made"), *pieces_of("1,000.5€")]
    ["l'", 'homme', ',', 'U.S.', '-', 'made', '1,000.5', '€']
    >>> [*pieces_of("a@b.org:"), *pieces_of("https://b.org/x?y=1."), *pieces_of("iPhoneを")]
    ['a@b.org', ':', 'https://b.org/x?y=1', '.', 'iPhone', 'を']
    """
    if run.isalpha() and run.isascii():  # most are
        yield run
        return
    for found in pattern().finditer(run):
        latin = found["word"] and found[0] < LATIN  # elsewhere an apostrophe may be a letter
        yield from contracted(found[0]) if latin else (found[0],)


def contracted(word: str) -> Iterator[str]:
    """A word that may have apostrophes: it is cut before a short ending, and after all else.

    >>> [*contracted("don't"), *contracted("dell'arte"), *contracted("rock'n'roll")]
    ['don', "'t", "dell'", 'arte', 'rock', "'n'", 'roll']
    """
    part, *more = re.split(f"([{APOSTROPHES}])", word)
    for sign, ending in zip(more[::2], more[1::2], strict=True):
        short = len(ending) <= SHORT
        yield part if short else part + sign
        part = sign + ending if short else ending
    yield part


@cache
def unspaced() -> re.Pattern[str]:
    return re.compile(f"[{UNSPACED_LETTERS}]")


def is_mark(character: str) -> bool:
    """Does a character belong to the letter before it?"""
    combining = "\u0300" <= character < "\U0001f000" and unicodedata.category(character)[0] == "M"
    return combining or character in "\u200c\u200d\ufe0f"


@cache
def pattern() -> re.Pattern[str]:
    """A token between spaces; a letter takes its combining marks along, and an emoji what changes it."""
    mark = f"[{''.join(filter(is_mark, map(chr, range(0x300, 0x1F000))))}]*"
    letter, unspaced_letter = f"[^\\W{UNSPACED_LETTERS}]{mark}", f"[{UNSPACED_LETTERS}]{mark}"
    picture = "[\u2190-\u2bff\U0001f000-\U0001faff]"
    kinds = (
        r"(?:https?://|www\.)[^\s<>\"]*[\w/]",
        r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+",
        r"</?\w+>",
        r"(?:[^\W\d_]\.){2,}",
        r"\d+(?:[.,:]\d+)+",
        unspaced_letter,
        f"(?P<word>(?:{letter})+(?:[{APOSTROPHES}](?:{letter})+)*)",
        r"\.\.\.|--",
        "[\U0001f1e6-\U0001f1ff]{2}",
        f"{picture}(?:[\U0001f3fb-\U0001f3ff\ufe0f]|\u200d{picture})*",
        rf"\S{mark}",
    )
    return re.compile("|".join(kinds))


def split_mark(token: str) -> tuple[str, str]:
    """The mark before a token, if it has one, and the rest.

    >>> split_mark("￭end"), split_mark("▁"), split_mark("end")
    (('￭', 'end'), ('', '▁'), ('', 'end'))
    """
    return (token[0], token[1:]) if len(token) > 1 and token[0] in MARKS else ("", token)
