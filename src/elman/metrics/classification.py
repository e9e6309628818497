"""How often which label was taken for which: accuracy, precision, recall and F1, for people and machines."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elman.errors import ArgumentError, UnknownNameError, nearest, shortened

JSON = Mapping[str, "JSON"] | Sequence["JSON"] | str | float | None

WIDEST_MATRIX = 24  # labels; with more, a matrix no longer fits a screen
WIDEST_LABEL = 60  # characters; a longer one stands out, but does not make every line as long
LARGEST_MATRIX = 1000  # labels; with more, a matrix is nearly all zeros, and too large to be written out


@dataclass(frozen=True)
class Agreement:
    """How many things of a kind were predicted, how many there are, and how many of them agree.

    A ratio of nothing to nothing is 0, as conlleval has it.

    >>> Agreement(correct=3, predicted=4, gold=6).f1
    0.6
    """

    correct: int
    predicted: int
    gold: int

    @property
    def precision(self) -> float:
        return self.correct / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        return self.correct / self.gold if self.gold else 0.0

    @property
    def f1(self) -> float:
        both = self.predicted + self.gold
        return 2 * self.correct / both if both else 0.0

    def as_json(self) -> dict[str, float | int]:
        return {"precision": self.precision, "recall": self.recall, "f1": self.f1, "support": self.gold}


class Agreements:
    """Agreement on things of several types, by type and of all together (micro average)."""

    def __init__(self) -> None:
        self._gold, self._predicted, self._correct = Counter[str](), Counter[str](), Counter[str]()

    def count(self, gold: Iterable[str], predicted: Iterable[str], correct: Iterable[str]) -> None:
        """Types of the things that there are, that were predicted, and that are both."""
        self._gold.update(gold)
        self._predicted.update(predicted)
        self._correct.update(correct)

    @property
    def overall(self) -> Agreement:
        return Agreement(self._correct.total(), self._predicted.total(), self._gold.total())

    @property
    def precision(self) -> float:
        return self.overall.precision

    @property
    def recall(self) -> float:
        return self.overall.recall

    @property
    def f1(self) -> float:
        return self.overall.f1

    def by_type(self) -> dict[str, Agreement]:
        """Every type that occurs, as gold or as predicted, in alphabetical order."""
        return {
            kind: Agreement(self._correct[kind], self._predicted[kind], self._gold[kind])
            for kind in sorted({*self._gold, *self._predicted})
        }

    @property
    def macro_f1(self) -> float:
        """The plain average of F1 over the types that occur, as gold or as predicted."""
        types = self.by_type().values()
        return sum(one.f1 for one in types) / len(types) if types else 0.0


class LabelSets(Agreements):
    """Labels of texts that have any number of them.

    >>> sets = LabelSets()
    >>> sets.add(["red", "round"], ["red"])
    >>> sets.add(["blue"], ["blue"])
    >>> sets.accuracy, sets.precision, round(sets.recall, 2), sets.f1
    (0.5, 1.0, 0.67, 0.8)
    """

    def __init__(self) -> None:
        super().__init__()
        self.texts = self.right = 0

    def add(self, gold: Iterable[str], predicted: Iterable[str]) -> None:
        """The labels of one text."""
        true, found = {*gold}, {*predicted}
        self.count(true, found, true & found)
        self.texts += 1
        self.right += true == found

    @property
    def accuracy(self) -> float:
        """The share of texts with all of their labels and no other."""
        return self.right / self.texts if self.texts else 0.0

    def table(self) -> str:
        """For people: a line for every label, and the averages, in percent."""
        rows = [*self.by_type().items(), ("all labels", self.overall)]
        totals = [("macro f1", self.macro_f1, len(self.by_type())), ("all right", self.accuracy, self.texts)]
        return agreement_table(rows, totals)


class Confusion:
    """Counts of (gold, predicted) labels.

    >>> confusion = Confusion(["cat", "dog", "yak"])
    >>> confusion.add(["cat", "cat", "dog", "dog"], ["cat", "dog", "dog", "dog"])
    >>> confusion.accuracy, round(confusion.macro_f1, 4)
    (0.75, 0.7333)
    >>> print(confusion.table())
               precision     recall         f1    support
    cat           100.00      50.00      66.67          2
    dog            66.67     100.00      80.00          2
    <BLANKLINE>
    accuracy                             75.00          4
    macro f1                             73.33          4
    <BLANKLINE>
    gold ↓   cat  dog
    cat        1    1
    dog        ·    2
    """

    def __init__(self, labels: Sequence[str]) -> None:
        """``labels``: all that can occur on either side, in the order of the matrix."""
        self.labels = list(labels)
        self._index = {label: place for place, label in enumerate(self.labels)}
        if len(self._index) < len(self.labels):
            twice = next(label for place, label in enumerate(self.labels) if self._index[label] != place)
            raise ArgumentError(f"labels has {twice!r} twice; a label stands there once")
        self.counts: Counter[tuple[int, int]] = Counter()  # by the places of (gold, predicted)

    def add(self, gold: str | Sequence[str], predicted: str | Sequence[str]) -> None:
        """Count one pair of labels, or two equally long sequences of them."""
        gold, predicted = ([side] if isinstance(side, str) else side for side in (gold, predicted))
        if len(gold) != len(predicted):
            raise ArgumentError(f"{len(gold)} gold labels and {len(predicted)} predicted; they come in pairs")
        pairs = [(self._place(one), self._place(other)) for one, other in zip(gold, predicted, strict=True)]
        self.counts.update(pairs)

    @property
    def matrix(self) -> NDArray[np.int64]:
        """[gold, predicted]: all counts, most of them zero where labels are many."""
        matrix = np.zeros((len(self.labels), len(self.labels)), dtype=np.int64)
        for pair, count in self.counts.items():
            matrix[pair] = count
        return matrix

    @property
    def total(self) -> int:
        return self.counts.total()

    @property
    def accuracy(self) -> float:
        """The share of pairs that agree; 0 of nothing."""
        right = sum(count for (gold, predicted), count in self.counts.items() if gold == predicted)
        return right / self.total if self.total else 0.0

    @property
    def macro_f1(self) -> float:
        """The plain average of F1 over the labels that occur, as gold or as predicted.

        A label that occurs nowhere is left out: it would count as a failure though nobody asked for
        it. One that is only predicted counts, with an F1 of 0.
        """
        classes = self.by_class()
        return sum(one.f1 for one in classes.values()) / len(classes) if classes else 0.0

    def by_class(self) -> dict[str, Agreement]:
        """The labels that occur, as gold or as predicted, in their order."""
        gold, predicted = Counter[int](), Counter[int]()
        for (row, column), count in self.counts.items():
            gold[row] += count
            predicted[column] += count
        counts = {i: Agreement(self.counts[i, i], predicted[i], gold[i]) for i in self._occurring()}
        return {self.labels[i]: found for i, found in counts.items()}

    def worst(self, count: int = 10) -> list[tuple[str, str, int]]:
        """The most frequent mistakes: gold label, predicted label, how often."""
        found = sorted((-often, i, j) for (i, j), often in self.counts.items() if i != j)
        return [(self.labels[i], self.labels[j], -often) for often, i, j in found[:count]]

    def table(self) -> str:
        """For people: a report by class in percent, and the matrix, or the worst mistakes of many labels."""
        classes = self.by_class()
        totals = [("accuracy", self.accuracy, self.total), ("macro f1", self.macro_f1, self.total)]
        report = agreement_table([*classes.items()], totals)
        if not self.total:
            return report
        return f"{report}\n\n{self._grid() if len(classes) <= WIDEST_MATRIX else self._mistakes()}"

    def as_json(self) -> dict[str, JSON]:
        """For machines: fractions, and the whole matrix, a row for every gold label.

        Of more than 1,000 labels, ``counts`` has what is not zero instead: gold, predicted, how often.
        """
        if len(self.labels) <= LARGEST_MATRIX:
            found: dict[str, JSON] = {"matrix": self.matrix.tolist()}
        else:
            pairs = sorted(self.counts.items())
            found = {"counts": [[self.labels[i], self.labels[j], often] for (i, j), often in pairs]}
        return {
            "accuracy": self.accuracy,
            "macro_f1": self.macro_f1,
            "classes": {label: one.as_json() for label, one in self.by_class().items()},
            "labels": list(self.labels),
            **found,
        }

    def _place(self, label: str) -> int:
        if label not in self._index:
            raise UnknownNameError(f"no label named {label!r}; {nearest(label, self.labels)}")
        return self._index[label]

    def _occurring(self) -> list[int]:
        return sorted({place for pair in self.counts for place in pair})

    def _grid(self) -> str:
        places = self._occurring()
        labels = [self.labels[place] for place in places]
        cell = max(4, len(str(max(self.counts.values()))))
        margin = min(max(len("gold ↓"), *map(len, labels)), WIDEST_LABEL) + 2
        lines = ["gold ↓".ljust(margin) + " ".join(head.rjust(cell) for head in abbreviated(labels, cell))]
        for label, place in zip(labels, places, strict=True):
            counts = [str(self.counts[place, other] or "·") for other in places]
            lines.append(
                shortened(label, WIDEST_LABEL).ljust(margin) + " ".join(count.rjust(cell) for count in counts)
            )
        return "\n".join(lines)

    def _mistakes(self) -> str:
        lines = [f"{count:8d}  {gold} → {predicted}" for gold, predicted, count in self.worst()]
        return "\n".join(["most frequent mistakes (gold → predicted)", *lines])


def agreement_table(
    rows: Sequence[tuple[str, Agreement]], totals: Sequence[tuple[str, float, int]] = ()
) -> str:
    """Precision, recall and F1 of every row in percent, then the totals with their support."""
    names = [row[0] for row in rows] + [total[0] for total in totals]
    margin = min(max(map(len, names), default=0), WIDEST_LABEL) + 2
    heads = ("precision", "recall", "f1", "support")
    lines = [" " * margin + " ".join(head.rjust(10) for head in heads)]
    for name, one in rows:
        shares = " ".join(f"{100 * share:10.2f}" for share in (one.precision, one.recall, one.f1))
        lines.append(f"{name.ljust(margin - 2)}  {shares} {one.gold:10d}")
    lines += [""] if totals else []
    for name, share, support in totals:
        lines.append(f"{name.ljust(margin)}{'':22}{100 * share:10.2f} {support:10d}")
    return "\n".join(lines)


def abbreviated(labels: Sequence[str], width: int) -> list[str]:
    """The labels in about ``width`` characters, all different: the beginning, or with the end, or a number.

    >>> abbreviated(["Arabic", "question 1", "question 2", "X"], 4)
    ['Arab', 'ques', 'qu…2', 'X']
    """
    heads: list[str] = []
    for number, label in enumerate(labels, 1):
        forms = [label[:width], *(f"{label[: width - 1 - k]}…{label[-k:]}" for k in range(1, width - 1))]
        heads.append(next((form for form in forms if form not in heads), f"#{number}"))
    return heads
