"""The look at the data before training: what it settles for each task, and that runs keep it."""

import tomllib

import pytest

from elman.config import parse_settings, validate
from elman.errors import ArgumentError
from elman.tasks.looking import look_at
from elman.text.records import Record
from elman.training.settings import make_task, settings_class
from tiny import elman, write

RAW = ["A man walks, then he sits.", "Two dogs run; one barks!", "Is this it? Yes, it is."] * 10
NAMES = ["Müller", "Smith", "Brown", "García"] * 10
CHINESE = ["今天的天气非常好，我们去公园。", "这家店的东西很好吃，下次还来。"] * 10
PHONES = ["HH AH0 L OW1", "K AE1 T", "D AO1 G Z", "HH AE1 T"] * 10


def settled(name, records, *pairs, dev=None):
    """The task after a look at records, given as columns; and the reasons."""
    task = make_task(validate(settings_class(name), {"task": name, **parse_settings(pairs)}))
    rows, shown = (
        None
        if columns is None
        else [Record(dict(zip(task.roles, row, strict=True)), "a", 1) for row in columns]
        for columns in (list(zip(*records, strict=True)), dev)
    )
    return task, look_at(task, rows, shown)


def text(task):
    return task.config.text.model_dump(exclude_none=True)


LABELS = ["a", "b"] * 20


@pytest.mark.parametrize(
    ("texts", "unit"),
    [(RAW, "wordpunct"), (NAMES, "character"), (CHINESE, "wordpunct")],
    ids=["raw", "names", "Chinese"],
)
def test_texts_with_labels(texts, unit):
    task, reasons = settled("classify", [texts, LABELS[: len(texts)]])
    assert (task.config.text.unit, task.words.text.unit_name) == (unit, unit)
    assert task.config.text.lowercase is False
    assert set(reasons) == {"text.unit", "text.lowercase"}
    assert (task.words.letters() is None) == (
        unit == "wordpunct"
    )  # letters of words are for a network to read


def test_vectors_are_of_words():
    for texts, unit in ((RAW, "wordpunct"), (NAMES, "word"), (CHINESE, "wordpunct")):
        task, _ = settled("classify", [texts, LABELS[: len(texts)]], "text.vectors=v.txt")
        assert task.config.text.unit == unit
    task, reasons = settled("lm", [RAW], "text.vectors=v.txt")
    assert (task.config.text.unit, reasons["text.unit"]) == (
        "wordpunct",
        "since text.vectors has vectors of words",
    )


def test_a_comparator_of_words_reads_lower_case():
    task, reasons = settled("classify", [RAW, LABELS[:30]], "model.network=ngram")
    assert task.config.text.lowercase is True
    assert reasons["text.lowercase"] == "since ngram knows no letters of words"
    assert settled("classify", [NAMES, LABELS], "model.network=ngram")[0].config.text.lowercase is False


def test_what_is_set_stays_and_nothing_is_read_for_it():
    def never():
        raise AssertionError("the data were read")
        yield

    said = {"text.unit": "word", "text.lowercase": "true"}
    task = make_task(
        validate(
            settings_class("lm"), {"task": "lm", **parse_settings([f"{k}={v}" for k, v in said.items()])}
        )
    )
    assert look_at(task, never(), never()) == {}
    assert text(task)["unit"] == "word"
    assert text(task)["lowercase"] is True
    tag = make_task(validate(settings_class("tag"), {"task": "tag"}))
    assert list(look_at(tag, never(), None)) == ["text.lowercase"]
    assert tag.config.text.unit == "word"


def test_pieces_are_counted_by_the_text():
    task, reasons = settled("lm", [RAW])
    assert (task.config.text.unit, task.config.text.vocabulary_size) == ("bpe", 500)
    assert reasons["text.vocabulary_size"].startswith("for about 1")
    task, reasons = settled("lm", [RAW], "text.unit=bpe")
    assert set(reasons) == {"text.vocabulary_size", "text.lowercase"}
    assert "text.vocabulary_size" not in settled("lm", [RAW], "text.unit=bpe", "text.vocabulary_size=300")[1]


def test_each_side_of_pairs_has_its_own():
    task, reasons = settled("seq2seq", [NAMES, PHONES])
    assert text(task)["source"] == {"unit": "character"}
    assert text(task)["target"] == {"unit": "word"}
    assert (task.source.unit_name, task.target.unit_name) == ("character", "word")
    assert set(reasons) == {"text.source.unit", "text.target.unit", "text.lowercase"}
    task, reasons = settled("seq2seq", [RAW, RAW])
    assert text(task)["unit"] == "bpe"
    assert text(task)["vocabulary_size"] == 500
    assert task.config.text.alike  # so that they may become one vocabulary
    task, _ = settled("seq2seq", [RAW, RAW], "text.target.unit=word")
    assert text(task)["source"] == {"unit": "bpe", "vocabulary_size": 500}
    task, _ = settled("seq2seq", [NAMES, NAMES], "text.source.unit=byte")
    assert (task.source.unit_name, task.target.unit_name) == ("byte", "character")
    task, _ = settled("seq2seq", [[f"{one}<x>" for one in NAMES], PHONES], "text.target.remove=[0-9]")
    assert task.target.unit_name == "word"


@pytest.mark.parametrize("one", ["text.shared=true", "model.form=single"])
def test_one_vocabulary_has_one_unit(one):
    task, reasons = settled("seq2seq", [NAMES, PHONES], one)
    assert (task.source.unit_name, task.target.unit_name) == ("character", "character")
    assert reasons["text.unit"].startswith("since 100 % of the texts are single words; target: since its 11")
    task, reasons = settled("seq2seq", [RAW, RAW], one)
    assert text(task)["vocabulary_size"] == 500


def test_sequences_of_classes():
    assert settled("class2seq", [LABELS, NAMES])[0].config.text.unit == "character"
    assert settled("class2seq", [["a"] * 30, RAW])[0].config.text.unit == "wordpunct"
    assert settled("class2seq", [["I"] * 2, ["love my cat", "love my dog"]])[0].config.text.unit == "word"
    tokens = 'text.vocabulary=["love", "my", "cat"]'
    assert settled("class2seq", [["I"] * 2, ["love", "cat"]], tokens)[0].config.text.unit == "word"
    letters = 'text.vocabulary=["a", "b"]'
    assert settled("class2seq", [["I"] * 2, ["ab ba", "a b"]], letters)[0].config.text.unit == "character"


def test_options_of_a_unit_that_nobody_named():
    with pytest.raises(ArgumentError, match=r"text\.unit_options has 'size', unknown to Character"):
        settled("lm", [NAMES], "text.unit_options={size=3}")[0].field.unit  # noqa: B018


SHORT = ("--set", "training.max_steps=4", "--set", "training.threads=1", "--set", "model.hidden=8")


def test_a_run_keeps_what_was_chosen(tmp_path):
    data = write(tmp_path / "a.tsv", "".join(f"{one} {n}.\t{'ab'[n % 2]}\n" for n, one in enumerate(RAW)))
    run = tmp_path / "run"
    assert elman("train", "classify", "--train", data, "--out", run, *SHORT).code == 0
    kept = tomllib.loads((run / "config.toml").read_text())["text"]
    assert (kept["unit"], kept["lowercase"]) == ("wordpunct", False)
    write(data, "word\ta\n" * 3)  # which a finished run does not look at again
    answer = elman("predict", run, stdin=b"Two dogs run; one barks!\n")
    assert answer.code == 0
    other = tmp_path / "other"
    names = write(tmp_path / "names.tsv", "".join(f"{one}\t{'ab'[n % 2]}\n" for n, one in enumerate(NAMES)))
    answer = elman("train", "classify", "--train", names, "--out", other, "--from", run, *SHORT[:4])
    assert answer.code == 0, answer.err
    assert tomllib.loads((other / "config.toml").read_text())["text"]["unit"] == "wordpunct"


def test_text_goes_on_from_a_prompt_without_a_space_before_punctuation(tmp_path):
    data = write(tmp_path / "a.txt", "\n".join(RAW) + "\n")
    run = tmp_path / "run"
    assert (
        elman("train", "lm", "--train", data, "--out", run, *SHORT, "--set", "text.unit=wordpunct").code == 0
    )
    from elman import load

    writer = load(run).generation().writer
    assert [writer.gap("Two dogs", after) for after in (", one", "run", "")] == ["", " ", " "]
    assert writer.gap("(", "one") == writer.gap("", "one") == ""
