"""``--threshold``: a question mark where a model is not sure."""

import json

import pytest

from elman import load
from elman.errors import ArgumentError
from tiny import elman
from tiny_tasks import DATA, TEXTS, descend, ready, save

SEVERAL = "red ball\tred|round\nblue box\tblue\nred box\tred\nblue ball\tblue|round\ngrey stone\t\n"
CASES = {
    "classify": ("classify", {}, None),
    "several": ("classify", {"data.labels_separator": "|"}, SEVERAL),
    "tag": ("tag", {"model.shortcut": False}, None),  # which a few updates make sure of themselves
    "lm": ("lm", {"text.context": "sentence"}, None),
    "seq2seq": ("seq2seq", {}, None),
    "class2seq": ("class2seq", {}, None),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    found = {}
    for name, (task, settings, data) in CASES.items():
        folder = tmp_path_factory.mktemp(name)
        one = ready(task, folder, settings, data=data)
        descend(one, 3)
        found[name] = save(one, folder / "run")
    return found


def lines(name):
    texts = ["red ball", "", "grey stone"] if name == "several" else TEXTS[name]
    return ("\n".join(texts) + "\n").encode()


def test_one_label(runs):
    plain = elman("predict", runs["classify"], stdin=lines("classify"))
    sure = elman("predict", runs["classify"], "--threshold", "0.01", stdin=lines("classify"))
    assert sure.out == plain.out
    assert "0 of 2 answers withheld: less probable than 0.01" in sure.err
    unsure = elman("predict", runs["classify"], "--threshold", "1", stdin=lines("classify"))
    assert unsure.out == "?\n\n?\n"
    assert "2 of 2 answers withheld: less probable than 1" in unsure.err
    quiet = elman("predict", runs["classify"], "--threshold", "1", "--quiet", stdin=lines("classify"))
    assert (quiet.out, quiet.err) == (unsure.out, "")


def test_the_object_keeps_probabilities_and_label(runs):
    plain = elman("predict", runs["classify"], "--json", stdin=lines("classify")).out.splitlines()
    found = elman("predict", runs["classify"], "--json", "--threshold", "1", stdin=lines("classify"))
    for before, line in zip(map(json.loads, plain), map(json.loads, found.out.splitlines()), strict=True):
        assert "withheld" not in before
        assert line["probabilities"] == before["probabilities"]
        said = before["prediction"]
        assert (line["prediction"], line["withheld"]) == (("?", said) if said else ("", None))


def test_several_labels(runs):
    answer = elman("predict", runs["several"], "--threshold", "1", stdin=lines("several"))
    assert answer.out == "?\n\n?\n"
    rows = elman("predict", runs["several"], "--threshold", "1", "--json", stdin=lines("several")).out
    first, empty, _ = map(json.loads, rows.splitlines())
    assert first["prediction"] == ["?"]
    assert isinstance(first["withheld"], list)
    assert (empty["prediction"], empty["withheld"]) == ([], [])


def test_tags(runs):
    model = load(runs["tag"])
    chances = [chance for one in model.details(TEXTS["tag"]) for chance in one.probabilities]
    middle = sorted(chances)[len(chances) // 2]
    answer = elman("predict", runs["tag"], "--threshold", f"{middle!r}", stdin=lines("tag"))
    tags = " ".join(answer.out.split("\n")).split()
    assert [tag == "?" for tag in tags] == [chance < middle for chance in chances]
    below = sum(chance < middle for chance in chances)
    assert f"{below} of {len(chances)} tags withheld" in answer.err
    found = model.predict(TEXTS["tag"], threshold=middle)
    assert [tag for one in found for tag in one] == tags
    top = elman("predict", runs["tag"], "--threshold", "1", "--top", "2", stdin=b"the cat\n").out
    assert top.startswith("? 0.")


@pytest.mark.parametrize("kind", [".csv", ".jsonl"])
def test_a_file_says_what_was_withheld(runs, tmp_path, kind):
    (tmp_path / "asked.txt").write_text("a dog\n", encoding="utf-8")
    out = tmp_path / f"out{kind}"
    answer = elman("predict", runs["classify"], tmp_path / "asked.txt", "--threshold", "1", "--output", out)
    assert answer.code == 0, answer.err
    text = out.read_text(encoding="utf-8")
    [said] = load(runs["classify"]).predict(["a dog"])
    if kind == ".jsonl":
        found = json.loads(text)
        assert (found["prediction"], found["withheld"]) == ("?", said)
    else:
        head, row = (line.split(",") for line in text.splitlines())
        cells = dict(zip(head, row, strict=True))
        assert (cells["prediction"], cells["withheld"]) == ("?", said)


@pytest.mark.parametrize("name", ["lm", "seq2seq", "class2seq"])
def test_where_nothing_is_chosen_it_has_no_meaning(runs, name):
    answer = elman("predict", runs[name], "--threshold", "0.9", stdin=lines(name))
    assert (answer.code, answer.out) == (2, "")
    assert f"is a {name} model, which chooses among no labels; it takes no threshold" in answer.err
    with pytest.raises(ArgumentError, match="takes no threshold"):
        load(runs[name]).predict(["it"], threshold=0.9)
    data = next(runs[name].parent.glob(f"{name}.*"))
    assert elman("evaluate", runs[name], data, "--threshold", "0.9").code == 2


@pytest.mark.parametrize("threshold", ["0", "1.5", "-1", "nan"])
def test_it_is_a_probability(runs, threshold):
    answer = elman("predict", runs["classify"], "--threshold", threshold, stdin=b"a dog\n")
    assert answer.code == 2
    assert "it must be above 0 and at most 1" in answer.err


def test_evaluation_tells_what_is_answered(runs):
    data = next(runs["classify"].parent.glob("classify.*"))
    found = json.loads(elman("evaluate", runs["classify"], data, "--json", "--threshold", "0.01").out)
    assert (found["coverage"], found["answered_accuracy"]) == (1.0, found["accuracy"])
    none = json.loads(elman("evaluate", runs["classify"], data, "--json", "--threshold", "1").out)
    assert (none["coverage"], none["answered_accuracy"]) == (0.0, None)
    assert len(DATA["classify"].splitlines()) == none["calibration_count"]
