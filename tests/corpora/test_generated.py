"""What single corpora promise beyond the contract."""

import sys

import pytest

from elman.corpora import brackets
from elman.corpora.places import LANGUAGES
from elman.corpora.python_tokens import labelled
from elman.errors import ArgumentError
from elman.registry import CORPORA


def examples(name, split="dev"):
    return list(CORPORA.find(name)().examples(split))


def test_the_worked_example_G3():
    corpus = CORPORA.find("worked_example")()
    words = corpus.settings["text.vocabulary"]
    places = {word: place for place, word in enumerate(words, 1)}
    assert len(places) == len(words) == 22
    assert [places[word] for word in ("i", "love", "my", "cat", "<start>", "<end>")] == [
        11,
        15,
        16,
        6,
        21,
        22,
    ]
    assert [tuple(example.values()) for example in corpus.examples("train")] == [
        ("I", "love my cat"),
        ("cats", "and dogs lap water"),
        ("it", "is raining cats and dogs"),
    ]
    assert all(places.keys() >= set(e["sequence"].split()) for e in corpus.examples("test"))


def test_brackets_close_what_is_open():
    deepest = 0
    for example in examples("brackets"):
        stack = []
        for bracket in example["text"].split():
            if bracket in "([{":
                stack.append(bracket)
                deepest = max(deepest, len(stack))
            else:
                assert (stack.pop(), bracket) in brackets.PAIRS
        assert stack == []
    assert deepest == brackets.DEEPEST


def test_places_know_every_language():
    pytest.importorskip("babel")
    pairs = [(e["text"], e["label"]) for e in examples("places", "train")]
    assert len(dict(pairs)) == len(pairs) > 10_000
    assert len({label for _, label in pairs}) == len(LANGUAGES) == 22
    everything = {pair for split in ("train", "dev", "test") for pair in places_of(split)}
    assert {("Deutschland", "German"), ("ドイツ", "Japanese"), ("Saksa", "Finnish")} <= everything


def places_of(split):
    return {(e["text"], e["label"]) for e in examples("places", split)}


def test_places_without_babel_name_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "babel", None)
    with pytest.raises(ArgumentError, match=r"corpus 'places' needs Babel; pip install elman\[demo\]"):
        examples("places")


def tags(line):
    _, found = next(labelled(line))
    return "".join(tag[0] for tag in found)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("if x_1 >= 0x1F:  # no", "kksnnnsoosnnnnosscccc"),
        ("a = f'{b!r:>{width}} {c}' + rb'x'", "nsos" + 21 * "s" + "sos" + 5 * "s"),
        ("x = y or \\\n1", "nsosnskkso"),
        ("match = None", "nnnnnsoskkkk"),
    ],
)
def test_each_character_has_the_class_of_its_token(line, expected):
    assert tags(line) == expected


def test_lines_of_a_longer_token_are_left_out():
    assert [line for line, _ in labelled('a = """b\nc = 1\n"""\n\nd = 2\n')] == ["d = 2"]


def test_topics_are_sentences():
    for example in examples("topics", "train"):
        text = example["text"]
        assert text[0].isupper()
        assert text[-1] in ".?!"
        assert "  " not in text
        assert "*" not in text
