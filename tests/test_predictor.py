"""The one door to a trained model."""

import pytest
import torch

import elman
from elman.errors import ArgumentError, ConfigError, EmptyError, RunError, RunExistsError
from tiny_tasks import DATA, TEXTS, ready, save


@pytest.fixture(params=sorted(DATA))
def saved(request, tmp_path):
    one = ready(request.param, tmp_path)
    return one, save(one, tmp_path / "run")


def test_predictions_are_those_of_the_task(saved):
    one, run = saved
    predictor = elman.load(run)
    texts = TEXTS[one.task.name]
    details = one.task.predict(one.model, texts)
    assert predictor.predict(texts, details=True) == details
    assert predictor.predict(iter(texts)) == [detail["prediction"] for detail in details]
    assert predictor.predict([]) == []
    assert not predictor.model.training
    assert predictor.config == one.task.config


def test_evaluation_reads_a_file_as_training_did(saved, tmp_path):
    one, run = saved
    figures, repairs = elman.load(str(run)).evaluate(str(one.path))
    assert figures == one.task.evaluate(one.model, one.examples)
    assert not repairs
    empty = tmp_path / "empty.txt"
    empty.write_text("")
    with pytest.raises(EmptyError, match=r"empty\.txt"):
        elman.load(run).evaluate(str(empty))


def test_blank_lines_are_nothing_to_evaluate(tmp_path):
    run = save(ready("lm", tmp_path, {"text.context": "sentence"}), tmp_path / "run")
    (tmp_path / "blank.txt").write_text("\n \n")
    with pytest.raises(EmptyError, match=r"blank\.txt: E406: no examples"):
        elman.load(run).evaluate(str(tmp_path / "blank.txt"))


def test_one_string_is_no_list_of_texts(saved):
    _, run = saved
    with pytest.raises(ArgumentError, match="texts is one string; give a list of them"):
        elman.load(run).predict("the cat")


def test_what_a_task_cannot_do(saved):
    one, run = saved
    predictor = elman.load(run)
    if one.task.name != "lm":
        with pytest.raises(ArgumentError, match="which cannot score; use predict"):
            predictor.score(["a"])
    else:
        assert predictor.score(["a"]) == one.task.score(one.model, ["a"])
    if one.task.name in ("tag", "classify"):
        with pytest.raises(ArgumentError, match="which cannot generate; use predict"):
            predictor.generate([""])
    else:
        prompts = TEXTS[one.task.name]
        expected = one.task.generate(one.model, prompts, one.task.config.decoding)
        assert predictor.generate(prompts) == expected


def test_settings_on_the_way(saved):
    one, run = saved
    predictor = elman.load(run, settings={"decoding.max_length": 1, "decoding.stop": []})
    assert predictor.config.decoding.max_length == 1
    if one.task.name == "lm":
        assert all(len(found["tokens"]) <= 1 for found in predictor.generate(["the", ""]))
    with pytest.raises(ConfigError, match=r"decoding\.max_lenght is unknown; did you mean 'max_length'"):
        elman.load(run, settings={"decoding.max_lenght": 1})


def test_what_is_no_run(saved, tmp_path):
    _, run = saved
    with pytest.raises(RunExistsError, match="is no run"):
        elman.load(tmp_path / "nothing")
    (run / "best").unlink()
    with pytest.raises(RunExistsError, match="has no checkpoint yet"):
        elman.load(run)


@pytest.mark.parametrize("damage", ["cut", "missing", "other format", "a list", "a table gone"])
def test_a_damaged_vocabulary_is_a_damaged_run(saved, damage):
    import json

    _, run = saved
    path = run / "vocabulary.json"
    tables = json.loads(path.read_text(encoding="utf-8"))
    if damage == "missing":
        path.unlink()
    elif damage == "cut":
        path.write_text(path.read_text(encoding="utf-8")[:-9], encoding="utf-8")
    elif damage == "other format":
        path.write_text(json.dumps(tables | {"format": 99}))
    elif damage == "a list":
        path.write_text("[]")
    else:
        del tables["tokens"]
        path.write_text(json.dumps(tables))
    with pytest.raises(RunError, match=r"vocabulary\.json") as caught:
        elman.load(run)
    assert caught.value.exit_code == 5


def test_a_damaged_config_is_a_damaged_run(saved):
    _, run = saved
    (run / "config.toml").write_text('task = "lm"\nmodell = 3\n')
    with pytest.raises(RunError, match=r"config\.toml is damaged"):
        elman.load(run)


def test_weights_that_do_not_fit(saved):
    _, run = saved
    with pytest.raises(RunError, match="does not fit the settings"):
        elman.load(run, settings={"model.hidden": 3})


def test_nothing_is_drawn(saved):
    """Using a model leaves the random numbers of the program alone."""
    one, run = saved
    predictor = elman.load(run)
    state = torch.get_rng_state()
    predictor.predict(TEXTS[one.task.name])
    assert torch.equal(torch.get_rng_state(), state)
