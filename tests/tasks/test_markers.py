"""The markers before and after a text are spelt as the settings say."""

import shutil

import pytest

from elman import load
from elman.errors import ConfigError, RunError
from elman.text.fields import TextField
from tiny import elman, timeless, train_command, write_data
from tiny_tasks import ready, settings_of

LINES = "the cat sleeps\nthe dog barks\n<s> is a word\n"
PAIRS = "a b\tb a\nb c\tc b\n"
OWN = {"text.start": "[bos]", "text.end": "[eos]"}


@pytest.mark.parametrize("context", ["sentence", "stream"])
def test_a_language_model_has_its_own_markers(context, tmp_path):
    own = OWN if context == "sentence" else {"text.end": "[eos]"}
    settings = {**own, "text.context": context, "text.unit": "word", "text.min_count": 1}
    one = ready("lm", tmp_path, settings, data=LINES)
    start = "[bos]" if context == "sentence" else "<s>"
    tokens = one.task.field.vocabulary.tokens
    assert tokens[:4] == ["<pad>", "<unk>", start, "[eos]"]
    assert ("<s>" in tokens[4:]) == (context == "sentence")  # there it is a word like any other
    scored = one.task.score(one.model, ["the cat"])[0]
    assert [token for token, _ in scored] == ["the", "cat", "[eos]"]
    steps = one.task.predict(one.model, [""], trace=1)[0].written.steps
    assert steps[0].fed == ("[bos]" if context == "sentence" else "[eos]")


@pytest.mark.parametrize("form", ["two", "single", "naive"])
def test_sequence_to_sequence_has_its_own_markers(form, tmp_path):
    one = ready("seq2seq", tmp_path, {**OWN, "model.form": form}, data=PAIRS)
    for field in (one.task.source, one.task.target):
        assert field.vocabulary.tokens[:4] == ["<pad>", "<unk>", "[bos]", "[eos]"]
    plain = ready("seq2seq", tmp_path, {"model.form": form}, data=PAIRS)
    assert one.batch.previous.equal(plain.batch.previous)  # another spelling, the same numbers
    written = one.task.predict(one.model, ["a b"], trace=1)[0].written
    assert written.steps[0].fed == ("b" if form == "naive" else "[bos]")
    assert not {"[bos]", "[eos]"} & set(written.tokens)


@pytest.mark.parametrize("task", ["lm", "seq2seq"])
def test_markers_that_mean_something_else_are_refused(task):
    with pytest.raises(ConfigError, match="both '#'; they must differ"):
        settings_of(task, settings={"text.start": "#", "text.end": "#"})
    for wrong in ("", "<pad>", "<unk>"):
        with pytest.raises(ConfigError, match="means something else"):
            settings_of(task, settings={"text.end": wrong})


def test_a_vocabulary_without_the_markers_is_refused(tmp_path):
    one = ready("lm", tmp_path, {"text.end": "[eos]"}, data=LINES)
    with pytest.raises(RunError, match=r"lacks the token of text\.end"):
        TextField(one.task.config.text, end="[other]").restore(one.task.state())


@pytest.mark.slow
@pytest.mark.parametrize("task", ["lm-stream", "seq2seq"])
def test_a_run_with_its_own_markers_goes_on_exactly(task, tmp_path):
    data = write_data(tmp_path)
    own = OWN if task == "seq2seq" else {"text.end": "[eos]"}
    run = tmp_path / "run"
    short = {"training.max_steps": 20, "training.validate_every": 10, "training.save_seconds": 1000.0}
    assert elman(*train_command(task, data, run, own | short)).code == 0
    whole = timeless(run)
    assert "[eos]" in whole["vocabulary.json"]
    shutil.rmtree(run / "checkpoints" / "update-00000020")
    assert elman("train", "--out", run, "--resume").code == 0
    assert timeless(run) == whole
    assert load(run).task.config.text.end == "[eos]"
