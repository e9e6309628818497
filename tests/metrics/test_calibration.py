"""Temperatures that are known are found; the expected calibration error is what one counts by hand."""

import numpy as np
import pytest

from elman.metrics import calibration
from elman.metrics.calibration import BINS, Calibration, Reliability, ScoreSample


def softmax(scores):
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def drawn(temperature, rows=20_000, labels=5, seed=1):
    """Scores, and true labels that are drawn from softmax(scores / temperature)."""
    draw = np.random.default_rng(seed)
    scores = draw.normal(0, 3, (rows, labels))
    chances = softmax(scores / temperature).cumsum(-1)
    return scores, (draw.random((rows, 1)) > chances).sum(-1).clip(max=labels - 1)


def fitted(scores, gold, *, several=False, parts=7):
    sample = ScoreSample(several=several)
    for some, true in zip(np.array_split(scores, parts), np.array_split(gold, parts), strict=True):
        sample.add(some, true)
    return sample.fit()


@pytest.mark.parametrize("temperature", [0.5, 1.3, 2.0, 20.0])
def test_a_known_temperature_is_found(temperature):
    scores, gold = drawn(temperature)
    found = fitted(scores, gold)
    assert found.temperature == pytest.approx(temperature, rel=0.05)
    assert found.reason is None
    assert found.examples == 20_000
    plain = -np.log(softmax(scores)[np.arange(len(gold)), gold]).mean()
    mended = -np.log(softmax(scores / found.temperature)[np.arange(len(gold)), gold]).mean()
    assert (found.before, found.after) == (pytest.approx(plain), pytest.approx(mended))
    assert found.after < found.before
    for other in (0.97, 1.03):
        worse = -np.log(softmax(scores / found.temperature / other)[np.arange(len(gold)), gold]).mean()
        assert worse > mended


@pytest.mark.parametrize("temperature", [0.5, 2.5])
def test_of_sigmoids_too(temperature):
    draw = np.random.default_rng(2)
    scores = draw.normal(0, 3, (10_000, 4))
    gold = (draw.random(scores.shape) < 1 / (1 + np.exp(-scores / temperature))).astype(np.float32)
    assert fitted(scores, gold, several=True).temperature == pytest.approx(temperature, rel=0.05)


def test_it_does_not_depend_on_how_scores_are_moved_or_batched():
    scores, gold = drawn(1.7, rows=2000)
    found = fitted(scores, gold)
    assert fitted(scores, gold, parts=1) == found
    moved = fitted(scores + np.linspace(-1e4, 1e4, 2000)[:, None], gold)
    assert moved.temperature == pytest.approx(found.temperature, rel=1e-6)


def test_few_examples_are_not_fitted():
    scores, gold = drawn(3.0, rows=49)
    found = fitted(scores, gold)
    assert (found.temperature, found.examples) == (1.0, 49)
    assert found.sentence == (
        "probabilities are not calibrated: 49 labels of the validation data are too few, 50 are needed"
    )
    assert ScoreSample().fit().temperature == 1.0


def test_what_does_not_become_better_stays():
    scores, gold = drawn(3.0)
    found = fitted(scores, gold)
    again = fitted(scores / found.temperature, gold)
    assert again.temperature == pytest.approx(1.0, abs=1e-3)
    worse = fitted(np.zeros((100, 3)), np.zeros(100))
    assert (worse.temperature, worse.reason) == (1.0, "a temperature makes −log P hardly smaller")


def test_all_right_is_no_certainty():
    """Of 100 examples that are all right, one more could be wrong."""
    scores = np.tile([3.0, 0.0], (100, 1))
    found = fitted(scores, np.zeros(100))
    assert softmax(scores / found.temperature)[0, 0] == pytest.approx(100 / 101)


def test_a_few_mistakes_are_enough_to_be_less_sure():
    """Caution is for those who want to be more sure: here the minimum of −log P itself is found."""
    scores = np.tile([3.0, 0.0], (500, 1))
    gold = np.zeros(500)
    gold[:30] = 1
    found = fitted(scores, gold)
    assert softmax(scores / found.temperature)[0, 0] == pytest.approx(0.94)


def test_labels_that_are_ruled_out_do_no_harm():
    scores, gold = drawn(2.0, rows=5000)
    ruled = np.concatenate([scores, np.full((5000, 1), -np.inf)], 1)
    assert fitted(ruled, gold).temperature == pytest.approx(fitted(scores, gold).temperature, rel=1e-6)
    gold[:10] = 5  # these no temperature can make probable
    assert fitted(ruled, gold).temperature == pytest.approx(2.0, rel=0.1)


def test_many_scores_are_sampled_evenly(monkeypatch):
    scores, gold = drawn(2.0)
    monkeypatch.setattr(calibration, "KEPT", 10_000)
    sample = ScoreSample()
    for k in range(200):
        sample.add(scores[100 * k : 100 * k + 100], gold[100 * k : 100 * k + 100])
    kept = np.concatenate(sample._scores)
    assert 5_000 <= kept.size <= 10_000
    assert np.array_equal(kept, scores[::16])
    found = sample.fit()
    assert (found.examples, found.temperature) == (20_000, pytest.approx(2.0, rel=0.1))


def test_json_and_back():
    found = Calibration(1.25, 80, 0.5, 0.4)
    assert Calibration.of(found.as_json()) == found


def test_the_error_by_hand():
    """Three bins: 0.5 (two answers, one right), 0.7 (two, both right), 1 (one, wrong)."""
    told = Reliability()
    told.add(np.array([0.5, 0.5, 0.7]), np.array([True, False, True]))
    told.add(np.array([0.72, 1.0]), np.array([True, False]))
    assert told.error == pytest.approx((0.0 + (2 - 1.42) + 1.0) / 5)
    assert told.count == 5
    assert [(one["count"], one["accuracy"]) for one in told.bins()] == [(2, 0.5), (2, 1.0), (1, 0.0)]
    assert told.bins()[-1]["to"] == 1.0


def test_the_error_is_that_of_the_formula():
    draw = np.random.default_rng(3)
    confidence, right = draw.random(5000), draw.random(5000) < 0.6
    told = Reliability(threshold=0.8)
    told.add(confidence, right)
    expected = 0.0
    for b in range(BINS):
        inside = (confidence >= b / BINS) & (confidence < (b + 1) / BINS)
        expected += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    assert told.error == pytest.approx(expected)
    assert told.coverage == (confidence >= 0.8).mean()
    assert told.answered_accuracy == right[confidence >= 0.8].mean()


def test_nothing_has_no_error():
    told = Reliability(threshold=0.5)
    assert (told.error, told.coverage, told.answered_accuracy, told.bins()) == (0.0, 0.0, None, [])
