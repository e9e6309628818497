"""What is fitted beside a classifier's training: its linear shortcut, and how much that counts."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elman.models.classifier import Classifier
from elman.tasks.examples import Examples
from elman.tasks.repeats import Repeats
from elman.text.ngrams import Numbers, TextNgrams

MOST_LETTERS = 5_000_000  # of training texts whose n-grams are looked at, which lie in memory together


def has_shortcut(model: Classifier) -> bool:
    """Whether there is a linear model beside the network; a counted model has neither."""
    return isinstance(model, Classifier) and model.shortcut is not None


class ShortcutFitting:
    """Reads the n-grams of examples, for a model that has a shortcut."""

    def __init__(
        self,
        join: Callable[[Sequence[str]], str],
        network: Callable[[Classifier, Examples], Iterable[tuple[NDArray[np.int64], Tensor]]],
        weighing: Callable[[], Tensor | None],
        repeats: Callable[[Examples], Repeats | None],
    ) -> None:
        """
        Args:
            join: tokens as a text.
            network: the numbers of examples, and what the network alone says of them, in batches.
            weighing: how much a text of each label counts in training.
            repeats: which texts occur again, where each is to be learned from once.
        """
        self._join, self._network, self._weighing, self._repeats = join, network, weighing, repeats
        self._ngrams = TextNgrams()
        self._fitted: tuple[Examples, dict[str, Tensor]] | None = None  # to what, and the weights

    def ngrams(self, examples: Examples, key: Iterable[int]) -> tuple[Numbers, Numbers]:
        """The n-grams of some examples, one after the other, and how many each has."""
        words, rows = self._spellings(examples), examples.rows("word", key)
        return self._ngrams.of_all([self._join([words[word] for word in row]) for row in rows])

    def _spellings(self, examples: Examples) -> list[str]:
        return examples.words if examples.lexicon is None else examples.lexicon.spellings

    @torch.no_grad()
    def fit(self, model: Classifier, examples: Examples) -> None:
        """Find the weights of the shortcut on the training data; of very many texts, on every so manieth.

        A second model, after one whose training was only measured, takes the weights of the first.
        """
        if not has_shortcut(model):
            return
        assert model.shortcut is not None
        if self._fitted is not None and self._fitted[0] is examples:
            model.shortcut.load_state_dict(self._fitted[1])
            return
        repeats = self._repeats(examples)
        every = range(len(examples)) if repeats is None else repeats.first.tolist()
        known = every[:: self._stride(examples)]
        labels = [int(row[0]) for row in examples.rows("label", known)]
        shift = None if repeats is None else repeats.shift
        model.shortcut.fit(self.ngrams(examples, known), labels, self._weighing(), shift)
        state = model.shortcut.state_dict()
        self._fitted = examples, {name: one.cpu().clone() for name, one in state.items()}

    def _stride(self, examples: Examples) -> int:
        """Every so manieth of the data, which may be sorted, has n-grams that memory holds."""
        words, ids = self._spellings(examples), examples.store.fields["word"].values
        letters = np.array([len(word) + 1 for word in words], dtype=np.int64)
        total = int(np.bincount(ids, minlength=len(words)) @ letters) if len(words) else 0
        return max(1, -(-total // MOST_LETTERS))

    @torch.no_grad()
    def weigh(self, model: Classifier, examples: Examples) -> None:
        """Find out on validation data how much network and shortcut count."""
        if not has_shortcut(model):
            return
        assert model.shortcut is not None
        found: list[tuple[Tensor, Tensor]] = []
        for key, scores in self._network(model, examples):
            labels = torch.from_numpy(np.concatenate(examples.rows("label", key)).astype(np.int64))
            experts = model.shortcut.experts(scores, self.ngrams(examples, key)).cpu()
            found.append((experts[labels >= 0], labels[labels >= 0]))
        if found:
            model.shortcut.weigh(*(torch.cat(parts) for parts in zip(*found, strict=True)))
