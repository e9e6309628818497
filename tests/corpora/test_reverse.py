"""The reversed strings: every length, each string once, and nothing but the letters."""

from collections import Counter

from elman.corpora.reverse import LETTERS, LONGEST, SIZES, Reverse


def test_the_target_is_the_source_backwards():
    for example in Reverse().examples("dev"):
        assert list(example["target"]) == list(reversed(example["source"]))
        assert set(example["source"]) <= set(LETTERS)


def test_every_length_can_be_judged_A6():
    """Quality by length needs all lengths in training and enough strings of each in the test."""
    splits = {split: [example["source"] for example in Reverse().examples(split)] for split in SIZES}
    for split, sources in splits.items():
        assert len(set(sources)) == len(sources) == SIZES[split]
    assert {len(source) for source in splits["train"]} == set(range(1, LONGEST + 1))
    lengths = Counter(map(len, splits["test"]))
    assert max(lengths) == LONGEST
    assert all(lengths[length] >= 25 for length in range(3, LONGEST + 1))  # shorter ones are too few
