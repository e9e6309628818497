"""The commands with sequence-to-sequence runs: alignments, traces, ensembles, any layout, any line."""

import json
import subprocess

import pytest

from elman import load
from tiny import COMMAND, elman
from tiny_tasks import DATA, descend, ready, save

TEXTS = ["the cat runs", "", "an Unknown dog sees it", "   ", "it runs"]
LINES = "".join(f"{text}\n" for text in TEXTS).encode()
PAIRS = [line.split("\t") for line in DATA["seq2seq"].splitlines()]
SCAN = "".join(f"IN: {source} OUT: {target}\n" for source, target in PAIRS)
SCORES = {"loss", "exact_match", "error_rate", "bleu", "chrf", "ter"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs that differ in their weights, one without attention, and one that reads characters."""
    found = {}
    for name, settings, updates in (
        ("first", {}, 60),
        ("second", {}, 90),
        ("deaf", {"model.attention": "none"}, 1),
        ("characters", {"text.unit": "character"}, 1),
    ):
        folder = tmp_path_factory.mktemp(name)
        one = ready("seq2seq", folder, settings)
        descend(one, updates)
        found[name] = save(one, folder / "run")
    return found


# ---- alignments


@pytest.mark.parametrize("ending", ["png", "svg", "pdf", "html", "json"])
@pytest.mark.slow
def test_a_picture_beside_unchanged_data_A5(ending, runs, tmp_path):
    picture = tmp_path / f"a.{ending}"
    plain = elman("predict", runs["first"], stdin=LINES)
    code, out, err = elman("predict", runs["first"], "--attention", picture, stdin=LINES)
    assert (code, out) == (0, plain.out)
    assert err == f"alignments: {picture}\n"
    begins = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF", "html": b"<!doctype", "json": b"{"}
    assert picture.read_bytes().startswith(begins[ending])
    plain = elman("predict", runs["first"], "--json", stdin=LINES)
    assert elman("predict", runs["first"], "--json", "--attention", picture, stdin=LINES).out == plain.out


@pytest.mark.slow
def test_the_numbers_are_the_attention_of_the_model_A5(runs, tmp_path):
    path, lines = tmp_path / "a.json", tmp_path / "lines.txt"
    lines.write_bytes(LINES)
    assert elman("predict", runs["first"], lines, "--attention", path).code == 0
    found = json.loads(path.read_text(encoding="utf-8"))["alignments"]
    texts = [text for text in TEXTS if text.strip()]
    answers = load(runs["first"]).predict(texts, trace=0)
    assert [one["title"] for one in found] == texts
    for one, answer in zip(found, answers, strict=True):
        assert one["source"] == answer["source"].split()
        assert one["output"] == answer["output_tokens"]
        for row, expected in zip(one["weights"], answer["attention"], strict=True):
            assert row == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(("ending", "count"), [("html", 200), ("png", 8)])
def test_many_lines_are_answered_and_the_first_are_drawn(ending, count, runs, tmp_path):
    lines, picture = tmp_path / "lines.txt", tmp_path / f"a.{ending}"
    lines.write_text("it runs\n" * 300)
    code, out, err = elman("predict", runs["first"], lines, "--attention", picture)
    assert (code, out.count("\n")) == (0, 300)
    assert err == f"alignments: {picture} (the first {count})\n"
    if ending == "html":
        assert picture.read_text(encoding="utf-8").count("<figure>") == 200


def test_nothing_to_draw(runs, tmp_path):
    code, out, err = elman("predict", runs["first"], "--attention", tmp_path / "a.png", stdin=b"\n \n")
    assert (code, out) == (0, "\n\n")
    assert "no line has a token, so there is no alignment" in err
    assert not (tmp_path / "a.png").exists()


def test_what_a_font_lacks_is_said_in_a_line(runs, tmp_path):
    """Nobody has a font for this private character; the picture shows its code point."""
    picture = tmp_path / "a.png"
    code, _, err = elman("predict", runs["first"], "--attention", picture, stdin="\U000f1234\n".encode())
    assert code == 0
    assert "FontNotice" not in err
    assert err.endswith(f"alignments: {picture}\n")
    assert picture.is_file()


@pytest.mark.parametrize(
    ("run", "words", "code", "message"),
    [
        ("deaf", ["--attention", "a.png"], 2, "is a seq2seq model without attention"),
        ("first", ["--attention", "a.gif"], 2, "its ending must be one of .html, .json, .pdf, .png, .svg"),
        ("first", ["--attention", "no/such/a.png"], 3, "no/such: E402: there is no such folder"),
        ("first", ["--trace"], 2, "add --json to --trace"),
        ("first", ["--set", "decoding.max_length=0"], 2, "decoding.max_length is 0"),
        ("first", ["--set", "evaluation.metrics=[wer]"], 2, "evaluation.metrics is '[wer]'"),
        ("first", ["--set", "model.hidden=3"], 2, "takes decoding.*, data.*, evaluation.*"),
    ],
)
def test_mistakes_come_before_any_output(run, words, code, message, runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = elman("predict", runs[run], *words, stdin=LINES)
    assert (found.code, found.out) == (code, "")
    assert message in found.err
    assert not list(tmp_path.iterdir())


# ---- traces and the n best


def test_a_trace_is_part_of_each_object(runs):
    words = ("--json", "--trace", "--set", "decoding.beam=3", "--set", "decoding.n_best=2")
    code, out, err = elman("predict", runs["first"], *words, stdin=LINES)
    assert (code, err) == (0, "")
    first, nothing, *_ = (json.loads(line) for line in out.splitlines())
    unknown = dict.fromkeys(("log_probability", "score", "stopped"))
    assert nothing == {
        "prediction": "",
        "text": "",
        "tokens": [],
        "source": "",
        "read": 0,
        "unknown": 0,
        **unknown,
    }
    assert first["source_tokens"] == ["the", "cat", "runs"]
    assert len(first["n_best"]) == 2
    assert len(first["attention"]) == len(first["trace"]) == len(first["output_tokens"])
    for step, token in zip(first["trace"], first["output_tokens"], strict=True):
        assert step["output"] == token
        assert step["entropy"] >= 0
        assert len(step["top"]) == 5
    roots = [node for node in first["tree"] if node["parent"] is None]
    assert len(roots) == 3
    assert {node["step"] for node in first["tree"]} >= {1, 2}


def test_of_the_n_best_a_line_shows_one(runs):
    words = ("predict", runs["first"], "--set", "decoding.beam=3", "--set", "decoding.n_best=3")
    code, out, err = elman(*words, stdin=LINES)
    assert (code, out.count("\n")) == (0, len(TEXTS))
    assert err == "the best answer of each line is printed; --top and --json have all of decoding.n_best\n"
    found = [json.loads(line) for line in elman(*words, "--json", stdin=LINES).out.splitlines()]
    assert out.split("\n")[0] == found[0]["text"] == found[0]["n_best"][0]["text"]
    assert len(found[0]["n_best"]) == 3


# ---- ensembles


def test_an_ensemble_from_the_command_line(runs, tmp_path):
    both = load(runs["first"], ensemble=[runs["second"]])
    words = (runs["first"], "--ensemble", runs["second"])
    code, out, err = elman("predict", *words, stdin=LINES)
    assert (code, err) == (0, "")
    assert out.split("\n")[:-1] == both.predict(TEXTS)
    code, out, _ = elman("generate", *words, "--prompt", "the cat sees", "--json")
    assert code == 0
    assert json.loads(out)["log_probability"] == both.generate(["the cat sees"])[0]["log_probability"]
    assert (
        json.loads(out)["log_probability"]
        != load(runs["first"]).generate(["the cat sees"])[0]["log_probability"]
    )
    data = runs["first"].parent / "seq2seq.tsv"
    code, out, err = elman("evaluate", *words, data, "--json")
    assert (
        err == f"losses and accuracy are those of {runs['first']} alone; what is written is the ensemble's\n"
    )
    figures = json.loads(out)
    assert figures == both.evaluate(str(data))[0]
    assert figures["loss"] == load(runs["first"]).evaluate(str(data))[0]["loss"]
    code, out, err = elman("predict", runs["first"], "--ensemble", runs["characters"], stdin=LINES)
    assert (code, out) == (2, "")
    assert "model 2 of the ensemble writes with" in err


def test_generate_needs_a_source(runs):
    code, out, err = elman("generate", runs["first"])
    assert (code, out) == (2, "")
    assert "give one with --prompt" in err


# ---- figures, and the layouts of files


def test_figures_for_people(runs):
    data = runs["first"].parent / "seq2seq.tsv"
    code, out, err = elman("evaluate", runs["first"], data)
    assert (code, err) == (0, "")
    table, signatures, lengths = out.rstrip("\n").split("\n\n")
    rows = dict(line.split() for line in table.splitlines())
    assert rows.keys() >= SCORES
    assert [line.split()[0] for line in signatures.splitlines()] == ["bleu", "chrf", "ter"]
    assert all("|version:" in line for line in signatures.splitlines())
    head, *buckets = lengths.splitlines()
    assert head.split() == ["source", "tokens", "count", "exact", "match", "error", "rate"]
    assert sum(int(line.split()[1]) for line in buckets) == len(PAIRS)
    figures = json.loads(elman("evaluate", runs["first"], data, "--json").out)
    assert [f"{one['exact_match']:.4f}" for one in figures["by_length"]] == [
        line.split()[2] for line in buckets
    ]
    assert figures["signatures"]["bleu"] in signatures


@pytest.mark.slow
def test_notes_stand_under_the_figures(tmp_path):
    one = ready("seq2seq", tmp_path, data="it runs\tes läuft .\nthe cat\tdie Katze .\n")
    descend(one, 200)
    run = save(one, tmp_path / "run")
    assert "  2 of 2 outputs end in ' .': BLEU" in elman("evaluate", run, one.path).out
    assert len(json.loads(elman("evaluate", run, one.path, "--json").out)["notes"]) == 1


def test_fewer_figures(runs):
    data = runs["first"].parent / "seq2seq.tsv"
    words = ("evaluate", runs["first"], data, "--set", "evaluation.metrics=['chrf']")
    out = elman(*words).out
    assert "chrf" in out
    assert "bleu" not in out


LAYOUTS = {
    "columns": ("train.tsv", DATA["seq2seq"], []),
    "named columns": ("train.tsv", f"b\ta\n{DATA['seq2seq']}", ["--columns", "source=b,target=a"]),
    "separator": ("train.txt", SCAN, ["--separator", " OUT: ", "--prefix", "IN: "]),
    "parallel": ("train.en", "".join(f"{one}\n" for one, _ in PAIRS), ["--train-target", "{folder}/b.de"]),
    "said to be parallel": (
        "train.en",
        "".join(f"{one}\n" for one, _ in PAIRS),
        ["--train-target", "{folder}/b.de", "--set", "data.format=parallel"],
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_run_is_evaluated_on_files_of_its_own_layout_and_of_others_E8(layout, tmp_path):
    """Trained on one layout: two files are read as two, and a table by its name."""
    name, text, options = LAYOUTS[layout]
    (tmp_path / name).write_text(text, encoding="utf-8")
    for path, side in (("a.en", 0), ("b.de", 1)):
        (tmp_path / path).write_text("".join(f"{pair[side]}\n" for pair in PAIRS), encoding="utf-8")
    (tmp_path / "pairs.tsv").write_text(DATA["seq2seq"], encoding="utf-8")
    small = {"model.hidden": 4, "model.embedding": 3, "training.max_steps": 1, "training.threads": 1}
    small |= {"data.held_out": 0, "decoding.max_length": 4}
    settings = [word for key, value in small.items() for word in ("--set", f"{key}={value}")]
    words = [option.format(folder=tmp_path) for option in options]
    run = tmp_path / "run"
    answer = elman("train", "seq2seq", "--train", tmp_path / name, *words, *settings, "--out", run, "--quiet")
    assert answer.code == 0, answer.err
    files = [["a.en", "--target", tmp_path / "b.de"], ["pairs.tsv"] if layout != "named columns" else [name]]
    if layout.endswith("parallel"):
        code, out, err = elman("evaluate", run, tmp_path / "a.en")
        assert (code, out) == (3, "")
        assert "training read two files: name the second one, with --target or --dev-target" in err
    else:
        files.append([name])
    figures = []
    for path, *rest in files:
        answer = elman("evaluate", run, tmp_path / path, *rest, "--json")
        assert answer.code == 0, answer.err
        figures.append(json.loads(answer.out))
    assert figures[0]["examples"] == len(PAIRS)
    assert all(one == figures[0] for one in figures[1:])


# ---- any line


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"decoding.beam": 500},
        {"decoding.beam": 4, "decoding.n_best": 4, "decoding.coverage_penalty": 0.5},
        {"decoding.strategy": "sample", "decoding.top_k": 500},
        {"decoding.strategy": "diverse", "decoding.n_best": 40},
    ],
    ids=str,
)
@pytest.mark.parametrize("run", ["first", "characters"])
def test_as_many_lines_come_out_as_go_in(run, settings, runs):
    lines = [
        "",
        "the cat",
        " ",
        "\t",
        "😀 ßß 猫 \u0301",
        "the " * 10_000,
        "",
        "</s> <s> <pad> <unk>",
        "\u2028",
        "it",
    ]
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    code, out, _ = elman("predict", runs[run], *words, stdin="\n".join(lines).encode())
    assert code == 0
    assert out.count("\n") == len(lines)
    assert out.split("\n")[0] == out.split("\n")[6] == ""


@pytest.mark.slow
def test_an_open_pipe_is_answered_line_by_line(runs):
    command = [*COMMAND, "predict", runs["first"]]
    expected = load(runs["first"])
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for text in ("it runs", "the cat runs"):
            process.stdin.write(f"{text}\n")
            process.stdin.flush()
            assert process.stdout.readline() == f"{expected.predict([text])[0]}\n"
        process.stdin.close()
        assert process.wait(60) == 0
