"""``elman doctor``: every finding from a small made file, the exit codes, and what training would say."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from elman.cli.main import app
from elman.cli.training import collect
from elman.errors import ElmanError
from elman.training.preparing import prepare
from elman.training.settings import make_task

NOUNS = ["film", "book", "song", "play", "meal", "trip", "game", "team", "show", "talk"]
PLACES = ["home", "town", "school", "work", "sea", "park", "night", "lunch", "dusk", "dawn"]


def texts(number: int = 100) -> list[str]:
    """Different texts, of which nothing strange can be said."""
    words = [(NOUNS[i % 10], PLACES[i // 10 % 10]) for i in range(number)]
    return [f"the {noun} that we saw at {place} was fine" for noun, place in words]


def labelled(number: int = 100) -> list[str]:
    return [f"{text}\t{'good' if i % 2 else 'bad'}" for i, text in enumerate(texts(number))]


def write(path: Path, lines: list[str]) -> str:
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return str(path)


def doctor(*words: str) -> tuple[int, dict]:
    done = CliRunner().invoke(app, ["doctor", *words, "--json"])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, json.loads(done.stdout)


def found(report: dict, code: str) -> dict:
    [one] = [one for one in report["findings"] if one["code"] == code]
    assert one["remedy"].endswith(".")
    assert one["sentence"].endswith(".") or one["severity"] == "error"
    return one


def conll(sentences: list[str]) -> list[str]:
    """ "Rome/B-loc is/O" as a word a line."""
    return [line for one in sentences for line in [*(word.replace("/", "\t") for word in one.split()), ""]]


def test_a_clean_file_has_nothing(tmp_path):
    path = write(tmp_path / "train.tsv", labelled(80))
    dev = write(tmp_path / "dev.tsv", labelled(100)[80:])
    code, report = doctor(path, "--task", "classify", "--dev", dev)
    assert code == report["exit_code"] == 0
    assert report["findings"] == []
    assert report["labels"] == {"bad": 40, "good": 40}
    assert report["read"]["train"]["examples"] == 80
    assert report["texts"]["text"]["median"] == 9
    assert report["chosen"]["model.hidden"] == 128
    done = CliRunner().invoke(app, ["doctor", path, "--task", "classify"])
    assert done.exit_code == 0
    assert "80 examples" in done.stdout
    assert done.stdout.endswith("Nothing to worry about.\n")


CLASSIFY = {
    "conflict": ([*labelled(), *(line.replace("good", "bad") for line in labelled()[1:7:2])], 3),
    "duplicate": ([*labelled(), *labelled()[:10]], 10),
    "rare-label": ([*labelled(), "a very strange thing indeed\todd"], 1),
    "similar-labels": ([*labelled(), *(f"{i} more of the same\tGood" for i in range(9))], 1),
    "encoding": ([*labelled(), *(f"caf\N{REPLACEMENT CHARACTER} number {i}\tgood" for i in range(9))], 9),
    "imbalance": ([f"{text}\t{'bad' if i > 1 else 'good'}" for i, text in enumerate(texts())], 1),
    "swapped-columns": (["\t".join(reversed(line.split("\t"))) for line in labelled()], 1),
    "many-labels": ([f"{text}\tlabel{i}" for i, text in enumerate(texts())], 1),
    "one-word": ([f"name{i}\t{'ab'[i % 2]}" for i in range(100)], 100),
    "unspaced": ([f"今天的天气非常好我们去公园{i}号\t{'ab'[i % 2]}" for i in range(100)], 100),
    "header": (["Satz\tKlasse", *labelled()], 1),
}


@pytest.mark.parametrize("code", CLASSIFY)
def test_what_is_wrong_with_labelled_texts_is_a_warning(code, tmp_path):
    lines, count = CLASSIFY[code]
    words = ("--set", "text.unit=word") if code in ("one-word", "unspaced") else ()  # not what is chosen
    exit_code, report = doctor(write(tmp_path / "train.tsv", lines), "--task", "classify", *words)
    one = found(report, code)
    assert (exit_code, one["severity"], one["count"]) == (1, "warning", count)
    assert len(one["places"]) <= 3
    done = CliRunner().invoke(app, ["doctor", str(tmp_path / "train.tsv"), "--task", "classify", *words])
    assert f"warning  {code}:" in done.stdout


def test_small_oddities_are_notes(tmp_path):
    long = " ".join(["word"] * 400)
    more = [
        "...\tgood",
        f"{long}\tbad",
        "a pаypal of two scripts\tgood",
        "THE film  that we saw at home was fine\tbad",
    ]
    data = "\r\n".join([*labelled(), *more, ""])
    (tmp_path / "train.tsv").write_bytes(b"\xef\xbb\xbf" + data.encode())
    code, report = doctor(str(tmp_path / "train.tsv"), "--task", "classify")
    assert {one["code"]: one["severity"] for one in report["findings"]} == dict.fromkeys(
        ["repaired", "empty", "long", "mixed-scripts", "near-duplicate"], "note"
    )
    assert code == 0
    assert found(report, "long")["places"][0]["line"] == 102
    assert "byte order mark removed" in found(report, "repaired")["sentence"]
    assert found(report, "near-duplicate")["places"][0]["line"] == 104


def test_places_name_both_lines_of_a_conflict(tmp_path):
    _, report = doctor(write(tmp_path / "a.tsv", CLASSIFY["conflict"][0]), "--task", "classify")
    place = found(report, "conflict")["places"][0]
    assert place["line"] == 101
    assert "line 2" in place["excerpt"]


def test_remedies_name_the_columns_that_there_are(tmp_path):
    lines = ["\t".join(reversed(line.split("\t"))) for line in labelled()]
    _, report = doctor(write(tmp_path / "a.tsv", lines), "--task", "classify")
    assert "--columns text=1,label=0" in found(report, "swapped-columns")["remedy"]
    named = ["label,review", *(line.replace("\t", ",") for line in lines)]
    _, report = doctor(write(tmp_path / "a.csv", named), "--task", "classify")
    assert "--columns text=review,label=label" in found(report, "swapped-columns")["remedy"]


def test_validation_data_are_compared_with_training(tmp_path):
    path = write(tmp_path / "train.tsv", labelled(80))
    other = [f"wholly unheard combinations everywhere number{i}\tgood" for i in range(20)]
    lines = [*labelled(5), *other, "the film that pleased\tstrange"]
    code, report = doctor(path, "--task", "classify", "--dev", write(tmp_path / "dev.tsv", lines))
    assert code == 1
    assert found(report, "leakage")["count"] == 5
    assert found(report, "unseen-label")["places"] == [
        {"path": str(tmp_path / "dev.tsv"), "line": 26, "excerpt": "strange"}
    ]
    assert found(report, "unknown-words")["severity"] == "warning"


REFUSED = {
    "E405": ("classify", ["a fine film\tgood", "no label here", "b\tbad"]),
    "E406": ("classify", ["a fine film\tgood", "\tbad"]),
    "E411": ("classify", ["a fine film\tgood", "a fine book\tgood"]),
    "E403": ("classify", ["a fine film\tgood", "caf\udce9\tbad"]),
    "E408": ("tag", ['{"words": ["a", "b"], "tags": ["O"]}']),
    "E409": ("tag", ["{not JSON"]),
}


@pytest.mark.parametrize("number", REFUSED)
def test_what_training_refuses_is_an_error_with_its_message(number, tmp_path):
    task, lines = REFUSED[number]
    path = tmp_path / ("train.jsonl" if task == "tag" else "train.tsv")
    path.write_bytes("\n".join(lines).encode("utf-8", "surrogateescape"))
    with pytest.raises(ElmanError) as trained:
        prepare(make_task(collect(task, None, {"train": [str(path)]}, None, [], None)))
    code, report = doctor(str(path), "--task", task)
    one = report["findings"][0]
    assert (one["severity"], one["code"], one["sentence"]) == ("error", number, str(trained.value))
    assert code == trained.value.exit_code == 3
    done = CliRunner().invoke(app, ["doctor", str(path), "--task", task])
    assert str(trained.value) in done.stdout
    assert "would stop" in done.stdout


def test_a_mistake_in_the_validation_data_is_found_too(tmp_path):
    path, dev = write(tmp_path / "a.tsv", labelled()), write(tmp_path / "dev.tsv", ["x\ty", "z"])
    code, report = doctor(path, "--task", "classify", "--dev", dev)
    assert code == 3
    assert report["findings"][0]["places"][0]["path"] == dev
    others = write(tmp_path / "dev.tsv", ["one text\tx", "two texts\ty"])
    code, report = doctor(path, "--task", "classify", "--dev", others)
    assert code == 3
    assert found(report, "E407")


def test_a_file_that_is_not_there_is_a_finding_and_a_wrong_option_is_not(tmp_path):
    code, report = doctor(str(tmp_path / "none.tsv"), "--task", "classify")
    assert code == 3
    assert report["findings"][0]["code"] == "E402"
    path = write(tmp_path / "a.tsv", labelled())
    done = CliRunner().invoke(app, ["doctor", path, "--task", "clasify"])
    assert isinstance(done.exception, ElmanError)


SENTENCES = ["Ann/B-per Lee/I-per lives/O in/O Rome/B-loc", "she/O sees/O Oslo/B-loc and/O Bob/B-per"]
SPANS = {
    "begins without B-": ["He/O saw/O Rome/I-loc with/O Ann/B-per"],
    "as another type": ["Ann/B-per Lee/I-loc lives/O in/O Rome/B-loc"],
    "neither O nor": ["Ann/B-per sees/0 Rome/B-loc and/O waits/O"],
}


@pytest.mark.parametrize("kind", SPANS)
def test_tags_that_break_their_scheme(kind, tmp_path):
    lines = conll([*SENTENCES * 30, *SPANS[kind]])
    code, report = doctor(write(tmp_path / "a.conll", lines), "--task", "tag")
    one = found(report, "span-scheme")
    assert code == 1
    assert kind in one["sentence"]
    assert one["count"] == 1
    assert lines[one["places"][0]["line"] - 1].startswith(("Rome", "Lee", "sees"))


def test_the_scheme_of_tags_is_told(tmp_path):
    schemes = {
        "IOB2": SENTENCES,
        "IOB1": [one.replace("B-", "I-") for one in SENTENCES],
        "BIOES": ["Ann/B-per Lee/E-per lives/O in/O Rome/S-loc"],
        None: ["a/DET cat/NOUN sees/VERB"],
    }
    for name, sentences in schemes.items():
        _, report = doctor(write(tmp_path / "a.conll", conll(sentences * 30)), "--task", "tag")
        assert report["scheme"] == name
        assert ("span-scheme" in {one["code"] for one in report["findings"]}) == (name == "IOB1")


def test_sentences_of_one_word_and_tags_of_validation_alone(tmp_path):
    path = write(tmp_path / "a.conll", conll([*SENTENCES, *["so/O"] * 10]))
    dev = write(tmp_path / "b.conll", conll(["a/O fine/O day/O in/O May/B-time"]))
    code, report = doctor(path, "--task", "tag", "--dev", dev)
    assert found(report, "single-words")["count"] == 10
    assert found(report, "unseen-label")["places"][0]["line"] == 5
    assert code == 1


def test_pairs_that_do_not_belong_together(tmp_path):
    pairs = [f"{text}\t{text.replace('the', 'die').replace('saw', 'sahen')}" for text in texts()]
    pairs += [f"{texts()[0]} again\tja"] * 1
    pairs += ["a line that nobody ever translated\ta line that nobody ever translated"] * 1
    pairs += [f"{texts()[1]}\teine andere Fassung davon ist dies hier"]
    code, report = doctor(write(tmp_path / "a.tsv", pairs), "--task", "seq2seq")
    assert code == 0
    assert found(report, "length-ratio")["places"][0]["line"] == 101
    assert found(report, "identical")["places"][0]["line"] == 102
    assert found(report, "several-targets")["places"][0]["line"] == 103


def test_running_text(tmp_path):
    lines = ["Well, this is it.", "", *(f"Here, word{i} comes once." for i in range(50))]
    path = write(tmp_path / "a.txt", lines)
    code, report = doctor(path, "--task", "lm", "--set", "text.unit=word")
    assert code == 0
    assert {one["code"] for one in report["findings"]} == {"raw-text", "once-only"}
    assert report["texts"]["text"]["raw"] is True
    code, report = doctor(path, "--task", "lm")
    assert (code, report["findings"]) == (0, [])
    assert report["reasons"]["text.unit"].startswith("since the text is raw and ")


def test_a_script_without_spaces_is_no_matter_where_the_unit_is_chosen(tmp_path):
    lines, _ = CLASSIFY["unspaced"]
    code, report = doctor(write(tmp_path / "train.tsv", lines), "--task", "classify")
    assert (code, report["findings"]) == (0, [])
    assert report["chosen"]["text.unit"] == "wordpunct"


def test_the_unit_that_training_chooses_is_told_with_its_reason(tmp_path):
    path = write(tmp_path / "names.tsv", [f"name{i}\t{'ab'[i % 2]}" for i in range(100)])
    done = CliRunner().invoke(app, ["doctor", path, "--task", "classify"])
    assert "text.unit: character, since 100 % of the texts are single words\n" in done.stdout
    _, report = doctor(path, "--task", "classify")
    task = make_task(collect("classify", None, {"train": [path]}, None, [], None))
    prepared = prepare(task)
    assert report["chosen"]["text.unit"] == task.config.text.unit == "character"
    assert report["reasons"]["text.unit"] == prepared.statistics.reasons["text.unit"]


LAYOUTS = {
    "tabs": ("a.tsv", labelled(), ("--task", "classify")),
    "commas": (
        "a.csv",
        ["text,label", *(one.replace("\t", ",") for one in labelled())],
        ("--task", "classify"),
    ),
    "named": (
        "a.csv",
        ["id;body;kind", *(f"{i};{one.replace(chr(9), ';')}" for i, one in enumerate(labelled()))],
        ("--task", "classify", "--delimiter", ";", "--columns", "text=body,label=kind"),
    ),
    "spaces": (
        "a.txt",
        [" ".join(reversed(one.split("\t"))) for one in labelled()],
        ("--task", "classify", "--delimiter", "space", "--columns", "label=0,text=1"),
    ),
    "json": (
        "a.jsonl",
        [json.dumps(dict(zip(("text", "label"), one.split("\t"), strict=True))) for one in labelled()],
        ("--task", "classify"),
    ),
    "several labels": (
        "a.tsv",
        [one.replace("good", "good|new") for one in labelled()],
        ("--task", "classify", "--labels-separator", "|"),
    ),
    "columns": ("a.conll", conll(SENTENCES * 30), ("--task", "tag")),
    "conllu": (
        "a.conllu",
        [
            f"{i}\t{word}\t_\tNOUN\t_\t_\t_\t_\t_\t_"
            for i, word in enumerate(["so", "many", "fine", "words"], 1)
        ]
        + ["", "1\tgo\t_\tVERB\t_\t_\t_\t_\t_\t_"],
        ("--task", "tag"),
    ),
    "separated": (
        "a.txt",
        [f"IN: {one} OUT: {one.upper()} x" for one in texts()],
        ("--task", "seq2seq", "--separator", " OUT: ", "--prefix", "IN: "),
    ),
    "lines": ("a.txt", texts(), ("--task", "lm", "--format", "lines")),
    "classes": (
        "a.tsv",
        ["\t".join(reversed(one.split("\t"))) for one in labelled()],
        ("--task", "class2seq"),
    ),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_is_read(name, tmp_path):
    file, lines, options = LAYOUTS[name]
    code, report = doctor(write(tmp_path / file, lines), *options)
    assert code in (0, 1)
    assert not [one for one in report["findings"] if one["severity"] == "error"]
    assert report["read"]["train"]["examples"] > 1
    assert report["read"]["train"]["layout"]


def test_two_files_an_encoding_and_a_corpus(tmp_path):
    source = write(tmp_path / "a.en", texts())
    target = write(tmp_path / "a.de", [f"{one} ja" for one in texts()])
    assert doctor(source, "--target", target, "--task", "seq2seq")[0] == 0
    (tmp_path / "latin.tsv").write_bytes("\n".join(f"é{one}" for one in labelled()).encode("latin-1"))
    assert doctor(str(tmp_path / "latin.tsv"), "--task", "classify", "--encoding", "latin-1")[0] == 0
    assert doctor("builtin:worked_example", "--task", "class2seq")[0] == 0


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_a_picture_is_drawn(ending, tmp_path):
    out = tmp_path / f"lengths.{ending}"
    path = write(tmp_path / "a.tsv", labelled())
    done = CliRunner().invoke(app, ["doctor", path, "--task", "classify", "--picture", str(out)])
    assert done.exit_code == 0
    assert out.stat().st_size > 1000
    wrong = CliRunner().invoke(app, ["doctor", path, "--task", "classify", "--picture", "a.gif"])
    assert isinstance(wrong.exception, ElmanError)
