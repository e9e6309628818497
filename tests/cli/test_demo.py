"""``elman demo``: the whole way in a few updates; how well the dates are read is measured elsewhere."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from urllib.parse import parse_qs
from urllib.request import Request, urlopen

import pytest

from elman import load
from elman.cli import demo_dates as demo
from elman.corpora import dates
from elman.corpora.dates import VISITOR, Dates
from forked import Forked
from tiny import elman

FEW = {
    "text.unit": "character",
    "model.hidden": 6,
    "model.embedding": 4,
    "training.max_steps": 2,
    "training.validate_every": 1,
    "training.batch_size": 8,
    "training.threads": 1,
}


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(Dates, "settings", FEW)
    monkeypatch.setattr(dates, "SIZES", {"train": 40, "dev": 10, "test": 12})
    dates._pairs.cache_clear()
    yield
    dates._pairs.cache_clear()


@pytest.mark.usefixtures("tiny")
@pytest.mark.slow
def test_it_trains_measures_tries_and_draws(tmp_path):
    folder = tmp_path / "my demo"
    code, out, err = elman("demo", "--out", folder, "--seed", "3")
    assert code == 0, err
    assert "lstm 6 × 1, both directions → lstm 6 × 1, additive attention: " in out
    assert "% of 12 dates it has never seen come out right." in out
    assert len(out.splitlines()) + len(err.splitlines()) < 35
    assert [line.split()[:5:2] for line in err.splitlines()] == [["epoch", "update", "exact_match"]] * 2
    predictor = load(folder / "run")
    assert predictor.config.training.seed == 3
    lines = out.split("\n")
    for source, target in VISITOR:
        [line] = [line for line in lines if line.endswith(f"  {source}")]
        [answer] = predictor.predict([source])
        assert line.split()[0] == ("✓" if answer == target else "✗")
        assert line[4:].removesuffix(source).rstrip() == answer
    assert (folder / "alignment.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "alignment.html").read_text(encoding="utf-8").count("<figure>") == len(demo.DRAWN)
    assert f"elman predict '{folder}/run' --attention" in out
    answer = elman("predict", folder / "run", stdin=b"3 mai 2021\n1.2.2003\n")
    assert (answer.code, answer.out.count("\n")) == (0, 2)
    assert elman("evaluate", folder / "run", "builtin:dates/test").code == 0


def test_what_is_drawn_is_among_what_a_visitor_tries():
    assert set(demo.DRAWN) <= {source for source, _ in VISITOR}


@pytest.mark.usefixtures("tiny")
@pytest.mark.slow
def test_only_a_demonstration_is_replaced(tmp_path):
    assert elman("demo", "--out", tmp_path).code == 0
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "run" / "old").touch()
    assert elman("demo", "--out", tmp_path).code == 0
    assert not (tmp_path / "run" / "old").exists()
    assert (tmp_path / "notes.txt").read_text() == "mine"
    (tmp_path / "run" / demo.MARK).unlink()
    code, out, err = elman("demo", "--out", tmp_path)
    assert (code, out) == (2, "")
    assert f"{tmp_path / 'run'} is no demonstration's" in err
    assert (tmp_path / "run" / "config.toml").is_file()


@pytest.mark.parametrize("name", ["run", "alignment.png", "alignment.html"])
def test_what_somebody_else_made_is_never_touched(name, tmp_path):
    (tmp_path / name).write_text("mine")
    code, out, err = elman("demo", "--out", tmp_path)
    assert (code, out) == (2, "")
    assert f"{tmp_path / name} is no demonstration's; move it, or name another folder with --out" in err
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "mine"


@pytest.mark.usefixtures("tiny")
@pytest.mark.slow
def test_without_babel_nothing_is_removed(tmp_path, monkeypatch):
    assert elman("demo", "--out", tmp_path).code == 0
    monkeypatch.setitem(sys.modules, "babel", None)  # an import of it fails
    dates.languages.cache_clear()
    code, out, err = elman("demo", "--out", tmp_path)
    dates.languages.cache_clear()
    assert (code, out) == (2, "")
    assert "needs Babel; pip install elman[demo]" in err
    assert (tmp_path / "run" / demo.MARK).is_file()


@pytest.mark.slow
def test_a_stopped_demonstration_says_how_to_go_on(tmp_path):
    program = f"""
from elman.corpora import dates
dates.SIZES = {{"train": 400, "dev": 10, "test": 10}}
dates.Dates.settings = {FEW | {"training.max_steps": 100_000, "training.validate_every": 20}}
from elman.cli.main import run
run()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program, "demo", "--out", tmp_path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert process.stderr.readline().startswith("epoch ")  # it trains
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 130
    assert re.search(r"stopped by SIGINT after update \d+; saved\. Continue with:\n", said)
    assert said.endswith(f"  elman train --out {tmp_path}/run --resume\n")
    assert load(tmp_path / "run").predict([""]) == [""]


def test_an_unknown_demonstration():
    code, out, err = elman("demo", "translation")
    assert (code, out) == (2, "")
    assert "dates" in err
    assert "memory" in err


@pytest.mark.slow
def test_a_page_of_it_is_served_and_opened(tmp_path):
    taken = socket.create_server(("127.0.0.1", 0))  # so that another port has to be found
    opened, browser = tmp_path / "opened", tmp_path / "browser"
    browser.write_text(
        f'#!/bin/sh\nprintf %s "$1" > {opened}.part && mv {opened}.part {opened}\nexec sleep 60\n'
    )
    browser.chmod(0o755)
    program = f"""
from elman.corpora import dates
dates.SIZES = {{"train": 40, "dev": 10, "test": 12}}
dates.Dates.settings = {FEW}
from elman.cli import serving
serving.PORT = {taken.getsockname()[1]}
from elman.cli.main import run
run()
"""
    arguments = ["demo", "--serve", "--out", str(tmp_path / "demo")]
    process = Forked(program, arguments, {"BROWSER": str(browser), "OMP_NUM_THREADS": "1"})
    try:
        end = time.monotonic() + 120
        while not opened.exists():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < end
            time.sleep(0.02)
        address, _, shown = opened.read_text().partition("#")
        assert parse_qs(shown) == {"text": [demo.DRAWN[0]]}
        with urlopen(address, timeout=20) as page:  # while the browser has not returned
            assert b'<textarea id="text"' in page.read()
        body = json.dumps({"model": "dates", "inputs": [demo.DRAWN[0]]}).encode()
        asked = Request(f"{address}v1/predict", body, {"Content-Type": "application/json"})
        with urlopen(asked, timeout=20) as found:
            [answer] = json.load(found)["predictions"]
        assert answer["text"] == load(tmp_path / "demo" / "run").predict([demo.DRAWN[0]])[0]
    finally:
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(60)
        taken.close()
    assert f"serving dates at {address} (Ctrl-C ends)" in err
    assert "Traceback" not in err
    assert out.splitlines()[-2].startswith(f"see inside       elman serve {tmp_path}/demo/run ")


def test_a_page_that_cannot_be_served_is_told_before_the_training(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)  # an import of it fails
    monkeypatch.delitem(sys.modules, "elman.server.serving", raising=False)
    code, out, err = elman("demo", "--serve", "--out", tmp_path)
    assert (code, out) == (2, "")
    assert "uvicorn is not installed, which a server needs; run pip install 'elman[serve]'" in err
    assert "--serve shows the page of a trained run" in elman("demo", "memory", "--serve").err
