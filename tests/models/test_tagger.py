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


SPANS = (
    "Ann\tB-PER\nLee\tI-PER\nsees\tO\nRome\tB-LOC\n\nRome\tB-LOC\nruns\tO\n\nthe\tO\nAnn\tB-PER\nruns\tO\n"
)


def hesitant(one, doubt):
    """Scores of a tagger that knows all tags, but is surer of O than of any span, by so much."""
    outside = one.task.labels.names.index("O")
    scores = 9 * torch.nn.functional.one_hot(one.batch.tags.clamp(min=0), len(one.task.labels.names)).float()
    scores[..., outside] = scores[..., outside].maximum(torch.tensor(9.0 + doubt))
    return scores


@pytest.mark.parametrize(("doubt", "biases"), [(-9.0, [0.0]), (1.2, [1.5, 2.0])])
def test_spans_less_probable_than_nothing_are_said_where_that_is_better(doubt, biases, tmp_path):
    one = ready("tag", tmp_path, {"model.shortcut": False, "model.affixes": 0}, SPANS)
    model, lengths = one.model.eval(), one.batch.words.lengths
    scores = hesitant(one, doubt)
    rows = zip(one.batch.tags.tolist(), lengths.tolist(), strict=True)
    true = [row[:length] for row, length in rows]
    model.forward = lambda words: scores
    one.task.companion._batches = lambda *_: [one.batch] * 3
    assert (model.crf.decode(scores, lengths) == true) is (doubt < 0)
    chances = model.crf.marginals(scores, lengths)
    one.task.companion.weigh(model, one.examples)
    assert model.crf.decode(scores, lengths) == true
    assert float(model.crf.bias.max()) in biases
    torch.testing.assert_close(model.crf.marginals(scores, lengths), chances, rtol=0, atol=0)


def test_words_outside_of_spans_are_never_preferred(tmp_path):
    one = ready("tag", tmp_path, {}, SPANS)
    one.task.companion.weigh(filled(one), one.examples)
    names, bias = one.task.labels.names, one.model.crf.bias.tolist()
    assert bias[names.index("O")] == 0.0
    assert len({value for name, value in zip(names, bias, strict=True) if name != "O"}) == 1
    assert "crf.bias" in one.model.state_dict()
    plain = ready("tag", tmp_path, {"model.span_bias": False}, SPANS)
    assert "crf.bias" not in plain.model.state_dict()  # as in runs of earlier versions
    single = ready("tag", tmp_path, {"model.crf": True})
    assert single.task.config.model.span_bias is False
