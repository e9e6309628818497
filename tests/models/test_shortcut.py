"""Linear models of n-grams beside a network: what they compute, and how much each counts."""

import numpy as np
import pytest
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import FeatureUnion

from elman.models import shortcut
from elman.models.shortcut import SMOOTHING, STRENGTH, LinearShortcut, expected_weights
from elman.text import ngrams
from elman.text.ngram_index import NgramIndex
from elman.text.ngrams import BLOCK, TextNgrams

TEXTS = [
    "good film , good cast",
    "bad film",
    "a good day",
    "so bad",
    "not good",
    "bad , bad day",
    "fine cast",
]
LABELS = [0, 1, 0, 1, 2, 1, 0]
ASKED = ["good bad film", "nothing known xyz", "cast cast"]
K = 3


def fitted(texts=TEXTS, labels=LABELS, **options) -> LinearShortcut:
    model = LinearShortcut(K)
    model.fit(TextNgrams().of_all(texts), labels, **options)
    return model


def peers() -> tuple[FeatureUnion, np.ndarray]:
    """The same values by scikit-learn."""
    words = TfidfVectorizer(token_pattern=r"\w+|[^\w\s]", ngram_range=(1, 2), sublinear_tf=True)
    letters = TfidfVectorizer(analyzer="char_wb", ngram_range=(1, 5), sublinear_tf=True)
    union = FeatureUnion([("words", words), ("letters", letters)])
    return union, union.fit_transform(TEXTS)


def without_blanks(union: FeatureUnion) -> np.ndarray:
    return np.array([not name.endswith("__ ") for name in union.get_feature_names_out()])


def test_a_text_has_the_ngrams_of_its_words_and_letters():
    found = TextNgrams().of("Ab c")
    assert (found < BLOCK).sum() == 3  # ab, c, ab c
    spelled = [" ab ", " c "]
    parts = [word[i : i + n] for word in spelled for n in range(1, 6) for i in range(len(word) - n + 1)]
    assert (found >= BLOCK).sum() == len([part for part in parts if part != " "])
    assert TextNgrams().of(" \t ").tolist() == []


def test_ngrams_do_not_depend_on_what_was_seen_before(monkeypatch):
    fresh = [TextNgrams().of(text).tolist() for text in TEXTS]
    monkeypatch.setattr(ngrams, "REMEMBERED", 2)
    one = TextNgrams()
    assert [one.of(text).tolist() for text in TEXTS * 2] == fresh * 2


def test_both_models_are_those_of_scikit_learn():
    model, (union, X) = fitted(), peers()
    letters = X.toarray()[:, without_blanks(union)]
    names = union.get_feature_names_out()[without_blanks(union)]
    asked = union.transform(ASKED).toarray()[:, without_blanks(union)]
    for values in (letters, asked):  # without the blank, each kind has length one again
        for kind in ("words__", "letters__"):
            own = np.array([name.startswith(kind) for name in names])
            lengths = np.linalg.norm(values[:, own], axis=1, keepdims=True)
            values[:, own] /= np.where(lengths, lengths, 1)
    regression = LogisticRegression(C=STRENGTH / len(TEXTS) ** 0.5, tol=1e-8, max_iter=5000).fit(
        letters, LABELS
    )
    bayes = MultinomialNB(alpha=SMOOTHING / K * letters.sum(0)).fit(letters, LABELS)
    found = model(TextNgrams().of_all(ASKED)).exp().numpy()
    assert found[:, 0] == pytest.approx(regression.predict_proba(asked), abs=2e-3)
    assert found[:, 1] == pytest.approx(bayes.predict_proba(asked), abs=0.03)  # which smooths the classes too


def test_a_fit_is_the_same_every_time_and_is_saved(tmp_path):
    one, other = fitted(), LinearShortcut(K)
    again = fitted().state_dict()
    assert all(torch.equal(tensor, again[name]) for name, tensor in one.state_dict().items())
    other.load_state_dict(one.state_dict())
    asked = TextNgrams().of_all(ASKED)
    assert torch.equal(one(asked), other(asked))


def test_the_rarest_ngrams_go_where_there_is_no_room(monkeypatch):
    whole = fitted()
    monkeypatch.setattr(shortcut, "MOST_WEIGHTS", 20 * 2 * K)
    model = fitted()
    assert model.weight.shape == (20, 2 * K)
    assert (model.hashes.diff() > 0).all()
    assert float(model.rarity.max()) < float(whole.rarity.max())


def test_labels_may_count_unequally():
    asked = TextNgrams().of_all(["film day"])
    plain = fitted()(asked)[0, 0].exp()
    favoured = fitted(weighing=torch.tensor([1.0, 1.0, 20.0]))(asked)[0, 0].exp()
    assert favoured[2] > plain[2]


def test_weights_follow_who_is_right():
    model, torch_random = fitted(), torch.Generator().manual_seed(0)
    labels = torch.randint(K, (500,), generator=torch_random)
    right = torch.nn.functional.one_hot(labels, K) * 4.0
    noise = torch.randn(500, K, generator=torch_random) * 4
    experts = torch.stack([noise, right + noise.roll(1, 0) * 0.5, torch.zeros(500, K)], 1).log_softmax(-1)
    model.weigh(experts, labels)
    network, regression, _ = model.weights.tolist()
    assert network < 0.05 < 0.5 < regression
    model.weigh(experts[:0], labels[:0])  # nothing is known
    assert model.weights.tolist() == pytest.approx(expected_weights(len(TEXTS)).tolist())


def test_weights_are_an_optimum():
    model, drawn = fitted(), torch.Generator().manual_seed(1)
    labels = torch.randint(K, (60,), generator=drawn)
    experts = (torch.randn(60, 3, K, generator=drawn) + 1.5 * torch.eye(K)[labels][:, None]).log_softmax(-1)
    model.weigh(experts, labels)
    expected = expected_weights(len(TEXTS))

    def objective(weights: torch.Tensor) -> float:
        logs = torch.einsum("nek,e->nk", experts.double(), weights).log_softmax(-1)
        loss = -logs[torch.arange(60), labels].sum()
        return float(loss + shortcut.TRUST / 2 * (weights - expected).square().sum())

    best = model.weights.double()
    for direction in (*torch.eye(3).double(), *-torch.eye(3).double()):
        assert objective(best) <= objective((best + 0.02 * direction).clamp(min=0)) + 1e-6


def test_weights_are_found_where_one_model_is_sure_and_wrong():
    """There a whole step of Newton's method leads far away, and the next one back."""
    model, drawn = fitted(), torch.Generator().manual_seed(2)
    labels = torch.randint(K, (300,), generator=drawn)
    good = (torch.randn(300, K, generator=drawn) + 2 * torch.eye(K)[labels]).log_softmax(-1)
    sure = (torch.randn(300, K, generator=drawn) * 30).log_softmax(-1)
    model.weigh(torch.stack([good, sure, sure.roll(1, -1)], 1), labels)
    weights = model.weights.tolist()
    assert weights[0] > 0.5
    assert max(weights[1:]) < 0.02


def test_the_mix_is_a_distribution():
    model, scores = fitted(), torch.randn(len(ASKED), K)
    mixed = model.mix(scores, TextNgrams().of_all(ASKED))
    assert mixed.exp().sum(-1).tolist() == pytest.approx([1.0] * len(ASKED))
    model.weights.copy_(torch.tensor([1.0, 0.0, 0.0]))
    torch.testing.assert_close(model.mix(scores, TextNgrams().of_all(ASKED)), scores.log_softmax(-1))


def test_every_known_ngram_is_found_and_no_other():
    random = np.random.default_rng(0)
    drawn = np.unique(random.integers(0, 2 * BLOCK, 5000))
    known, others = drawn[::2], drawn[1::2]
    index = NgramIndex(None, known)
    places, found = index.find(np.concatenate([known, others]))
    assert found.tolist() == [True] * len(known) + [False] * len(others)
    assert places.tolist() == list(range(len(known)))
    assert len(NgramIndex(None, known[:0]).find(others)[0]) == 0
