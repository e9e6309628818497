"""From lists in memory to a trained model."""

import json
import os
import re
import signal
import tempfile
import threading

import pytest
import torch

import elman
from elman.errors import ArgumentError, ConfigError, DataError, RunExistsError, UnknownNameError
from elman.training.session import Session
from tiny import elman as command
from tiny_tasks import TEXTS

NOUNS = ("cat", "dog", "stone", "chair")
ADJECTIVES = ("small", "old", "red", "good", "bad")
PAIRS = [(adjective, noun) for adjective in ADJECTIVES for noun in NOUNS]
WORDS = [["a", *pair, "sleeps"] for pair in PAIRS]
TEXT = [" ".join(words) for words in WORDS]
DATA = {
    "classify": (TEXT, ["animal" if noun in NOUNS[:2] else "thing" for _, noun in PAIRS]),
    "tag": (WORDS, [["DET", "ADJ", "NOUN", "VERB"]] * len(WORDS)),
    "seq2seq": (TEXT, [" ".join(reversed(words)) for words in WORDS]),
    "class2seq": (TEXT, [f"{noun} {adjective}" for adjective, noun in PAIRS]),
    "lm": (TEXT,),
}
TINY = {"model.hidden": 6, "model.embedding": 5, "training.epochs": 2, "training.threads": 1}
LSTM = {"model.cell": "lstm", "training.optimizer": "adam", "training.batch_size": 8}


def settings_of(task):
    return TINY | (LSTM if task == "class2seq" else {})


def as_file(task, folder):
    """The same data as people keep them in files."""
    if task == "tag":
        rows = [
            "".join(f"{w}\t{t}\n" for w, t in zip(*one, strict=True)) for one in zip(*DATA[task], strict=True)
        ]
    else:
        rows = ["\t".join(one) for one in zip(*DATA[task], strict=True)]
    path = folder / f"{task}.{'txt' if task in ('lm', 'tag') else 'tsv'}"
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def weights(predictor):
    return {name: weight.tolist() for name, weight in predictor.model.state_dict().items()}


@pytest.mark.slow
@pytest.mark.parametrize("task", DATA)
def test_lists_and_a_file_give_the_same_model(task, tmp_path):
    found = elman.fit(task, *DATA[task], settings=settings_of(task))
    pairs = [part for key, value in settings_of(task).items() for part in ("--set", f"{key}={value}")]
    path, run = as_file(task, tmp_path), tmp_path / "run"
    assert command("train", task, "--train", path, "--out", run, *pairs).code == 0
    expected = elman.load(run)
    assert isinstance(found, elman.Predictor)
    assert weights(found) == weights(expected)
    texts = TEXTS[task] if task != "class2seq" else TEXT[:3]
    assert found.details(texts) == expected.details(texts)
    assert (found.run, found.best) == (None, expected.best)
    assert not found.model.training


@pytest.mark.slow
@pytest.mark.parametrize("task", DATA)
def test_a_run_is_kept_and_has_its_data(task, tmp_path, monkeypatch):
    data = DATA[task]
    run = tmp_path / "runs" / "one"
    dev = tuple(one[:3] for one in data) if len(data) > 1 else data[0][:3]
    found = elman.fit(task, *data, dev=dev, out=run, settings=settings_of(task))
    assert found.run == run
    assert weights(elman.load(run)) == weights(found)
    assert {"train.jsonl", "dev.jsonl", "report.html", "card.md"} <= {path.name for path in run.iterdir()}
    about = json.loads((run / "data.json").read_text())
    assert [about[part]["examples"] for part in ("train", "dev")] == [len(data[0]), 3]
    monkeypatch.chdir(tmp_path)
    ended = command("train", "--out", "runs/one", "--resume")
    assert (ended.code, "has ended already" in ended.err) == (0, True)
    assert command("evaluate", run, run / "dev.jsonl").code == 0


class Stop:
    """Ctrl-C after so many updates."""

    def __init__(self, monkeypatch, after):
        self.after, take = after, Session.take

        def taken(session, event):
            take(session, event)
            if session.trainer.position.update == self.after:
                self.after = None
                os.kill(os.getpid(), signal.SIGINT)

        monkeypatch.setattr(Session, "take", taken)


def test_a_training_that_was_stopped_goes_on_from_anywhere(tmp_path, monkeypatch):
    settings = TINY | {"training.batch_size": 4}
    whole = elman.fit("classify", *DATA["classify"], settings=settings)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    Stop(monkeypatch, 3)
    with pytest.raises(KeyboardInterrupt, match="stopped by SIGINT after update 3; saved"):
        elman.fit("classify", *DATA["classify"], settings=settings, out="run")
    monkeypatch.chdir(tmp_path)
    assert command("train", "--out", "here/run", "--resume").code == 0
    assert weights(elman.load("here/run")) == weights(whole)


def test_nothing_stays_on_the_disk(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = elman.fit("classify", *DATA["classify"], settings=TINY)
    Stop(monkeypatch, 1)
    with pytest.raises(KeyboardInterrupt):
        elman.fit("classify", *DATA["classify"], settings=TINY)
    assert list(tmp_path.iterdir()) == []
    assert len(found.predict(TEXT)) == len(TEXT)
    with pytest.raises(ArgumentError, match="this is a classify model, which cannot generate"):
        found.generate(["a"])
    assert capfd.readouterr() == ("", "")


def test_progress_is_told_where_it_is_asked_for(capfd):
    elman.fit("classify", *DATA["classify"], settings=TINY, verbose=True)
    out, err = capfd.readouterr()
    assert (out, "accuracy" in err) == ("", True)


def test_texts_are_kept_letter_by_letter(tmp_path):
    texts = ["one\ntwo", "tab\there", "\r\n crlf \u2028 ü", '"quoted" \\ {"text": 1}'] * 3
    labels = ["a\tb", " c", "ü", "d"] * 3
    found = elman.fit("classify", texts, labels, out=tmp_path / "run", settings=TINY)
    kept = [json.loads(line) for line in (tmp_path / "run" / "train.jsonl").read_text().split("\n")[:-1]]
    assert [(one["text"], one["label"]) for one in kept] == list(zip(texts, labels, strict=True))
    assert set(found.labels) == set(labels)
    letters = elman.fit("lm", ["a\nb", "", "a\tb"] * 4, settings=TINY | {"text.unit": "character"})
    assert {"\n", "\t"} <= {token for token, _ in letters.score(["a\nb\t"])[0]}


def test_words_may_hold_spaces():
    words = [["New York", "is", "big"], ["is", "New York", "big"]] * 5
    tags = [["B-LOC", "O", "O"], ["O", "B-LOC", "O"]] * 5
    found = elman.fit(
        "tag", words, tags, settings=TINY | {"training.learning_rate": 0.05, "training.epochs": 20}
    )
    assert found.predict([["big", "New York"]]) == [["O", "B-LOC"]]
    assert found.labels == ["O", "B-LOC"]


def test_what_is_the_callers_stays_so():
    torch.manual_seed(7)
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    texts, labels = DATA["classify"]
    given = dict(TINY | {"training.threads": 2})
    elman.fit("classify", iter(texts), tuple(labels), settings=given)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads
    assert given == TINY | {"training.threads": 2}


def test_the_seed_decides():
    def fitted(seed):
        return weights(elman.fit("classify", *DATA["classify"], settings=TINY | {"training.seed": seed}))

    assert fitted(1) == fitted(1)
    assert fitted(1) != fitted(2)


def test_a_thread_may_train():
    found = []
    thread = threading.Thread(
        target=lambda: found.append(elman.fit("classify", *DATA["classify"], settings=TINY))
    )
    thread.start()
    thread.join()
    assert weights(found[0]) == weights(elman.fit("classify", *DATA["classify"], settings=TINY))


def test_a_cell_of_a_users_file(tmp_path, monkeypatch):
    (tmp_path / "cells.py").write_text(
        "from elman.cells.elman import Elman\n\n\nclass Mine(Elman):\n    '''As it stands.'''\n",
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    found = elman.fit(
        "classify", *DATA["classify"], settings=TINY | {"model.cell": "cells.py:Mine"}, out="run"
    )
    assert found.config.model.cell == f"{tmp_path / 'cells.py'}:Mine"
    assert elman.load("run").predict(TEXT) == found.predict(TEXT)


MISTAKES = {
    "no labels": (("classify", ["a"]), ArgumentError, "classify learns from texts and labels: give 2 lists"),
    "labels of texts": (("lm", ["a"], ["b"]), ArgumentError, "lm learns from texts: give 1 list$"),
    "one string": (("classify", "ab", ["x", "y"]), ArgumentError, "texts is one string; give a list"),
    "no list": (("classify", ["a"], 3), ArgumentError, "labels is 3; give a list of strings"),
    "empty": (("classify", [], []), ArgumentError, "texts is empty; give at least one"),
    "fewer labels": (
        ("classify", ["a", "b", "c"], ["x", "y"]),
        ArgumentError,
        r"3 texts, but 2 labels: texts\[2\] has no partner",
    ),
    "fewer texts": (("classify", ["a"], ["x", "y"]), ArgumentError, r"labels\[1\] has no partner"),
    "a number": (("classify", ["a", "b"], ["x", 1]), ArgumentError, r"labels\[1\] is 1; it must be a string"),
    "half a character": (("lm", ["a", "\ud800"]), ArgumentError, r"texts\[1\] is .* no text"),
    "a text of words": (("tag", ["a"], [["X"]]), ArgumentError, r"words\[0\] is 'a'; it must be a list"),
    "fewer tags": (
        ("tag", [["a"], ["a", "b"]], [["X"], ["X"]]),
        ArgumentError,
        r"tags\[1\] has 1 for the 2 of words\[1\]; give one to each",
    ),
    "an empty word": (("tag", [["a", ""]], [["X", "Y"]]), ArgumentError, r"words\[0\]\[1\] is an empty word"),
    "a number of words": (("tag", [["a"], [2]], [["X"], ["X"]]), ArgumentError, r"words\[1\]\[0\] is 2"),
    "no words": (("tag", [["a"], []], [["X"], []]), DataError, r"^words\[1\]: E406: no word"),
    "an empty text": (("classify", ["a", " "], ["x", "y"]), DataError, r"^texts\[1\]: E406: text is empty"),
    "an empty label": (("classify", ["a", "b"], ["", "y"]), DataError, r"^texts\[0\]: E406: label is empty"),
    "NUL": (("seq2seq", ["a", "b"], ["c", "d\0"]), DataError, r"^sources\[1\]: E404: the value of 'target'"),
    "nothing to say": (("lm", ["", " "]), DataError, "^texts: E406: no text to train on"),
    "a task": (("clasify", ["a"], ["b"]), UnknownNameError, "did you mean 'classify'"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_what_cannot_be_learned_from_is_named_with_its_place(case, tmp_path):
    arguments, kind, said = MISTAKES[case]
    with pytest.raises(kind) as caught:
        elman.fit(*arguments, out=tmp_path / "run", settings=TINY if arguments[0] == "classify" else {})
    assert re.search(said, str(caught.value))
    assert not (tmp_path / "run").exists()


def test_mistakes_about_validation_and_settings(tmp_path):
    texts, labels = DATA["classify"]
    with pytest.raises(ArgumentError, match=r"dev must be a tuple \(texts, labels\)"):
        elman.fit("classify", texts, labels, dev=texts)
    with pytest.raises(ArgumentError, match="2 dev texts, but 1 dev labels"):
        elman.fit("classify", texts, labels, dev=(texts[:2], labels[:1]))
    with pytest.raises(ArgumentError, match=r"settings has 'data\.train', which the arguments of fit decide"):
        elman.fit("classify", texts, labels, settings={"data.train": "a.tsv"})
    with pytest.raises(ConfigError, match=r"model\.hiden is unknown; did you mean 'hidden'"):
        elman.fit("classify", texts, labels, settings={"model.hiden": 3})
    with pytest.raises(ConfigError, match="nothing reads it"):
        elman.fit("lm", texts, settings={"text.context": "sentence", "training.truncate": 3})
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").touch()
    with pytest.raises(RunExistsError, match="is there already"):
        elman.fit("classify", texts, labels, out=tmp_path / "run", settings=TINY)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["mine.txt"]


def test_some_are_held_out_as_the_settings_say(tmp_path):
    elman.fit("classify", *DATA["classify"], out=tmp_path / "run", settings=TINY | {"data.held_out": 0.5})
    about = json.loads((tmp_path / "run" / "data.json").read_text())
    assert about["dev"]["part"] == "held-out"
    assert 4 < about["dev"]["examples"] < 16


def test_texts_may_have_several_labels():
    texts, labels = ["red ball", "blue box", "grey stone"] * 4, [["red", "round"], ["blue"], []] * 4
    model = elman.fit("classify", texts, labels, settings={"training.max_steps": 150, "model.hidden": 8})
    assert model.config.model.multilabel
    assert sorted(model.predict(["red ball"])[0]) == ["red", "round"]
    chances = model.predict_proba(["red ball", "blue box", ""])
    assert chances.shape == (3, 3)
    assert chances[0].sum() > 1.5


def test_labels_must_be_there():
    with pytest.raises(DataError, match="no text has a label"):
        elman.fit("classify", ["a", "b"] * 5, [[]] * 10)


def test_gradients_are_there_whatever_the_caller_does():
    with torch.inference_mode():
        model = elman.fit(
            "classify", ["a", "b"] * 5, ["x", "y"] * 5, settings={"training.max_steps": 2, "model.hidden": 4}
        )
    assert sorted(model.labels) == ["x", "y"]
