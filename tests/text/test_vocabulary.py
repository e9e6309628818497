"""A vocabulary is the same for the same counts, and what was saved comes back."""

import json
import random
import subprocess
import sys
from collections import Counter

import pytest

from elman.errors import ArgumentError, ElmanError, RunError
from elman.text.counts import Counts, packed, unpacked
from elman.text.vocabulary import END, MARKERS, PAD, START, UNKNOWN, Vocabulary


def test_the_markers_have_the_first_four_numbers():
    vocabulary = Vocabulary.build({"a": 1})
    assert [vocabulary.id(marker) for marker in (PAD, UNKNOWN, START, END)] == [0, 1, 2, 3]
    assert vocabulary.tokens == [*MARKERS, "a"]


def test_by_falling_count_then_by_text():
    counts = {"z": 5, "b": 2, "a": 2, "é": 2, "once": 1}
    assert Vocabulary.build(counts, markers=()).tokens == ["z", "a", "b", "é", "once"]
    assert Vocabulary.build(counts, markers=(), min_count=2).tokens == ["z", "a", "b", "é"]
    assert Vocabulary.build(counts, size=6).tokens == [*MARKERS, "z", "a"]
    assert Vocabulary.build({}).tokens == list(MARKERS)


def test_the_order_of_counting_does_not_matter():
    chance = random.Random(3)
    counts = {f"w{number}": chance.randint(1, 5) for number in range(200)}
    shuffled = list(counts.items())
    chance.shuffle(shuffled)
    assert Vocabulary.build(dict(shuffled), size=100).tokens == Vocabulary.build(counts, size=100).tokens


def test_the_same_in_every_process():
    code = (
        "from elman.text.vocabulary import Vocabulary\n"
        "counts = {f'w{n}': n % 7 for n in range(300)}\n"
        "print(Vocabulary.build(counts, min_count=2, size=90, alphabet={'w0', 'w7', 'x', 'y'}).tokens)"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(outputs) == 1


def test_the_alphabet_is_in_whatever_the_counts():
    counts = {"ab": 9, "cd": 8, "a": 1}
    vocabulary = Vocabulary.build(counts, min_count=5, alphabet=["b", "a"])
    assert vocabulary.tokens == [*MARKERS, "ab", "cd", "a", "b"]
    assert Vocabulary.build(counts, size=7, alphabet=["b", "a"]).tokens == [*MARKERS, "ab", "a", "b"]
    with pytest.raises(
        ArgumentError, match="size is 5; 4 markers and an alphabet of 2 tokens take at least 6"
    ):
        Vocabulary.build(counts, size=5, alphabet=["b", "a"])


def test_tokens_spelt_like_a_marker_are_the_marker():
    vocabulary = Vocabulary.build({"<unk>": 50, "</s>": 9, "the": 20})
    assert vocabulary.tokens == [*MARKERS, "the"]
    assert vocabulary.ids(["the", "<unk>", "</s>"]) == [4, 1, 3]


def test_unknown_tokens():
    words = Vocabulary.build({"the": 2})
    assert words.id("cat") == words.id(UNKNOWN) == 1
    assert words.ids(["cat", "the", ""]) == [1, 4, 1]
    labels = Vocabulary.build({"NOUN": 3, "VERB": 2}, markers=())
    assert labels.ids(["VERB", "NOUN"]) == [1, 0]
    for ask in (lambda: labels.id("NOUNS"), lambda: labels.ids(["VERB", "NOUNS"])):
        with pytest.raises(KeyError, match="did you mean 'NOUN'"):
            ask()
    with pytest.raises(ElmanError):
        labels.id("X")


def test_length_and_membership():
    vocabulary = Vocabulary(["a", "b"])
    assert len(vocabulary) == 2
    assert "a" in vocabulary
    assert "c" not in vocabulary
    assert vocabulary.index == {"a": 0, "b": 1}


@pytest.mark.parametrize(
    ("tokens", "problem"),
    [(["a", "b", "a"], "has 'a' twice, at 0 and 2"), (["a", 3], "token 1 of a vocabulary is 3")],
)
def test_mistakes(tokens, problem):
    with pytest.raises(ArgumentError, match=problem):
        Vocabulary(tokens)
    with pytest.raises(RunError, match=problem):
        Vocabulary.from_json(tokens)


def test_saved_and_restored():
    vocabulary = Vocabulary.build({"naïve": 3, "😀": 2, "\u0301": 1, " ": 1})
    restored = Vocabulary.from_json(json.loads(json.dumps(vocabulary.tokens)))
    assert restored.tokens == vocabulary.tokens
    assert restored.index == vocabulary.index


@pytest.mark.parametrize("damaged", [None, {}, "abc", {"tokens": []}])
def test_a_damaged_file_is_named_as_such(damaged):
    with pytest.raises(RunError, match="saved vocabulary"):
        Vocabulary.from_json(damaged)


@pytest.mark.parametrize("most", [1, 7, 1000])
def test_counts_in_little_memory_are_those_of_a_counter(most):
    chance = random.Random(most)
    letters = "aé\n \N{GRINNING FACE}"
    tokens = [f"{chance.choice(letters)}{int(chance.paretovariate(0.5))}" for _ in range(2000)]
    plain, counts = Counter(tokens), Counts(most=most)
    for start in range(0, 1000, 10):
        counts.update(tokens[start : start + 10])
        assert len(counts._held) <= most
    assert counts["a1"] == Counter(tokens[:1000])["a1"]  # and more come after it
    counts.add(Counter(tokens[1000:1500]).items())
    for start in range(1500, 2000, 100):
        counts.join(json.loads(json.dumps(packed(Counter(tokens[start : start + 100])))))
    assert len(counts._held) <= most
    assert (len(counts), counts.total(), dict(counts.items())) == (len(plain), plain.total(), plain)
    assert counts.of(["a1", "nowhere", "é2"]) == [plain["a1"], 0, plain["é2"]]
    for options in ({"size": 30}, {"min_count": 3}, {"size": 12, "alphabet": ["a1", "never"]}, {}):
        assert Vocabulary.build(counts, **options).tokens == Vocabulary.build(plain, **options).tokens


@pytest.mark.parametrize("tokens", [[], [""], [" "], ["a"], ["a", ""], ["a b", "c"], ["\n", "\0", "é"]])
def test_packed_counts_come_back(tokens):
    counts = dict.fromkeys(tokens, 2)
    names, numbers = unpacked(json.loads(json.dumps(packed(counts))))
    assert dict(zip(names, numbers, strict=True)) == counts
