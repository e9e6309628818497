"""Texts: how long they are, in which scripts, raw or prepared, and whether they were damaged."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from elman.examination.examples import Check, Example, View
from elman.examination.findings import Cases, Finding, Json, Place, counted, graded, note, share
from elman.text.choosing import ALONE, ATTACHED, is_raw
from elman.text.scripts import RUN, UNSPACED, scripts_of

SAMPLE = 20_000  # examples that tell whether texts are raw
LONG = 200  # tokens below which no text is called long
FAR = 10  # times the 95th percentile, beyond which a text is called long

# UTF-8 that was read as cp1252 and saved so, and what no encoding leaves in a text.
MOJIBAKE = re.compile(
    "[\u00c3\u00c2][\u0080-\u00bf]|\u00e2\u20ac[\u0090-\u009f\u2122\u0153\u02dc\u201c\u201d\u00a6]"
)
CONTROL = re.compile("[\u0001-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f]")


@dataclass
class Lengths:
    """How many texts have how many tokens, and where the longest is."""

    sizes: Counter[int] = field(default_factory=Counter)
    longest: int = 0
    place: Place | None = None

    def percentile(self, part: float) -> int:
        """The length that so many of the texts do not exceed.

        >>> Lengths(Counter({3: 90, 7: 10})).percentile(0.5)
        3
        """
        reached, total = 0, self.sizes.total()
        for size, count in sorted(self.sizes.items()):
            reached += count
            if reached >= part * total:
                return size
        return 0


class Texts(Check):
    """All texts of one role; lengths are those of the training data."""

    def __init__(self, view: View, role: str) -> None:
        self.view, self.role, self.count = view, role, 0
        self.lengths, self.dev_sizes = Lengths(), Counter[int]()
        self.characters = Counter[str]()
        self.replaced, self.mojibake, self.control, self.bare = Cases(), Cases(), Cases(), Cases()
        self.unspaced, self.sampled, self.attached, self.alone = Cases(), 0, 0, 0

    def see(self, example: Example, *, dev: bool) -> None:
        text, size = example.texts[self.role], len(example.tokens[self.role])
        self._damage(example, text)
        if dev:
            self.dev_sizes[size] += 1
            return
        self.count += 1
        self.lengths.sizes[size] += 1
        if size > self.lengths.longest:
            self.lengths.longest, self.lengths.place = size, Place.of(example.record, self.role)
        self.characters.update(text)
        if not text.isascii() and RUN.search(text):
            self.unspaced.add(example.record, self.role)
        if text.strip() and not any(map(str.isalnum, text)):
            self.bare.add(example.record, self.role)
        if self.sampled < SAMPLE:
            self.sampled += 1
            self.attached += len(ATTACHED.findall(text))
            self.alone += len(ALONE.findall(text))

    def _damage(self, example: Example, text: str) -> None:
        if text.isascii() and text.isprintable():
            return
        if "\N{REPLACEMENT CHARACTER}" in text:
            self.replaced.add(example.record, self.role)
        if MOJIBAKE.search(text):
            self.mojibake.add(example.record, self.role)
        if CONTROL.search(text):
            self.control.add(example.record, self.role)

    @property
    def single(self) -> bool:
        """Are the texts single words?"""
        return self.count >= 20 and self.view.by_words(self.role) and self.lengths.sizes[1] > 0.9 * self.count

    @property
    def raw(self) -> bool | None:
        """Is punctuation attached to words? None: there is too little of it to tell."""
        return is_raw(self.attached, self.alone, self.sampled)

    def findings(self) -> Iterator[Finding]:
        yield from self._damaged()
        yield from self._spaceless()
        few = 0.01 * self.count
        if self.bare.count and not self.view.listed and not self.single:
            yield graded(
                self.bare.count > 0.05 * self.count,
                "empty",
                f"{counted(self.bare.count, self.role)} without a letter or a digit.",
                "Take these lines out if they say nothing.",
                self.bare,
            )
        long, usual = self.lengths.longest, self.lengths.percentile(0.95)
        if long >= LONG and long > FAR * usual and self.lengths.place is not None:
            cases = Cases(
                sum(
                    count for size, count in self.lengths.sizes.items() if size > FAR * usual and size >= LONG
                ),
                [self.lengths.place],
            )
            yield graded(
                cases.count > few,
                "long",
                f"The longest {self.view.noun(self.role)} has {long:,} tokens; 95 % have at most {usual:,}.",
                "Look whether it is one text: a quote that is never closed or a missing line end makes such "
                "ones. If it is, nothing needs to be done: batches keep to training.batch_tokens.",
                cases,
            )

    def _damaged(self) -> Iterator[Finding]:
        total = self.count + self.dev_sizes.total()
        for cases, what, remedy in (
            (
                self.replaced,
                "has U+FFFD, the sign for bytes that were lost in a conversion",
                "Take the file from before the conversion and name its encoding, as in --encoding cp1252.",
            ),
            (
                self.mojibake,
                "looks like UTF-8 that was once read as Latin-1 (Ã©, â€™)",
                "Take the file from before the conversion; iconv -f utf-8 -t cp1252 undoes it in a file.",
            ),
            (
                self.control,
                "has control characters",
                "Take them out, or name the encoding if it is another one: --encoding cp1252.",
            ),
        ):
            if cases.count:
                said = f"The {self.view.noun(self.role)} of {counted(cases.count, 'example')} {what}."
                yield graded(cases.count >= 0.01 * total, "encoding", said, remedy, cases)

    def _spaceless(self) -> Iterator[Finding]:
        if self.view.listed or self.view.splits(self.role):
            return
        key, lengths = self.view.unit_key(self.role), self.lengths
        names = [script for script in self.scripts if script in UNSPACED]
        mostly = sum(self.scripts[name] for name in names) > 0.5 * self.scripts.total()
        if self.single and not mostly:
            yield graded(
                True,
                "one-word",
                f"{share(lengths.sizes[1], self.count)} of the {self.role}s are one word each, "
                "so there is no sequence to read.",
                f"Read their letters: --set {key}=character.",
                lengths.sizes[1],
            )
        elif self.single or self.unspaced.count > 0.02 * self.count:
            cases = lengths.sizes[1] if self.single else self.unspaced
            part = share(cases if isinstance(cases, int) else cases.count, self.count)
            yield graded(
                self.single or self.unspaced.count > 0.2 * self.count,
                "unspaced",
                f"{part} of the {self.role}s are in scripts without spaces between words "
                f"({', '.join(names)}).",
                f"Read characters: --set {key}=character.",
                cases,
            )
        elif self.raw:
            yield note(
                "raw-text",
                f"Punctuation is attached to words of the {self.role}s, so 'end' and 'end.' are two words.",
                f"Leave {key} open, or learn pieces of words: --set {key}=bpe; or put spaces around "
                "punctuation.",
            )

    @property
    def scripts(self) -> Counter[str]:
        return scripts_of(self.characters)

    def as_json(self) -> dict[str, Json]:
        lengths, scripts = self.lengths, self.scripts
        return {
            "tokens": sum(size * count for size, count in lengths.sizes.items()),
            "median": lengths.percentile(0.5),
            "percentile_95": lengths.percentile(0.95),
            "longest": lengths.longest,
            "longest_at": None if lengths.place is None else lengths.place._asdict(),
            "raw": self.raw,
            "scripts": {name: round(n / scripts.total(), 4) for name, n in scripts.items()},
        }
