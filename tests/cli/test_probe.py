"""``elman score --probe``: runs side by side, as a table, as JSON and as a picture; and what it refuses."""

import json
import math

import pytest
from typer.testing import CliRunner

from elman.cli.main import app
from elman.errors import ArgumentError, UnknownNameError

pytestmark = pytest.mark.slow  # the inner loop leaves it out


def elman(*words):
    result = CliRunner().invoke(app, list(map(str, words)))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def train(out, *words, task="lm", data="builtin:recall"):
    quick = ("--quiet", "--set", "model.hidden=8", "--set", "training.max_steps=2")
    assert elman("train", task, "--train", data, "--out", out, *quick, *words).exit_code == 0
    return out


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    sentence = ("--set", "text.context=sentence")
    return {
        "Elman": train(folder / "a", *sentence, "--set", "model.cell=elman"),
        "LSTM": train(folder / "b", *sentence),
        "stream": train(folder / "c"),
        "letters": train(folder / "d", *sentence, "--set", "text.unit=character"),
    }


def test_runs_stand_side_by_side_in_table_and_picture_L5(runs, tmp_path):
    picture = tmp_path / "recall.png"
    done = elman("score", runs["Elman"], "--probe", "recall", "--against", runs["LSTM"], "--out", picture)
    assert done.exit_code == 0
    lines = done.stdout.split("\n")
    assert lines[2].split() == ["words", "between", "questions", "Elman", "LSTM"]
    assert "  all                 4,000  " in done.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert str(picture) in done.stderr


def test_runs_that_differ_in_their_seed_are_one_model_L5(runs, tmp_path):
    """With mean and spread in the table, and one line each as JSON."""
    other = train(
        tmp_path / "seed",
        "--set",
        "text.context=sentence",
        "--set",
        "model.cell=elman",
        "--set",
        "training.seed=2",
    )
    words = ("score", runs["Elman"], "--probe", "recall", "--against", runs["LSTM"], "--against", other)
    done = elman(*words, "--out", tmp_path / "recall.png")
    shares = [json.loads(line)["accuracy"] for line in elman(*words, "--json").stdout.splitlines()]
    assert len(shares) == 3
    lines = done.stdout.split("\n")
    assert lines[1] == "Elman: mean ± standard deviation of 2 trainings with different seeds"
    assert lines[3].split() == ["words", "between", "questions", "Elman", "LSTM"]
    [row] = [line.split() for line in lines if line.startswith("  all")]
    first, _, second = shares
    spread = abs(first - second) / math.sqrt(2)
    assert row[2:6] == [f"{50 * (first + second):.1f}", "±", f"{100 * spread:.1f}", "%"]


def test_json_is_one_line_a_run_L5(runs):
    names = ("LSTM", "stream", "letters")
    first, *others = (runs[name] for name in names)
    done = elman(
        "score", first, "--probe", "recall", "--json", *(w for run in others for w in ("--against", run))
    )
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert [result["run"] for result in results] == [str(runs[name]) for name in names]
    assert [result["label"] for result in results] == ["b", "c", "d"]  # all are LSTMs
    for result in results:
        assert result["probe"] == "recall"
        assert (result["items"], result["skipped"]) == (4000, 0)
        assert sum(row["items"] for row in result["by_distance"]) == 4000
        assert [row["attractors"] for row in result["by_attractors"]] == [0]
        assert 0.3 < result["accuracy"] < 0.7  # two updates teach nothing
        assert 0 < result["error"] < 0.02


@pytest.mark.slow
def test_a_probe_agrees_with_the_scores_of_whole_texts_L5(runs):
    from elman.corpora.recall import Recall
    from elman.inspection.probes import preferences
    from elman.predictor import load

    predictor, items = load(runs["LSTM"]), Recall().probe(1, 20)
    gains = preferences(predictor.score, items)
    for item, gain in zip(items, gains, strict=True):
        right, wrong = (
            sum(value for _, value in predictor.score([f"{item.prefix} {word}"])[0][:-1])
            for word in (item.right, item.wrong)
        )
        assert gain == pytest.approx(right - wrong, abs=1e-4)


def test_questions_with_unknown_words_are_skipped_and_counted_L5(tmp_path):
    from elman.corpora.recall import Recall

    texts = [example["text"] for example in Recall().examples("train") if "tickets" not in example["text"]]
    (tmp_path / "text").write_text("\n".join(texts[:3000]), encoding="utf-8")
    run = train(tmp_path / "run", data=str(tmp_path / "text"))
    done = elman("score", run, "--probe", "recall", "--json")
    result = json.loads(done.stdout)
    assert 0 < result["skipped"] < 1000
    assert result["items"] + result["skipped"] == 4000
    assert "does not know 1 words of the probe (tickets)" in done.stderr


def test_a_model_that_knows_no_question_is_an_error(runs):
    with pytest.raises(ArgumentError, match=r"does not know .* words .*train on builtin:agreement"):
        elman("score", runs["LSTM"], "--probe", "agreement")


def test_only_a_corpus_with_questions_can_be_a_probe(runs):
    with pytest.raises(ArgumentError, match="has no probe; choose agreement or recall"):
        elman("score", runs["LSTM"], "--probe", "worked_example")
    with pytest.raises(UnknownNameError, match=r"did you mean 'recall'\? Known: agreement, recall$"):
        elman("score", runs["LSTM"], "--probe", "recal")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("x.html", r"x\.html: a picture ends in \.png, \.svg, \.pdf"),
        ("x", r"x: a picture ends in"),
        ("nowhere/x.png", "there is no folder .*nowhere"),
        ("folder.png", "folder.png is a folder; name a file in it"),
    ],
)
def test_a_picture_that_cannot_be_written_is_said_before_any_work(name, message, runs, tmp_path):
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(ArgumentError, match=message):
        elman("score", runs["LSTM"], "--probe", "recall", "--out", tmp_path / name)


def test_only_language_models_are_asked(tmp_path):
    run = train(tmp_path / "run", task="class2seq", data="builtin:worked_example")
    with pytest.raises(ArgumentError, match="class2seq model; a probe asks language models"):
        elman("score", run, "--probe", "recall")


@pytest.mark.parametrize(
    "words", [("text", "--probe", "recall"), ("--probe", "recall", "--pairs"), ("--out", "a.png")]
)
def test_options_that_do_not_go_together_are_refused(runs, words):
    assert elman("score", runs["LSTM"], *words).exit_code == 2
