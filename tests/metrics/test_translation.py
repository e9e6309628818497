"""Metrics of translation beside sacrebleu's own command, and the contract of all metrics."""

import json
import subprocess
import sys

import pytest

from elman.errors import ArgumentError, UnknownNameError
from elman.metrics.base import Metric
from elman.metrics.bleu import TOKENIZERS, Bleu
from elman.metrics.ter import Ter, quickly_edited
from elman.registry import METRICS, construct, register

NAMES = ("bleu", "chrf", "ter")


def scored(name, outputs, references, **options):
    """A metric that was given all outputs with their references."""
    metric = construct(METRICS.find(name), options=options, named="training.metric_options")
    for output, some in zip(outputs, references, strict=True):
        metric.add(output, some)
    return metric


OUTPUTS = ["Ein Hund läuft, schnell.", "Two men are sitting there", "", "Ja!", "the the the the"]
FIRST = ["Ein Hund läuft schnell.", "There, two men are sitting.", "Nothing here.", "Ja!", "the cat"]
SECOND = ["Der Hund rennt.", "Two men sit there", "Nothing", "Nein.", "a cat, the cat & the dog"]


def command_scores(folder, *references, tokenize):
    """What sacrebleu itself prints for files with these lines."""
    paths = []
    for number, lines in enumerate([OUTPUTS, *references]):
        paths.append(folder / f"{number}.txt")
        paths[-1].write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    output, *paths = map(str, paths)
    command = [*paths, "--input", output, "--metrics", *NAMES, "--tokenize", tokenize, "--width", "9"]
    run = subprocess.run(
        [sys.executable, "-m", "sacrebleu", *command], capture_output=True, check=True, text=True
    )
    names = ("BLEU", "chrF2", "TER")
    found = {one["name"]: one for one in json.loads(run.stdout)}
    return [(found[name]["score"], found[name]["signature"]) for name in names]


@pytest.mark.parametrize("tokenize", TOKENIZERS)
@pytest.mark.parametrize("several", [False, True])
def test_translation_scores_are_those_of_sacrebleus_command(tmp_path, several, tokenize):
    references = [FIRST, SECOND] if several else [FIRST]
    expected = command_scores(tmp_path, *references, tokenize=tokenize)
    for name, (score, signature) in zip(NAMES, expected, strict=True):
        options = {"tokenize": tokenize} if name == "bleu" else {}
        metric = scored(name, OUTPUTS, list(zip(*references, strict=True)), **options)
        assert metric.value() == pytest.approx(score, abs=1e-8)
        assert metric.signature == signature
        assert name != "bleu" or metric.notes() == []


def test_outputs_may_have_unequal_numbers_of_references():
    outputs = ["a b c d e", "p q r s"]
    references = [["a b c d x"], ["p q r s t", "p q r x t u v"]]
    metrics = {name: scored(name, outputs, references) for name in NAMES}
    values = {name: metric.value() for name, metric in metrics.items()}
    padded = [references[0] * 2, references[1]]
    # n-grams, closest length and best match do not change when a reference is repeated
    for name in ("bleu", "chrf"):
        assert values[name] == scored(name, outputs, padded).value()
    # TER: one edit each, over the mean lengths 5 and (5 + 7) / 2
    assert values["ter"] == pytest.approx(100 * 2 / 11)
    assert all(metric.signature.startswith("nrefs:var|") for metric in metrics.values())
    for name in NAMES:  # the first output has more
        assert scored(name, outputs[::-1], references[::-1]).value() == pytest.approx(values[name])


def test_an_empty_reference_is_one():
    metric = scored("ter", ["a b", "c d"], [["a b"], [""]])
    assert metric.value() == 100
    assert metric.signature.startswith("nrefs:1|")


def test_texts_that_are_split_already_are_noted_and_nothing_is_logged(caplog, capfd):
    split = ["a man sits ."] * 120
    references = [[text] for text in split]
    (note,) = scored("bleu", split, references).notes()
    assert note.startswith("120 of 120 outputs end in ' .'")
    assert scored("bleu", split, references, tokenize="none").notes() == []
    assert not hasattr(Ter, "notes")
    more = scored("bleu", ["It stops."] * 121 + split, [["It stops."]] * 121 + references)
    assert more.notes() == []
    for name in NAMES:
        scored(name, split, references).value()
    assert caplog.records == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", NAMES)
def test_translations_that_cannot_be_scored(name):
    with pytest.raises(ArgumentError, match=f"{name} has no outputs to judge"):
        scored(name, [], []).value()
    with pytest.raises(ArgumentError, match="references of output 2 are"):
        scored(name, ["a", "b"], [["a"], []])
    with pytest.raises(ArgumentError, match="references of output 1 are 'a'"):
        scored(name, ["a"], ["a"])


def test_names_that_nobody_has():
    with pytest.raises(UnknownNameError, match="no tokenizer named '13'; did you mean '13a'"):
        Bleu(tokenize="13")
    with pytest.raises(UnknownNameError, match="13a, char, intl, none, zh"):
        Bleu(tokenize="spm")
    with pytest.raises(UnknownNameError, match="no metric named 'chrf\\+\\+'; did you mean 'chrf'"):
        METRICS.find("chrf++")


def test_sacrebleu_is_imported_only_when_it_is_needed():
    names = ", ".join(f"elman.metrics.{name}" for name in ("sequences", *NAMES))
    code = f"import sys, {names}; print({{'sacrebleu', 'torch'}} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert run.stdout == "set()\n"


def test_long_texts_of_few_words_are_not_edited_quickly():
    few, many = " ".join(["run", "jump"] * 20), " ".join(map(str, range(40)))
    assert quickly_edited([["a b c"], ["run jump"]])
    assert not quickly_edited([[few]])
    spread = [[many], [" ".join(map(str, range(100, 200)))], [" ".join(map(str, range(400, 480)))]]
    assert quickly_edited(spread)
    assert not quickly_edited([[" ".join(map(str, range(500)))]])


# The contract.


@pytest.mark.parametrize("name", METRICS.names())
def test_a_metric_is_known_by_its_file_and_counts_from_nothing(name):
    kind = METRICS.find(name)
    assert issubclass(kind, Metric)
    assert kind.name == name
    one, other = kind(), kind()
    one.add("the cat sat on the mat", ["the cat sat on the mat"])
    other.add("dogs", ["the cat sat on the mat"])  # neither knows of the other
    assert isinstance(one.value(), float)
    assert (one.value() > other.value()) == kind.higher_is_better
    assert one.value() == one.value()
    one.add("dogs", ["the cat sat on the mat"])  # more may come after a value
    assert min(one.value(), other.value()) <= one.value() <= max(one.value(), other.value())


@pytest.mark.parametrize("name", METRICS.names())
def test_tokens_are_judged_as_the_text_of_them(name):
    text, tokens = METRICS.find(name)(), METRICS.find(name)()
    text.add("the cat sat", ["a cat sat", "the cat sits"])
    tokens.add(["the", "cat", "sat"], [["a", "cat", "sat"], ["the", "cat", "sits"]])
    assert text.value() == tokens.value()


class Longest(Metric):
    """How many tokens the longest output has beyond ``least``."""

    name = "longest"
    higher_is_better = False

    def __init__(self, *, least=0):
        self.least, self.found = least, 0

    def add(self, output, references):
        self.found = max(self.found, len(output))

    def value(self):
        return float(max(0, self.found - self.least))


def test_a_users_metric_and_its_options(monkeypatch):
    monkeypatch.setattr(METRICS, "_added", {})
    register("longest", Longest)
    assert METRICS.names() == ["bleu", "chrf", "longest", "ter"]
    assert scored("longest", [["a", "b", "c"], ["d"]], [[["a"]], [["d"]]], least=1).value() == 2.0
    with pytest.raises(
        ArgumentError, match=r"training\.metric_options has 'lest', unknown to Longest; did you"
    ):
        scored("longest", [], [], lest=1)


def test_a_metric_that_writes_nothing():
    assert Metric.higher_is_better
    with pytest.raises(NotImplementedError):
        Metric().add("a", ["a"])
    with pytest.raises(NotImplementedError):
        Metric().value()
