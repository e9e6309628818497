"""What is searched: ranges around the defaults, and those that a user says."""

import pytest

from elman.config import Around, Near, Numbers, Values, given_keys, validate
from elman.errors import ConfigError
from elman.registry import TASKS
from elman.training.settings import settings_class
from elman.tuning.space import as_json, from_json, parse_range, space_of, with_values


def settings(task="classify", **model):
    chosen = {"hidden": 128, "embedding": 100, "layers": 1, "dropout": 0.5} | model
    chosen |= {} if task == "class2seq" else {"input_dropout": 0.1}
    training = {"learning_rate": 2e-3, "batch_size": 32, "epochs": 4, "schedule": "one-cycle"}
    return validate(settings_class(task), {"task": task, "model": chosen, "training": training})


@pytest.mark.parametrize("task", TASKS.names())
def test_every_task_has_a_few_settings_to_search_and_its_defaults_are_among_them(task):
    default = settings(task)
    space = space_of(default, [], {})
    assert 5 <= len(space) <= 8
    for key, one in space.items():
        value = default.model_dump()[key.split(".")[0]][key.split(".")[1]]
        if isinstance(one, Numbers):
            assert one.low <= value <= one.high
            for end in (one.low, one.high):
                with_values(default, {key: end}, 300)
        else:
            assert value in one.values or value is None


def test_what_is_set_is_not_searched_unless_it_is_said():
    default = settings()
    assert "model.hidden" not in space_of(default, ["model.hidden"], {})
    said = dict([parse_range("model.hidden=16..64")])
    assert space_of(default, ["model.hidden"], said)["model.hidden"] == Numbers(16, 64)
    with pytest.raises(ConfigError, match="there is nothing to search"):
        space_of(default, type(default).search, {})


def test_ranges_are_of_the_kind_of_their_setting():
    default = settings()
    assert space_of(default, [], dict([parse_range("training.weight_decay=0..1")]))[
        "training.weight_decay"
    ] == Numbers(0.0, 1.0)
    one = space_of(default, [], dict([parse_range("training.weight_decay=0..1")]))["training.weight_decay"]
    assert not one.whole
    assert space_of(default, [], dict([parse_range("model.layers=1..3")]))["model.layers"].whole


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("model.hidden=512..64", "the range 512..64 is empty"),
        ("model.hidden=64..64", "is empty"),
        ("model.hidden=few..64", "does not go from number to number"),
        ("model.hidden", "is no range; say model.hidden=64..512"),
        ("model.hiden=64..512", "model.hiden is unknown; did you mean 'hidden'"),
        ("model.dropout=0.1..1.5", "model.dropout is 1.5"),
        ("model.cell=lstm,ltsm", "no cell named 'ltsm'"),
        ("training.plateau=1..3", "nothing reads it"),
    ],
)
def test_mistakes(words, problem):
    with pytest.raises(ConfigError, match=problem):
        space_of(settings(), [], dict([parse_range(words)]))


def test_around_a_default():
    assert Around(2).of(128) == Numbers(64, 256, log=True)
    assert Around(3).of(0.002) == Numbers(0.000667, 0.006, log=True)
    assert Around(2).of([64, 32]) is None
    assert Around(2).of(1) is None  # one example a batch is another method
    assert Near(0.2).of(0.0) == Numbers(0.0, 0.2)
    assert Near(0.2).of(0.9) == Numbers(0.7, 0.9)


def test_neat_values_stay_in_their_range():
    assert Numbers(64, 256).neat(137) == 136
    assert Numbers(1, 20).neat(13) == 13
    assert Numbers(33, 36).neat(34) == 33
    assert Numbers(0.0, 1.0).neat(0.123456) == 0.123
    assert isinstance(Numbers(64, 256).neat(137), int)


def test_a_trial_validates_as_often_as_the_default():
    trial = with_values(settings(), {"training.batch_size": 16}, 300)
    assert trial.training.validate_every == 600
    assert "training.validate_every" in given_keys(trial)


def test_a_space_is_kept_as_json():
    space = {"a": Numbers(1, 2), "b": Numbers(0.1, 2.0, log=True), "c": Values(("x", True))}
    assert from_json(as_json(space)) == space
