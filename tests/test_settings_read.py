"""Names in settings are known to their owners; what nothing reads is an error that says who would read it."""

import re
from typing import Annotated

import pytest
from pydantic import ValidationError

from elman.config import (
    OneOf,
    PartOf,
    Section,
    check_read,
    describe,
    given_keys,
    merge,
    open_options,
    options_of,
    parse_settings,
    put,
    tasks_that_read,
    validate,
    why_unread,
)
from elman.config.reading import has_key, lookup
from elman.config.sections import DecodingSettings, TrainingSettings
from elman.errors import ConfigError
from elman.recurrence.unroll import usable_backends
from elman.registry import (
    ATTENTIONS,
    CELLS,
    METRICS,
    NETWORKS,
    OPTIMIZERS,
    SCHEDULES,
    STRATEGIES,
    TASKS,
    PartName,
    register,
)
from elman.tasks.base import chosen_metric
from elman.text.files import Repairs
from elman.text.records import Source
from elman.training.schedules.base import Schedule
from elman.training.settings import make_task, settings_class
from elman.trust import Trust
from tiny_tasks import DATA

MOVING = ("sgd", "torch.optim:RMSprop")  # optimisers that know momentum


def config_of(task, *pairs):
    return validate(settings_class(task), merge({"task": task}, parse_settings(pairs)))


def check(task, *pairs):
    """As before training: of all settings that were said, those that nothing reads are mistakes."""
    config = config_of(task, *pairs)
    check_read(config, given_keys(config))


def defaults(kind, prefix=""):
    """(dotted key, default) of every setting."""
    for name, field in kind.model_fields.items():
        default = field.get_default(call_default_factory=True)
        if isinstance(default, Section):
            yield from defaults(type(default), f"{prefix}{name}.")
        elif not field.is_required():
            yield f"{prefix}{name}", default


# Names that their owners know.


@pytest.mark.parametrize(
    ("task", "pair", "said"),
    [
        ("lm", "model.cell=ltsm", "model.cell: no cell named 'ltsm'; did you mean 'lstm'?"),
        ("lm", "model.cell=mine.py", "model.cell: 'mine.py' is a file; name the class in it, too"),
        ("lm", "model.network=widnow", "model.network: no network named 'widnow'; did you mean 'window'?"),
        ("lm", "text.unit=bytes", "text.unit: no unit named 'bytes'; did you mean 'byte'?"),
        ("lm", "data.format=json", "data.format: no reader named 'json'; did you mean 'jsonl'?"),
        ("lm", "training.optimizer=lion", "training.optimizer: no optimizer named 'lion'; Known: adam, "),
        ("lm", "training.schedule=one_cycle", "no schedule named 'one_cycle'; did you mean 'one-cycle'?"),
        ("lm", "decoding.strategy=bean", "decoding.strategy: no strategy named 'bean'; did you mean 'beam'?"),
        ("lm", "task=lmm", "task: no task named 'lmm'; did you mean 'lm'?"),
        ("classify", "model.pooling=sum", "no pooling named 'sum'; Known: attention, last, max, mean"),
        ("tag", "evaluation.metrics=['belu']", "evaluation.metrics[0]: no metric named 'belu'; did you mean"),
        ("seq2seq", "model.attention=no", "no attention named 'no'; "),
        ("seq2seq", "model.attention=no", "location; none is no attention"),
        ("seq2seq", "model.encoder.cell=ltsm", "model.encoder.cell: no cell named 'ltsm'"),
        ("seq2seq", "text.source.unit=letter", "text.source.unit: no unit named 'letter'"),
        ("lm", "model.initial_state=random", "model.initial_state: 'random' is not one of them; Known: "),
        ("lm", "model.backend=cuda", f"Known: {', '.join(sorted(usable_backends()))}"),
        ("tag", "data.format=tsv", "no reader named 'tsv'; Known: columns, conllu, "),
        ("lm", "data.format=tsv", "no reader named 'tsv'; Known: delimited, jsonl, lines"),
        ("class2seq", "model.network=bags", "no network named 'bags'; Known: ngram, rnn"),
        ("lm", "training.precision=float8", "'float8' is not one of them; did you mean 'float32'?"),
        ("lm", "training.averaging=swa", "'swa' is not one of them; Known: ema, none, tail"),
        ("lm", "training.loss=hinge", "'hinge' is not one of them; Known: cross-entropy, squared"),
        ("seq2seq", "evaluation.tokenize=13", "evaluation.tokenize is 13: input should be a valid string"),
        ("seq2seq", "evaluation.tokenize=spm", "'spm' is not one of them; Known: 13a, char, intl, none, zh"),
        ("seq2seq", "model.start=average", "'average' is not one of them; Known: copy, transform, zero"),
        ("class2seq", "text.classes=many", "'many' is not one of them; Known: class, features, "),
    ],
)
def test_a_name_that_its_owner_does_not_know(task, pair, said):
    with pytest.raises(ConfigError, match=re.escape(said)) as caught:
        config_of(task, pair)
    assert "\n" not in str(caught.value)


def refusal(kind, tables):
    """What is wrong with settings, or nothing."""
    try:
        validate(kind, tables)
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("task", TASKS.names())
def test_every_name_that_an_owner_knows_is_taken(task):
    """A task may refuse what does not fit it, but as such."""
    kind = settings_class(task)
    tried = []
    for key, shown, _, _ in describe(kind):
        for name in () if shown.startswith("list") else re.findall(r'"([^"]+)"', shown):
            tables = {"task": task}
            put(tables, key, name)
            said = refusal(kind, tables)
            assert "is not one of them" not in said, key
            assert not re.search(r"no \w+ named", said), key
            tried.append(name)
    assert len(tried) > 40


def test_a_class_of_the_users_is_taken_unseen():
    """It is loaded where it is needed, not where settings are read."""
    for key in ("model.cell", "model.network", "text.unit", "training.optimizer", "training.schedule"):
        found = lookup(config_of("lm", f"{key}=nowhere/mine.py:Mine"), key)
        assert isinstance(found, PartName)
        assert found.of_code


def test_a_registered_class_is_a_name_in_settings(monkeypatch):
    class Halved(Schedule):
        def share(self, update, total):
            return 0.5

    with pytest.raises(ConfigError, match="no schedule named 'halved'"):
        config_of("lm", "training.schedule=halved")
    monkeypatch.setattr(SCHEDULES, "_added", {})
    register("halved", Halved)
    assert config_of("lm", "training.schedule=halved").training.schedule == "halved"
    [shown] = [row[1] for row in describe(settings_class("lm")) if row[0] == "training.schedule"]
    assert '"halved"' in shown


def test_the_metric_may_be_one_of_the_tasks_own(tmp_path):
    """Which the registry does not know; the task looks it up."""
    assert config_of("lm", "training.metric=perplexity").training.metric == "perplexity"
    own = make_task(config_of("lm", "training.metric=perplexity"))
    assert chosen_metric(own) == ("perplexity", False)
    with pytest.raises(ConfigError, match=r"training\.metric is 'preplexity'.*did you mean 'perplexity'"):
        filled("lm", tmp_path, "training.metric=preplexity")


def test_what_a_run_names_is_looked_up_when_it_is_needed(tmp_path):
    """A registered name of another process is no damage of its settings."""
    trust = Trust(tmp_path)
    tables = {"task": PartName("lm", TASKS, trust), "model": {"cell": "registered_elsewhere"}}
    config = validate(settings_class("lm"), tables, None, trust)
    assert config.model.cell.trust is trust
    assert config.model.cell.registry is CELLS


def test_the_reference_lists_what_the_owners_know():
    table = {key: shown for key, shown, _, _ in describe(settings_class("seq2seq"))}
    for key, names in {
        "model.cell": CELLS.names(),
        "model.attention": ["none", *ATTENTIONS.names()],
        "model.encoder.network": NETWORKS.names(),
        "training.optimizer": OPTIMIZERS.names(),
        "training.schedule": SCHEDULES.names(),
        "decoding.strategy": STRATEGIES.names(),
    }.items():
        assert table[key] == " | ".join([*(f'"{name}"' for name in names), '"file.py:Class"']), key
    assert table["training.metric"] == "str"  # it may be a task's own
    assert table["evaluation.metrics"] == "list[" + " | ".join(
        [*(f'"{name}"' for name in METRICS.names()), '"file.py:Class"]']
    )
    assert table["model.initial_state"] == '"zero" | "learned"'


class Own(Section):
    cell: Annotated[str, PartOf(CELLS, also=("none",))] = "none"
    metric: Annotated[str, PartOf(METRICS, open=True)] = "mine"
    state: Annotated[str, OneOf("elman.layers.rnn:INITIAL_STATES")] = "zero"


def test_the_two_annotations_alone():
    assert PartOf(CELLS, also=("none",)).choices() == ["none", *CELLS.names()]
    assert OneOf("elman.layers.rnn:INITIAL_STATES").choices() == ["zero", "learned"]
    assert (Own().cell, Own().metric, Own(cell="gru").cell.registry) == ("none", "mine", CELLS)
    for wrong, said in (
        ({"cell": "ltsm"}, "no cell named 'ltsm'; did you mean 'lstm'.*; none is no cell"),
        ({"cell": 5}, "valid string"),
        ({"metric": 5}, "valid string"),
        ({"state": "on"}, "'on' is not one of them"),
    ):
        with pytest.raises(ValidationError, match=said):
            Own(**wrong)


# Who reads what.

UNREAD = {
    "momentum without sgd": (
        "lm",
        ["training.optimizer=adam", "training.momentum=0.9"],
        "training.momentum is 0.9, but nothing reads it: 'adam' of training.optimizer does not read it, "
        "sgd would",
    ),
    "betas of sgd": (
        "lm",
        ["training.optimizer=sgd", "training.betas=[0.8, 0.9]"],
        "training.betas is (0.8, 0.9), but nothing reads it: 'sgd' of training.optimizer does not read it, "
        "adam and adamw would",
    ),
    "decay of incremental": (
        "lm",
        ["training.optimizer=incremental", "training.weight_decay=0.1"],
        "'incremental' of training.optimizer does not read it, adam and adamw and asgd and sgd would",
    ),
    "betas of a class of torch": (
        "lm",
        ["training.optimizer=torch.optim:RMSprop", "training.betas=[0.8, 0.9]"],
        "'torch.optim:RMSprop' of training.optimizer does not read it, adam and adamw would",
    ),
    "window without its network": (
        "tag",
        ["model.window=3"],
        "model.window is 3, but nothing reads it: 'rnn' of model.network does not read it, window would",
    ),
    "window of a bag": ("tag", ["model.network=bag", "model.window=3"], "'bag' of model.network does not"),
    "order without counting": (
        "lm",
        ["model.order=3"],
        "'rnn' of model.network does not read it, ngram would",
    ),
    "order of class2seq": ("class2seq", ["model.order=3"], "ngram would"),
    "cell of a window": ("lm", ["model.network=window", "model.cell=gru"], "does not read it, rnn would"),
    "layers of a window": ("lm", ["model.network=window", "model.layers=2"], "does not read it, rnn would"),
    "zoneout of a bag": ("lm", ["model.network=bag", "model.zoneout=0.2"], "does not read it, rnn would"),
    "average_decay of tail": (
        "lm",
        ["training.averaging=tail", "training.average_decay=0.9"],
        "it is read with training.averaging = 'ema'",
    ),
    "options of no attention": (
        "seq2seq",
        ["model.attention=none", "model.attention_options={a = 1}"],
        "it is read where model.attention is set",
    ),
    "placement of no attention": (
        "seq2seq",
        ["model.attention=none", "model.placement=after"],
        "it is read where model.attention is set",
    ),
    "regularisation": (
        "lm",
        ["training.regularisation=0.1"],
        "it is read with training.regulariser = 'l1' or 'l2'",
    ),
    "beam of a temperature": (
        "lm",
        ["decoding.beam=4", "decoding.temperature=0.5"],
        "'sample' of decoding.strategy does not read it, beam would",
    ),
    "beam of greedy": (
        "lm",
        ["decoding.strategy=greedy", "decoding.beam=4"],
        "decoding.beam is 4, but nothing reads it: 'greedy' of decoding.strategy does not read it, "
        "beam would",
    ),
    "top_k of a beam": ("seq2seq", ["decoding.strategy=beam", "decoding.top_k=3"], "sample would"),
    "penalty of a sample": (
        "seq2seq",
        ["decoding.strategy=sample", "decoding.length_penalty=0.5"],
        "'sample' of decoding.strategy does not read it, beam would",
    ),
    "penalty where greedy is meant": (
        "class2seq",
        ["decoding.length_penalty=0.5"],
        "'greedy' of decoding.strategy does not read it, beam would",
    ),
    "options of no strategy": (
        "lm",
        ["decoding.strategy_options={groups = 2}"],
        "it is read where decoding.strategy is set",
    ),
    "plateau's options with one-cycle": (
        "lm",
        ["training.schedule=one-cycle", "training.decay=0.3"],
        "training.decay is 0.3, but nothing reads it: 'one-cycle' of training.schedule does not read it, "
        "plateau would",
    ),
    "warmup of plateau": (
        "lm",
        ["training.schedule=plateau", "training.warmup=0.3"],
        "'plateau' of training.schedule does not read it, cosine and one-cycle and warmup would",
    ),
    "warmup of constant": (
        "lm",
        ["training.schedule=constant", "training.warmup=0.3"],
        "'constant' of training.schedule does not",
    ),
    "options of no metric": (
        "lm",
        ["training.metric_options={a = 1}"],
        "it is read where training.metric is set",
    ),
    "options of no format": ("lm", ["data.format_options={a = 1}"], "it is read where data.format is set"),
    "frozen vectors without vectors": (
        "lm",
        ["text.tune_vectors=false"],
        "text.tune_vectors is False, but nothing reads it: it is read where text.vectors is set",
    ),
    "frozen vectors of no side": (
        "seq2seq",
        ["text.tune_vectors=false"],
        "it is read where text.vectors or text.source.vectors or text.target.vectors is set",
    ),
    "truncation of sentences": (
        "lm",
        ["text.context=sentence", "training.truncate=30"],
        "it is read with text.context = 'stream'",
    ),
}


@pytest.mark.parametrize("case", UNREAD)
def test_what_nothing_reads_is_refused_and_who_would_is_named(case):
    task, pairs, said = UNREAD[case]
    with pytest.raises(ConfigError, match=re.escape(said)) as caught:
        check(task, *pairs)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("task", "pairs"),
    [
        ("lm", ["training.optimizer=sgd", "training.momentum=0.9"]),
        ("lm", ["training.momentum=0.9"]),  # the optimiser is not chosen yet
        ("lm", ["training.warmup=0.3"]),
        ("lm", ["training.optimizer=torch.optim:RMSprop", "training.momentum=0.9"]),
        ("lm", ["training.optimizer=adam", "training.betas=[0.8, 0.9]", "training.weight_decay=0.1"]),
        ("lm", ["model.network=window", "model.window=3", "model.dropout=0.3"]),
        ("lm", ["model.network=window", "model.window=3", "model.hidden=9"]),
        ("lm", ["model.network=ngram", "model.order=3"]),
        ("lm", ["training.averaging=ema", "training.average_decay=0.9"]),
        ("lm", ["training.regulariser=l2", "training.regularisation=0.1"]),
        ("lm", ["training.truncate=30"]),
        ("lm", ["decoding.beam=4", "decoding.length_penalty=0.5"]),
        ("lm", ["decoding.beam=1"]),  # which is greedy
        ("lm", ["decoding.top_p=0.5", "decoding.temperature=0.5", "decoding.seed=3"]),
        ("lm", ["decoding.beam=4", "decoding.seed=3"]),
        ("lm", ["decoding.strategy=diverse", "decoding.strategy_options={groups = 2}"]),
        ("lm", ["training.schedule=plateau", "training.decay=0.3", "training.plateau=2"]),
        ("lm", ["training.schedule=one-cycle", "training.warmup=0.3", "training.final_rate=0.1"]),
        ("lm", ["text.vectors=v.txt", "text.tune_vectors=false"]),
        ("seq2seq", ["text.target.vectors=v.txt", "text.tune_vectors=false"]),
        ("seq2seq", ["model.attention=additive", "model.attention_options={width = 3}"]),
        ("classify", ["model.pooling=mean", "model.head=4"]),
    ],
)
def test_what_something_reads_is_fine(task, pairs):
    check(task, *pairs)


@pytest.mark.parametrize("task", TASKS.names())
def test_a_value_equal_to_the_default_is_never_an_error(task):
    """All at once and one at a time; so a file with every setting in it, as elman init writes it, is fine."""
    kind = settings_class(task)
    every = {"task": task}
    for key, default in defaults(kind):
        if default is not None:
            put(every, key, default)
            one = {"task": task}
            put(one, key, default)
            config = validate(kind, one)
            assert list(given_keys(config)) == ["task"][:0] + (
                ["task"] if "task" in given_keys(config) else []
            )
            check_read(config, given_keys(config))
    config = validate(kind, every)
    check_read(config, given_keys(config))
    assert set(given_keys(config)) <= {"task"}


@pytest.mark.parametrize(
    "pairs",
    [
        ["training.optimizer=adam", "training.momentum=0.0"],
        ["training.optimizer=sgd", "training.betas=[0.9, 0.999]"],
        ["training.optimizer=incremental", "training.weight_decay=0.0"],
        ["training.schedule=plateau", "training.warmup=0.05", "training.final_rate=0.01"],
        ["training.schedule=one-cycle", "training.decay=0.5", "training.plateau=0"],
        ["model.window=5"],
        ["decoding.strategy=greedy", "decoding.length_penalty=1.0", "decoding.temperature=1.0"],
    ],
)
def test_what_all_readers_would_take_by_themselves_is_no_error(pairs):
    """As complete files of earlier versions have it."""
    check("lm", *pairs)


def test_all_that_nothing_reads_is_said_at_once():
    with pytest.raises(ConfigError) as caught:
        check(
            "lm", "training.schedule=one-cycle", "training.plateau=3", "training.decay=0.3", "model.window=3"
        )
    head, *said = str(caught.value).split("\n  ")
    assert head == "E501: 3 mistakes"
    assert [line.partition(" ")[0] for line in said] == ["model.window", "training.decay", "training.plateau"]


def filled(task, folder, *pairs):
    """The settings of a task that has seen its data."""
    path = folder / "data.txt"
    path.write_text(DATA[task], encoding="utf-8")
    made = make_task(config_of(task, *pairs))
    records = list(made.read(Source(str(path)), Repairs()))
    made.fill_defaults(made.build_vocabularies(records))
    return made.config


@pytest.mark.parametrize("task", TASKS.names())
def test_open_settings_are_filled_with_what_is_read(task, tmp_path):
    """What filling chooses passes the same check, whatever the network and the optimiser."""
    networks = {"class2seq": ("ngram",), "seq2seq": ()}
    for pair in (
        "training.seed=1",
        *(f"training.optimizer={name}" for name in (*OPTIMIZERS.names(), "torch.optim:RMSprop")),
        *(f"training.schedule={name}" for name in SCHEDULES.names()),
        *(f"model.network={name}" for name in networks.get(task, ("window", "bag", "ngram"))),
        *(["decoding.beam=3", "decoding.top_k=3"] if task in ("lm", "class2seq", "seq2seq") else []),
    ):
        if "schedule" in pair:  # class2seq would descend example by example, without a schedule
            config = filled(task, tmp_path, pair, "training.optimizer=adam")
        else:
            config = filled(task, tmp_path, pair)
        said = set(given_keys(config))
        assert "training.learning_rate" in said
        check_read(config, said)
        assert all(why_unread(config, key) is None for key in said)
        assert config.training.momentum == (0.0 if config.training.optimizer in MOVING else None)


def test_an_option_that_was_chosen_too_early_is_found_when_settings_are_filled(tmp_path):
    for pair in ("training.momentum=0.9", "training.plateau=3"):
        with pytest.raises(ConfigError, match=r"of training\.\w+ does not read it, \w+ would"):
            filled("classify", tmp_path, pair)


def test_a_setting_of_another_task_says_whose_it_is():
    for task, pair, said in (
        (
            "tag",
            "decoding.beam=3",
            "decoding is no setting of this task; class2seq and lm and seq2seq read it",
        ),
        ("classify", "training.truncate=4", "training.truncate is no setting of this task; lm reads it"),
        ("class2seq", "model.token_dropout=0.1", "classify and lm and seq2seq and tag read it"),
        ("lm", "model.crf=true", "model.crf is no setting of this task; tag reads it"),
        ("lm", "model.nothing=1", "model.nothing is unknown"),
    ):
        with pytest.raises(ConfigError, match=re.escape(said)):
            config_of(task, pair)
    assert tasks_that_read("training.truncate") == ["lm"]
    assert tasks_that_read("model.hidden") == TASKS.names()
    assert tasks_that_read("model.nothing") == []
    assert has_key(settings_class("seq2seq"), "text.source.vectors")
    assert not has_key(settings_class("lm"), "text.source")


# Options of parts.


def test_options_are_settings_of_the_same_names_and_a_table():
    settings = TrainingSettings(optimizer="sgd", momentum=0.5, optimizer_options={"weight_decay": 0.25})
    assert options_of(settings, "optimizer") == {"momentum": 0.5, "weight_decay": 0.25}
    settings = TrainingSettings(schedule="plateau", decay=0.25, warmup=0.5)
    assert options_of(settings, "schedule") == {"decay": 0.25}
    with pytest.raises(
        ConfigError, match="optimizer_options has 'momentum', which is a setting beside it, too"
    ):
        options_of(
            TrainingSettings(optimizer="sgd", momentum=0.5, optimizer_options={"momentum": 1}), "optimizer"
        )
    assert options_of(DecodingSettings(beam=4, length_penalty=0.5), "strategy")["beam"] == 4


def test_open_options_are_those_of_the_part():
    assert open_options(TrainingSettings(optimizer="sgd"), "optimizer") == {
        "momentum": 0.0,
        "weight_decay": 0.0,
    }
    assert open_options(TrainingSettings(optimizer="adam"), "optimizer") == {
        "betas": (0.9, 0.999),
        "weight_decay": 0.0,
    }
    assert open_options(TrainingSettings(schedule="cosine", warmup=0.5), "schedule") == {"final_rate": 0.01}
    assert open_options(TrainingSettings(schedule="constant"), "schedule") == {}


def test_the_reference_says_what_parts_take_by_themselves():
    """Nobody types such a number twice without a test."""
    said = {key: text.rpartition("unset: ")[2] for key, _, _, text in describe(settings_class("lm"))}
    usual = {
        f"{section}.{name}": default
        for section, registry in (
            ("training", OPTIMIZERS),
            ("training", SCHEDULES),
            ("decoding", STRATEGIES),
            ("model", NETWORKS),
        )
        for part in registry.names()
        for name, default in registry.options(part).items()
    }
    for key in (
        *(
            f"training.{name}"
            for name in ("momentum", "weight_decay", "warmup", "final_rate", "decay", "plateau")
        ),
        *(f"decoding.{name}" for name in ("beam", "temperature", "length_penalty")),
        "model.window",
    ):
        assert float(said[key]) == usual[key], key
    assert said["training.betas"] == "{} and {}".format(*usual["training.betas"])
