"""A comparison from the command line: one budget for all, killed and continued, the same table."""

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from elman.comparing.contenders import contenders
from elman.comparing.page import write_comparison
from elman.comparing.results import Comparison, Result, rows
from elman.comparing.running import until_free
from elman.errors import ConfigError
from elman.training.session import run_lock
from forked import quickly
from tiny import COMMAND, LONG, elman, write_data

SMALL = (
    *("--set", "training.max_steps=24", "--set", "training.validate_every=8", "--set", "model.hidden=12"),
    *("--set", "model.embedding=8", "--set", "training.batch_size=8", "--set", "model.shortcut=false"),
    *("--set", "training.save_seconds=0.05"),
)


SAVES = """
import fcntl, sys, time
with open(f"{sys.argv[1]}/.lock", "a") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    print("locked", flush=True)
    time.sleep(0.5)
    open(f"{sys.argv[1]}/saved", "x").close()
"""

FEW = ("--cells", "lstm,gru", "--baselines", "ngram", "--seeds", 2)


def command(data, out, *more, cells=FEW):
    files = ("--train", data / "classify.train.txt", "--test", data / "classify.dev.txt")
    return [str(one) for one in ("compare", "classify", *files, *cells, *SMALL, "--out", out, *more)]


def found_in(answer):
    found = json.loads(answer.out.splitlines()[-1])
    for one in found["results"]:
        for key in ("tokens_per_second", "seconds"):
            one.pop(key)
    return found


def lines_of(answer):
    """The table, but for how fast and how long."""
    head, *rows = [line.split() for line in answer.out.splitlines()[:-1]]
    places = [head.index(key) + 1 for key in ("tokens/s", "seconds")]  # rows begin with a name
    return [head, *([cell for place, cell in enumerate(row) if place not in places] for row in rows)]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_data(folder)
    return folder


@pytest.fixture(scope="module")
def compared(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("compared") / "out"
    with pytest.MonkeyPatch.context() as patch:
        quickly(patch)
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


def killed(said, monkeypatch, seconds):
    """The answer of a comparison that is killed three times, and then seen to its end."""
    draw = random.Random(4)
    for _ in range(3):
        with subprocess.Popen(
            [*COMMAND, *said], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            time.sleep(seconds * (1 + 2 * draw.random()))
            assert process.poll() is None, "it was over before it was killed"
            process.send_signal(draw.choice((signal.SIGKILL, signal.SIGTERM)))
    quickly(monkeypatch)
    time.sleep(1)  # those that lost their parent save themselves
    answer = elman(*said)
    assert answer.code == 0, answer.err
    return answer


@pytest.mark.slow
def test_killed_it_goes_on_to_the_same_table(data, compared, tmp_path, monkeypatch):
    answer = killed(command(data, tmp_path / "out", "--json", "--jobs", 2), monkeypatch, 2)
    assert found_in(answer) == compared[1]


@pytest.mark.skipif(not LONG, reason="twenty trainings, twice: minutes; ELMAN_LONG=1 asks for them")
def test_four_cells_and_five_seeds_killed_three_times(data, tmp_path, monkeypatch):
    cells = ("--cells", "elman,gru,lstm,mgu", "--seeds", 5)
    said = ("--json", "--jobs", 2)
    undisturbed = elman(*command(data, tmp_path / "undisturbed", *said, cells=cells))
    assert undisturbed.code == 0, undisturbed.err
    answer = killed(command(data, tmp_path / "killed", *said, cells=cells), monkeypatch, 15)
    assert found_in(answer) == found_in(undisturbed)
    assert len(found_in(answer)["results"]) == 4
    assert lines_of(answer) == lines_of(undisturbed)
    latex = [(tmp_path / name / "comparison.tex").read_text() for name in ("killed", "undisturbed")]
    assert [line.split("&")[:5] for line in latex[0].split("\n")] == [
        line.split("&")[:5] for line in latex[1].split("\n")
    ]


@pytest.mark.slow
def test_a_kill_between_plan_and_settings_loses_nothing(data, compared, tmp_path):
    shutil.copytree(compared[0], tmp_path / "out", symlinks=True)
    for path in (tmp_path / "out").glob("*.toml"):
        path.unlink()
    answer = elman(*command(data, tmp_path / "out", "--json", "--jobs", 2))
    assert found_in(answer) == compared[1]


@pytest.mark.slow
def test_another_comparison_does_not_go_there(data, compared):
    answer = elman(*command(data, compared[0], "--equal", "parameters"))
    assert answer.code != 0
    assert "holds a comparison with other equal" in answer.err


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (("--train", "broken.txt", "--cells", "lstm,gruu"), "no cell named 'gruu'"),
        (("--train", "classify.train.txt", "--cells", "lstm,gru", "--test", "nix.tsv"), "nix.tsv: E402"),
    ],
)
def test_mistakes_come_to_light_before_anything_is_trained(data, tmp_path, monkeypatch, more, problem):
    monkeypatch.chdir(data)
    Path("broken.txt").write_bytes(b"\xff")  # which reading would tell
    answer = elman("compare", "classify", *more, "--seeds", 1, *SMALL, "--out", tmp_path / "out")
    assert problem in answer.err
    assert not (tmp_path / "out").exists()


def test_two_do_not_compare_in_one_folder_at_a_time(data, compared):
    with run_lock(compared[0]):
        answer = elman(*command(data, compared[0], "--json", "--jobs", 2))
    assert "another process" in answer.err
    assert answer.code != 0


def test_a_run_that_is_still_being_saved_is_waited_for(tmp_path):
    with subprocess.Popen([sys.executable, "-c", SAVES, tmp_path], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"locked\n"
        until_free(tmp_path)
        assert (tmp_path / "saved").exists()
    until_free(tmp_path / "nowhere")


def test_of_one_seed_nothing_is_told_that_it_does_not_say(tmp_path):
    results = [Result(name, 1, [value], 1, 1, 1, []) for name, value in (("a", 0.5), ("b", 0.6))]
    found = Comparison("", "accuracy", "", "updates", 1, True, results)
    told = json.loads(json.dumps(found.as_json(), allow_nan=False))
    assert [(one["low"], one["high"]) for one in told["differences"]] == [(None, None)]
    assert [row[2] for row in rows(found)] == ["±", "–", "–"]
    page = write_comparison(found, tmp_path / "page.html").read_text("utf-8")
    assert "inf" not in page.partition("<body>")[2]


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ((["lstm"], [], []), "needs two or more"),
        ((["lstm", "a.py:lstm"], [], []), "two of those compared are called 'lstm'"),
        ((["lstm"], ["wide: "], []), "sets nothing"),
    ],
)
def test_what_cannot_be_compared(said, problem):
    with pytest.raises(ConfigError, match=problem):
        contenders(*said)
