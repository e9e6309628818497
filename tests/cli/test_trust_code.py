"""Opening a stranger's run runs nothing of theirs; one's own code is known, and a flag trusts the rest."""

import hashlib
import importlib
import json
import py_compile
import shutil
import sys
from contextlib import suppress

import pytest

from elman import load
from elman.config import describe, put, read_toml
from elman.config.toml import toml_value
from elman.errors import ElmanError, UntrustedCodeError
from elman.registry import TASKS
from elman.training.run import train_run
from elman.training.settings import check_code, settings_class
from elman.trust import RECORD
from marked import marked, ran
from tiny import elman
from tiny_tasks import DATA, TEXTS, ready, save

OWN = """
from elman.attention.dot import Dot
from elman.cells.lstm import LSTM
from elman.decoding.greedy import Greedy
from elman.tasks.lm import Lm

class OwnCell(LSTM):
    pass

class OwnScore(Dot):
    pass

class OwnStrategy(Greedy):
    pass

class OwnTask(Lm):
    pass
"""
KINDS = {  # what a run may name: a task that has it, the key, and a class that fits the weights
    "cell": ("lm", "model.cell", "OwnCell"),
    "strategy": ("lm", "decoding.strategy", "OwnStrategy"),
    "task": ("lm", "task", "OwnTask"),
    "score": ("seq2seq", "model.attention", "OwnScore"),
    "encoder": ("seq2seq", "model.encoder.cell", "OwnCell"),
    "decoder": ("seq2seq", "model.decoder.cell", "OwnCell"),
}
SETTINGS = {
    "seq2seq": {"model.attention": "dot", "model.bidirectional": False},
    "lm": {"text.context": "sentence"},
}
QUICK = (
    *("--set", "data.held_out=0", "--set", "model.hidden=4", "--set", "model.embedding=3"),
    *("--set", "training.max_steps=2", "--set", "training.threads=1", "--set", "text.min_count=1"),
    *("--set", "decoding.max_length=3"),
)


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    """The folder of a record that is empty; and afterwards nothing of the test is imported."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    yield tmp_path / "state" / "elman"
    for name in [name for name in sys.modules if name.partition(".")[0] in ("stranger", "this")]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A run of every task that names nothing."""
    return {
        task: save(ready(task, folder := tmp_path_factory.mktemp(task), SETTINGS.get(task)), folder / "run")
        for task in DATA
    }


def named(run, out, **settings):
    """A copy of a run that says something else in its ``config.toml``."""
    shutil.copytree(run, out, symlinks=True)
    tables = read_toml(out / "config.toml")
    for key, value in settings.items():
        put(tables, key.replace("__", "."), value)
    (out / "config.toml").write_text("\n".join(flat(tables)), encoding="utf-8")
    if "task" in settings:
        vocabulary = json.loads((out / "vocabulary.json").read_text()) | {"task": settings["task"]}
        (out / "vocabulary.json").write_text(json.dumps(vocabulary))
    return out


def flat(tables, prefix=""):
    for key, value in tables.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key} = {toml_value(value)}"


def stranger(kind, plain, tmp_path, place):
    """A run that names a class of one kind in this place."""
    task, key, name = KINDS[kind]
    return named(plain[task], tmp_path / kind, **{key.replace(".", "__"): f"{place}:{name}"})


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_a_run_names_runs_only_when_it_is_trusted(kind, plain, tmp_path, monkeypatch, state):
    path = marked(tmp_path / "evil.py", OWN)
    run = stranger(kind, plain, tmp_path, "evil.py")
    monkeypatch.chdir(tmp_path)
    code, out, err = elman("predict", run, stdin=b"the\n")
    assert (code, out, ran(tmp_path)) == (2, "", [])
    assert err.startswith(
        f"elman: E703: {run} names code that you have not trusted, and nothing of it has run"
    )
    assert "add --trust-code" in err
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert err.endswith(f"\n  'evil.py:{KINDS[kind][2]}' runs '{path}', SHA-256 {digest}\n")
    assert not state.exists()
    answer = elman("predict", run, "--trust-code", stdin=b"the\n")
    assert (answer.code, answer.err, ran(tmp_path)) == (0, "", ["evil.ran"])
    assert elman("predict", run, stdin=b"the\n") == answer  # it is asked once
    path.write_text(path.read_text() + "\n# changed", encoding="utf-8")
    (tmp_path / "evil.ran").unlink()
    code, out, err = elman("predict", run, stdin=b"the\n")
    assert (code, out, ran(tmp_path)) == (2, "", [])
    assert err.endswith("which is not the file that you trained with or trusted\n")


@pytest.mark.parametrize("kind", KINDS)
def test_a_module_runs_with_its_packages_only_when_they_are_trusted(kind, plain, tmp_path, monkeypatch):
    folder = tmp_path / "modules"
    marked(folder / "stranger" / "__init__.py")
    marked(folder / "stranger" / "parts.py", OWN)
    monkeypatch.syspath_prepend(str(folder))
    run = stranger(kind, plain, tmp_path, "stranger.parts")
    with pytest.raises(UntrustedCodeError, match=r"'stranger\.parts:Own\w+' runs '.*__init__\.py'") as caught:
        load(run)
    assert "parts.py'" in str(caught.value)
    assert ran(folder) == []
    assert not any(name.startswith("stranger") for name in sys.modules)
    load(run, trust_code=True).predict(["the"])
    assert ran(folder) == ["stranger/__init__.ran", "stranger/parts.ran"]
    load(run)
    (folder / "stranger" / "__init__.py").write_text("# changed", encoding="utf-8")
    with pytest.raises(UntrustedCodeError, match=r"__init__\.py', SHA-256 \w+, which is not the file that"):
        load(run)


@pytest.mark.parametrize("kind", KINDS)
def test_a_module_of_the_library_is_none_of_ours(kind, plain, tmp_path, capsys):
    task, key, _ = KINDS[kind]
    run = named(plain[task], tmp_path / "run", **{key.replace(".", "__"): "this:Zen"})
    code, out, err = elman("predict", run, stdin=b"the\n")
    assert (code, out) == (2, "")
    assert "'this:Zen' runs '" in err
    assert "Zen of Python" not in capsys.readouterr().out + out
    assert "this" not in sys.modules


class Prepared(Exception):
    """Training is about to begin."""


def prepared(*about):
    raise Prepared


@pytest.mark.parametrize("task", TASKS.names())
@pytest.mark.slow
def test_no_setting_of_a_run_imports_anything(task, plain, tmp_path, monkeypatch):
    """Each that can hold a word, one after the other: also those that are not meant to name code."""
    marked(tmp_path / "evil.py", OWN)
    marked(tmp_path / "stranger.py", OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    words = ("str", "Any", "file.py:Class")
    keys = [key for key, kind, *_ in describe(settings_class(task)) if any(word in kind for word in words)]
    parts = {"model.cell", "data.format", "text.unit", "training.optimizer", "training.schedule"}
    assert {"task", "data.train", "training.metric"} | parts - (
        {"text.unit"} if task == "tag" else set()
    ) <= set(keys)
    for key in keys:
        for name in ("evil.py:Own", "stranger:Own"):
            run = tmp_path / "run"
            corpus = "builtin:" if key.startswith("data.") else ""
            named(plain[task], run, **{key.replace(".", "__"): corpus + name})
            with suppress(ElmanError, KeyError):
                load(run, settings={"decoding.max_length": 2}).predict(TEXTS[task][:1])
            shutil.rmtree(run / "checkpoints")  # now its data is read, too
            with suppress(ElmanError, Prepared):
                train_run(run, [], print, prepared)
            assert ran(tmp_path) == [], f"{key} = {name}"
            shutil.rmtree(run)


@pytest.mark.parametrize(
    "command",
    [
        ("predict", "RUN", "lines.txt"),
        ("predict", "PLAIN", "lines.txt", "--ensemble", "RUN"),
        ("evaluate", "RUN", "lines.txt"),
        ("evaluate", "PLAIN", "lines.txt", "--ensemble", "RUN"),
        ("generate", "RUN"),
        ("generate", "PLAIN", "--ensemble", "RUN"),
        ("score", "RUN", "lines.txt"),
    ],
    ids=" ".join,
)
def test_every_command_that_opens_a_run_asks(command, plain, tmp_path, monkeypatch):
    marked(tmp_path / "evil.py", OWN)
    (tmp_path / "lines.txt").write_text(DATA["lm"], encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    runs = {"RUN": stranger("cell", plain, tmp_path, "evil.py"), "PLAIN": plain["lm"]}
    words = [runs.get(word, word) for word in command]
    answer = elman(*words)
    assert (answer.code, answer.out, ran(tmp_path)) == (2, "", [])
    assert f"E703: {runs['RUN']} names code" in answer.err
    answer = elman(*words, "--trust-code")
    assert (answer.code, ran(tmp_path)) == (0, ["evil.ran"]), answer.err
    assert elman(*words).code == 0


@pytest.mark.slow
def test_runs_beside_each_other_ask(plain, tmp_path, monkeypatch):
    marked(tmp_path / "evil.py", OWN)
    monkeypatch.chdir(tmp_path)
    run = stranger("score", plain, tmp_path, "evil.py")
    (tmp_path / "pairs.tsv").write_text(DATA["seq2seq"], encoding="utf-8")
    words = ("evaluate", plain["seq2seq"], "pairs.tsv", "--against", run)
    answer = elman(*words)
    assert (answer.code, "E703" in answer.err, ran(tmp_path)) == (2, True, []), answer.err
    assert elman(*words, "--trust-code").code == 0
    assert elman(*words).code == 0
    words = ("score", plain["lm"], "--probe", "agreement", "--against")
    run = stranger("cell", plain, tmp_path, marked(tmp_path / "other.py", OWN + "# another"))
    answer = elman(*words, run)
    assert (answer.code, "E703" in answer.err, ran(tmp_path)) == (2, True, ["evil.ran"]), answer.err
    assert "which leaves no question" in elman(*words, run, "--trust-code").err


def trained(folder, *more):
    """Train on a tiny text with a class of one's own, from this folder."""
    (folder / "lm.txt").write_text(DATA["lm"], encoding="utf-8")
    return elman("train", "lm", "--train", folder / "lm.txt", *QUICK, "--out", folder / "run", *more)


def test_what_a_user_trains_with_is_known_from_any_folder(tmp_path, monkeypatch, state):
    marked(tmp_path / "mine.py", OWN)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    names = ("--set", "model.cell=mine.py:OwnCell", "--set", "decoding.strategy=mine.py:OwnStrategy")
    answer = trained(tmp_path, *names)
    assert answer.code == 0, answer.err
    assert str(tmp_path / "mine.py") in (state / RECORD).read_text()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert elman("predict", tmp_path / "run", stdin=b"the\n").code == 0
    resume = ("train", "--out", tmp_path / "run", "--resume")
    assert elman(*resume).code == 0
    # Another user gets the folder, or this one another file.
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
    (tmp_path / "mine.ran").unlink()
    for words in (("predict", tmp_path / "run"), resume):
        answer = elman(*words, stdin=b"the\n")
        assert (answer.code, answer.err.count("SHA-256"), ran(tmp_path)) == (2, 2, []), answer.err
    assert elman(*resume, "--trust-code").code == 0
    assert elman(*resume).code == 0
    marked(tmp_path / "other.py", OWN + "# changed")
    (tmp_path / "other.py").replace(tmp_path / "mine.py")
    answer = elman("predict", tmp_path / "run", stdin=b"the\n")  # the copy in the run is what was trusted
    assert (answer.code, ran(tmp_path)) == (0, ["mine.ran"]), answer.err
    shutil.rmtree(tmp_path / "run" / "code")  # its checkpoints know that it was there
    for words, said in ((("predict", tmp_path / "run"), "index.json"), (resume, "E703")):
        answer = elman(*words, stdin=b"the\n")
        assert (answer.code != 0, "other.ran" in ran(tmp_path)) == (True, False), answer.err
        assert said in answer.err


def test_a_user_who_continues_a_strangers_run_says_nothing_about_the_rest_of_it(plain, tmp_path, monkeypatch):
    """Only what stands on the command line is the user's word."""
    monkeypatch.chdir(tmp_path)
    marked(tmp_path / "mine.py", OWN)
    marked(tmp_path / "evil.py", OWN + "# evil")
    cell, strategy = f"{tmp_path / 'mine.py'}:OwnCell", f"{tmp_path / 'evil.py'}:OwnStrategy"
    run = named(plain["lm"], tmp_path / "run", model__cell=cell, decoding__strategy=strategy)
    words = ("train", "lm", "--set", f"model.cell={cell}", "--out", run, "--resume")
    answer = elman(*words)
    assert (answer.code, "mine.py" in answer.err, "evil.py" in answer.err) == (2, False, True)
    assert ran(tmp_path) == ["mine.ran"]


@pytest.mark.filterwarnings("default::elman.errors.TrustNotice")
def test_training_goes_on_where_nothing_can_be_remembered(tmp_path, monkeypatch):
    (tmp_path / "state").write_text("no folder")
    marked(tmp_path / "mine.py", OWN)
    monkeypatch.chdir(tmp_path)
    answer = trained(tmp_path, "--set", "model.cell=mine.py:OwnCell")
    assert answer.code == 0
    notice = (
        f"elman: {tmp_path / 'state' / 'elman'}: Not a directory, so the code of {tmp_path / 'run'} is not"
    )
    assert answer.err.startswith(notice)
    answer = elman("predict", tmp_path / "run", stdin=b"the\n")
    assert (answer.code, "E703" in answer.err) == (2, True)
    assert elman("predict", tmp_path / "run", "--trust-code", stdin=b"the\n").code == 0


def test_training_with_a_module_that_has_no_source(tmp_path, monkeypatch):
    """It has no hash to be known by: the user says it each time."""
    folder = tmp_path / "modules"
    py_compile.compile(str(marked(folder / "source.py", OWN)), cfile=str(folder / "stranger.pyc"))
    importlib.invalidate_caches()
    monkeypatch.syspath_prepend(str(folder))
    answer = trained(tmp_path, "--set", "model.cell=stranger:OwnCell")
    assert answer.code == 0, answer.err
    words = ("predict", tmp_path / "run")
    for _ in range(2):
        answer = elman(*words, stdin=b"the\n")
        assert (answer.code, "which has no source file to hash" in answer.err) == (2, True)
        assert elman(*words, "--trust-code", stdin=b"the\n").code == 0


def test_what_a_user_says_of_a_run_is_no_word_of_the_run(plain, tmp_path, monkeypatch, state):
    marked(tmp_path / "evil.py", OWN)
    marked(tmp_path / "mine.py", OWN)
    monkeypatch.chdir(tmp_path)
    run = stranger("strategy", plain, tmp_path, "evil.py")
    words = ("predict", run, "--set")
    assert elman(*words, "decoding.strategy=greedy", stdin=b"the\n").code == 0  # then it is not needed
    assert elman(*words, "decoding.strategy=mine.py:OwnStrategy", stdin=b"the\n").code == 0
    load(run, settings={"decoding.strategy": "mine.py:OwnStrategy"}).predict(["the"])
    assert ran(tmp_path) == ["mine.ran"]
    assert (tmp_path / "mine.ran").read_text() == "xx"  # once for each run of it
    assert not state.exists()
    answer = elman(*words, "decoding.max_length=2", stdin=b"the\n")
    assert (answer.code, "E703" in answer.err, ran(tmp_path)) == (2, True, ["mine.ran"])


def test_elmans_own_classes_need_no_trust(plain, tmp_path, state):
    run = named(plain["lm"], tmp_path / "run", model__cell="elman.cells.lstm:LSTM")
    assert elman("predict", run, stdin=b"the\n").code == 0
    assert not state.exists()


def test_a_file_that_is_not_there_is_what_it_was(plain, tmp_path):
    run = stranger("cell", plain, tmp_path, tmp_path / "gone.py")
    answer = elman("predict", run, stdin=b"the\n")
    assert (answer.code, "E103" in answer.err, "cannot be loaded" in answer.err) == (2, True, True)


def test_the_bytes_that_were_hashed_are_the_bytes_that_run(plain, tmp_path, monkeypatch):
    """A file that changes between the look and the run."""
    path = marked(tmp_path / "evil.py", OWN)
    run = stranger("cell", plain, tmp_path, path)
    load(run, trust_code=True)
    (tmp_path / "evil.ran").unlink()

    def swapped(config, trust):
        check_code(config, trust)
        marked(path, "raise RuntimeError('not what was hashed')")

    monkeypatch.setattr("elman.predictor.check_code", swapped)
    assert load(run).predict(["the"])
    assert (tmp_path / "evil.ran").read_text() == "x"
