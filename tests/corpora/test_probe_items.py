"""The probes: the right word is the one that the sentence decides, by distance and attractors."""

import pytest

from elman.corpora import agreement, recall
from elman.corpora.base import split_of

PROBES = {"agreement": agreement.Agreement, "recall": recall.Recall}
PLURALS = {plural: singular for singular, plural in agreement.NOUNS}
SINGULARS = set(PLURALS.values())


@pytest.mark.parametrize("corpus", PROBES.values(), ids=PROBES)
def test_a_probe_is_drawn_with_a_seed_from_unseen_sentences_L5(corpus):
    items = corpus().probe(1, 300)
    assert len(items) == 300
    assert items == corpus().probe(1, 300)
    assert items != corpus().probe(2, 300)
    words = {word for example in corpus().examples("train") for word in example["text"].split()}
    assert 50 <= len(words) <= 150
    for item in items:
        assert {*item.prefix.split(), item.right, item.wrong} <= words
        assert item.right != item.wrong
    ends = agreement.ADJECTIVES if corpus is agreement.Agreement else ("",)
    for item in items:
        assert "test" in {split_of(f"{item.prefix} {item.right} {end}".strip()) for end in ends}


def test_the_verb_agrees_with_the_first_noun_L5():
    for item in agreement.Agreement().probe(1, 500):
        words = item.prefix.split()
        plural = words[1] in PLURALS
        assert item.right in {pair[plural] for pair in agreement.VERBS}
        assert (item.right, item.wrong)[:: -1 if plural else 1] in agreement.VERBS
        assert item.distance == len(words) - 2
        others = SINGULARS if plural else PLURALS
        assert item.attractors == sum(word in others for word in words)


def test_agreement_covers_distances_and_attractors_L5():
    items = agreement.Agreement().probe(1, 2000)
    assert {item.attractors for item in items} == {0, 1, 2, 3, 4}
    assert set(range(21)) - {1, 2} <= {item.distance for item in items}


def test_the_thing_was_named_once_at_the_start_L5():
    items = recall.Recall().probe(1, 500)
    kinds = [set(things) for things in recall.KINDS.values()]
    for item in items:
        words = item.prefix.split()
        assert words.count(item.right) == 1
        assert item.wrong not in words
        assert item.attractors == 0
        assert item.distance == len(words) - 1 - words.index(item.right)
        assert sum({item.right, item.wrong} <= kind for kind in kinds) == 1
    assert min(item.distance for item in items) == 5
    assert max(item.distance for item in items) > 35
