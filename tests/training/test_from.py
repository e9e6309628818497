"""A run that starts from another one: what is taken, what is new, and that the old run stays as it was."""

import hashlib
import json
import shutil

import pytest
import torch

import elman as package
from elman.errors import UntrustedCodeError
from elman.training.checkpoint import load_checkpoint
from elman.training.origin import open_origin
from tiny import elman, events, timeless, write, write_data

SHORT = {
    "training.max_steps": 12,
    "training.validate_every": 6,
    "training.threads": 1,
    "training.log_every": 3,
}
WIDTHS = {"model.hidden": 10, "model.embedding": 6, "model.layers": 2}


def pairs(settings):
    return [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]


def train(task, data, out, settings=None, *more, ok=True):
    files = ["--train", data] if data is not None else []
    answer = elman(
        "train", *([task] if task else []), *files, "--out", out, *pairs(SHORT | (settings or {})), *more
    )
    assert not ok or answer.code == 0, answer.err
    return answer


def told(answer):
    return [line for line in answer.err.split("\n") if line.startswith("from ")]


def contents(run):
    return {
        path.relative_to(run): (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in run.rglob("*")
        if path.is_file()
    }


def first_weights(run):
    """The weights with which a run began."""
    checkpoint = load_checkpoint(run / "checkpoints" / "update-00000000")
    return checkpoint.model


def tokens(run, key="tokens"):
    return json.loads((run / "vocabulary.json").read_text())[key]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def models(data, tmp_path_factory):
    """A language model that reads forward, one that reads backward, and a classifier."""
    folder = tmp_path_factory.mktemp("old")
    train("lm", data / "lm.train.txt", folder / "forward", WIDTHS)
    train("lm", data / "lm.train.txt", folder / "backward", WIDTHS | {"text.reversed": "true"})
    train("classify", data / "classify.train.txt", folder / "labels", WIDTHS)
    return folder


@pytest.fixture
def begun(monkeypatch):
    """Checkpoints are kept, so that the first one can be looked at."""
    monkeypatch.setattr("elman.training.session.prune", lambda run, keep: None)


# What is taken.


def test_a_classifier_takes_embedding_and_layers_of_a_language_model(data, models, tmp_path, begun):
    before = contents(models / "forward")
    answer = train(
        "classify", data / "classify.train.txt", tmp_path / "new", {}, "--from", models / "forward"
    )
    assert contents(models / "forward") == before
    [line] = told(answer)
    assert line == (
        f"from {models / 'forward'}: embedding of all 19 words, 2 layers forward; "
        "new: 2 layers backward, letters, output (2 labels)"
    )
    old, new = open_origin(models / "forward").model.state_dict(), first_weights(tmp_path / "new")
    names = tokens(tmp_path / "new")
    for place, token in enumerate(tokens(models / "forward")):
        row = names.index(token.lower())
        assert torch.equal(new["words.embedding.weight"][row], old["tokens.embedding.weight"][place]), token
    for name in ("W_h", "b"):
        for depth in (0, 1):
            key = f"encoder.network.cells.{depth}.0.{name}"
            assert torch.equal(new[key], old[key])
    first, second = (new[f"encoder.network.cells.{depth}.0.W_x"] for depth in (0, 1))
    assert torch.equal(first[:6], old["encoder.network.cells.0.0.W_x"])
    assert not first[6:].any()  # what it did not read before counts nothing at first
    assert torch.equal(second[:10], old["encoder.network.cells.1.0.W_x"])
    assert not second[10:].any()
    assert new["encoder.network.cells.0.1.W_x"].all()


def test_the_two_directions_compute_what_two_language_models_did(data, models, tmp_path, begun):
    settings = {"model.characters": 0, "text.lowercase": "false"}
    runs = [models / "forward", models / "backward"]
    more = [part for run in runs for part in ("--from", run)]
    answer = train("classify", data / "classify.train.txt", tmp_path / "new", settings, *more)
    assert [line.split(":", 1)[1] for line in told(answer)] == [
        " embedding of all 19 words, 2 layers forward; new: output (2 labels)",
        " embedding of all 19 words, 2 layers backward",
    ]
    loaded = package.load(tmp_path / "new")
    task, model = loaded.task, loaded.model
    model.load_state_dict(first_weights(tmp_path / "new"))
    words = ["Rex", "likes", "the", "dog"]
    embedding, network = model.words.embedding, model.encoder.network
    ids = torch.tensor([task.words.text.vocabulary.ids(words)])
    both = network(embedding(ids)).outputs[0]
    for run, part, order in zip(runs, both.split(10, 1), (1, -1), strict=True):
        origin = open_origin(run)
        own = origin.task.field.ids(" ".join(words))  # from the last to the first, if so read
        outputs, _ = origin.model(torch.tensor([own]))
        assert torch.allclose(part, outputs[0] if order == 1 else outputs[0].flip(0), atol=1e-6)


def test_rows_of_tokens_and_labels_are_found_by_their_names(data, models, tmp_path, begun):
    lines = [
        "a zebra sees Rex\tanimal",
        "Tom feeds the zebra\tperson",
        "stones lie\tthing",
        "the dog\tanimal",
    ] * 5
    file = write(tmp_path / "new.tsv", "\n".join(lines) + "\n")
    answer = train("classify", file, tmp_path / "new", {}, "--from", models / "labels")
    [line] = told(answer)
    assert "output 2 of 3 labels; new: 1 of 3 labels, 4 words" in line
    old, new = open_origin(models / "labels").model.state_dict(), first_weights(tmp_path / "new")
    for key, name in (
        ("tokens", "words.embedding.weight"),
        ("labels", "head.0.weight"),
        ("characters", "words.letters.weight"),
    ):
        before, after = tokens(models / "labels", key), tokens(tmp_path / "new", key)
        assert len(after) > len(before) or key == "characters"
        for token in set(before) & set(after):
            assert torch.equal(new[name][after.index(token)], old[name][before.index(token)])
    assert tokens(tmp_path / "new")[: len(tokens(models / "labels"))] == tokens(models / "labels")
    kept = ("encoder.network.cells.1.1.W_x", "words.spelling.cells.0.0.W_h")
    assert all(torch.equal(old[name], new[name]) for name in kept)


def test_labels_that_the_new_data_lack_are_left_behind(data, models, tmp_path):
    file = write(tmp_path / "new.tsv", "the dog runs\tanimal\nstones lie\tthing\n" * 10)
    [line] = told(train("classify", file, tmp_path / "new", {}, "--from", models / "labels"))
    assert line.endswith("left behind: the labels person")


def test_more_epochs_need_no_more_than_the_old_run(models, tmp_path, begun):
    answer = train(None, None, tmp_path / "more", {}, "--from", models / "labels")
    assert "new" not in told(answer)[0].partition(":")[2]
    old, new = open_origin(models / "labels").model.state_dict(), first_weights(tmp_path / "more")
    assert old.keys() == new.keys()
    trained = [name for name in old if not name.startswith("shortcut.")]  # which is fitted anew
    assert all(torch.equal(old[name], new[name]) for name in trained)


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        (
            "tag",
            "2 layers forward; new: 2 layers backward, letters, affixes, output (3 labels), CRF, shortcut",
        ),
        (
            "seq2seq",
            "embedding of all 19 words, 2 layers forward; new: 2 layers backward, output, target embedding",
        ),
        ("class2seq", "embedding 19 of 21 words, 2 layers; new: start from a class, output, 2 words"),
        ("lm", "embedding of all 19 words, 2 layers, output, bridge"),
    ],
)
def test_every_task_takes_what_a_language_model_has(task, expected, data, models, tmp_path):
    separate = {"text.shared": False, "model.tied": False}
    more = {"class2seq": {"training.optimizer": "adamw"}, "seq2seq": separate}.get(task, {})
    answer = train(task, data / f"{task}.train.txt", tmp_path / "new", more, "--from", models / "forward")
    assert expected in told(answer)[0]
    again = train(task, None, tmp_path / "again", more, "--from", tmp_path / "new")
    assert "; new:" not in told(again)[0]


def test_pieces_of_words_are_those_of_the_old_run(data, tmp_path):
    unit = {"text.unit": "bpe", "text.vocabulary_size": 290, **WIDTHS}
    train("lm", data / "lm.train.txt", tmp_path / "old", unit)
    file = write(tmp_path / "new.txt", "zebras and other strange beasts\n" * 20)
    train("lm", file, tmp_path / "new", {}, "--from", tmp_path / "old")
    assert tokens(tmp_path / "new") == tokens(tmp_path / "old")
    assert (tmp_path / "new/tokenizer.json").read_bytes() == (tmp_path / "old/tokenizer.json").read_bytes()


def test_one_hot_inputs_are_taken_by_token(tmp_path, begun):
    lines = "\n".join(f"{noun}\t{noun} is here" for noun in ("dog", "cat", "bird")) + "\n"
    common = {"model.embedding": 0, "training.optimizer": "adamw", "model.hidden": 5}
    train("class2seq", write(tmp_path / "a.tsv", lines), tmp_path / "old", common)
    file = write(tmp_path / "b.tsv", lines + "ant\tant is small\n")
    answer = train(
        "class2seq", file, tmp_path / "new", {"training.optimizer": "adamw"}, "--from", tmp_path / "old"
    )
    assert "1 layer, start from a class 3 of 4 labels, output; new: 1 of 4 labels" in told(answer)[0]
    old, new = open_origin(tmp_path / "old").model.state_dict(), first_weights(tmp_path / "new")
    before, after = tokens(tmp_path / "old"), tokens(tmp_path / "new")
    for token in before:
        rows = [one["rnn.cells.0.0.W_x"][names.index(token)] for one, names in ((old, before), (new, after))]
        assert torch.equal(*rows)


# The user's word.


def test_a_contrary_word_wins_and_that_part_is_new(data, models, tmp_path):
    settings = {"model.hidden": 7, "model.characters": 0}
    answer = train(
        "classify", data / "classify.train.txt", tmp_path / "a", settings, "--from", models / "forward"
    )
    assert "embedding of all 19 words; new: 2 layers forward, 2 layers backward, output" in told(answer)[0]
    settings = {"model.layers": 3, "model.characters": 0}
    answer = train(
        "classify", data / "classify.train.txt", tmp_path / "b", settings, "--from", models / "forward"
    )
    assert "2 layers forward; new: 1 layer forward, 3 layers backward" in told(answer)[0]
    more = ("--baseline", "bag", "--from", models / "forward")
    answer = train("classify", data / "classify.train.txt", tmp_path / "c", {}, *more)
    assert "embedding of all 19 words; new: network, output (2 labels)" in told(answer)[0]


def test_a_dry_run_tells_the_same_and_writes_nothing(data, models, tmp_path):
    command = ("train", "classify", "--train", data / "classify.train.txt", *pairs(SHORT))
    answer = elman(*command, "--from", models / "forward", "--dry-run", "--json")
    assert answer.code == 0, answer.err
    assert json.loads(answer.out)["from"] == told(answer)
    assert "2 layers forward; new: 2 layers backward" in told(answer)[0]
    assert not list(tmp_path.iterdir())


def test_python_takes_weights_too(models):
    texts, labels = ["the dog sees Rex", "Tom likes the cat"] * 10, ["animal", "person"] * 10
    model = package.fit("classify", texts, labels, settings=SHORT, start=models / "forward")
    assert model.config.model.hidden == 10
    assert model.config.model.layers == 2


# The record, and going on.


def test_the_run_tells_where_it_came_from(data, models, tmp_path):
    answer = train(
        "classify", data / "classify.train.txt", tmp_path / "new", {}, "--from", models / "forward"
    )
    record = json.loads((tmp_path / "new/origin.json").read_text())
    manifest = models / "forward" / "best" / "MANIFEST.json"
    assert record["taken"] == told(answer)
    assert record["runs"][0]["sha256"] == hashlib.sha256(manifest.read_bytes()).hexdigest()
    listed = json.loads(elman("runs", tmp_path, "--json").out)
    assert listed["origin"] == str(models / "forward")
    assert f"from {models / 'forward'}" in (tmp_path / "new/report.html").read_text()


def test_a_run_goes_on_without_the_old_one_bit_for_bit(data, models, tmp_path, begun):
    old = shutil.copytree(models / "forward", tmp_path / "old", symlinks=True)
    command = ("train", "classify", "--train", data / "classify.train.txt", *pairs(SHORT), "--from", old)
    assert elman(*command, "--out", tmp_path / "whole").code == 0
    expected = timeless(tmp_path / "whole")
    shutil.rmtree(old)
    for update in (6, 0):
        run = shutil.copytree(tmp_path / "whole", tmp_path / f"cut-{update}", symlinks=True)
        for folder in (run / "checkpoints").iterdir():
            if int(folder.name[-8:]) > update:
                shutil.rmtree(folder)
        more = ("--resume", "--out", run)
        answer = elman(*command, *more) if update else elman("train", *more)
        assert answer.code == 0, answer.err
        assert timeless(run) == expected
    assert elman("train", "--resume", "--out", run, "--from", tmp_path / "other").code == 2


def test_a_start_that_was_killed_needs_the_old_run_as_it_was(data, models, tmp_path, monkeypatch):
    old = shutil.copytree(models / "forward", tmp_path / "old", symlinks=True)
    run = tmp_path / "new"
    command = ("train", "classify", "--train", data / "classify.train.txt", *pairs(SHORT), "--from", old)
    with monkeypatch.context() as patch:
        patch.setattr(
            "elman.training.run.build", lambda *given, **more: (_ for _ in ()).throw(OSError("killed"))
        )
        with pytest.raises(OSError, match="killed"):
            elman(*command, "--out", run)
    assert elman(*command, "--out", tmp_path / "whole").code == 0
    assert elman("train", "--out", run, "--resume").code == 0
    left, right = (timeless(one) for one in (run, tmp_path / "whole"))
    assert left == right
    for folder in run.iterdir():
        if folder.name in ("checkpoints", "best", "last"):
            shutil.rmtree(folder) if folder.is_dir() and not folder.is_symlink() else folder.unlink()
    record = json.loads((run / "origin.json").read_text())
    assert record["taken"]
    shutil.rmtree(old)
    shutil.copytree(models / "backward", old, symlinks=True)
    answer = elman("train", "--out", run, "--resume")
    assert answer.code == 5
    assert "has changed since" in answer.err


def test_a_damaged_record_is_an_error(data, models, tmp_path):
    train("classify", data / "classify.train.txt", tmp_path / "new", {}, "--from", models / "forward")
    path = tmp_path / "new" / "origin.json"
    path.write_text(path.read_text().replace("forward", "forwart", 1))
    answer = elman("train", "--out", tmp_path / "new", "--resume")
    assert answer.code == 5
    assert "origin.json" in answer.err
    assert (
        elman("predict", tmp_path / "new", "-", stdin=b"the dog\n").code == 0
    )  # it is nothing to a prediction


# What goes wrong.


def test_what_cannot_serve_is_an_error_before_any_work(data, models, tmp_path):
    def refused(*more, settings=None, code=2):
        answer = train("classify", data / "classify.train.txt", tmp_path / "new", settings, *more, ok=False)
        assert answer.code == code, answer.err
        assert not (tmp_path / "new").exists()
        return answer.err

    assert "is no run" in refused("--from", tmp_path / "nowhere")
    shutil.copytree(models / "forward", tmp_path / "unfinished", symlinks=True)
    for name in ("checkpoints", "best", "last"):
        path = tmp_path / "unfinished" / name
        path.unlink() if path.is_symlink() else shutil.rmtree(path)
    assert "has no checkpoint yet" in refused("--from", tmp_path / "unfinished")
    train("classify", data / "classify.train.txt", tmp_path / "counted", {}, "--baseline", "ngram")
    assert "counted" in refused("--from", tmp_path / "counted")
    said = refused("--from", models / "forward", settings={"text.unit": "character"})
    assert "nothing can be taken" in said
    assert "its tokens are of the unit 'word', these of 'character'" in said
    said = refused("--from", models / "forward", settings={"model.embedding": 5})
    assert "no width fits" in said
    said = refused("--from", models / "forward", "--from", models / "forward")
    assert "both runs of --from read forward" in said
    said = refused("--from", models / "labels", "--from", models / "forward")
    assert "name one" in said


def test_the_old_run_is_not_the_new_one(models):
    before = contents(models / "labels")
    answer = train(None, None, models / "labels", {}, "--from", models / "labels", ok=False)
    assert answer.code == 2
    assert contents(models / "labels") == before


def test_code_that_is_not_trusted_is_refused(data, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "mine"))
    source = "from elman.cells.gru import GRU as Base\nfrom elman import Cell\nfrom torch import tanh\n\n\n"
    source += "class Own(Cell):\n    state = ('h',)\n    gates = ('z',)\n\n    def R(self, x, h, s):\n"
    source += "        return self.State(h=tanh(x.z + h.z))\n"
    file = write(tmp_path / "cells.py", source)
    train("lm", data / "lm.train.txt", tmp_path / "old", WIDTHS | {"model.cell": f"{file}:Own"})
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "theirs"))
    with pytest.raises(UntrustedCodeError):
        open_origin(tmp_path / "old")
    common = ("classify", data / "classify.train.txt", tmp_path / "new", {})
    assert "E703" in train(*common, "--from", tmp_path / "old", ok=False).err
    file.unlink()  # the run brings its copy along
    answer = train(*common, "--from", tmp_path / "old", "--trust-code")
    assert "2 layers forward" in told(answer)[0]
    assert elman("predict", tmp_path / "new", "-", stdin=b"the dog\n").code == 0


def test_a_language_model_may_read_backwards(data, models, tmp_path):
    model = package.load(models / "backward")
    [scored] = model.score(["Rex likes the dog"])
    assert [token for token, _ in scored] == ["dog", "the", "likes", "Rex", "</s>"]
    answer = elman("generate", models / "backward", "--prompt", "the dog")
    assert answer.out.strip().endswith("the dog")
    refused = train(
        "lm",
        data / "lm.train.txt",
        tmp_path / "x",
        {"text.reversed": "true", "text.context": "stream"},
        ok=False,
    )
    assert refused.code == 2
    assert "text.reversed reads every line for itself" in refused.err


def test_log_and_notes_tell_what_was_taken(data, models, tmp_path):
    answer = train("tag", data / "tag.train.txt", tmp_path / "new", {}, "--from", models / "forward")
    start = events(tmp_path / "new")[0]
    assert start["from"] == [str(models / "forward")]
    assert told(answer)[0] in start["notes"]
