"""What a token should be, from a look at some texts: the one place that chooses it, for all tasks.

A choice is a value and its reason, as people are told it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from string import punctuation
from typing import Literal

from elman.text.scripts import UNSPACED, scripts_of
from elman.text.vocabulary import UNKNOWN

LOOKED = 200_000  # records that a look reads, at most
KEPT = 20_000  # texts that it keeps, from all of what it read
LETTERS = 4_000_000  # characters of these texts together,
LONGEST = 5_000  # and of one of them

MOSTLY = 0.9  # texts that are single words make a set of words
FEW_SYMBOLS, SYMBOL = 256, 4  # symbols of a small set, and letters of one
WORDY = 6  # letters between two spaces, above which a script without spaces was not cut into words
BRIEF = 40  # letters of a text that goes with single words
PHRASE = 12  # letters of a text in a script without spaces that is a word or two
FEWEST, MOST, WORDS_A_PIECE = 500, 16_000, 40  # pieces that are learned, and how they grow with the text
SOME = 0.05  # signs a text, below which there is too little punctuation to tell anything
MANY_NEW = 0.2  # share of new validation words, from which on no list of words will do

Purpose = Literal["label", "model", "write", "translate"]
Chosen = tuple[str, str]
Row = tuple[str, ...]

# A full stop inside of a text may belong to an abbreviation.
ATTACHED = re.compile(r"\w(?:[,!?;:](?=\s|$)|\.$)")
ALONE = re.compile(r"(?:^|(?<=\s))(?:[,!?;:](?=\s|$)|\.$)")
PUNCTUATION = f"{punctuation}«»“”„‘’…¿¡–—"


@dataclass
class Look:
    """What was seen of the texts of one field: a sample of those for training, and of those for validation.

    more: all that was read is so many times as long as the sample.
    """

    texts: list[str] = field(default_factory=list)
    dev: list[str] = field(default_factory=list)
    more: float = 1.0

    @classmethod
    def at(cls, texts: Iterable[str], dev: Iterable[str] | None = None) -> Look:
        """A look at texts of one kind.

        >>> Look.at(["one", "two"]).texts
        ['one', 'two']
        """
        (found,) = looks(1, ((text,) for text in texts), None if dev is None else ((text,) for text in dev))
        return found

    @cached_property
    def tokens(self) -> Counter[str]:
        """What stands between spaces."""
        return Counter(token for text in self.texts for token in text.split())

    @cached_property
    def words(self) -> int:
        """About how many words all texts have that were read."""
        letters = sum(len(token) * count for token, count in self.tokens.items())
        return round((letters / 2 if self.unspaced else self.tokens.total()) * self.more)

    @cached_property
    def scripts(self) -> Counter[str]:
        return scripts_of(Counter(letter for text in self.texts for letter in text))

    @property
    def unspaced(self) -> list[str]:
        """The scripts without spaces, if most letters are theirs and nobody has put spaces between words."""
        total = self.scripts.total()
        names = [name for name, count in self.scripts.items() if name in UNSPACED and count > total / 20]
        mostly = 2 * sum(self.scripts[name] for name in names) > total
        letters = sum(len(token) * count for token, count in self.tokens.items())
        cut = letters <= WORDY * self.tokens.total() and self.single < MOSTLY
        return names if mostly and not cut else []

    @cached_property
    def single(self) -> float:
        """The share of single words among the texts that say something."""
        sizes = [len(text.split(None, 1)) for text in self.texts]
        return sizes.count(1) / max(1, len(sizes) - sizes.count(0))

    @property
    def wordlike(self) -> bool:
        """Are nearly all texts a word each, or not much more?"""
        return self.single >= MOSTLY and (not self.unspaced or self.typical <= PHRASE)

    @cached_property
    def typical(self) -> int:
        """Letters of a text that half of the others do not exceed."""
        lengths = sorted(map(len, self.texts))
        return lengths[len(lengths) // 2] if lengths else 0

    @cached_property
    def symbols(self) -> bool:
        """Are the tokens between spaces a small set of short symbols, phonemes say?"""
        short = sum(count for token, count in self.tokens.items() if len(token) <= SYMBOL)
        total, types = self.tokens.total(), len(self.tokens)
        return types <= min(FEW_SYMBOLS, total / 10) and short > 0.99 * total and self.single < 0.5

    @cached_property
    def raw(self) -> bool | None:
        """Is punctuation attached to words? None: there is too little of it to tell."""
        attached, alone = (sum(len(sign.findall(text)) for text in self.texts) for sign in (ATTACHED, ALONE))
        return is_raw(attached, alone, len(self.texts))

    @cached_property
    def new(self) -> float | None:
        """The share of validation words that the training texts lack."""
        known = {token.strip(PUNCTUATION) for token in self.tokens}
        words = [token.strip(PUNCTUATION) for text in self.dev for token in text.split()]
        return sum(word not in known for word in words) / len(words) if words else None


def is_raw(attached: int, alone: int, texts: int) -> bool | None:
    """Is punctuation attached to words more often than it stands alone? None: there is too little of it."""
    return None if attached + alone < max(5, SOME * texts) else attached > alone


def looks(count: int, rows: Iterable[Row], dev: Iterable[Row] | None) -> list[Look]:
    """A look at each of so many texts of a row; without validation data, every tenth row stands for them."""
    kept, more = sample(rows)
    shown = kept[9::10] if dev is None else sample(dev)[0]
    kept = [row for n, row in enumerate(kept) if n % 10 != 9] if dev is None else kept
    return [Look([row[n] for row in kept], [row[n] for row in shown], more) for n in range(count)]


def sample(rows: Iterable[Row]) -> tuple[list[Row], float]:
    """Some rows of texts, the same ones every time, from all that is read; and how many times that is more.

    >>> sample((str(n),) for n in range(3))
    ([('0',), ('1',), ('2',)], 1.0)
    """
    kept, every, length, total = list[Row](), 1, 0, 0
    for number, row in enumerate(islice(rows, LOOKED)):
        total += sum(map(len, row))
        if number % every == 0:
            kept.append(tuple(text[:LONGEST] for text in row))
            length += sum(map(len, kept[-1]))
            if len(kept) > KEPT or (length > LETTERS and len(kept) > 1):
                kept, every = kept[::2], 2 * every
                length = sum(len(text) for row in kept for text in row)
    return kept, total / max(1, length)


def choose_unit(look: Look, purpose: Purpose, other: Look | None = None) -> Chosen:
    """What a token of these texts should be, and why; ``other`` is the other side of pairs.

    >>> choose_unit(Look.at(["Müller", "Smith", "O'Brien"]), "label")
    ('character', 'since 100 % of the texts are single words')
    """
    if not look.tokens:
        return "word", "since there is no text"
    if UNKNOWN in look.tokens:
        return "word", f"since the text holds {UNKNOWN}, so its words were prepared"
    if look.symbols:
        return "word", f"since its {len(look.tokens)} tokens between spaces are a small set of short symbols"
    if names := look.unspaced:
        long = purpose == "translate" and look.typical > PHRASE
        said = f"since most letters are {' and '.join(names)}, which has no spaces between words"
        return "bpe" if long else "wordpunct" if purpose == "label" else "character", said
    if look.single >= MOSTLY:
        return "character", f"since {look.single:.0%} of the texts are single words".replace("%", " %")
    if other is not None and other.wordlike and look.typical <= BRIEF:
        return "character", "since it goes with single words"
    return _spaced(look, purpose)


def _spaced(look: Look, purpose: Purpose) -> Chosen:
    """Of texts that have spaces between words."""
    if purpose != "label" and not look.raw and look.new is not None and look.new >= MANY_NEW:
        why = f"since {100 * look.new:.2g} % of validation words are new, too many for a list of words"
        return "character" if 2 * look.single >= 1 else "bpe", why
    if not look.raw:
        prepared = "stands alone, so the text is tokenised" if look.raw is False else "is rare"
        return "word", f"since punctuation {prepared}"
    new = "" if look.new is None else f" and {100 * look.new:.2g} % of validation words are new"
    if purpose in ("model", "translate"):
        return "bpe", f"since the text is raw{new}"
    return "wordpunct", "since the text is raw: punctuation is attached to words"


def choose_pieces(looks: Sequence[Look]) -> tuple[int, str]:
    """How many pieces a unit should learn from these texts, or from each of several kinds, and why.

    >>> choose_pieces([Look.at(["a good day"] * 100)])
    (500, 'for about 270 words')
    """
    words = sum(look.words for look in looks) / max(1, len(looks))
    size = min(MOST, max(FEWEST, 100 * round(words / WORDS_A_PIECE / 100)))
    each = " on each side" if len(looks) > 1 else ""
    return size, f"for about {float(f'{words:.2g}'):,.0f} words{each}"
