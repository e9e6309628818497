"""``elman inspect`` on a run of each task, and what it says to what cannot be."""

import json

import pytest

from tiny import elman
from tiny_tasks import DATA, TEXTS, ready, save


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return {name: save(ready(name, folder, {}), folder / name) for name in DATA}


@pytest.mark.parametrize("name", DATA)
def test_a_run_of_each_task_becomes_a_page(name, runs, tmp_path):
    page = tmp_path / "page.html"
    answer = elman("inspect", runs[name], TEXTS[name][0], "--html", page)
    assert answer.code == 0, answer.err
    assert f"page: {page}" in answer.err
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_part_becomes_a_picture(runs, tmp_path):
    out = tmp_path / "gates.png"
    answer = elman("inspect", runs["tag"], "the cat runs", "--part", "gates", "--out", out)
    assert answer.code == 0, answer.err
    assert out.read_bytes().startswith(b"\x89PNG")


def test_numbers_and_two_runs(runs):
    answer = elman("inspect", runs["lm"], "the", "--against", runs["lm"], "--part", "gradients", "--json")
    assert answer.code == 0, answer.err
    both = json.loads(answer.out)
    assert [one["text"] for one in both] == ["the", "the"]
    assert both[0]["gradients"][0]["sentence"].startswith("LSTM:")
    assert both[0]["gates"] is None


def test_what_if_is_shown_beside(runs):
    command = ("inspect", runs["classify"], "the cat runs", "--part", "unrolled", "--json")
    answer = elman(*command, "--replace", "2=dog", "--remove", "1", "--clamp", "c:3=0")
    first, second = json.loads(answer.out)
    assert first["changes"] == []
    assert second["text"] == "dog runs"
    assert len(second["changes"]) == 3
    forced = elman("inspect", runs["class2seq"], "it", "--force", "1=cats", "--part", "unrolled", "--json")
    assert json.loads(forced.out)[1]["unrolled"][0]["steps"][0]["output"] == "cats"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--clamp", "c:1=inf"), "finite"),
        (("--clamp", "c:1=nan"), "finite"),
        (("--clamp", "2.c:1=0"), "no layer 2; there are 1 to 1"),
        (("--remove", "1", "--replace", "1=x"), "token 1 is changed twice"),
        (("--force", "1=cat", "--force", "1=dog"), "written token 1 is changed twice"),
        (("--json", "--out", "x.json"), "give one of them"),
        (("--part", "attention", "--html", "x.html"), "no meaning for lm"),
    ],
)
def test_flags_that_do_not_go_together_are_named(options, said, runs):
    answer = elman("inspect", runs["lm"], "the cat", *options)
    assert answer.code == 2
    assert said in answer.err


def test_several_texts_and_a_file(runs, tmp_path):
    (tmp_path / "texts.txt").write_text("a dog\nthe cat sees\n")
    answer = elman(
        *("inspect", runs["classify"], "a dog", "the cat", "--html", tmp_path / "page.html"),
        *("--file", tmp_path / "texts.txt"),
    )
    assert answer.code == 0, answer.err
    assert (tmp_path / "page-1.html").exists()
    assert (tmp_path / "page-2.html").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--part", "gate"], "part is 'gate'"),
        (["--out", "x.png"], "one part"),
        (["--out", "x.txt"], "ending"),
        (["--html", "/no/such/folder/page.html"], "no folder"),
        (["--replace", "dog"], "3=word"),
        (["--replace", "²=dog"], "3=word"),
        (["--clamp", "c"], "c:3=0"),
        (["--clamp", "q:1=0"], "'q'"),
        (["--target", "rock"], "'rock'"),
    ],
)
def test_what_cannot_be_is_said(arguments, said, runs):
    answer = elman("inspect", runs["classify"], "a dog", *arguments)
    assert answer.code == 2
    assert said in answer.err


def test_a_text_is_needed_where_none_is_usual(runs, tmp_path):
    assert "give a text" in elman("inspect", runs["tag"]).err
    assert elman("inspect", runs["class2seq"], "--html", tmp_path / "page.html").code == 0
