"""The linear tagger beside the network: neighbours count, padding does not, and each learns by itself."""

import pytest
import torch

from elman.models.tagger import LinearTagger
from elman.text.vocabulary import MARKERS
from tiny_tasks import ready

BOTH = {"model.shortcut": True, "model.affixes": 6}


def test_a_table_is_smaller_where_tags_are_many():
    sizes = {K: LinearTagger(["a"], K).weight.shape for K in (3, 17, 72, 5000)}
    assert [rows for rows, _ in sizes.values()] == [2**18, 2**17, 2**15, 2**9]
    assert all(rows * K <= LinearTagger.MOST_WEIGHTS for K, (rows, _) in sizes.items())


def filled(one):
    with torch.no_grad():
        for weight in one.model.parameters():
            weight.normal_()
    return one.model.eval()


@pytest.mark.parametrize("crf", [True, False])
def test_scores_are_the_mean_of_two_that_are_trained_by_themselves(crf, tmp_path):
    one = ready("tag", tmp_path, BOTH | {"model.crf": crf})
    model = filled(one)
    network, linear = model.experts(one.batch.words)
    torch.testing.assert_close(model(one.batch.words), (network + linear) / 2)
    model.shortcut.share.fill_(0.25)
    torch.testing.assert_close(model(one.batch.words), 0.75 * network + 0.25 * linear)
    together = one.task.loss(model, one.batch).total
    shortcut, model.shortcut = model.shortcut, None
    alone = one.task.loss(model, one.batch).total
    model.experts = lambda words: [shortcut(words)]
    torch.testing.assert_close(together, (alone + one.task.loss(model, one.batch).total) / 2)
    if not crf:  # which both share
        together.backward()
        of_both = shortcut.weight.grad.clone()
        shortcut.weight.grad = None
        one.task.loss(model, one.batch).total.backward()
        torch.testing.assert_close(of_both, shortcut.weight.grad / 2)


@pytest.mark.parametrize("crf", [True, False])
def test_validation_data_decide_how_much_it_counts(crf, tmp_path):
    """One of both knows all tags, the other none."""
    one = ready("tag", tmp_path, BOTH | {"model.crf": crf})
    tags = torch.nn.functional.one_hot(one.batch.tags.clamp(min=0), len(one.task.labels.names)).float()
    right, wrong = 3 * tags, 3 * (1 - tags)
    shares = []
    for experts in ([right, wrong], [wrong, right], [right, right]):
        one.task.companion._batches = lambda *_: [one.batch] * 50
        one.model.experts = lambda _, experts=experts: experts
        one.task.companion.weigh(one.model, one.examples)
        shares.append(float(one.model.shortcut.share))
    assert shares[0] < 0.4 < shares[2] < 0.6 < shares[1]
    assert shares[2] == pytest.approx(0.5)
    plain = ready("tag", tmp_path, {"model.shortcut": False})
    plain.task.companion.weigh(plain.model, plain.examples)


def test_a_word_is_judged_with_two_neighbours_on_either_side(tmp_path):
    one = ready("tag", tmp_path, BOTH)
    linear = filled(one).shortcut
    words = one.batch.words
    row = int(words.lengths.argmax())
    length = int(words.lengths[row])
    before = linear(words)[row, :length]
    places = words.places.clone()
    places[row, 0] = places.max() - places[row, 0] + 1  # another word
    changed = (linear(words._replace(places=places))[row, :length] != before).any(-1).tolist()
    assert changed == [i <= 2 for i in range(length)]


def test_padding_says_nothing(tmp_path):
    one = ready("tag", tmp_path, BOTH)
    linear = filled(one).shortcut
    words = one.batch.words
    row = int(words.lengths.argmin())
    length = int(words.lengths[row])
    alone = words._replace(places=words.places[[row], :length], lengths=words.lengths[[row]])
    torch.testing.assert_close(linear(alone)[0], linear(words)[row, :length])


def test_markers_are_no_letters():
    linear = LinearTagger([*MARKERS, "a"], 2)
    assert {*linear.state_dict()} == {"weight", "bias", "share"}
