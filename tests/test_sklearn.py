"""The estimators behave as scikit-learn's own do: its checks, pipelines, searches, copies, pickles."""

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="scikit-learn is not installed; pip install elman[sklearn]")

from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

import elman
from elman.errors import ArgumentError, ConfigError
from elman.sklearn import SequenceClassifier, SequenceTagger, SequenceToSequence, in_order

TINY = {"hidden": 4, "embedding": 8, "epochs": 2, "batch_size": 16, "learning_rate": 0.05, "random_state": 1}
PLAIN = {"training.averaging": "none"}


class Numbers:
    """What turns an estimator of texts into one of numbers, which scikit-learn's checks give.

    A row is a text with a word a column: its number, and the value as a whole number.
    """

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        tags.input_tags.one_d_array = tags.input_tags.string = False
        return tags

    def _words(self, X, reset):
        if not reset:
            check_is_fitted(self)
        X = validate_data(self, X, reset=reset)
        return [[f"{column}:{value:.0f}" for column, value in enumerate(row)] for row in X]

    def _texts(self, X, *, reset=False):
        return [" ".join(words) for words in self._words(X, reset)]


class NumberClassifier(Numbers, SequenceClassifier):
    pass


class NumberTagger(Numbers, SequenceTagger):
    """All words of a row have its y as their tag; the first one's is the answer."""

    def fit(self, X, y):
        rows = zip(self._words(X, True), column_or_1d(self._targets(y)), strict=True)
        return super().fit(X, [[str(value)] * len(words) for words, value in rows])

    def predict(self, X):
        return np.array([float(tags[0]) for tags in super().predict(X)])

    def predict_proba(self, X):
        return np.array([rows[0] for rows in super().predict_proba(X)])

    def score(self, X, y):
        return float(np.mean(self.predict(X) == y))

    def _texts(self, X, *, reset=False):
        return self._words(X, reset)


class NumberToSequence(Numbers, SequenceToSequence):
    """The text of a row is its y; how long the one is that comes out is the answer."""

    def fit(self, X, y):
        return super().fit(X, [str(value) for value in column_or_1d(self._targets(y))])

    def predict(self, X):
        return np.array([len(text) for text in super().predict(X)])


ESTIMATORS = [kind(**TINY, settings=PLAIN) for kind in (NumberClassifier, NumberTagger, NumberToSequence)]


@pytest.mark.slow
@parametrize_with_checks(ESTIMATORS)  # none of them is expected to fail
def test_it_passes_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


NOUNS = ("cat", "dog", "stone", "chair")
PAIRS = [(adjective, noun) for adjective in ("small", "old", "red", "good", "bad") for noun in NOUNS]
WORDS = [["a", *pair, "sleeps"] for pair in PAIRS] * 2
X = [" ".join(words) for words in WORDS]
y = ["animal" if words[2] in NOUNS[:2] else "thing" for words in WORDS]
TAGS = [["DET", "ADJ", "NOUN", "VERB"]] * len(WORDS)
LEARNS = {"hidden": 16, "epochs": 20, "learning_rate": 0.02, "settings": PLAIN}


@pytest.fixture(scope="module")
def classifier():
    return SequenceClassifier(**LEARNS).fit(X, y)


@pytest.fixture(scope="module")
def tagger():
    return SequenceTagger(**LEARNS).fit(WORDS, TAGS)


def test_labels_come_back_as_they_were(classifier):
    assert classifier.classes_.tolist() == ["animal", "thing"]
    assert is_classifier(classifier)
    assert classifier.score(X, y) == 1.0
    found = classifier.predict(np.array(["the old cat", "a red chair"], dtype=object))
    assert (found.tolist(), found.dtype) == (["animal", "thing"], classifier.classes_.dtype)


@pytest.mark.parametrize(
    "labels",
    [
        [3, -1],
        [True, False],
        [1.0, 2.0],
        ["", " "],
        ["a\0b", "\ud800"],
        ["1", "2"],
    ],
    ids=["whole", "truths", "floats", "blank", "no text", "digits"],
)
def test_labels_of_any_type(labels):
    given = np.array([labels[label == "thing"] for label in y])
    model = SequenceClassifier(**LEARNS).fit(X, given)
    assert model.classes_.tolist() == sorted(labels)
    assert model.predict(X).tolist() == given.tolist()
    assert model.predict(X).dtype == given.dtype


def test_probabilities_stand_in_the_order_of_the_classes(classifier):
    found = classifier.predict_proba(X)
    assert found.shape == (len(X), 2)
    np.testing.assert_allclose(found.sum(-1), 1.0)
    assert classifier.classes_[found.argmax(-1)].tolist() == y
    details = classifier.predictor_.details(X[:1])[0]
    np.testing.assert_allclose(found[0], [details.probabilities[name] for name in ("animal", "thing")], 1e-5)


def test_a_text_without_a_word_is_most_probably_what_is_frequent():
    model = SequenceClassifier(**LEARNS | {"epochs": 1}).fit([*X, *X[:2]], [*y, *y[:2]])
    assert model.predict([""]).tolist() == ["animal"]
    assert model.predict_proba(["", " "])[:, 0].min() > 0.5
    assert model.predict([]).shape == (0,)


def test_a_class_that_was_not_left_to_learn_from_is_not_probable():
    found = in_order(np.array([[0.75, 0.25]]), ["c", "a"], ["a", "b", "c"])
    assert found.tolist() == [[0.25, 0.0, 0.75]]


def test_a_tagger(tagger):
    assert tagger.classes_.tolist() == ["ADJ", "DET", "NOUN", "VERB"]
    assert tagger.score(WORDS, TAGS) == 1.0
    assert tagger.predict([["a", "red", "dog"], [], "an old cat"])[:2] == [["DET", "ADJ", "NOUN"], []]
    [found, empty] = tagger.predict_proba([["a", "red", "dog"], []])
    assert (found.shape, empty.shape) == ((3, 4), (0, 4))
    assert tagger.classes_[found.argmax(-1)].tolist() == ["DET", "ADJ", "NOUN"]
    assert cross_val_score(clone(tagger).set_params(epochs=5), WORDS, TAGS, cv=2).shape == (2,)


def test_sequence_to_sequence():
    model = SequenceToSequence(**LEARNS).fit(X, [" ".join(words[1:3]) for words in WORDS])
    found = model.predict(X[:2])
    assert (found.shape, found.dtype) == ((2,), object)
    assert 0 <= model.score(X, y) <= 1
    assert model.score(X[:2], found) == 1.0


@pytest.mark.slow
def test_in_a_pipeline_and_a_search():
    pipeline = make_pipeline(
        FunctionTransformer(lambda texts: [text.upper() for text in texts]), SequenceClassifier(**LEARNS)
    )
    grid = {
        "sequenceclassifier__hidden": np.array([2, 16]),
        "sequenceclassifier__cell": ["gru"],
        "sequenceclassifier__epochs": [10],
    }
    search = GridSearchCV(pipeline, grid, cv=2).fit(X, y)
    assert search.best_score_ > 0.9
    best = search.best_estimator_[-1]
    assert (best.predictor_.config.model.cell, best.predictor_.config.training.epochs) == ("gru", 10)
    assert search.predict(X).tolist() == y
    assert cross_val_predict(SequenceClassifier(**TINY), X, y, cv=2, method="predict_proba").shape == (40, 2)


def test_arguments_are_settings():
    settings = {"model.pooling": "mean", "training.averaging": "none"}
    model = SequenceClassifier(
        unit="character", cell="gru", hidden=5, layers=2, embedding=7, dropout=0.1, epochs=1, batch_size=3,
        learning_rate=0.5, random_state=9, settings=settings,
    )  # fmt: skip
    config = model.fit(X, y).predictor_.config
    found = config.model
    assert (found.cell, found.hidden, found.layers, found.embedding) == ("gru", 5, 2, 7)
    assert (found.dropout, found.pooling, config.text.unit) == (0.1, "mean", "character")
    training = config.training
    assert (training.epochs, training.batch_size, training.learning_rate, training.seed) == (1, 3, 0.5, 9)
    assert settings == {"model.pooling": "mean", "training.averaging": "none"}
    assert clone(model).get_params() == model.get_params()


def test_the_same_as_from_elman(classifier):
    settings = {"model.hidden": 16, "training.epochs": 20, "training.learning_rate": 0.02, **PLAIN}
    model = elman.fit("classify", X, y, settings=settings)
    assert model.details(X) == classifier.predictor_.details(X)


@pytest.mark.slow
def test_random_states():
    def weights(state):
        model = SequenceClassifier(**TINY | {"epochs": 1, "random_state": state}).fit(X, y)
        return [weight.tolist() for weight in model.predictor_.model.parameters()]

    assert weights(None) == weights(1)
    assert weights(1) != weights(2)
    assert weights(np.random.RandomState(5)) == weights(np.random.RandomState(5))
    state = np.random.RandomState(5)
    assert weights(state) != weights(state)


def test_copies_and_pickles_say_the_same(classifier, tagger):
    for model, asked in ((classifier, X), (tagger, WORDS)):
        for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
            assert list(other.predict(asked)) == list(model.predict(asked))
        assert clone(model).get_params() == model.get_params()
        assert not hasattr(clone(model), "predictor_")


def test_mistakes():
    model = SequenceClassifier(**TINY)
    with pytest.raises(NotFittedError):
        model.predict(X)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.fit(X, y[:-1])
    with pytest.raises(ArgumentError, match="requires y to be passed"):
        model.fit(X, None)
    with pytest.raises(ArgumentError, match="y has one class, 'a'"):
        model.fit(["a", "b"], ["a", "a"])
    with pytest.raises(ArgumentError, match=r"X\[1\] is 3; it must be a string"):
        model.fit(["a", 3], ["a", "b"])
    with pytest.raises(ArgumentError, match="X has 2 dimensions; give one text an example"):
        model.fit(np.array([["a"], ["b"]]), ["a", "b"])
    with pytest.raises(ArgumentError, match=r"settings has 'model\.hidden', which another argument says"):
        SequenceClassifier(hidden=3, settings={"model.hidden": 3}).fit(X, y)
    with pytest.raises(ConfigError, match=r"text\.unit"):
        SequenceTagger(unit="character").fit(WORDS, TAGS)
    with pytest.raises(ArgumentError, match=r"tags\[0\] has 1 for the 4 of words\[0\]"):
        SequenceTagger(**TINY).fit(WORDS, [["X"]] * len(WORDS))
    with pytest.raises(ArgumentError, match=r"y\[0\]\[0\] is 3"):
        SequenceTagger(**TINY).fit(WORDS, [[3] * 4] * len(WORDS))


def test_without_scikit_learn_it_says_what_to_install():
    code = (
        "import sys; sys.modules['sklearn'] = None\nimport elman\n"
        "try:\n    import elman.sklearn\nexcept ModuleNotFoundError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "elman.sklearn needs scikit-learn; pip install 'elman[sklearn]'\n", done.stderr
