"""Labels and tags: how many of each, rare ones, misspelt ones, and those that only validation has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from elman.errors import shortened
from elman.examination.examples import Check, Example, View
from elman.examination.findings import Cases, Finding, counted, graded, note, share, some_of, warning
from elman.examination.repeats import folded

RARE = 5  # examples that a label should have
FEW = 20  # labels that are not too many, however few texts there are
UNEQUAL = 10  # times as many examples as the rarest label has, from which on it is said


class Labels(Check):
    """Labels of texts, or tags of words.

    turned_remedy: what to say where texts and labels have changed places; it is asked for only then.
    """

    def __init__(self, view: View, turned_remedy: Callable[[], str]) -> None:
        assert view.label is not None
        self.turned_remedy = turned_remedy
        self.view, self.noun = view, view.label
        self.nouns = "classes" if self.noun == "class" else f"{self.noun}s"
        self.train, self.dev = Counter[str](), Counter[str]()
        self.examples = 0
        self.unseen: dict[str, Cases] = {}
        self.texts = set[int]()  # hashes of different texts, as long as they are few

    def see(self, example: Example, *, dev: bool) -> None:
        if not dev:
            self.examples += 1
            self.train.update(example.labels)
            if len(self.texts) <= FEW * FEW:
                units = example.record.fields[self.view.texts[0]]
                self.texts.update(map(hash, [units] if isinstance(units, str) else units))
            return
        self.dev.update(example.labels)
        for place, label in enumerate(example.labels):
            if label not in self.train:
                token = place if self.view.listed else None
                self.unseen.setdefault(label, Cases()).add(example.record, self.noun, token)

    @property
    def turned(self) -> bool:
        """Do texts and labels stand the other way round? Then there are few texts and many labels."""
        many = len(self.train) > max(FEW, 2 * len(self.texts))
        return self.view.decided and many and 2 * len(self.texts) < self.examples

    def findings(self) -> Iterator[Finding]:
        """Of labels that are another column there is nothing else to be said."""
        wrong = [*self._wrong_column()] if self.view.decided else []
        yield from wrong or self._usual()

    def _wrong_column(self) -> Iterator[Finding]:
        texts, labels = (
            f"{len(self.texts):,} different {self.view.texts[0]}s",
            f"{len(self.train):,} different",
        )
        if self.turned:
            said = f"{texts} and {labels} {self.nouns}: the columns stand the other way round."
            yield warning("swapped-columns", said, self.turned_remedy())
        elif len(self.train) > max(FEW, self.examples / 2) and not self.view.listed:
            yield warning(
                "many-labels",
                f"{labels} {self.nouns} for {self.examples:,} texts: this may be another column.",
                "Look at the columns, and name the right ones, as in --columns text=0,label=1; where a text "
                "has several labels, say what stands between them: --labels-separator.",
            )

    def _usual(self) -> Iterator[Finding]:
        yield from self._alike()
        yield from self._only_dev()
        if not self.view.decided:
            return
        rare = [label for label, count in self.train.most_common() if count < RARE]
        if rare:
            yield graded(
                not self.view.listed,
                "rare-label",
                f"{counted(len(rare), self.noun, self.nouns)} of {len(self.train):,} "
                f"{'has' if len(rare) == 1 else 'have'} fewer than {RARE} examples: {some_of(rare)}.",
                f"Give more examples of them, or join them with another {self.noun}.",
                len(rare),
            )
        yield from self._unequal()

    def _alike(self) -> Iterator[Finding]:
        groups: dict[str, list[str]] = {}
        for label in {**self.train, **self.dev}:
            groups.setdefault(folded(label).strip(".,;:!"), []).append(label)
        alike = [group for group in groups.values() if len(group) > 1]
        if alike:
            shown = "; ".join(some_of(sorted(group)) for group in alike[:3])
            yield warning(
                "similar-labels",
                f"{counted(len(alike), self.noun, self.nouns)} written in several ways, which are different "
                f"{self.nouns} to a model: {shown}.",
                "Write each in one way.",
                len(alike),
            )

    def _only_dev(self) -> Iterator[Finding]:
        if self.unseen:
            cases = Cases(
                sum(one.count for one in self.unseen.values()),
                [place for one in self.unseen.values() for place in one.places][:3],
            )
            yield warning(
                "unseen-label",
                f"{counted(len(self.unseen), self.noun, self.nouns)} that only the validation data have: "
                f"{some_of(list(self.unseen))}. They count as wrong.",
                "Give training examples of them, or take them out of the validation data.",
                cases,
            )

    def _unequal(self) -> Iterator[Finding]:
        ranked = self.train.most_common()
        if self.view.listed or len(ranked) < 2:
            return
        told = [one for one in ranked if one[1] < RARE]  # as rare ones
        (most, often), (least, seldom) = ranked[0], ranked[max(1, len(ranked) - len(told) - 1)]
        part = often / self.train.total()
        if often >= UNEQUAL * seldom or part > 0.8:
            yield graded(
                part > 0.95,
                "imbalance",
                f"{share(often, self.train.total())} of the labels are {shortened(most)!r} ({often:,}); "
                f"{shortened(least)!r} has {seldom:,}. Accuracy alone says little then.",
                "Look at macro_f1 (--set training.metric=macro_f1), and try "
                "--set training.class_weights=balanced.",
            )


class Sentences(Check):
    """Sentences of words: those of one word, where blank lines may be too many."""

    def __init__(self, view: View) -> None:
        self.role, self.count, self.single = view.texts[0], 0, Cases()

    def see(self, example: Example, *, dev: bool) -> None:
        if not dev:
            self.count += 1
            if len(example.tokens[self.role]) == 1:
                self.single.add(example.record)

    def findings(self) -> Iterator[Finding]:
        if self.single.count > 0.2 * self.count:
            yield graded(
                self.single.count > 0.5 * self.count,
                "single-words",
                f"{self.single.count:,} of {counted(self.count, 'sentence')} are one word.",
                "Look whether there are blank lines between the words of a sentence, and take them out.",
                self.single,
            )
        elif self.count == 1:
            yield note(
                "one-sentence",
                "All words are one sentence.",
                "Put a blank line between sentences.",
            )
