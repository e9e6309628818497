"""Any labels, tags, sequences and rules about tokens: what the plain definition says, or an error."""

import json
from itertools import pairwise
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fuzzing import Entry, fuzz, text

from elman.decoding.processors import Frame, NoRepeat, Prefix
from elman.metrics.bleu import TOKENIZERS, Bleu
from elman.metrics.chrf import Chrf
from elman.metrics.classification import Confusion, abbreviated
from elman.metrics.sequences import SequenceScores
from elman.metrics.spans import SpanCounts, legal_transitions, scheme, spans, well_formed
from elman.metrics.ter import Ter

LETTERS = "ab<>é |\t#1…"
TAGS = ("O", "B-a", "I-a", "E-a", "S-a", "B-b", "I-b", "L-b", "U-b", "B-", "-", "I", "X-a", "B-a-b", "\ud800")

Pairs = list[tuple[str, str]]


def labels(random: Random) -> tuple[list[str], Pairs]:
    known = [text(random, LETTERS, 6) for _ in range(random.randint(0, 5))]
    drawn = [*known, text(random, LETTERS, 2)] if random.random() < 0.1 or not known else known
    return known, [(random.choice(drawn), random.choice(drawn)) for _ in range(random.randint(0, 8))]


def check_labels(case: tuple[list[str], Pairs], folder: Path) -> None:
    known, pairs = case
    confusion = Confusion(known)
    confusion.add([gold for gold, _ in pairs], [predicted for _, predicted in pairs])
    assert confusion.accuracy == sum(gold == predicted for gold, predicted in pairs) / max(1, len(pairs))
    for label, one in confusion.by_class().items():
        counts = [
            pairs.count((label, label)),
            *(sum(label == pair[side] for pair in pairs) for side in (1, 0)),
        ]
        assert [one.correct, one.predicted, one.gold] == counts
    assert confusion.table()
    assert json.loads(json.dumps(confusion.as_json()))["labels"] == known
    heads = abbreviated(known, 4)
    assert len(set(heads)) == len(known)


def tags(random: Random) -> tuple[list[str], list[str]]:
    some = random.choice((TAGS, TAGS[:3], TAGS[:9]))
    gold = random.choices(some, k=random.randint(0, 8))
    return gold, random.choices(some, k=len(gold) + (random.random() < 0.05))


def check_tags(case: tuple[list[str], list[str]], folder: Path) -> None:
    """Spans tell all that tags say, but for how they are written; rules agree with each other."""
    gold, predicted = case
    counts = SpanCounts()
    counts.add(gold, predicted)
    covered = [place for span in spans(gold) for place in range(span.start, span.end)]
    assert sorted(covered) == [place for place, tag in enumerate(gold) if tag != "O"]
    assert all(gold[place].partition("-")[2] == span.type for span in spans(gold) for place in (span.start,))
    assert counts.overall.gold == len(spans(gold))
    assert counts.overall.correct == len(spans(gold) & spans(predicted))
    assert counts.table()
    assert counts.as_json()
    name = scheme(gold)
    if name is not None:
        known = sorted(set(gold))
        allowed = legal_transitions(known)
        places = [-1, *map(known.index, gold), -1]
        assert well_formed(gold, name) == all(allowed[pair] for pair in pairwise(places))


def outputs(random: Random) -> list[tuple[Any, list[Any]]]:
    """Texts or lists of tokens, and references for each."""
    as_tokens = random.random() < 0.5
    some = [text(random, "abc é", 9) for _ in range(6)]
    made: list[Any] = [one.split(" ") if as_tokens else one for one in some]
    return [
        (random.choice(made), random.choices(made, k=random.randint(0, 2)))
        for _ in range(random.randint(0, 3))
    ]


def plain_distance(found: Any, gold: Any) -> int:
    row = list(range(len(gold) + 1))
    for i, token in enumerate(found, 1):
        left = [i]
        for j, other in enumerate(gold, 1):
            left.append(min(row[j] + 1, left[-1] + 1, row[j - 1] + (token != other)))
        row = left
    return row[-1]


def check_outputs(case: list[tuple[Any, list[Any]]], folder: Path) -> None:
    scores = SequenceScores()
    for output, references in case:
        scores.add(output, references, source_length=len(output))
        assert scores.outcomes[-1].edits == min(plain_distance(output, one) for one in references)
    assert sum(bucket.count for bucket in scores.by_length()) == len(case)
    assert json.dumps(scores.as_json(), allow_nan=False)


def check_translations(case: tuple[list[tuple[Any, list[Any]]], str], folder: Path) -> None:
    given, tokenize = case
    texts = [(output, references) for output, references in given if isinstance(output, str)]
    for metric in (Bleu(tokenize=tokenize), Chrf(), Ter()):
        for output, references in texts:
            metric.add(output, references)
        assert 0 <= metric.value() < float("inf")
        assert metric.signature


def rules(random: Random) -> tuple[list[list[int]], int, list[list[int]]]:
    """What two sequences have so far, how many tokens may not come twice, and prefixes."""
    length = random.randint(0, 6)
    rows = [random.choices(range(4), k=length) for _ in range(2)]
    prefixes = [
        random.choices(range(-1, 6), k=random.randint(0, 3)) for _ in range(random.choice((2, 2, 2, 1)))
    ]
    return rows, random.randint(0, 4), prefixes


def check_rules(case: tuple[list[list[int]], int, list[list[int]]], folder: Path) -> None:
    """Left is what the rule says of each token by itself."""
    rows, n, prefixes = case
    length = len(rows[0])
    tokens = torch.tensor(rows, dtype=torch.long).view(2, length)
    live: Any = SimpleNamespace(tokens=tokens, length=length, examples=torch.arange(2))
    scores = torch.zeros(2, 4)
    left = NoRepeat(n).process(scores, live)
    for row, given in enumerate(rows):
        for token in range(4):
            runs = [(*given, token)[i : i + n] for i in range(length + 2 - n)]
            assert (left[row, token] == 0) == (length < n or runs[-1] not in runs[:-1])
    prefix = Prefix(prefixes)
    prefix.check(Frame(B=2, V=4, end=3, stop=frozenset(), max_length=3))
    left = prefix.process(scores, live)
    for row, begun in enumerate(prefixes):
        allowed = {begun[length]} if length < len(begun) else set(range(4))
        assert {token for token in range(4) if left[row, token] == 0} == allowed


COUNTS = [
    Entry("labels", labels, check_labels),
    Entry("tags", tags, check_tags),
    Entry("sequences", outputs, check_outputs),
    Entry(
        "translations", lambda random: (outputs(random), random.choice(TOKENIZERS)), check_translations, 100
    ),
    Entry("rules about tokens", rules, check_rules, 200),
]


@pytest.mark.parametrize("entry", COUNTS, ids=lambda entry: entry.name)
def test_any_input_is_counted_as_defined(entry: Entry, tmp_path: Path) -> None:
    fuzz(entry, tmp_path)
