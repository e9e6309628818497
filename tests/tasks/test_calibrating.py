"""A calibration changes how probable answers are, and not what they are."""

import numpy as np
import pytest

from elman.metrics.calibration import Calibration
from elman.tasks.base import calibrated
from tiny_tasks import TEXTS, descend, ready

SEVERAL = "red ball\tred|round\nblue box\tblue\nred box\tred\nblue ball\tblue|round\ngrey stone\t\n"
SPANS = "Vera\tB-PER\nStone\tI-PER\nsees\tO\nRome\tB-LOC\n\nRome\tB-LOC\nsees\tO\nVera\tB-PER\n\n"
CASES = {
    "one": ("classify", {}, None),
    "several": ("classify", {"data.labels_separator": "|"}, SEVERAL),
    "counted": ("classify", {"model.network": "ngram"}, None),
    "tag": ("tag", {}, None),
    "crf": ("tag", {"model.crf": True}, SPANS),
}


@pytest.fixture(params=CASES)
def one(request, tmp_path):
    task, settings, data = CASES[request.param]
    found = ready(task, tmp_path, settings, data=data)
    if request.param == "counted":
        found.model.fit(lambda: [found.batch])
    else:
        descend(found, 5)
    return found


def mended(chances, temperature, several):
    if several:
        odds = (chances / (1 - chances)) ** (1 / temperature)
        return odds / (1 + odds)
    powers = chances ** (1 / temperature)
    return powers / powers.sum(-1, keepdims=True)


@pytest.mark.parametrize("temperature", [0.5, 3.0])
def test_answers_stay_and_probabilities_follow(one, temperature):
    task, texts = one.task, [*TEXTS[one.task.config.task], "red ball", "Vera sees Rome"]
    other = calibrated(task, Calibration(temperature))
    assert task.calibration is None
    assert other.chooser is other
    before, after = task.predict(one.model, texts), other.predict(one.model, texts)
    assert [found.value for found in after] == [found.value for found in before]
    several = bool(getattr(task, "multilabel", False))
    pairs = zip(texts, task.chances(one.model, texts), other.chances(one.model, texts), strict=True)
    for text, plain, found in pairs:
        if text:
            assert np.allclose(found, mended(plain, temperature, several), atol=1e-5)
    again = calibrated(task, Calibration(1.0)).predict(one.model, texts)
    assert [found.as_json() for found in again] == [found.as_json() for found in before]


def test_settings_that_change_keep_it(one):
    other = calibrated(one.task, Calibration(2.0))
    assert other.reconfigured(other.config).calibration == Calibration(2.0)


def test_evaluation_tells_the_error_with_and_without(one):
    plain = one.task.evaluate(one.model, one.examples)
    found = calibrated(one.task, Calibration(2.5)).evaluate(one.model, one.examples, threshold=0.6)
    assert plain["temperature"] == 1.0
    assert plain["calibration_error"] == plain["calibration_error_before"]
    assert found["calibration_error_before"] == plain["calibration_error"] != found["calibration_error"]
    assert (found["loss"], found["accuracy"]) == (plain["loss"], plain["accuracy"])
    assert sum(bin["count"] for bin in found["calibration_bins"]) == found["calibration_count"]
    assert 0 <= found["coverage"] <= 1
    assert "coverage" not in plain
    several = bool(getattr(one.task, "multilabel", False))
    assert plain["calibration_count"] == (15 if several else len(labels_of(one)))


def labels_of(one):
    role = one.task.roles[1]
    return [label for row in one.examples.store.fields[role] for label in row]


def test_the_error_is_that_of_what_is_predicted(one):
    """The confidences that predictions tell, and whether they are right, by hand."""
    task = calibrated(one.task, Calibration(1.7))
    if getattr(task, "multilabel", False):
        return
    role = task.roles[0]
    answers = task.predict(one.model, [record.fields[role] for record in one.records()])
    told = []
    for record, answer in zip(one.records(), answers, strict=True):
        gold = record.fields[task.roles[1]]
        if isinstance(answer.value, str):
            told.append((answer.confidence, answer.value == gold))
        else:
            pairs = zip(answer.probabilities, answer.value, gold, strict=True)
            told += [(chance, found == true) for chance, found, true in pairs]
    chances, right = (np.array(part) for part in zip(*told, strict=True))
    places = (chances * 15).astype(int).clip(max=14)
    expected = sum(abs((right - chances)[places == b].sum()) for b in range(15)) / len(told)
    found = task.evaluate(one.model, one.examples)
    assert found["calibration_error"] == pytest.approx(expected, abs=1e-5)


def test_validation_fits_one(one):
    found = one.task.evaluate(one.model, one.examples, quick=True)
    assert "calibration_error" not in found
    assert "too few" in Calibration.of(found["calibration"]).sentence
