"""Several labels a text: a sigmoid each, sets of labels judged, and what the words of a file mean."""

import pytest
import torch
from torch.nn import functional as F

from elman.errors import ConfigError, LabelError
from elman.models.losses import label_loss
from elman.tasks.examples import encoded
from elman.text.records import Record
from tiny_tasks import descend, ready

TEXTS = "red ball\tred|round\nblue box\tblue\nred box\tred\nblue ball\tblue|round\ngrey stone\t\n"
SEVERAL = {"data.labels_separator": "|"}


@pytest.fixture
def one(tmp_path):
    return ready("classify", tmp_path, {**SEVERAL, "model.hidden": 8, "training.batch_size": 5}, data=TEXTS)


def test_each_label_is_a_sigmoid_of_its_own(one):
    words, labels, *_ = one.batch
    assert one.task.labels.names == ["blue", "red", "round"]
    assert sorted(labels.tolist()) == [[0, 0, 0], [0, 1, 0], [0, 1, 1], [1, 0, 0], [1, 0, 1]]
    loss = F.binary_cross_entropy(one.model(words).sigmoid(), labels, reduction="sum")
    assert float(one.task.loss(one.model, one.batch).total.detach()) == pytest.approx(
        float(loss.detach()), rel=1e-5
    )


def test_sets_of_labels_are_learned_and_judged(one):
    descend(one, 150)
    figures = one.task.evaluate(one.model, one.examples)
    assert [figures[name] for name in ("micro_f1", "macro_f1", "precision", "recall", "accuracy")] == [
        1.0
    ] * 5
    assert figures["classes"]["round"]["support"] == 2
    assert "all labels" in figures["report"]
    red, none, empty = one.task.predict(one.model, ["red ball", "grey stone", ""])
    assert (sorted(red.value), sorted(red.line.split("|"))) == (["red", "round"],) * 2
    assert (none.value, none.line, empty.value, empty.confidence) == ([], "", [], None)
    assert 0.5 < none.confidence == pytest.approx(1 - max(none.probabilities.values()))


def test_the_threshold_decides(one):
    stricter = one.task.reconfigured(
        one.task.config.model_copy(
            update={"evaluation": one.task.config.evaluation.model_copy(update={"threshold": 0.999999})}
        )
    )
    assert stricter.predict(one.model, ["red ball"])[0].value == []


def test_unseen_labels_are_wrong(one):
    record = Record({"text": "red ball", "label": ["red", "square"]}, "a.jsonl", 1)
    figures = one.task.evaluate(one.model, encoded(one.task, [record]))
    assert (figures["accuracy"], figures["unseen"]) == (0.0, {"square": 1})


def test_one_label_a_text_where_that_is_asked_for(tmp_path):
    with pytest.raises(LabelError, match="2 labels instead of one"):
        ready("classify", tmp_path, {**SEVERAL, "model.multilabel": False}, data=TEXTS)


def test_counts_know_one_label_only(tmp_path):
    with pytest.raises(ConfigError, match="counts one label a text"):
        ready("classify", tmp_path, {**SEVERAL, "model.network": "ngram"}, data=TEXTS)


def test_other_losses_of_labels():
    logits, targets = torch.tensor([[0.3, -2.0], [1.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    half = ((logits.sigmoid() - targets) ** 2).sum() / 2
    assert float(label_loss(logits, targets, kind="squared")) == pytest.approx(float(half))
    smoothed = F.binary_cross_entropy(logits.sigmoid(), targets * 0.9 + 0.05, reduction="sum")
    assert float(label_loss(logits, targets, smoothing=0.1)) == pytest.approx(float(smoothed))
    doubled = label_loss(logits, targets, weights=torch.tensor([2.0, 2.0])) - label_loss(logits, targets)
    there = F.binary_cross_entropy(logits.sigmoid(), targets, reduction="none")[targets > 0].sum()
    assert float(doubled) == pytest.approx(float(there))


def test_a_run_that_knows_one_label_a_text_refuses_several(tmp_path):
    """Also one of an earlier version, whose settings say nothing of it."""
    one = ready("classify", tmp_path)
    one.task.config = one.task.config.model_copy(
        update={"model": one.task.config.model.model_copy(update={"multilabel": None})}
    )
    with pytest.raises(LabelError, match="2 labels instead of one"):
        encoded(one.task, [Record({"text": "a dog", "label": ["animal", "thing"]}, "a.jsonl", 1)])


def test_a_text_without_a_word_has_the_frequencies_of_labels(one):
    [row] = one.task.chances(one.model, [""])
    assert dict(zip(one.task.labels.names, row, strict=True)) == {"blue": 0.4, "red": 0.4, "round": 0.4}
