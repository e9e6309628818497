"""Settings: what is written is read back; what is wrong is said at once, with place and nearest name."""

import time
import types
import typing
from contextlib import contextmanager

import pytest
from pydantic import ValidationError

from elman.config import (
    Config,
    Section,
    changed,
    describe,
    merge,
    parse_settings,
    put,
    read_toml,
    to_toml,
    validate,
)
from elman.config.values import OneOf, PartOf, metadata
from elman.errors import ConfigError
from elman.recurrence.unroll import BACKENDS
from elman.registry import TASKS
from elman.training.settings import settings_class

WRONG = """task = "lm"

[model]
hiden = 20
layers = 0
cell = "gru"

[txt]
unit = "word"

[training]
learning_rate = -1.0
schedule = "linear"
"""


def fields_of(kind, prefix=""):
    """(dotted key, field) of every setting."""
    for name, field in kind.model_fields.items():
        default = field.get_default()
        if isinstance(default, Section):
            yield from fields_of(type(default), f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", field


def another_value(key, field):
    """A value of a setting that is not its default."""
    kind, default = field.annotation, field.get_default()
    options = [kind, *typing.get_args(kind)]
    choices = [c for o in options if typing.get_origin(o) is typing.Literal for c in typing.get_args(o)]
    choices += [c for one in metadata(field) if isinstance(one, (PartOf, OneOf)) for c in one.choices()]
    choices = [choice for choice in choices if choice != default] or choices
    if choices:
        listed = any(typing.get_origin(option) is list for option in options)
        return choices[-1:] if listed else choices[-1]
    words = ["a", '\\n\t"quoted"', "é🙂\x7f", "", "#"]
    special = {
        "data.columns": {"text": 1, "label": 'name with = and " and é'},
        "model.hidden": [3, 4],
        "training.betas": (0.8, 0.9),
        "text.vectors": None if default is None else default,
        "task": "lm",
    }
    if key in special:
        return special[key]
    if key.endswith("_options"):
        return {"activation": "relu", "bias": False, "x y": [1, 2.5]}
    if list[str] in options:
        return words
    if isinstance(default, bool) or kind in (bool, bool | None):
        return not default
    if isinstance(default, float):
        return 0.125
    if isinstance(default, int):
        return default + 1
    text = "str" in str(kind) and "int" not in str(kind) and "float" not in str(kind)
    return "some text" if text else 0.25 if "float" in str(kind) else 7


@pytest.mark.parametrize("task", TASKS.names())
def test_the_defaults_survive_toml(task, tmp_path):
    config = validate(settings_class(task), {"task": task})
    for comments in (False, True):
        path = tmp_path / f"{comments}.toml"
        path.write_text(to_toml(config, comments=comments), encoding="utf-8")
        assert validate(settings_class(task), read_toml(path), path) == config


@pytest.mark.parametrize("task", TASKS.names())
def test_every_setting_survives_toml(task, tmp_path):
    """One at a time, since some exclude each other."""
    kind = settings_class(task)
    default = validate(kind, {"task": task})
    alone = {"model.bidirectional", "model.network", "model.tied"}  # a task may refuse them
    alone |= {"model.form", "model.decoder.bidirectional", "text.shared"}
    for key, field in fields_of(kind):
        value = another_value(key, field)
        tables = {"task": task}
        put(tables, key, value)
        try:
            config = validate(kind, tables)
        except ConfigError:
            assert key in alone, key
            continue
        if key not in ("task", "text.vectors") and not (key == "text.unit" and task == "tag"):
            assert config != default, key
        path = tmp_path / "one.toml"
        path.write_text(to_toml(config), encoding="utf-8")
        assert validate(kind, read_toml(path)) == config, key


@pytest.mark.parametrize("task", TASKS.names())
def test_none_is_only_a_default(task):
    """None is left out of the TOML, so a setting that may be None must be None where it is left out."""
    for key, field in fields_of(settings_class(task)):
        optional = isinstance(field.annotation, types.UnionType | typing._UnionGenericAlias) and (
            type(None) in typing.get_args(field.annotation)
        )
        if optional:
            assert field.get_default() is None, key


@pytest.mark.parametrize("task", TASKS.names())
def test_every_setting_is_described(task):
    kind = settings_class(task)
    rows = list(describe(kind))
    assert [row[0] for row in rows] == [key for key, _ in fields_of(kind)]
    for key, kind_name, default, description in rows:
        assert description, key
        assert kind_name, key
        assert "typing" not in kind_name, key
        assert "None" not in kind_name, key
        assert default or key == "task"
    table = {row[0]: row[1:] for row in rows}
    assert table["training.clip"][:2] == ("float", "from the data")
    assert table["training.betas"][0] == "tuple[float, float]"
    assert table["training.betas"][2].endswith("; unset: 0.9 and 0.999")
    assert table["model.hidden"][0] == "int | list[int]"
    assert table["model.initial_state"][0] == '"zero" | "learned"'


def test_all_mistakes_at_once_with_line_and_nearest_name(tmp_path):
    path = tmp_path / "my.toml"
    path.write_text(WRONG)
    with pytest.raises(ConfigError) as caught:
        validate(settings_class("lm"), read_toml(path), path)
    first, *lines = str(caught.value).split("\n  ")
    assert first == "E501: 5 mistakes"
    by_line = {line.split(": ")[0]: line for line in lines}
    assert "model.hiden is unknown; did you mean 'hidden'?" in by_line[f"{path}:4"]
    assert "model.layers is 0: " in by_line[f"{path}:5"]
    assert "txt is unknown; did you mean 'text'?" in next(line for line in lines if "txt" in line)
    assert "training.learning_rate is -1.0: " in by_line[f"{path}:12"]
    assert "training.schedule: no schedule named 'linear'; Known: " in by_line[f"{path}:13"]
    assert " one-cycle," in by_line[f"{path}:13"]


def test_one_mistake_is_one_line():
    with pytest.raises(ConfigError) as caught:
        validate(settings_class("lm"), {"task": "lm", "model": {"hidden": "wide"}})
    assert str(caught.value).startswith("E501: model.hidden is 'wide': ")
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match="E501: task is missing"):
        validate(Config, {})


@pytest.mark.parametrize("task", TASKS.names())
def test_tf32_is_for_cuda(task):
    kind = settings_class(task)
    with pytest.raises(
        ConfigError, match=r"^E501: training: precision 'tf32' is for cuda, and device is 'cpu'"
    ):
        validate(kind, {"task": task, "training": {"precision": "tf32"}})
    for device in ("cuda", "cuda:1"):
        settings = {"precision": "tf32", "device": device}
        assert validate(kind, {"task": task, "training": settings}).training.precision == "tf32"


def test_every_backend_can_be_asked_for():
    for backend in BACKENDS:
        settings = {"task": "lm", "model": {"backend": backend}}
        assert validate(settings_class("lm"), settings).model.backend == backend


def test_settings_that_exclude_each_other_are_named():
    with pytest.raises(ConfigError) as caught:
        validate(settings_class("lm"), {"task": "lm", "model": {"bidirectional": True}})
    message = "E501: model: a language model reads in one direction; it would see what it must predict"
    assert str(caught.value) == message
    with pytest.raises(
        ConfigError,
        match=r"text\.vectors is no setting of this task; classify and lm and seq2seq and tag read",
    ):
        validate(settings_class("class2seq"), {"task": "class2seq", "text": {"vectors": "v.txt"}})
    with pytest.raises(ConfigError, match="start and end are both"):
        validate(settings_class("class2seq"), {"task": "class2seq", "text": {"start": "#", "end": "#"}})
    with pytest.raises(ConfigError, match=r"^E501: a CRF has its own loss"):
        validate(
            settings_class("tag"), {"task": "tag", "model": {"crf": True}, "training": {"loss": "squared"}}
        )
    with pytest.raises(ConfigError, match=r"text\.unit is 'bpe'"):
        validate(settings_class("tag"), {"task": "tag", "text": {"unit": "bpe"}})


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_numbers_are_finite(value):
    with pytest.raises(ConfigError, match=r"training\.learning_rate"):
        validate(
            settings_class("lm"), merge({"task": "lm"}, parse_settings([f"training.learning_rate={value}"]))
        )


@pytest.mark.parametrize(
    ("pair", "said"),
    [
        ("training.patience=true", r"training\.patience is true: input should be int"),
        ("training.clip=false", r"training\.clip is false: input should be float"),
        ("model.hidden=true", r"model\.hidden is true: input should be int"),
        ("model.hidden=[]", r"model\.hidden is \[\]: list should have at least 1 item"),
        ("training.betas=[0.9]", r"training\.betas\[1\] is missing"),
        ("model.hidden=[8, true]", r"model\.hidden is \[8, true\]: input should be int \| list\[int\]"),
        ("model.hidden=[8, 0]", r"model\.hidden\[1\] is 0: input should be greater than or equal to 1"),
        ("model.hidden=[8, 1.5]", r"model\.hidden\[1\] is 1\.5: .* a fractional part"),
        ("data.columns={text = 1.5}", r"data\.columns\.text is 1\.5: "),
        ("data.columns={text = true}", r'data\.columns is \{"text" = true\}: input should be dict'),
    ],
)
def test_a_truth_value_is_no_number_and_a_list_is_whole(pair, said, tmp_path):
    with pytest.raises(ConfigError, match=said):
        validate(settings_class("tag"), merge({"task": "tag"}, parse_settings([pair])))
    key, _, value = pair.partition("=")
    section, _, name = key.partition(".")
    path = tmp_path / "a.toml"
    path.write_text(f'task = "tag"\n[{section}]\n{name} = {value}\n')
    with pytest.raises(ConfigError, match=rf"a\.toml:3: {said}"):
        validate(settings_class("tag"), read_toml(path), path)


@pytest.mark.parametrize("key", ["training.seed", "decoding.seed"])
def test_a_seed_is_one_that_torch_takes(key):
    with pytest.raises(ConfigError, match=rf"{key} is 18446744073709551616: input should be less than"):
        validate(settings_class("lm"), merge({"task": "lm"}, parse_settings([f"{key}={2**64}"])))


def test_key_value_pairs():
    pairs = [
        "model.hidden=[64, 32]",
        "model.cell=gru",
        "training.learning_rate = 1e-3",
        "model.tied=true",
        'text.start="<s>"',
        "decoding.stop=['.', \"\\n\"]",
        "data.columns={text = 1, label = 'two'}",
        "text.end=a=b",
        "model.cell_options.bias=false",
        "data.train=",
    ]
    assert parse_settings(pairs) == {
        "model": {"hidden": [64, 32], "cell": "gru", "tied": True, "cell_options": {"bias": False}},
        "training": {"learning_rate": 1e-3},
        "text": {"start": "<s>", "end": "a=b"},
        "decoding": {"stop": [".", "\n"]},
        "data": {"columns": {"text": 1, "label": "two"}, "train": ""},
    }
    assert parse_settings([]) == {}
    assert parse_settings(["a.b=1", "a.b=2"]) == {"a": {"b": 2}}
    for wrong in ("model.hidden", "=5", "model..hidden=1", "model hidden=1"):
        with pytest.raises(ConfigError, match="is not key=value, as in"):
            parse_settings([wrong])
    with pytest.raises(ConfigError, match="goes through 'b', which is no table"):
        parse_settings(["a.b=1", "a.b.c=1"])


def test_tables_laid_over_each_other():
    below = {"task": "lm", "model": {"cell": "gru", "hidden": 3}}
    assert merge(below, {"model": {"hidden": 4}}, {"text": {"unit": "byte"}}) == {
        "task": "lm",
        "model": {"cell": "gru", "hidden": 4},
        "text": {"unit": "byte"},
    }
    assert below == {"task": "lm", "model": {"cell": "gru", "hidden": 3}}
    assert merge({"a": {"b": 1}}, {"a": 2}) == {"a": 2}
    assert merge() == {}


def test_a_changed_copy():
    config = validate(settings_class("lm"), {"task": "lm", "model": {"hidden": 9}})
    other = changed(config, {"model.layers": 2, "training.clip": None, "decoding.stop": ["."]})
    assert (other.model.hidden, other.model.layers, other.decoding.stop) == (9, 2, ["."])
    assert config.model.layers is None
    with pytest.raises(ConfigError, match=r"decoding\.stopp is unknown; did you mean 'stop'"):
        changed(config, {"decoding.stopp": ["."]})
    with pytest.raises(ValidationError, match="frozen"):
        config.model.hidden = 3


def test_a_byte_order_mark_and_windows_line_ends_are_read(tmp_path):
    path = tmp_path / "windows.toml"
    path.write_bytes(b'\xef\xbb\xbftask = "lm"\r\n[model]\r\nhidden = 4\r\n')
    assert read_toml(path) == {"task": "lm", "model": {"hidden": 4}}


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(ConfigError, match="there is no such file"):
        read_toml(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("task = \n")
    with pytest.raises(ConfigError, match=r"bad\.toml: .*line 1"):
        read_toml(tmp_path / "bad.toml")
    (tmp_path / "latin.toml").write_bytes(b"task = '\xe9'\n")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_toml(tmp_path / "latin.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_toml(tmp_path)


@contextmanager
def not_much_longer_than_usual(folder):
    """What follows takes at most thirty times as long as 100 kB of ordinary settings."""
    (folder / "usual.toml").write_text("".join(f"key{number} = 1\n" for number in range(8000)))
    start = time.process_time()
    read_toml(folder / "usual.toml")
    usual, start = time.process_time() - start, time.process_time()
    yield
    assert time.process_time() - start < 30 * usual


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = " + "[" * 5000, "nested too deeply"),
        ("a = " + "{a = " * 5000, "nested too deeply"),
        (".".join("a" * 50_000) + " = 1", "nested too deeply"),
        ("a = {" + ".".join("a" * 20) + " = {" + ".".join("a" * 20) + " = 1}}", "nested too deeply"),
        ("a = " + "1" * 5000, "thousands of digits"),
        ("a = 1 #" + "x" * (1 << 24), "more than 16,777,216 characters"),
    ],
    ids=lambda value: value[:20],
)
def test_what_python_would_choke_on_is_refused_at_once(text, said, tmp_path):
    path = tmp_path / "a.toml"
    path.write_text(text)
    with not_much_longer_than_usual(tmp_path), pytest.raises(ConfigError, match=said):
        read_toml(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_toml("a\0b")


def test_a_string_of_many_points_is_no_key(tmp_path):
    path = tmp_path / "a.toml"
    points = "a." * 100
    path.write_text(f"a = \"{points}\"  # {points}\nb = '''\n{points}'''\n")
    assert read_toml(path) == {"a": points, "b": points}


@pytest.mark.parametrize(
    ("pair", "said"),
    [
        ("model.cell=\udcff", "model.cell is '\\\\udcff', which is not UTF-8"),
        ("model.cell_options.a=\udcff", "model.cell_options.a is"),
        ("model.window=0x" + "f" * 5000, "model.window is a whole number of more than 128 bits"),
        (f"model.cell_options.{'a.' * 50}b=1", "has 53 parts; 30 are allowed"),
        (f"model.cell={'[' * 3000}", r"no cell named '\[\[\[.*…'; Known: "),  # a word, if a strange one
    ],
    ids=lambda value: str(value)[:20],
)
def test_settings_that_no_file_can_keep(pair, said):
    def read():
        return validate(settings_class("lm"), merge({"task": "lm"}, parse_settings([pair])))

    with pytest.raises(ConfigError, match=said) as caught:
        read()
    assert len(str(caught.value)) < 600


def test_a_setting_is_one_line_and_a_date_survives(tmp_path):
    assert parse_settings(["a=1\nb=2"]) == {"a": "1\nb=2"}
    tables = {"task": "lm", "model": {"cell_options": parse_settings(["d=1979-05-27", "t=07:32:00"])}}
    config = validate(settings_class("lm"), tables)
    (tmp_path / "a.toml").write_text(to_toml(config))
    assert validate(settings_class("lm"), read_toml(tmp_path / "a.toml")) == config


def test_very_many_mistakes_are_said_soon_and_in_short(tmp_path):
    path = tmp_path / "a.toml"
    path.write_text("task = 'lm'\n" + "".join(f"key{number} = 1\n" for number in range(3000)))
    with (
        not_much_longer_than_usual(tmp_path),
        pytest.raises(ConfigError, match="more than 20 mistakes, the first of them") as caught,
    ):
        validate(settings_class("lm"), read_toml(path), path)
    assert f"{path}:21: key19 is unknown" in str(caught.value)
    assert str(caught.value).count("\n") == 20
    long = {"task": "lm", "data": {"train": ["x" * 9000]}, "x" * 9000: 1}
    with pytest.raises(ConfigError) as caught:
        validate(settings_class("lm"), long)
    assert len(str(caught.value)) < 1000


def test_recipes_find_their_corpora_through_one_variable(tmp_path, monkeypatch):
    path = tmp_path / "recipe.toml"
    path.write_text('task = "lm"\n[data]\ntrain = "$ELMAN_DATA/a/b.txt"\n', encoding="utf-8")
    monkeypatch.setenv("ELMAN_DATA", str(tmp_path))
    assert read_toml(path)["data"]["train"] == str(tmp_path / "a" / "b.txt")
    assert parse_settings(["a.b=$ELMAN_DATA/c"]) == {"a": {"b": str(tmp_path / "c")}}  # as it would read back
    monkeypatch.delenv("ELMAN_DATA")
    with pytest.raises(ConfigError, match="set the variable ELMAN_DATA"):
        read_toml(path)
