"""``elman evaluate --against``: runs side by side by the length of the source: table, JSON and picture."""

import json
from dataclasses import asdict

import pytest

from elman import load
from elman.cli.lengths import picture, table
from elman.cli.output import span
from elman.inspection.lettering import _say_once
from elman.metrics.sequences import LengthBucket
from tiny import elman
from tiny_tasks import descend, ready, save

pytestmark = pytest.mark.slow  # the inner loop leaves it out

PAIRS = "".join(f"{'a ' * length}{end}\t{end} {'a ' * length}\n" for length in range(3) for end in "bc")
NAMES = {
    "attentive": "bidirectional LSTM → LSTM, bilinear attention",
    "deaf": "bidirectional LSTM → LSTM",
    "mixed": "bidirectional GRU → LSTM",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """One that has learned its six pairs by heart, and others that have not."""
    found = {}
    for name, settings, updates in (
        ("attentive", {"model.hidden": 16}, 120),
        ("deaf", {"model.attention": "none"}, 1),
        ("mixed", {"model.attention": "none", "model.encoder.cell": "gru"}, 1),
        ("second", {"model.hidden": 16}, 1),
    ):
        folder = tmp_path_factory.mktemp("lengths") / name
        folder.mkdir()
        one = ready("seq2seq", folder, settings, PAIRS)
        descend(one, updates)
        found[name] = save(one, folder / name)
    return found


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    path = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    path.write_text(PAIRS, encoding="utf-8")
    return path


def bucket(*values):
    return asdict(LengthBucket(*values))


def test_runs_stand_side_by_side_in_table_and_picture_A6(runs, pairs, tmp_path):
    out = tmp_path / "lengths.png"
    done = elman("evaluate", runs["attentive"], pairs, "--against", runs["deaf"], "--out", out)
    assert (done.code, done.err) == (0, f"picture: {out}\n")
    assert out.read_bytes().startswith(b"\x89PNG")
    names, figures, *rows = done.out.splitlines()
    assert "bilinear attention" in names
    assert names.endswith("no attention")
    assert figures.count("errors a token") == 2
    expected = [load(runs[name]).evaluate(str(pairs))[0]["by_length"] for name in ("attentive", "deaf")]
    for row, first, second in zip(rows, *expected, strict=True):
        shares = (share for one in (first, second) for share in (one["exact_match"], one["error_rate"]))
        assert row.split() == [str(first["shortest"]), "2", *(f"{share:.1%}" for share in shares)]


@pytest.mark.slow
def test_what_a_font_lacks_is_said_in_a_line(runs, pairs, tmp_path):
    """Two networks of a kind are called by their folders; nobody has a font for this private character."""
    _say_once.cache_clear()
    named, out = tmp_path / "\U000f1234", tmp_path / "lengths.png"
    named.symlink_to(runs["second"])
    done = elman("evaluate", runs["attentive"], pairs, "--against", named, "--out", out)
    assert done.code == 0
    notice, picture = done.err.splitlines()
    assert notice.startswith("no installed font has some of the characters")
    assert picture == f"picture: {out}"


def test_the_one_that_learned_is_seen_to_be_better_A6(runs, pairs):
    done = elman("evaluate", runs["attentive"], pairs, "--against", runs["deaf"])
    rows = [row.split() for row in done.out.splitlines()[2:]]
    assert [row[2] for row in rows] == ["100.0%"] * 3
    assert all(row[4] != "100.0%" for row in rows)


def test_json_is_one_line_a_run_A6(runs, pairs):
    names = ("attentive", "deaf", "mixed")
    first, *others = (runs[name] for name in names)
    against = [word for run in others for word in ("--against", run)]
    done = elman("evaluate", first, pairs, *against, "--json")
    found = [json.loads(line) for line in done.out.splitlines()]
    assert [one["run"] for one in found] == [str(runs[name]) for name in names]
    assert [one["network"] for one in found] == [NAMES[name] for name in names]
    for one, name in zip(found, names, strict=True):
        assert one["by_length"] == load(runs[name]).evaluate(str(pairs))[0]["by_length"]


def test_networks_of_one_kind_are_told_apart_by_their_folders(runs, pairs):
    done = elman("evaluate", runs["attentive"], pairs, "--against", runs["second"])
    assert done.out.splitlines()[0].split() == ["source", "outputs", "attentive", "second"]


def test_a_run_against_itself_is_one_run(runs, pairs):
    done = elman("evaluate", runs["deaf"], pairs, "--against", runs["deaf"], "--json")
    assert len(done.out.splitlines()) == 1


def test_settings_of_decoding_hold_for_every_run(runs, pairs):
    words = ("--against", runs["second"], "--set", "decoding.max_length=1", "--json")
    for line in elman("evaluate", runs["attentive"], pairs, *words).out.splitlines():
        buckets = json.loads(line)["by_length"]
        assert [one["exact_match"] for one in buckets[1:]] == [0.0, 0.0]  # longer than one token


def test_a_table_is_told_its_layout(runs, pairs, tmp_path):
    path = tmp_path / "pairs.csv"
    rows = [line.split("\t") for line in PAIRS.splitlines()]
    path.write_text("".join(f"{target}|{source}\n" for source, target in rows), encoding="utf-8")
    words = ("--columns", "source=1,target=0", "--delimiter", "|", "--against", runs["deaf"])
    told = elman("evaluate", runs["attentive"], path, *words)
    assert told.out == elman("evaluate", runs["attentive"], pairs, "--against", runs["deaf"]).out


def test_two_parallel_files(runs, pairs, tmp_path):
    sides = list(zip(*(line.split("\t") for line in PAIRS.splitlines()), strict=True))
    for name, lines in zip(("source", "target"), sides, strict=True):
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    words = ("--target", tmp_path / "target", "--against", runs["deaf"])
    parallel = elman("evaluate", runs["attentive"], tmp_path / "source", *words)
    assert parallel.out == elman("evaluate", runs["attentive"], pairs, "--against", runs["deaf"]).out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--against", "deaf", "--ensemble", "second"], "leave out --ensemble"),
        (["--out", "lengths.png"], "--out belongs to --against"),
    ],
)
def test_options_that_do_not_go_together_are_refused(words, message, runs, pairs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = elman("evaluate", runs["attentive"], pairs, *(runs.get(word, word) for word in words))
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert not list(tmp_path.iterdir())


def test_other_tasks_have_no_lengths_to_compare(runs, tmp_path):
    one = ready("class2seq", tmp_path)
    run = save(one, tmp_path / "run")
    done = elman("evaluate", run, one.path, "--against", runs["deaf"])
    assert done.code == 2
    assert "is a class2seq model; lengths are compared of seq2seq" in done.err


def test_a_part_is_named_by_its_lengths():
    assert span(bucket(3, 7, 1, 0.0, 0.0)) == "3–7"
    assert span(bucket(3, 3, 1, 0.0, 0.0)) == "3"


def test_columns_are_as_wide_as_their_names():
    short = {"a": [bucket(1, 9, 1234, 1.0, 0.0)], "b": [bucket(1, 9, 1234, 0.125, 1.5)]}
    long = {f"{name} of a rather long name indeed": buckets for name, buckets in short.items()}
    for results in (short, long):
        names, figures, row = table(results).splitlines()
        assert len(names) == len(figures) == len(row)
        assert row.split() == ["1–9", "1,234", "100.0%", "0.0%", "12.5%", "150.0%"]


def test_the_picture_has_a_line_a_run_at_the_middle_of_each_part():
    results = {
        "a": [bucket(1, 3, 5, 1.0, 0.0), bucket(4, 9, 5, 0.5, 0.1)],
        "b": [bucket(1, 3, 5, 0.2, 0.0), bucket(4, 9, 5, 0.0, 0.9)],
    }
    [axes] = picture(results).axes
    lines = {line.get_label(): line for line in axes.get_lines()}
    drawn = [(list(line.get_xdata()), list(line.get_ydata())) for line in lines.values()]
    assert ([2.0, 6.5], [100.0, 50.0]) in drawn
    assert ([2.0, 6.5], [20.0, 0.0]) in drawn
