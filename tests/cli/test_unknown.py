"""A text of unknown tokens is told from an empty one: in JSON by their number, for people in a sentence."""

import json

import pytest

from tiny import elman
from tiny_tasks import ready, save

ASKED = "the dog\n\nxyzzy plugh\nthe xyzzy\n"
COUNTS = [(2, 0), (0, 0), (2, 2), (2, 1)]  # tokens of each line, and those that training never saw
SAID = "1 text had no token that training saw\n"


@pytest.mark.parametrize("task", ["lm", "tag", "classify", "seq2seq"])
@pytest.mark.slow
def test_unknown_tokens_are_counted(task, tmp_path):
    run = save(ready(task, tmp_path), tmp_path / "run")
    code, out, err = elman("predict", run, "--json", stdin=ASKED.encode())
    assert (code, err) == (0, SAID)
    answers = [json.loads(line) for line in out.splitlines()]
    assert [(one["read"], one["unknown"]) for one in answers] == COUNTS
    code, out, err = elman("predict", run, stdin=ASKED.encode())
    assert (code, len(out.splitlines()), err) == (0, 4, SAID)


def test_where_texts_are_scored_and_continued(tmp_path):
    run = save(ready("lm", tmp_path), tmp_path / "run")
    code, out, err = elman("score", run, "--json", stdin=ASKED.encode())
    assert (code, err) == (0, SAID)
    assert [(one["read"], one["unknown"]) for one in map(json.loads, out.splitlines())] == COUNTS
    prompts = ("--prompt", "xyzzy", "--prompt", "the\nxyzzy", "--prompt", "plugh\nxyzzy", "-n", "2")
    assert elman("generate", run, *prompts).err == "2 texts had no token that training saw\n"


def test_a_word_with_a_vector_is_known(tmp_path):
    (tmp_path / "vectors.txt").write_text("xyzzy 0.1 0.2\nthe 0.3 0.4\n", encoding="utf-8")
    one = ready("tag", tmp_path, {"text.vectors": str(tmp_path / "vectors.txt")})
    [found] = one.task.predict(one.model, ["xyzzy plugh the"])
    assert (found.read, found.unknown, found.unseen) == (3, 1, False)


def test_a_class_has_no_tokens(tmp_path):
    one = ready("class2seq", tmp_path)
    [found] = one.task.predict(one.model, ["it"])
    assert found.read is None
    assert "unknown" not in found.as_json()
