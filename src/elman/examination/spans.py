"""Span tags: which scheme they follow, and where they break its rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from elman.examination.examples import Check, Example, View
from elman.examination.findings import Cases, Finding, counted, some_of, warning
from elman.metrics.spans import legal, scheme, strange_tags


class Spans(Check):
    """The transitions between tags of the training data, counted once each; places of what breaks a rule.

    In IOB1, B begins a span only where it touches one of the same type; in IOB2, always.
    """

    def __init__(self, view: View) -> None:
        assert view.label is not None
        self.role = view.label
        self.tags = Counter[str]()
        self.transitions: dict[tuple[str | None, str | None], Cases] = {}
        self.sentences = 0

    def see(self, example: Example, *, dev: bool) -> None:
        if dev:
            return
        self.sentences += 1
        tags: list[str | None] = [None, *example.labels, None]
        self.tags.update(example.labels)
        last = len(example.labels) - 1
        for place, pair in enumerate(pairwise(tags)):
            cases = self.transitions.get(pair)
            if cases is None:
                cases = self.transitions[pair] = Cases()
            if cases.count < 3:
                said = f"{pair[0] or 'beginning'} {pair[1] or 'end'}"
                cases.add(example.record, self.role, min(place, last), said=said)
            else:
                cases.count += 1

    @property
    def scheme(self) -> str | None:
        """IOB1, IOB2 or BIOES; None where the tags encode no spans."""
        name = scheme(self.tags)
        if name is None:
            letters = {tag.partition("-")[0] for tag in self.tags}
            types = [tag for tag in self.tags if "-" in tag]
            return "IOB1" if letters == {"I", "O"} and types else None
        if name == "BIOES":
            return name
        return "IOB1" if self._begins("I") and not self._begins("B") else "IOB2"

    def _begins(self, letter: str) -> int:
        """How many spans begin with a letter where no span of the same type stands before."""
        return sum(
            cases.count
            for (before, after), cases in self.transitions.items()
            if after is not None
            and after.startswith(f"{letter}-")
            and (before or "O").partition("-")[2] != after.partition("-")[2]
        )

    def findings(self) -> Iterator[Finding]:
        if strange := strange_tags(self.tags):
            yield self._strange(strange)
        elif self.scheme == "IOB1":
            yield warning(
                "span-scheme",
                "The tags are IOB1: I- begins a span, B- only one that touches another. "
                "Spans are read rightly, but the rules of IOB2 are not used in decoding.",
                "Write B- at the first word of every span (IOB2).",
                self._begins("I"),
            )
        elif self.scheme is not None:
            yield from self._broken(self.scheme)

    def _strange(self, strange: list[str]) -> Finding:
        found = Cases()
        for (_, after), cases in self.transitions.items():
            if after in strange:
                found.count += cases.count
                found.places = [*found.places, *cases.places][:3]
        return warning(
            "span-scheme",
            f"{counted(len(strange), 'tag')} among span tags that {'is' if len(strange) == 1 else 'are'} "
            f"neither O nor one of B- I- E- S- L- U- with a type: {some_of(strange)}. So none is read as "
            "a span, and there is no F1.",
            "Correct these tags: outside of spans is the letter O.",
            found,
        )

    def _broken(self, name: str) -> Iterator[Finding]:
        """By kind: what begins without its beginning, another type, an end that is missing."""
        rules = "BIOES" if name == "BIOES" else "BIO"
        kinds: dict[str, Cases] = {}
        for (before, after), cases in self.transitions.items():
            if legal(before, after, rules):
                continue
            if after is not None and after[0] in "IEL":
                inside = before is not None and before != "O"
                kind = "a span goes on as another type" if inside else "a span begins without B-"
            else:
                kind = "a span is not ended by E-"
            own = kinds.setdefault(kind, Cases())
            own.count += cases.count
            own.places = [*own.places, *cases.places][:3]
        total = sum(one.count for one in kinds.values())
        if kinds:
            told = "; ".join(f"{kind} ({one.count:,})" for kind, one in kinds.items())
            places = [place for one in kinds.values() for place in one.places[:2]][:3]
            yield warning(
                "span-scheme",
                f"{counted(total, 'place')} where the tags break the rules of {name}: {told}. "
                "So decoding cannot be kept to the rules.",
                "Correct these tags: in a sentence, every span begins with B-.",
                Cases(total, places),
            )
