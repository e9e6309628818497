"""Validation calibrates the best weights; the run keeps it, and a disturbed one comes to the same."""

import json
import pickle
import random
import shutil

import numpy as np
import pytest
from runs import resume, set_back

import elman as package
from elman.training.checkpoint import load_state
from tiny import elman, timeless, train_command, write

NOISE = 0.25  # of the labels
SHORT = {"training.max_steps": 60, "training.validate_every": 20, "training.save_seconds": 1000.0}


def noisy(count, seed):
    draw = random.Random(seed)
    words = {"spam": ["buy", "win", "cash", "now"], "ham": ["home", "tea", "mother", "soon"]}
    for _ in range(count):
        label = draw.choice(["spam", "ham"])
        text = " ".join(draw.choices(words[label], k=3) + draw.choices(["a", "the", "of", "in"], k=2))
        yield text, label if draw.random() > NOISE else "ham"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    for part, count, seed in (("train", 80, 1), ("dev", 200, 2)):
        lines = [f"{text}\t{label}" for text, label in noisy(count, seed)]
        write(folder / f"classify.{part}.txt", "\n".join(lines) + "\n")
    write(folder / "vectors.txt", "buy 1 2\nhome 2 1\n")
    return folder


def trained(data, out, changes=None, *more):
    answer = elman(*train_command("classify", data, out, {**SHORT, **(changes or {})}), *more)
    assert answer.code == 0, answer.err
    return answer


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    run = tmp_path_factory.mktemp("run") / "run"
    settings = {"training.learning_rate": 5.0, "training.class_weights": "none", "model.token_dropout": 0.0}
    settings["model.shortcut"] = False  # whose weights leave nothing for a temperature
    answer = trained(data, run, settings, "--json")
    assert "calibrated on 200 labels of the validation data: temperature " in answer.err
    assert json.loads(answer.out)["calibration"] == load_state(run / "best")["position"]["calibration"]
    return run


def likelihood(chances, labels, gold):
    return np.mean([-np.log(row[labels.index(label)]) for row, label in zip(chances, gold, strict=True)])


def test_the_best_weights_have_a_temperature(run, data):
    model = package.load(run)
    found = model.task.calibration
    assert found.temperature != 1.0
    assert found.after < found.before
    texts, gold = zip(*noisy(200, 2), strict=True)
    assert likelihood(model.predict_proba(texts), model.labels, gold) == pytest.approx(found.after, abs=1e-5)
    plain = package.predictor.Predictor(run, model.task.reconfigured(model.config), model.model)
    plain.task.calibration = None
    assert likelihood(plain.predict_proba(texts), model.labels, gold) == pytest.approx(found.before, abs=1e-5)
    assert plain.predict(texts) == model.predict(texts)


def test_pickles_and_other_settings_keep_it(run):
    model = package.load(run)
    other = pickle.loads(pickle.dumps(model))
    expected = model.predict_proba(["buy tea"])
    assert np.array_equal(other.predict_proba(["buy tea"]), expected)
    assert np.array_equal(model.with_settings({}).predict_proba(["buy tea"]), expected)


def test_evaluation_tells_of_it(run, data):
    answer = elman("evaluate", run, data / "classify.dev.txt", "--json", "--threshold", "0.8")
    found = json.loads(answer.out)
    assert found["temperature"] == package.load(run).task.calibration.temperature
    assert found["calibration_count"] == 200
    assert found["answered_accuracy"] is None or found["answered_accuracy"] >= 0.5
    text = elman("evaluate", run, data / "classify.dev.txt").out
    assert "calibration_error " in text
    assert "calibration_error_before" in text
    assert "coverage" not in text


@pytest.mark.slow
def test_a_run_that_goes_on_has_the_same(run, tmp_path):
    copy = shutil.copytree(run, tmp_path / "run", symlinks=True)
    set_back(copy)
    assert resume(copy).code == 0
    assert timeless(copy) == timeless(run)
    again = resume(copy)
    assert "has ended already" in again.err
    assert "calibrated on 200" in again.err


def test_a_run_of_an_earlier_version_has_none(run, tmp_path):
    from elman.training.checkpoint import load_checkpoint, save_checkpoint

    copy = shutil.copytree(run, tmp_path / "run", symlinks=True)
    for folder in (copy / "checkpoints").iterdir():
        one = load_checkpoint(folder)
        del one.state["position"]["calibration"]
        shutil.rmtree(folder)
        tensors = {"model": one.model, "optimizer": one.optimizer, "extra": one.extra}
        save_checkpoint(copy, folder.name, **tensors, state=one.state)
    assert package.load(copy).task.calibration is None
    assert elman("predict", copy, "--json", stdin=b"buy tea\n").code == 0


def test_few_examples_calibrate_nothing_and_it_is_said(data, tmp_path):
    lines = (data / "classify.dev.txt").read_text().split("\n")
    write(tmp_path / "few.txt", "\n".join(lines[:49]) + "\n")
    command = train_command("classify", data, tmp_path / "run", SHORT)
    command[command.index("--dev") + 1] = str(tmp_path / "few.txt")
    answer = elman(*command)
    assert (
        "probabilities are not calibrated: 49 labels of the validation data are too few, 50 are needed"
        in answer.err
    )
    assert package.load(tmp_path / "run").task.calibration.temperature == 1.0


def test_the_training_data_calibrate_nothing(data, tmp_path):
    command = train_command("classify", data, tmp_path / "run", {**SHORT, "data.held_out": 0.0})
    del command[command.index("--dev") : command.index("--dev") + 2]
    answer = elman(*command)
    assert "not calibrated: the validation data are the training data" in answer.err


def test_a_counted_model_is_calibrated(data, tmp_path):
    files = ["--train", data / "classify.train.txt", "--dev", data / "classify.dev.txt"]
    answer = elman("train", "classify", *files, "--baseline", "ngram", "--out", tmp_path / "run")
    assert answer.code == 0, answer.err
    assert package.load(tmp_path / "run").task.calibration.temperature != 1.0
