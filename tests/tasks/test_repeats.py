"""Texts that occur again: learned from once, while labels stay as frequent as they are."""

import pytest
import torch
from torch.nn import functional as F

from comparison import assert_close
from elman.tasks.repeats import Repeats
from tiny_tasks import CPU, ready

AGAIN = "a b\tx\n" * 6 + "b a\ty\nc\tz\nb b\ty\nc a\tx\nc a\ty\nb b\tz\nb b\ty\n"


def test_every_text_is_there_once_with_the_label_that_it_mostly_has(tmp_path):
    one = ready("classify", tmp_path, data=AGAIN)
    found = Repeats.find(one.examples, 3)
    assert found.first.tolist() == [0, 6, 7, 8, 9, 10]  # c a has two labels as often; b b is z only once
    labels = [one.task.labels.names.index(label) for label in "xyzyxy"]
    learned = torch.bincount(torch.tensor(labels), minlength=3) / 6
    every = torch.tensor([{"x": 7, "y": 4, "z": 2}[name] for name in one.task.labels.names]) / 13
    assert_close({"shift": found.shift}, {"shift": every.log() - learned.log()}, 1e-6)


def test_what_is_chosen_says_why(tmp_path):
    one = ready("classify", tmp_path, data=AGAIN)
    assert one.task.config.training.repeats == "once"
    assert one.statistics.reasons["training.repeats"] == "since 8 of 13 texts occur again"
    assert ready("classify", tmp_path, data="a b\tx\nb a\ty\n").task.config.training.repeats == "all"


@pytest.mark.parametrize("repeats", ["all", "once"])
def test_an_epoch_has_all_texts_or_each_once(repeats, tmp_path):
    one = ready("classify", tmp_path, {"training.repeats": repeats}, data=AGAIN)
    batches = one.task.epoch(one.examples, 0)
    seen = sorted(place for batch in batches for place in batch.tolist())
    assert seen == (list(range(13)) if repeats == "all" else [0, 6, 7, 8, 9, 10])
    assert batches.examples == len(seen)


def test_scores_mean_what_they_mean_among_all_texts(tmp_path):
    """softmax(scores - shift) is what is true of the texts that are learned from."""
    one = ready("classify", tmp_path, data=AGAIN)
    key, *_ = one.task.epoch(one.examples, 0)
    batch = one.task.collate(one.examples, key, CPU)
    shift = Repeats.find(one.examples, 3).shift
    expected = F.cross_entropy(one.model(batch.words) - shift, batch.labels, reduction="sum")
    assert_close({"loss": one.task.loss(one.model, batch).total}, {"loss": expected}, 1e-6)


def test_the_shortcut_knows_how_frequent_labels_are(tmp_path):
    one = ready("classify", tmp_path, {"model.shortcut": True}, data=AGAIN)
    one.task.companion.fit(one.model, one.examples)
    shortcut = one.model.shortcut
    assert int(shortcut.texts) == 6
    unknown = one.task.beside._ngrams.of_all(["zzz"])
    bayes = shortcut(unknown)[0, 1].exp().tolist()
    assert bayes == pytest.approx([7 / 13, 4 / 13, 2 / 13], abs=0.03)  # x, y, z: smoothed a little
