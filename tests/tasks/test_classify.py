"""Classification: from the last state or from all outputs pooled (rows C1 and C2)."""

import re

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from comparison import assert_close
from elman.errors import EmptyError, OneLabelError
from elman.tasks import beside
from elman.tasks.examples import encoded
from elman.text.records import Record
from tiny_tasks import CPU, descend, ready, save

THREE = "a b\tx\nb a\ty\nc\tz\na b a\tx\nb b a\ty\n"


def test_the_last_state_through_a_head_C1(tmp_path):
    """softmax(MLP(h_n)), written out; the other positions have no loss."""
    settings = {"model.pooling": "last", "model.head": 7, "model.bidirectional": False, "model.cell": "elman"}
    settings["model.characters"] = 0
    one = ready("classify", tmp_path, settings)
    words, labels, *_ = one.batch
    cell = one.model.encoder.network.cells[0][0]
    E = one.model.words.embedding.weight
    first, _, _, second = one.model.head
    rows = []
    for b, n in enumerate(words.lengths.tolist()):
        h = torch.zeros(5)
        for token in words.tokens[words.places[b, :n]]:
            h = torch.tanh(E[token] @ cell.W_x + h @ cell.W_h + cell.b)
        rows.append(second(F.relu(first(h))))
    expected = torch.stack(rows)
    assert_close({"scores": one.model(words)}, {"scores": expected}, 1e-5)
    total = F.cross_entropy(expected, labels, reduction="sum")
    assert_close({"loss": one.task.loss(one.model, one.batch).total}, {"loss": total}, 1e-5)


def test_both_final_states_of_two_directions_C2(tmp_path):
    one = ready("classify", tmp_path, {"model.pooling": "last"})
    words, *_ = one.batch
    outputs, last, _ = one.model.encoder(one.model.words(words), words.lengths)
    for b, n in enumerate(words.lengths.tolist()):
        forth, back = outputs[b, n - 1, :5], outputs[b, 0, 5:]
        assert_close({"h": last[b]}, {"h": torch.cat([forth, back])}, 1e-6)
    assert_close({"scores": one.model(words)}, {"scores": one.model.head(last)}, 1e-6)


@pytest.mark.parametrize("pooling", ["mean", "max", "attention"])
def test_pooling_of_all_outputs_C2(pooling, tmp_path):
    one = ready("classify", tmp_path, {"model.pooling": pooling})
    words, *_ = one.batch
    outputs = one.model.encoder(one.model.words(words), words.lengths).outputs
    rows = []
    for b, n in enumerate(words.lengths.tolist()):
        h = outputs[b, :n]
        if pooling == "attention":
            part = one.model.pooling
            a = part.v(torch.tanh(part.W(h))).softmax(0)
            rows.append((a * h).sum(0))
        else:
            rows.append(h.mean(0) if pooling == "mean" else h.max(0).values)
    assert_close({"scores": one.model(words)}, {"scores": one.model.head(torch.stack(rows))}, 1e-5)


@pytest.mark.parametrize("pooling", ["last", "mean", "max", "attention"])
def test_a_tiny_task_is_learned(pooling, tmp_path):
    """Two classes differ only in the order of their words."""
    settings = {"model.pooling": pooling, "model.hidden": 12, "model.embedding": 8}
    one = ready("classify", tmp_path, settings, data=THREE)
    descend(one, 80)
    figures = one.task.evaluate(one.model, one.examples)
    assert (figures["accuracy"], figures["macro_f1"]) == (1.0, 1.0)
    assert one.task.predict(one.model, ["a b", "b a", "c"])[1]["prediction"] == "y"


def test_a_shortcut_is_fitted_beside_the_network(tmp_path):
    """At the beginning and before a validation; nobody's weights but its own change."""
    one = ready("classify", tmp_path, {}, data=THREE)
    assert one.task.config.model.shortcut is True
    before = {name: tensor.clone() for name, tensor in one.model.named_parameters()}
    one.task.companion.fit(one.model, one.examples)
    one.task.companion.weigh(one.model, one.examples)
    assert all(torch.equal(before[name], tensor) for name, tensor in one.model.named_parameters())
    assert int(one.model.shortcut.texts) == len(one.examples)
    answers = [one.task.predict(one.model, [text])[0].probabilities for text in ("a b", "b a")]
    assert answers[0] != answers[1]
    together = [p.probabilities for p in one.task.predict(one.model, ["a b", "b a"])]
    assert [sorted(a.values()) for a in answers] == [pytest.approx(sorted(b.values())) for b in together]
    plain = ready("classify", tmp_path, {"model.shortcut": False}, data=THREE)
    plain.task.companion.fit(plain.model, plain.examples)  # there is none
    assert plain.model.shortcut is None


def test_a_shortcut_looks_at_texts_from_all_of_very_many(tmp_path, monkeypatch):
    one = ready("classify", tmp_path, {}, data=THREE)
    letters = sum(len(one.examples.words[word]) + 1 for word in one.examples.store.fields["word"].values)
    monkeypatch.setattr(beside, "MOST_LETTERS", -(-letters // 3))
    one.task.companion.fit(one.model, one.examples)
    assert int(one.model.shortcut.texts) == -(-len(one.examples) // 3)


def test_class_weights_by_hand(tmp_path):
    one = ready("classify", tmp_path, {"training.class_weights": "balanced", "model.shortcut": False})
    assert one.task.labels.names == ["animal", "thing"]
    weights = {"animal": 6 / (2 * 4), "thing": 6 / (2 * 2)}
    assert one.task._weights(CPU).tolist() == pytest.approx([weights["animal"], weights["thing"]])
    words, labels, *_ = one.batch
    rows = F.cross_entropy(one.model(words), labels, reduction="none")
    expected = sum(weights[one.task.labels.names[k]] * row for k, row in zip(labels, rows, strict=True))
    assert_close({"loss": one.task.loss(one.model, one.batch).total}, {"loss": expected}, 1e-6)
    again = one.task.evaluate(one.model, one.examples)["loss"]
    assert again == pytest.approx(float(rows.mean().detach()), rel=1e-5)  # evaluation weighs nothing


def decided(one, labels):
    """The task with a model that answers these labels, in the order of the examples."""
    width = len(one.task.labels.names)
    order = [i for key in one.examples.in_order("word", tokens=one.task.positions) for i in key]
    answers = iter([one.task.labels.names.index(labels[i]) for i in order])

    class Decided(nn.Module):
        def forward(self, words):
            return torch.stack([F.one_hot(torch.tensor(next(answers)), width) * 9.0 for _ in words.lengths])

    one.model = Decided()
    return one.task.evaluate(one.model, one.examples)


def test_with_two_labels_f1_is_of_the_rarer(tmp_path):
    one = ready("classify", tmp_path)
    figures = decided(one, ["thing", "thing", "animal", "animal", "animal", "animal"])
    assert figures["accuracy"] == pytest.approx(4 / 6)
    assert (figures["precision"], figures["recall"], figures["f1"]) == (0.5, 0.5, 0.5)
    animal = 2 * 3 / (4 + 4)
    assert figures["macro_f1"] == pytest.approx((0.5 + animal) / 2)
    assert figures["labels"] == ["animal", "thing"]
    assert figures["matrix"] == [[3, 1], [1, 1]]
    assert figures["classes"]["thing"]["recall"] == 0.5
    assert "animal" in figures["report"]
    assert "gold ↓" in figures["report"]
    assert figures["examples"] == 6
    never = decided(one, ["animal"] * 6)
    assert (never["precision"], never["recall"], never["f1"]) == (0.0, 0.0, 0.0)


def test_with_more_labels_there_is_no_single_f1(tmp_path):
    one = ready("classify", tmp_path, data=THREE)
    figures = one.task.evaluate(one.model, one.examples)
    assert "f1" not in figures
    assert "f1" not in one.task.metrics()
    assert len(figures["matrix"]) == 3
    with pytest.raises(ValueError, match=r"training\.metric is 'f1'; Known: accuracy, loss, macro_f1"):
        ready("classify", tmp_path, {"training.metric": "f1"}, data=THREE)


def test_an_empty_text_has_an_empty_label(tmp_path):
    one = ready("classify", tmp_path)
    found = one.task.predict(one.model, ["", "a dog", "   "])
    assert [one["prediction"] for one in found] == ["", found[1]["prediction"], ""]
    assert found[1]["prediction"] in one.task.labels.names
    assert found[0]["probabilities"] == {}
    assert sum(found[1]["probabilities"].values()) == pytest.approx(1)
    assert one.task.predict(one.model, ["", " "])[1].line == ""
    assert one.task.predict(one.model, []) == []


def test_wrong_examples_are_named_with_their_place(tmp_path):
    one = ready("classify", tmp_path)
    with pytest.raises(EmptyError, match=r"dev\.tsv:4.*a text without a word"):
        encoded(one.task, [Record({"text": "  ", "label": "thing"}, "dev.tsv", 4)])


@pytest.mark.parametrize(
    ("task", "data", "settings", "said"),
    [
        (
            "classify",
            "a\tgood\tx\nb\tgood\ty\n",
            {"data.columns": {"text": 0, "label": 1}},
            "all 2 labels are the same: 'good'; two are needed: look whether the column 1 that was read",
        ),
        ("classify", "a\tgood\n", {}, "name the right one with --columns text=…,label=…"),
        ("tag", "a\tO\nb\tO\n\nc\tO\n", {}, "all 3 tags are the same: 'O'; two are needed"),
    ],
)
def test_labels_that_are_all_the_same_are_refused(task, data, settings, said, tmp_path):
    with pytest.raises(OneLabelError) as caught:
        ready(task, tmp_path, settings, data)
    assert re.match(r".*/(classify\.tsv|tag\.txt): E411: ", str(caught.value))
    assert said in str(caught.value)


def test_class_weights_survive_a_run_folder(tmp_path):
    from elman import load

    one = ready("classify", tmp_path, {"training.class_weights": "balanced"})
    again = load(save(one, tmp_path / "run"))
    assert torch.equal(again.task._weights(CPU), one.task._weights(CPU))


@pytest.mark.parametrize(("count", "said"), [(60, True), (10, False)])
def test_columns_that_stand_the_other_way_round_are_suspected(count, said, tmp_path):
    rows = "".join(f"{'ab'[n % 2]}\tsome words of text {n}\n" for n in range(count))
    notes = ready("classify", tmp_path, data=rows).statistics.notes
    assert any("--columns text=1,label=0" in note for note in notes) == said
