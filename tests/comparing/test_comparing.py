"""A comparison from the command line: one budget for all, killed and continued, the same table."""

import json
import random
import signal
import subprocess
import time

import pytest

from elman.comparing.contenders import contenders
from elman.errors import ConfigError
from tiny import COMMAND, elman, write_data

SMALL = (
    *("--set", "training.max_steps=24", "--set", "training.validate_every=8", "--set", "model.hidden=12"),
    *("--set", "model.embedding=8", "--set", "training.batch_size=8", "--set", "model.shortcut=false"),
    *("--set", "training.save_seconds=0.05"),
)


def command(data, out, *more):
    files = ("--train", data / "classify.train.txt", "--test", data / "classify.dev.txt")
    cells = ("--cells", "lstm,gru", "--baselines", "ngram", "--seeds", 2)
    return [str(one) for one in ("compare", "classify", *files, *cells, *SMALL, "--out", out, *more)]


def found_in(answer):
    found = json.loads(answer.out.splitlines()[-1])
    for one in found["results"]:
        for key in ("tokens_per_second", "seconds"):
            one.pop(key)
    return found


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_data(folder)
    return folder


@pytest.fixture(scope="module")
def compared(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("compared") / "out"
    answer = elman(*command(data, out, "--json", "--jobs", 2))
    assert answer.code == 0, answer.err
    return out, found_in(answer), answer


@pytest.mark.slow
def test_table_page_json_and_latex(compared):
    out, found, answer = compared
    assert {one["name"]: len(one["figures"]) for one in found["results"]} == {"lstm": 2, "gru": 2, "ngram": 2}
    assert [one["updates"] for one in found["results"] if one["name"] != "ngram"] == [24, 24]
    assert len(found["differences"]) == 3
    assert "better than" in answer.out.splitlines()[0]
    page = (out / "comparison.html").read_text("utf-8")
    assert "<svg" in page
    assert "may be equal" in page
    assert "http" not in page.replace("http://www.w3.org", "")
    assert (out / "comparison.tex").read_text("utf-8").count(r"\\") == 4


@pytest.mark.slow
def test_killed_it_goes_on_to_the_same_table(data, compared, tmp_path):
    out, draw = tmp_path / "out", random.Random(4)
    said = command(data, out, "--json", "--jobs", 2)
    for _ in range(3):
        with subprocess.Popen(
            [*COMMAND, *said], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            time.sleep(2 + 4 * draw.random())
            process.send_signal(draw.choice((signal.SIGKILL, signal.SIGTERM)))
    answer = elman(*said)
    assert answer.code == 0, answer.err
    assert found_in(answer) == compared[1]


@pytest.mark.slow
def test_another_comparison_does_not_go_there(data, compared):
    answer = elman(*command(data, compared[0], "--equal", "parameters"))
    assert answer.code != 0
    assert "holds a comparison with other equal" in answer.err


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ((["lstm"], [], []), "needs two or more"),
        ((["lstm", "a.py:lstm"], [], []), "two of those compared are called 'lstm'"),
    ],
)
def test_what_cannot_be_compared(said, problem):
    with pytest.raises(ConfigError, match=problem):
        contenders(*said)
