"""Texts that come again: duplicates, the same question with two answers, validation texts seen in training.

Texts are remembered as 64-bit hashes, so that a file of millions of lines needs no more memory than a few
numbers a line.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from hashlib import blake2b

from elman.examination.examples import Check, Example, View
from elman.examination.findings import Cases, Finding, counted, graded, share

UNIQUE = " (awk '!seen[$0]++' FILE)"  # for files of which a line is an example
MANY = 0.05  # share of duplicates that is worth a warning
SHORT = 4  # tokens; shorter sentences come again by themselves


def hashed(text: str) -> int:
    """A number of 64 bits that is the same for the same text."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest())


def folded(text: str) -> str:
    """A text without what a careless eye does not see: case and white space.

    >>> folded("A  Fine film ")
    'a fine film'
    """
    return " ".join(text.lower().split())


class Repeats(Check):
    """Every question is looked up among those before it; the first place of each is known by its number."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.noun = "sentence" if view.listed else "pair" if view.paired else "text"
        self.natural = view.listed or (view.label is None and not view.paired)  # short ones come again
        self.first: dict[int, int] = {}  # by the hash of the folded question, the number of its first example
        self.pairs: set[int] = set()  # hashes of questions with their answers, as they are written
        self.answers, self.lines = array("Q"), array("Q")
        self.paths: list[str] = []
        self.starts: list[int] = []  # numbers of the first examples of the paths
        self.same, self.near, self.conflicts, self.leaks = Cases(), Cases(), Cases(), Cases()
        self.train = self.dev = self.leaks_with_answer = 0

    def see(self, example: Example, *, dev: bool) -> None:
        if not example.question.strip():
            return  # a blank line of a running text
        if self.natural and sum(map(len, example.tokens.values())) < SHORT:
            return
        key = hashed(folded(example.question))
        if dev:
            self._dev(example, key)
            return
        self.train += 1
        number, first, answer = len(self.answers), self.first.get(key), hashed(example.answer)
        if not self.paths or self.paths[-1] != example.record.path:
            self.paths.append(example.record.path)
            self.starts.append(number)
        self.answers.append(answer)
        self.lines.append(example.record.line)
        pair = hashed(example.pair)
        if first is None:
            self.first[key] = number
        elif pair in self.pairs:
            self.same.add(example.record, said=f"{self._shown(example)}  (first at {self._place(first)})")
        elif self.answers[first] == answer:
            self.near.add(example.record, said=f"{self._shown(example)}  (first at {self._place(first)})")
        elif example.answer:
            here = (
                f"other {self.view.label}s than"
                if self.view.listed
                else f"{_short(example.answer)} here, another"
            )
            said = f"{here} at {self._place(first)}: {self._shown(example)}"
            self.conflicts.add(example.record, said=said)
        self.pairs.add(pair)

    def _dev(self, example: Example, key: int) -> None:
        self.dev += 1
        first = self.first.get(key)
        if first is not None:
            self.leaks.add(example.record, said=f"{self._shown(example)}  (training: {self._place(first)})")
            same = self.answers[first] == hashed(example.answer) or hashed(example.pair) in self.pairs
            self.leaks_with_answer += same

    def _shown(self, example: Example) -> str:
        return _short(next(iter(example.texts.values())))

    def _place(self, number: int) -> str:
        at = max(place for place, start in enumerate(self.starts) if start <= number)
        line = self.lines[number]
        return f"line {line}" if len(self.paths) == 1 else f"{self.paths[at]}:{line}"

    def findings(self) -> Iterator[Finding]:
        yield from self._duplicates()
        if self.conflicts.count:
            yield self._conflict()
        if self.leaks.count and (self.view.decided or self.view.label is None):
            known = self.leaks_with_answer
            part = (known if self.view.paired or self.view.decided else self.leaks.count) / self.dev
            asked = self.view.texts[0] if self.view.paired else self.noun
            answer = f"{self.view.label or self.view.texts[-1]}{'s' * self.view.listed}"
            with_it = f", {known:,} with the same {answer}" if self.view.decided or self.view.paired else ""
            serious = part > (0.01 if self.view.decided and not self.view.listed else 0.05)
            yield graded(
                serious,
                "leakage",
                f"{counted(self.leaks.count, f'validation {asked}')} ({share(self.leaks.count, self.dev)}) "
                f"also stand{'s' * (self.leaks.count == 1)} in the training data{with_it}"
                f"{': the score will be too good' if serious else ''}.",
                "Take them out of one of the files, so that validation tells how new texts will go.",
                self.leaks,
            )

    def _duplicates(self) -> Iterator[Finding]:
        stands = "stands" if self.same.count == 1 else "stand"
        fits = self.view.decided or self.view.paired
        once = f"Keep one of each{'' if self.view.listed else UNIQUE}, unless it is meant"
        held_out = ": what is held out for validation may be what was trained on"
        if self.same.count:
            yield graded(
                fits and not self.dev and self.same.count > MANY * self.train,
                "duplicate",
                f"{counted(self.same.count, self.noun)} ({share(self.same.count, self.train)}) {stands} in "
                "the training data once more.",
                f"{once}{'' if self.dev else held_out}." if fits else "Running text may repeat itself.",
                self.same,
            )
        if self.near.count and fits:
            yield graded(
                not self.dev and self.near.count > MANY * self.train,
                "near-duplicate",
                f"{counted(self.near.count, self.noun)} ({share(self.near.count, self.train)}) "
                f"differ{'s' * (self.near.count == 1)} from an earlier one only in case or spaces.",
                "Keep one of each, unless the difference is meant.",
                self.near,
            )

    def _conflict(self) -> Finding:
        cases, part = self.conflicts, share(self.conflicts.count, self.train)
        if self.view.paired:
            source, target = self.view.texts
            said = f"{counted(cases.count, source)} ({part}) came before with another {target}."
            remedy = f"Nothing needs to be done where several {target}s are right; of others, keep one."
            return graded(False, "several-targets", said, remedy, cases)
        label = self.view.label
        said = f"{counted(cases.count, 'text')} ({part}) came before with another {label}."
        if self.view.listed:
            said = f"{counted(cases.count, 'sentence')} ({part}) came before with other {label}s."
        remedy = f"Decide which {label} is right, and correct or take out the other line."
        return graded(cases.count > 0.01 * self.train, "conflict", said, remedy, cases)


def _short(text: str) -> str:
    text = text.strip()
    return repr(text if len(text) <= 40 else f"{text[:39]}…")
