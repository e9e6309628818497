"""Is the first line of a table a header? What it says, and how it differs from the lines below, may tell."""

import re
from collections.abc import Sequence
from statistics import median

COLUMNS = """
    text texts sentence sentences content body title headline review comment message post tweet document
    utterance query question answer response reply summary abstract description
    label labels class classes category categories sentiment topic tag tags intent emotion rating stars
    score genre type language lang polarity is_spam spam
    source src target tgt input output translation translated original reference hypothesis
    english french german spanish italian portuguese dutch russian chinese japanese
    id ids index idx key name date time author user url split number no nr
    word words token tokens form lemma pos upos sequence seq text1 text2 sentence1 sentence2
"""
WORDS = frozenset(COLUMNS.split())  # that columns are usually called by
FEW = 20  # distinct values, at most, of a column that holds labels


def is_header(cells: Sequence[str]) -> bool:
    """Are all cells words that columns are usually called by?

    >>> is_header(["Sentence", "Class"]), is_header(["a fine film", "positive"])
    (True, False)
    """
    return len(cells) > 1 and all(_plain(cell) in WORDS for cell in cells)


def suspected_header(rows: Sequence[Sequence[str]]) -> bool:
    """Does the first row look unlike the others? Its last cell is none of few labels, its first is short.

    >>> suspected_header([["Satz", "Klasse"]] + 9 * [["ein langer Satz", "gut"], ["noch einer", "schlecht"]])
    True
    """
    first, *others = [row for row in rows if len(row) == len(rows[0])]
    if len(first) < 2 or len(others) < 10:
        return False
    labels = [row[-1] for row in others]
    few = len(set(labels)) <= min(FEW, len(labels) // 3)
    words = [len(row[0].split()) for row in others]
    return few and first[-1] not in labels and len(first[0].split()) < median(words)


def _plain(cell: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", cell.strip().lower()).strip("_")
