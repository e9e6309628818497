"""``elman predict``, ``evaluate``, ``generate`` and ``score``: data on stdout, talk on stderr."""

import json
import math
import os
import subprocess

import pytest

from elman import load
from tiny import COMMAND, elman
from tiny_tasks import DATA, TEXTS, descend, ready, save

LINES = {task: "\n".join(texts) + "\n" for task, texts in TEXTS.items()}
FIGURES = {
    "lm": {"loss", "perplexity", "accuracy", "tokens"},
    "tag": {"loss", "accuracy", "tokens"},
    "classify": {"loss", "accuracy", "precision", "recall", "f1", "macro_f1", "tokens"},
    "class2seq": {"loss", "accuracy", "exact_match", "tokens"},
    "seq2seq": {
        "loss",
        "perplexity",
        "accuracy",
        "exposure_gap",
        "exact_match",
        "error_rate",
        "bleu",
        "tokens",
    },
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run of every task, a little trained."""
    found = {}
    for task in DATA:
        folder = tmp_path_factory.mktemp(task)
        settings = {"text.context": "sentence"} if task == "lm" else {}
        one = ready(task, folder, settings)
        descend(one, 20)
        found[task] = save(one, folder / "run")
        (folder / "lines.txt").write_text(LINES[task], encoding="utf-8")
    return found


def data_of(run, task):
    return next(run.parent.glob(f"{task}.*"))


@pytest.mark.parametrize("task", DATA)
@pytest.mark.slow
def test_evaluate_is_one_flat_object(task, runs):
    code, out, err = elman("evaluate", runs[task], data_of(runs[task], task), "--json")
    assert (code, err) == (0, "")
    [line] = out.splitlines()
    figures = json.loads(line)
    assert FIGURES[task] <= set(figures)
    assert all(isinstance(figures[name], (int, float)) for name in FIGURES[task])
    code, out, err = elman("evaluate", runs[task], data_of(runs[task], task))
    assert (code, err) == (0, "")
    shown = {line.split()[0]: line.split()[1] for line in out.splitlines()[: len(FIGURES[task])]}
    assert shown["loss"] == f"{figures['loss']:.4f}"
    if task == "classify":
        assert "gold ↓" in out


@pytest.mark.parametrize("task", DATA)
def test_predict_is_a_line_for_a_line(task, runs):
    expected = load(runs[task]).predict(TEXTS[task], details=True)
    path = runs[task].parent / "lines.txt"
    code, out, err = elman("predict", runs[task], path)
    assert (code, err) == (0, "")
    assert out.split("\n")[:-1] == [one["line"] for one in expected]
    assert elman("predict", runs[task], stdin=LINES[task].encode()).out == out
    code, out, err = elman("predict", runs[task], path, "--json")
    assert (code, err) == (0, "")
    found = [json.loads(line) for line in out.splitlines()]
    assert [one["prediction"] for one in found] == [one["prediction"] for one in expected]
    assert not any("line" in one for one in found)


def test_predict_keeps_order_over_many_lines(runs):
    words = ["a dog", "", "stones lie there", "the cat"]
    lines = [words[number % 4] for number in range(700)]
    code, out, _ = elman("predict", runs["classify"], stdin="\n".join(lines).encode())
    assert code == 0
    few = load(runs["classify"]).predict(words)
    assert out.split("\n")[:-1] == [few[number % 4] for number in range(700)]
    assert elman("predict", runs["classify"], stdin=b"").out == ""


def test_generate(runs):
    code, out, err = elman("generate", runs["lm"], "--prompt", "the cat", "--prompt", "a")
    assert (code, err) == (0, "")
    first, second = out.splitlines()
    assert first.startswith("the cat ")
    assert second.startswith("a ")
    code, out, err = elman("generate", runs["lm"], "--json", "--set", "decoding.max_length=2")
    one = json.loads(out)
    assert (code, err, one["prompt"]) == (0, "", "")
    assert len(one["tokens"]) <= 2
    assert {"text", "log_probability", "stopped"} <= set(one)


def test_generate_reads_prompts_as_predict_reads_files(runs, tmp_path):
    alone = elman("generate", runs["lm"], "--prompt", "the cat", "--prompt", "a").out
    path = tmp_path / "prompts.csv"
    path.write_text('"n","text"\n1,the cat\n2,a\n')
    assert elman("generate", runs["lm"], path) == (0, alone, "repaired: header line skipped: 1 time\n")
    assert elman("generate", runs["lm"], "-", stdin=b"the cat\na\n") == (0, alone, "")
    path.write_text("n;q\n1;the cat\n2;a\n")
    options = ("--columns", "text=q", "--delimiter", ";")
    assert elman("generate", runs["lm"], path, *options) == (0, alone, "")
    path.write_text("it\nzebra\n")
    code, out, err = elman("generate", runs["class2seq"], path, "--format", "lines")
    assert (code, out.count("\n")) == (3, 1)
    assert err.startswith(f"elman: {path}:2: E407: ")
    assert elman("generate", runs["lm"], path, "--prompt", "a").code == 2


def test_generate_needs_a_vector_where_classes_are_vectors(tmp_path):
    run = save(
        ready("class2seq", tmp_path, {"text.classes": "vector"}, data="0 1\ta\n1 0\tb\n"), tmp_path / "run"
    )
    code, out, err = elman("generate", run)
    assert (code, out) == (2, "")
    assert "give one with --prompt" in err
    assert elman("generate", run, "--prompt", "0 1").code == 0


def test_generate_shows_the_n_best(runs):
    words = (
        "generate",
        runs["lm"],
        "--prompt",
        "the",
        "--set",
        "decoding.beam=4",
        "--set",
        "decoding.n_best=3",
    )
    code, out, err = elman(*words)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert len(set(lines)) == 3
    [one] = [json.loads(line) for line in elman(*words, "--json").out.splitlines()]
    assert lines == [f"the {best['text']}" for best in one["n_best"]]
    assert one["n_best"][0]["text"] == one["text"]


def test_drawn_sequences_differ_but_repeat(runs):
    words = ("generate", runs["lm"], "--set", "decoding.strategy=sample", "--set", "decoding.temperature=3.0")
    both = elman(*words, "-n", "3", "--prompt", "the", "--prompt", "a").out.splitlines()
    assert len(both) == 6
    assert len(set(both[:3])) > 1
    assert elman(*words, "-n", "3", "--prompt", "the", "--prompt", "a").out.splitlines() == both
    assert elman(*words, "-n", "3", "--prompt", "a").out.splitlines() == both[3:]  # whatever came before
    assert elman(*words, "--prompt", "a", "--set", "decoding.seed=2").out.splitlines() == both[4:5]


def test_generate_from_classes_with_its_unrolling_G3(runs):
    code, out, err = elman("generate", runs["class2seq"], "--trace", "--prompt", "it")
    assert (code, err) == (0, "")
    _, start, first, *_ = out.splitlines()
    assert start.split() == ["t", "0", "class", "it"]
    assert first.split()[:4] == ["t", "0", "→", "1"]
    assert first.split()[4] == "<s>"
    code, out, _ = elman("generate", runs["class2seq"], "--set", "model.feedback=soft")
    assert code == 0
    assert elman("generate", runs["class2seq"], "--set", "model.hidden=3").code == 2
    code, out, _ = elman("generate", runs["class2seq"])
    assert code == 0
    assert len(out.splitlines()) == 3  # every class once
    code, out, _ = elman("generate", runs["lm"], "--trace", "--set", "decoding.max_length=3")
    assert code == 0
    text, *steps = out.splitlines()
    assert [step.split()[6] for step in steps][: len(text.split())] == text.split()


def test_score_L3(runs):
    texts = ["the cat runs", "", "unheard dog"]
    expected = load(runs["lm"]).score(texts)
    lines = "\n".join(texts).encode() + b"\n"
    code, out, err = elman("score", runs["lm"], stdin=lines)
    assert (code, err) == (0, "")
    totals = [sum(value for _, value in one) for one in expected]
    assert [float(line) for line in out.split("\n")[:-1]] == pytest.approx(totals, abs=1e-5)
    code, out, _ = elman("score", runs["lm"], "--tokens", stdin=lines)
    assert code == 0
    for line, one in zip(out.split("\n"), expected, strict=False):
        cells = [cell.split(" ") for cell in line.split("\t")]
        assert [token for token, _ in cells] == [token for token, _ in one]
        assert [float(value) for _, value in cells] == pytest.approx([value for _, value in one], abs=1e-5)
    code, out, _ = elman("score", runs["lm"], "--json", stdin=lines)
    found = [json.loads(line) for line in out.splitlines()]
    assert [one["text"] for one in found] == texts
    for one, total in zip(found, totals, strict=True):
        assert one["log_probability"] == pytest.approx(total, abs=1e-6)
        assert sum(token["log_probability"] for token in one["tokens"]) == pytest.approx(total, abs=1e-6)


def test_a_file_has_the_perplexity_of_its_scores_L3(runs):
    path = data_of(runs["lm"], "lm")
    totals = [float(line) for line in elman("score", runs["lm"], path).out.splitlines()]
    figures = json.loads(elman("evaluate", runs["lm"], path, "--json").out)
    assert math.exp(-sum(totals) / figures["tokens"]) == pytest.approx(figures["perplexity"], rel=1e-4)


def test_score_pairs_L3(runs):
    lines = b"the cat runs\tthe runs cat\nruns the\tthe dog sees a cat\n"
    code, out, err = elman("score", runs["lm"], "--pairs", stdin=lines)
    assert code == 0
    for line in out.splitlines():
        good, bad, which = line.split("\t")
        assert which == ("first" if float(good) > float(bad) else "second")
    assert "of 2 pairs" in err
    code, out, _ = elman("score", runs["lm"], "--pairs", "--json", stdin=lines)
    assert [set(json.loads(line)) for line in out.splitlines()] == [
        {"first", "second", "first_is_better"}
    ] * 2
    code, out, err = elman("score", runs["lm"], "--pairs", stdin=b"a zzz\ta qqq\n")  # both are <unk>
    assert (code, out.split("\t")[2]) == (0, "neither\n")
    code, out, err = elman("score", runs["lm"], "--pairs", stdin=b"a\tb\nthe cat\n")
    assert (code, out.count("\n")) == (3, 1)  # what came before the mistake was answered
    assert "<stdin>:2: E405: 1 columns instead of 2" in err


@pytest.mark.parametrize(
    ("shell", "code", "message"),
    [
        ("{} init lm | true; exit ${{PIPESTATUS[0]}}", 141, ""),
        ("{} init lm > /dev/full", 5, "E701: the output cannot be written: No space left on device"),
        ("{} score {run} <&-", 3, "<stdin>: E402: there is no standard input"),
    ],
)
@pytest.mark.slow
def test_streams_that_a_shell_closes(shell, code, message, runs):
    words = shell.format("'" + "' '".join(COMMAND) + "'", run=runs["lm"])
    done = subprocess.run(["bash", "-c", words], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout, message in done.stderr) == (code, "", True), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_the_output_is_utf8_whatever_the_locale_says():
    env = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run([*COMMAND, "init", "lm"], capture_output=True, env=env)
    assert done.returncode == 0, done.stderr
    assert "W ← W − η ∇ℓ" in done.stdout.decode()


@pytest.mark.parametrize("command", ["predict", "evaluate", "generate", "score"])
def test_no_run_is_a_mistake_of_usage(command, tmp_path):
    file = [tmp_path / "x.txt"] if command == "evaluate" else []
    code, out, err = elman(command, tmp_path / "no", *file)
    assert (code, out) == (2, "")
    assert "E702" in err
    assert "is no run" in err


def test_what_is_wrong_has_its_exit_code(runs, tmp_path):
    assert elman("score", runs["tag"], stdin=b"a\n").code == 2
    assert elman("generate", runs["tag"]).code == 2
    assert elman("evaluate", runs["lm"], tmp_path / "none.txt").code == 3
    code, out, err = elman("predict", runs["lm"], stdin=b"ok\nbad \xff\n")
    assert (code, out.count("\n")) == (3, 1)  # what came before the mistake was answered
    assert "<stdin>:2:5: E403" in err
    code, out, err = elman("predict", runs["class2seq"], stdin=b"it\ndog\n")
    assert (code, out.count("\n")) == (3, 1)
    assert "<stdin>:2" in err
    assert "a class that training never saw: 'dog'" in err
    two = ("evaluate", runs["classify"], "a.txt", "--target", "b.txt", "--set")
    code, _, err = elman(*two, "data.columns={text = 1, label = 0}")
    assert code == 2
    assert "--target is a second file, which data.columns does not fit; leave out one of them" in err
    code, _, err = elman("predict", runs["lm"], "--set", "decoding.max_lenght=3", stdin=b"a\n")
    assert code == 2
    assert "did you mean 'max_length'" in err
    wrong = tmp_path / "wrong.tsv"
    wrong.write_text("a dog\tanimal\na dog\n")
    code, out, err = elman("evaluate", runs["classify"], wrong, "--json")
    assert (code, out) == (3, "")
    assert f"{wrong}:2" in err
    assert "E405" in err
