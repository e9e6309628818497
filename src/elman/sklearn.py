"""Estimators for scikit-learn: texts in, labels, tags or texts out, in pipelines and searches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils import assert_all_finite, check_consistent_length, check_random_state, column_or_1d
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "sklearn":
        raise
    problem = "elman.sklearn needs scikit-learn; pip install 'elman[sklearn]'"
    raise ModuleNotFoundError(problem, name="sklearn") from None

from elman.errors import ArgumentError, OneLabelError, is_text
from elman.fitting import fit
from elman.predictor import Predictor
from elman.text.asked import checked

__all__ = ["SequenceClassifier", "SequenceTagger", "SequenceToSequence"]

KEYS = {  # of arguments, as settings
    "unit": "text.unit",
    "cell": "model.cell",
    "hidden": "model.hidden",
    "layers": "model.layers",
    "embedding": "model.embedding",
    "dropout": "model.dropout",
    "epochs": "training.epochs",
    "batch_size": "training.batch_size",
    "learning_rate": "training.learning_rate",
}

Texts = Iterable[str] | Iterable[Sequence[str]]


class SequenceEstimator(BaseEstimator):
    """What all estimators share: their arguments, which are settings of Elman, and the model.

    What is None is chosen for the data. random_state is the seed; None: that of the settings, 1. settings has
    all others by their dotted keys, as ``{"model.pooling": "mean"}``. predictor_ is the model, as
    ``elman.load`` gives it.
    """

    task: ClassVar[str]

    def __init__(
        self,
        *,
        unit: str | None = None,
        cell: str | None = None,
        hidden: int | list[int] | None = None,
        layers: int | None = None,
        embedding: int | None = None,
        dropout: float | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        random_state: int | np.random.RandomState | None = None,
        settings: Mapping[str, Any] | None = None,
        verbose: bool = False,
    ) -> None:
        self.unit = unit
        self.cell = cell
        self.hidden = hidden
        self.layers = layers
        self.embedding = embedding
        self.dropout = dropout
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.random_state = random_state
        self.settings = settings
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.two_d_array = False
        tags.input_tags.one_d_array = tags.input_tags.string = True
        return tags

    def _fitted(self, X: Texts, y: Any) -> Self:
        """Itself with a model that has learned from texts and what belongs to them, both checked."""
        self.predictor_: Predictor = fit(self.task, X, y, settings=self._settings(), verbose=self.verbose)
        return self

    def _settings(self) -> dict[str, Any]:
        given = {key: getattr(self, name) for name, key in KEYS.items() if getattr(self, name) is not None}
        if self.random_state is not None:
            seed = self.random_state
            drawn = None if isinstance(seed, Integral) else check_random_state(seed).randint(2**31)
            given["training.seed"] = seed if drawn is None else int(drawn)
        for key in given.keys() & (self.settings or {}).keys():
            raise ArgumentError(f"settings has {key!r}, which another argument says, too; say it once")
        given |= self.settings or {}
        # grids are often arrays of numpy
        return {key: one.item() if isinstance(one, np.generic) else one for key, one in given.items()}

    def _targets(self, y: Any) -> Any:
        """What belongs to the texts; it must be there."""
        if y is None:
            name = type(self).__name__
            raise ArgumentError(f"{name} requires y to be passed, but the target y is None")
        return y

    def _texts(self, X: Any, *, reset: bool = False) -> list[Any]:
        """The texts of X; ``reset`` in fit, else the estimator must be fitted."""
        if not reset:
            check_is_fitted(self)
        if getattr(X, "ndim", 1) != 1:
            raise ArgumentError(
                f"X has {X.ndim} dimensions; give one text an example, as a column of a table"
            )
        return checked(X, "X")


class SequenceClassifier(ClassifierMixin, SequenceEstimator):
    """Texts in, a label of any type for each out.

    classes_: the labels, sorted; columns of ``predict_proba`` stand in their order.

    >>> texts, labels = ["good film", "bad film", "a good day", "a bad day"] * 5, [1, 0, 1, 0] * 5
    >>> model = SequenceClassifier(hidden=16, random_state=1).fit(texts, labels)
    >>> model.predict(["a good film"]), model.predict_proba(["a good film"]).shape
    (array([1]), (1, 2))
    """

    task = "classify"

    def fit(self, X: Texts, y: Any) -> Self:
        X, y = self._texts(X, reset=True), column_or_1d(self._targets(y), warn=True)
        check_consistent_length(X, y)
        assert_all_finite(y, input_name="y")
        check_classification_targets(y)
        self.classes_, places = np.unique(y, return_inverse=True)
        check_classes(self.classes_)
        names = self._names()
        return self._fitted(X, [names[place] for place in places])

    def predict(self, X: Texts) -> NDArray[Any]:
        """The most probable label of each text; of one without a word, the most frequent in training."""
        best = self.predict_proba(X).argmax(-1)
        found: NDArray[Any] = self.classes_[best]
        return found

    def predict_proba(self, X: Texts) -> NDArray[np.float64]:
        """How probable each of ``classes_`` is, (N, K)."""
        texts = self._texts(X)
        return in_order(self.predictor_.predict_proba(texts), self.predictor_.labels, self._names())

    def _names(self) -> list[str]:
        """The classes as labels of a model: as text, or by their numbers where that would not do."""
        names = [str(label) for label in self.classes_]
        sound = all(name.strip() and "\0" not in name and is_text(name) for name in names)
        return names if sound and len({*names}) == len(names) else [str(place) for place in range(len(names))]


class SequenceTagger(SequenceEstimator):
    """Lists of words in, lists of tags out.

    classes_: the tags, sorted; columns of ``predict_proba`` stand in their order.

    >>> words, tags = [["the", "cat"], ["cat", "the"]] * 5, [["DET", "NOUN"], ["NOUN", "DET"]] * 5
    >>> SequenceTagger(hidden=16, random_state=1).fit(words, tags).predict([["the", "cat"]])
    [['DET', 'NOUN']]
    """

    task = "tag"

    def fit(self, X: Texts, y: Any) -> Self:
        X, y = self._texts(X, reset=True), checked(self._targets(y), "y", lists=True)
        self.classes_ = np.unique([tag for tags in y for tag in tags])
        try:
            return self._fitted(X, y)
        except OneLabelError:
            check_classes(self.classes_)
            raise

    def predict(self, X: Texts) -> list[list[str]]:
        texts = self._texts(X)
        return [list(one.value) for one in self.predictor_.details(texts)]

    def predict_proba(self, X: Texts) -> list[NDArray[np.float64]]:
        """How probable each of ``classes_`` is for each word: (T, K) of each sentence."""
        texts = self._texts(X)
        labels, names = self.predictor_.labels, self.classes_.tolist()
        return [in_order(one, labels, names) for one in self.predictor_.predict_proba(texts)]

    def score(self, X: Texts, y: Iterable[Sequence[str]]) -> float:
        """The share of words whose tag is right."""
        pairs = zip(self.predict(X), y, strict=True)
        right = [found == gold for tags, golds in pairs for found, gold in zip(tags, golds, strict=True)]
        return sum(right) / max(1, len(right))

    def _texts(self, X: Any, *, reset: bool = False) -> list[Any]:
        if not reset:
            check_is_fitted(self)
        return checked(X, "X", lists=True)


class SequenceToSequence(SequenceEstimator):
    """Texts in, a text for each out.

    >>> model = SequenceToSequence(unit="character", settings={"decoding.beam": 5})
    >>> model.get_params()["unit"]
    'character'
    """

    task = "seq2seq"

    def fit(self, X: Texts, y: Any) -> Self:
        return self._fitted(self._texts(X, reset=True), checked(self._targets(y), "y"))

    def predict(self, X: Texts) -> NDArray[np.object_]:
        texts = self._texts(X)
        return np.array(self.predictor_.predict(texts), dtype=object)

    def score(self, X: Texts, y: Iterable[str]) -> float:
        """The share of texts that come out exactly."""
        right = [bool(found == gold) for found, gold in zip(self.predict(X), y, strict=True)]
        return sum(right) / max(1, len(right))


def check_classes(classes: NDArray[Any]) -> None:
    """From one class alone nothing can be learned."""
    if len(classes) == 1:
        raise ArgumentError(f"y has one class, {classes.tolist()[0]!r}; two classes are needed")


def in_order(chances: Any, labels: Sequence[str], names: Sequence[str]) -> NDArray[np.float64]:
    """Probabilities (…, K) of labels as those of all names, in their order.

    >>> in_order(np.array([[0.75, 0.25]]), ["b", "a"], ["a", "b", "c"])  # no c was left to learn from
    array([[0.25, 0.75, 0.  ]])
    """
    found = np.zeros((*chances.shape[:-1], len(names)))
    found[..., [names.index(label) for label in labels]] = chances
    return found
