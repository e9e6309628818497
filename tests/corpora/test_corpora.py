"""Every built-in corpus keeps the contract: its fields, three disjoint splits, the same bytes for a seed."""

import hashlib
import json
import os
import subprocess
import sys
from functools import cache

import pytest

from elman.corpora.base import SPLITS, Corpus
from elman.errors import ArgumentError
from elman.registry import CORPORA

NAMES = CORPORA.names()
FIXED = {"worked_example"}  # the same three examples in every split, whatever the seed
FIELDS = {
    "lm": {"text": str},
    "classify": {"text": str, "label": str},
    "tag": {"word": list, "tag": list},
    "class2seq": {"class": str, "sequence": str},
    "seq2seq": {"source": str, "target": str},
}
DIGEST = """
import hashlib, json, sys
from elman.registry import CORPORA
for name in sys.argv[1:]:
    examples = list(CORPORA.find(name)().examples("dev"))
    print(name, hashlib.sha256(json.dumps(examples).encode()).hexdigest())
"""


@cache
def examples(name, split, seed=1):
    return list(CORPORA.find(name)().examples(split, seed))


def texts(name, split, seed=1):
    """What a model reads of each example: no two splits may share it."""
    field = next(iter(FIELDS[CORPORA.find(name).task]))
    return {str(example[field]) for example in examples(name, split, seed)}


def test_the_corpora_are_these():
    expected = ["agreement", "brackets", "dates", "places", "python_tokens", "recall", "reverse", "topics"]
    assert [*expected, "worked_example"] == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_corpus_says_what_it_is(name):
    corpus = CORPORA.find(name)
    assert issubclass(corpus, Corpus)
    assert corpus.task in FIELDS
    assert corpus.summary
    assert "\n" not in corpus.summary
    assert all("." in key for key in corpus.settings)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("split", SPLITS)
def test_the_fields_are_those_of_the_task(name, split):
    kinds = FIELDS[CORPORA.find(name).task]
    assert examples(name, split)
    for example in examples(name, split):
        assert {field: type(value) for field, value in example.items()} == kinds
        for value in example.values():
            assert value
            assert "\n" not in value
        if "tag" in example:
            assert len(example["word"]) == len(example["tag"])


@pytest.mark.parametrize("name", [name for name in NAMES if name not in FIXED])
def test_splits_are_disjoint_even_for_other_seeds(name):
    for seed in (1, 2):
        assert not texts(name, "train") & texts(name, "dev", seed)
        assert not texts(name, "train") & texts(name, "test", seed)
        assert not texts(name, "dev") & texts(name, "test", seed)


@pytest.mark.parametrize("name", NAMES)
def test_a_seed_decides_everything(name):
    assert examples(name, "dev") == list(CORPORA.find(name)().examples("dev", 1))
    assert (examples(name, "dev") == examples(name, "dev", 2)) == (name in FIXED)


def test_nothing_hangs_on_the_order_of_hashes_or_of_corpora():
    """Two corpora read the data of Babel, which mixes up languages for those who are not careful."""
    environment = os.environ | {"PYTHONHASHSEED": "7"}
    command = [sys.executable, "-c", DIGEST, *reversed(NAMES)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found = dict(line.split() for line in done.stdout.split("\n") if line)
    for name in NAMES:
        digest = hashlib.sha256(json.dumps(examples(name, "dev")).encode()).hexdigest()
        assert found[name] == digest


@pytest.mark.parametrize(
    ("split", "seed", "message"),
    [
        ("validation", 1, "split is 'validation'; it must be one of 'train', 'dev', 'test'"),
        ("dev", "1", "seed is '1'; it must be a whole number"),
        ("dev", True, "seed is True; it must be a whole number"),
    ],
)
def test_a_wrong_argument_is_named(split, seed, message):
    with pytest.raises(ArgumentError, match=message):
        CORPORA.find("brackets")().examples(split, seed)
