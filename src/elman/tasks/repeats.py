"""Texts of the training data that occur again: each is learned from once, and labels stay as frequent."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elman.tasks.examples import Examples


class Repeats(NamedTuple):
    """One example of every text, and what that changes about the labels.

    A text that stands there a hundred times teaches a network to know it by heart, and a label of few such
    texts to look like them. first (M,): an example of each text with the label that it mostly has, or of
    each such label. shift (K,): ``log p(label) - log p(label | first)``, what scores that were learned from
    these lack where all texts count.
    """

    of: Examples
    first: NDArray[np.int64]
    shift: Tensor

    @classmethod
    def find(cls, examples: Examples, K: int) -> Repeats:
        """Look at all examples that have one label each."""
        texts = [row.tobytes() for row in examples.rows("word", range(len(examples)))]
        labels = examples.store.fields["label"].values
        pairs = [*zip(texts, labels.tolist(), strict=True)]
        often, most = Counter(pairs), dict[bytes, int]()
        for (text, _), count in often.items():
            most[text] = max(count, most.get(text, 0))
        seen = dict[tuple[bytes, int], int]()
        for place, pair in enumerate(pairs):
            if often[pair] == most[pair[0]]:
                seen.setdefault(pair, place)
        first = np.fromiter(seen.values(), np.int64, len(seen))
        counts, own = (np.bincount(of, minlength=K)[:K] for of in (labels, labels[first]))
        known = own > 0
        ratio = np.where(known, counts / len(labels), 1.0) / np.where(known, own / len(first), 1.0)
        return cls(examples, first, torch.from_numpy(np.log(ratio)).float())
