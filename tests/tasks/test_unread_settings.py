"""A setting that nothing reads is a mistake, and whoever reads it is named."""

import pytest

import elman
from elman.errors import ConfigError
from tiny_tasks import ready, save, settings_of

SMALL_ONES = {f"model.{name}": None for name in ("embedding", "dropout", "hidden")}
UNREAD = [  # task, settings, what is unread, who reads it
    (
        "lm",
        {"decoding.strategy": "greedy", "decoding.beam": 9},
        "decoding.beam is 9",
        "beam would",
    ),
    ("seq2seq", {"decoding.beam": 3, "decoding.top_k": 4}, "decoding.beam is 3", "beam would"),
    (
        "class2seq",
        {"decoding.temperature": 0.5, "decoding.length_penalty": 0.2},
        "decoding.length_penalty",
        "beam",
    ),
    (
        "seq2seq",
        {"decoding.coverage_penalty": 0.2},
        "decoding.coverage_penalty is 0.2",
        "'greedy' of decoding.strat",
    ),
    (
        "tag",
        {"training.optimizer": "adam", "training.momentum": 0.9},
        "training.momentum is 0.9",
        "sgd would",
    ),
    ("lm", {"training.momentum": 0.9}, "training.momentum is 0.9", "'adamw' of training.optimizer does not"),
    ("lm", {"training.schedule": "constant", "training.warmup": 0.1}, "training.warmup is 0.1", "one-cycle"),
    (
        "lm",
        {"training.plateau": 3},
        "training.plateau is 3",
        "'one-cycle' of training.schedule does not read it",
    ),
    (
        "classify",
        {"training.averaging": "none", "training.average_decay": 0.9},
        "average_decay is 0.9",
        "'ema'",
    ),
    ("tag", {"training.regularisation": 0.1}, "regularisation is 0.1", "training.regulariser = 'l1' or 'l2'"),
    ("lm", {"text.context": "sentence", "training.truncate": 9}, "truncate is 9", "text.context = 'stream'"),
    ("lm", {"model.window": 3}, "model.window is 3", "'rnn' of model.network does not read it, window would"),
    ("tag", {"model.window": 3, "model.network": "bag"}, "model.window is 3", "window would"),
    ("classify", {"model.order": 3}, "model.order is 3", "ngram would"),
    ("lm", {"model.network": "window", "model.cell": "gru"}, "model.cell is 'gru'", "rnn would"),
    ("classify", {"model.network": "bag", "model.zoneout": 0.1}, "model.zoneout is 0.1", "rnn would"),
    (
        "class2seq",
        {**SMALL_ONES, "model.network": "ngram", "model.cell": "gru"},
        "model.cell is 'gru'",
        "rnn would",
    ),
    (
        "tag",
        {"text.tune_vectors": False},
        "text.tune_vectors is False",
        "it is read where text.vectors is set",
    ),
]


@pytest.mark.parametrize(("task", "settings", "said", "who"), UNREAD, ids=lambda value: str(value)[:60])
def test_what_nothing_reads_is_an_error_that_names_who_does(task, settings, said, who, tmp_path):
    with pytest.raises(ConfigError) as caught:
        ready(task, tmp_path, settings)
    assert said in str(caught.value)
    assert "but nothing reads it: " in str(caught.value)
    assert who in str(caught.value).partition("nothing reads it: ")[2]


def test_all_of_them_are_named_at_once(tmp_path):
    with pytest.raises(ConfigError, match=r"2 mistakes\n  .*momentum.*\n  .*beam is 3") as caught:
        ready(
            "lm",
            tmp_path,
            {
                "training.optimizer": "adam",
                "training.momentum": 0.9,
                "decoding.strategy": "sample",
                "decoding.beam": 3,
            },
        )
    assert str(caught.value).count("nothing reads it") == 2


READ = [
    ("lm", {"decoding.strategy": "beam", "decoding.beam": 9, "decoding.length_penalty": 0.5}),
    ("lm", {"decoding.temperature": 0.5, "decoding.top_p": 0.9}),
    ("tag", {"training.optimizer": "sgd", "training.momentum": 0.9}),
    ("lm", {"training.schedule": "plateau", "training.plateau": 3, "training.decay": 0.3}),
    ("lm", {"model.network": "window", "model.window": 3}),
    ("classify", {"model.network": "ngram", "model.order": 2}),
    ("tag", {"model.network": "bag", "model.characters": 3, "model.cell": "gru"}),  # reads the letters
    ("tag", {"training.regulariser": "l2", "training.regularisation": 0.1}),
    ("lm", {"training.truncate": 9}),
    ("lm", {"training.momentum": None, "decoding.beam": None, "model.window": None}),  # as if unsaid
    ("tag", {"training.regularisation": 0.0, "text.tune_vectors": True}),
    ("class2seq", {**SMALL_ONES, "model.network": "ngram"}),
]


@pytest.mark.parametrize(("task", "settings"), READ, ids=lambda value: str(value)[:60])
def test_what_is_read_stays_as_it_was_said(task, settings, tmp_path):
    config = ready(task, tmp_path, settings).task.config
    for key, value in settings.items():
        section, name = key.split(".")
        if value is not None:
            assert getattr(getattr(config, section), name) == value


@pytest.mark.parametrize("task", ["lm", "tag", "classify", "class2seq", "seq2seq"])
def test_nothing_is_filled_that_nothing_reads(task, tmp_path):
    config = ready(task, tmp_path).task.config
    assert config.training.plateau is None
    assert config.training.momentum is None
    assert getattr(config.model, "window", None) is None
    assert getattr(config.model, "order", None) is None


@pytest.mark.parametrize(
    ("task", "key", "value", "readers"),
    [
        ("tag", "decoding.beam", 3, "class2seq and lm and seq2seq"),
        ("classify", "decoding.max_length", 3, "class2seq and lm and seq2seq"),
        ("tag", "training.truncate", 3, "lm"),
        ("seq2seq", "training.truncate", 3, "lm"),
        ("lm", "decoding.coverage_penalty", 0.1, "seq2seq"),
        ("class2seq", "decoding.copy_unknown", True, "seq2seq"),
        ("class2seq", "model.input_dropout", 0.1, "classify and lm and seq2seq and tag"),
        ("class2seq", "model.token_dropout", 0.1, "classify and lm and seq2seq and tag"),
        ("class2seq", "model.rare_dropout", 0.1, "classify and lm and seq2seq and tag"),
        ("class2seq", "text.vectors", "a.txt", "classify and lm and seq2seq and tag"),
        ("lm", "model.crf", True, "tag"),
        ("lm", "training.teacher_forcing", 0.5, "seq2seq"),
    ],
)
def test_a_setting_of_other_tasks_is_an_error_that_names_them(task, key, value, readers):
    with pytest.raises(ConfigError) as caught:
        settings_of(task, settings={key: value})
    missing = key if key.split(".")[0] != "decoding" or task not in ("tag", "classify") else "decoding"
    assert (
        f"{missing} is no setting of this task; {readers} {'read' if ' ' in readers else 'reads'} it"
        in str(caught.value)
    )


def test_a_setting_of_no_task_is_unknown():
    with pytest.raises(ConfigError, match=r"model\.hiden is unknown; did you mean 'hidden'"):
        settings_of("lm", settings={"model.hiden": 3})


def test_settings_on_the_way_are_read_too(tmp_path):
    run = save(ready("lm", tmp_path, {"decoding.strategy": "greedy"}), tmp_path / "run")
    with pytest.raises(
        ConfigError, match=r"decoding\.beam is 9, but nothing reads it: 'greedy' of decoding\.str"
    ):
        elman.load(run, settings={"decoding.beam": 9})
    assert elman.load(run, settings={"decoding.beam": 9, "decoding.strategy": "beam"}).predict(["the"])
