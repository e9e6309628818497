"""Every task, with every kind of cell and network, keeps the contract of a task."""

import re

import pytest
import torch
from torch.nn import functional as F

from elman import load, register
from elman.errors import ConfigError
from elman.models.counting import CountedModel
from elman.models.embedding import Pretrained, RareTokenDropout, WordBatch
from elman.registry import ATTENTIONS, CELLS, TASKS
from elman.tasks.examples import encoded
from elman.tasks.lm import LmBatch
from elman.tasks.predictions import Prediction
from elman.training.loop import Trainer
from tiny_tasks import CPU, DATA, TEXTS, descend, ready, save
from user_cells import Readout

CELL_NAMES = ("elman", "gru", "lstm", "readout")
COMPARATORS = {"lm": ("window", "bag", "ngram"), "tag": ("window", "bag", "ngram")}
COMPARATORS |= {"classify": ("window", "bag", "ngram"), "class2seq": ("ngram",), "seq2seq": ()}
VECTORS = "cat 1 2 3\ndog -1 0 1\nthe 2 2 -1\n"
SENTENCES = {"text.context": "sentence"}
NETWORKED = ("lm", "tag", "classify", "seq2seq")  # with vectors of tokens that dropout can reach


@pytest.fixture(autouse=True)
def readout(monkeypatch):
    monkeypatch.setattr(CELLS, "_added", dict(CELLS._added))
    register("readout", Readout)


NETWORKS = [
    (task, {"model.cell": cell} | more)
    for task in TASKS.names()
    for cell in CELL_NAMES
    for more in ([{}, SENTENCES] if task == "lm" else [{}])
] + [
    (task, {"model.network": network} | ({"model.dropout": None} if task == "class2seq" else {}) | more)
    for task in TASKS.names()
    for network in COMPARATORS[task]
    for more in ([{}, SENTENCES] if task == "lm" else [{}])
]

OPTIONS = [
    ("lm", {"model.tied": True, "model.embedding": 5}),
    ("lm", {"model.tied": True, "model.embedding": 4}),
    ("lm", {"model.tied": False}),
    ("lm", {"model.embedding": 0}),
    ("lm", {"model.hidden": [3, 6]}),
    ("lm", {"model.initial_state": "learned", **SENTENCES}),
    *(("lm", {"text.unit": unit}) for unit in ("character", "byte")),
    ("lm", {"text.unit": "bpe", "text.vocabulary_size": 280}),
    ("lm", {"training.loss": "squared"}),
    ("tag", {"model.crf": True}),
    ("tag", {"model.crf": False}),
    ("tag", {"model.characters": 0}),
    ("tag", {"model.bidirectional": False}),
    ("tag", {"model.hidden": 4, "model.layers": 2}),
    ("tag", {"training.loss": "squared", "training.label_smoothing": 0.1}),
    *(("classify", {"model.pooling": pooling}) for pooling in ("last", "mean", "max", "attention")),
    ("classify", {"model.bidirectional": False, "model.pooling": "last"}),
    ("classify", {"model.head": 7}),
    ("classify", {"model.characters": 3}),
    *(("classify", {"text.unit": unit}) for unit in ("character", "byte")),
    ("classify", {"text.unit": "bpe", "text.vocabulary_size": 280}),
    ("classify", {"training.class_weights": "balanced"}),
    ("class2seq", {"model.feedback": "soft"}),
    ("class2seq", {"model.embedding": 0}),
    ("class2seq", {"model.cell": "lstm", "model.hidden": [3, 4]}),
    ("class2seq", {"text.unit": "character"}),
    ("class2seq", {"text.unit": "byte"}),
    ("class2seq", {"training.loss": "squared"}),
    *(("seq2seq", {"model.form": form}) for form in ("single", "naive")),
    *(("seq2seq", {"model.attention": score}) for score in ("none", *ATTENTIONS.names())),
    *(("seq2seq", {"model.placement": "after", "model.input_feeding": fed}) for fed in (True, False)),
    *(("seq2seq", {"model.start": start, "model.bidirectional": False}) for start in ("copy", "zero")),
    ("seq2seq", {"model.context": "every-step", "model.attention": "none"}),
    *(("seq2seq", {"text.shared": True, "model.tied": tied}) for tied in (True, "all")),
    ("seq2seq", {"model.encoder": {"cell": "gru", "hidden": [3, 4]}, "model.decoder": {"layers": 3}}),
    ("seq2seq", {"model.initial_state": "learned"}),
    ("seq2seq", {"model.embedding": 0}),
    *(("seq2seq", {"text.unit": unit}) for unit in ("character", "byte")),
    ("seq2seq", {"text.unit": "bpe", "text.vocabulary_size": 280}),
    ("seq2seq", {"text.source": {"unit": "character"}, "text.target": {"lowercase": True}}),
    ("seq2seq", {"text.min_count": 2}),
    ("seq2seq", {"training.loss": "squared", "training.label_smoothing": 0.1}),
    ("seq2seq", {"decoding.beam": 3, "decoding.n_best": 2, "decoding.coverage_penalty": 0.2}),
    *((task, {"text.lowercase": True}) for task in TASKS.names()),
    *(
        (task, {"model.locked": locked, "model.dropout": 0.3, "model.input_dropout": 0.3})
        for task in NETWORKED
        for locked in (True, False)
    ),
    *((task, {f"model.{kind}_dropout": 0.5}) for task in NETWORKED for kind in ("token", "rare")),
    *((task, {"model.backend": "loop"}) for task in TASKS.names()),
    *((task, {"model.recurrent_dropout": 0.2, "model.zoneout": 0.1}) for task in TASKS.names()),
    *((task, {"model.weight_drop": 0.2}) for task in TASKS.names()),
]


def named(cases):
    return [
        pytest.param(task, settings, id=f"{task} {' '.join(f'{key}={v}' for key, v in settings.items())}")
        for task, settings in cases
    ]


@pytest.mark.parametrize(("task", "settings"), named([*NETWORKS, *OPTIONS]))
def test_from_a_file_to_predictions_and_back(task, settings, tmp_path):
    one = ready(task, tmp_path, settings)
    if not isinstance(one.model, CountedModel):
        one.model.train()
        loss = one.task.loss(one.model, one.batch)
        assert torch.isfinite(loss.total)
        assert loss.total.dim() == 0
        assert loss.count >= loss.examples > 0
        loss.total.backward()
        without = [name for name, weight in one.model.named_parameters() if not reached(weight)]
        assert not without
        one.model.eval()
    figures = one.task.evaluate(one.model, one.examples)
    assert set(one.task.metrics()) <= set(figures)
    for name in one.task.metrics():
        assert isinstance(figures[name], float)
        assert figures[name] >= 0
    assert isinstance(figures["tokens"], int)
    assert figures["tokens"] > 0
    predictions = one.task.predict(one.model, TEXTS[task])
    assert len(predictions) == len(TEXTS[task])
    assert all(isinstance(prediction, Prediction) for prediction in predictions)
    assert all(prediction["prediction"] == prediction.value for prediction in predictions)
    assert all("\n" not in prediction.line for prediction in predictions)
    assert all(isinstance(line, str) for line in one.task.samples(one.model, one.examples))
    again = load(save(one, tmp_path / "run"))
    assert again.predict(TEXTS[task], details=True) == predictions
    assert again.task.evaluate(again.model, encoded(again.task, one.records())) == figures


def reached(weight):
    return weight.grad is not None and torch.isfinite(weight.grad).all() and (weight.grad != 0).any()


WHOLE = [(task, settings | (SENTENCES if task == "lm" else {})) for task, settings in NETWORKS + OPTIONS]
WHOLE = [case for place, case in enumerate(WHOLE) if case not in WHOLE[:place]]


@pytest.mark.parametrize(("task", "settings"), named(WHOLE))
def test_a_batch_is_the_sum_of_its_examples(task, settings, tmp_path):
    """Neither the other rows nor the padding change a loss."""
    one = ready(task, tmp_path, settings)
    with torch.no_grad():
        whole = one.task.loss(one.model, one.batch)
        single = [
            one.task.loss(one.model, one.task.collate(one.examples, [i], CPU))
            for i in range(len(one.examples))
        ]
        wide = one.task.loss(one.model, padded(one.batch))
    total = sum(loss.total for loss in single)
    torch.testing.assert_close(whole.total, total, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(wide.total, whole.total, rtol=1e-5, atol=1e-5)
    assert whole.count == sum(loss.count for loss in single)
    assert whole.examples == len(single) == len(one.examples)


def padded(batch):
    """The same batch with two more columns of padding that hold some token or other."""
    if isinstance(batch, WordBatch):
        return batch._replace(places=F.pad(batch.places, (0, 2), value=1))
    if isinstance(batch, tuple):
        return type(batch)(*(padded(part) for part in batch))
    if batch is None or isinstance(batch, list):  # of labels that training never saw
        return batch
    return F.pad(batch, (0, 2), value=1) if batch.dim() == 2 and not batch.is_floating_point() else batch


def test_rows_of_a_stream_do_not_mix(tmp_path):
    one = ready("lm", tmp_path, {"training.batch_size": 3, "training.truncate": 4})
    inputs, targets, *_ = one.batch
    assert len(inputs) == 3
    rows = [one.task.loss(one.model, LmBatch(inputs[b : b + 1], targets[b : b + 1], None)) for b in range(3)]
    whole = one.task.loss(one.model, one.batch)
    torch.testing.assert_close(whole.total, sum(row.total for row in rows), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("task", TASKS.names())
def test_the_order_of_the_examples_does_not_change_figures(task, tmp_path):
    one = ready(task, tmp_path, SENTENCES if task == "lm" else {})
    expected = one.task.evaluate(one.model, one.examples)
    found = one.task.evaluate(one.model, encoded(one.task, one.records()[::-1]))
    for name, value in expected.items():
        if isinstance(value, (int, float)):
            assert found[name] == pytest.approx(value, rel=1e-6, abs=1e-6), name


@pytest.mark.parametrize("task", ["lm", "tag", "classify"])
@pytest.mark.parametrize("tuned", [True, False])
def test_pretrained_vectors_are_tuned_or_frozen_T1(task, tuned, tmp_path):
    (tmp_path / "vectors.txt").write_text(VECTORS)
    settings = {"text.vectors": str(tmp_path / "vectors.txt"), "text.tune_vectors": tuned}
    one = ready(task, tmp_path, settings)
    [table] = [module for module in one.model.modules() if isinstance(module, Pretrained)]
    before = table.weight.detach().clone()
    assert table.output_size == 3
    assert (before[0] == 0).all()
    assert (before[1:] != 0).any()
    assert any("vectors for" in note for note in one.statistics.notes)
    descend(one, 2)
    assert torch.equal(table.weight, before) != tuned
    again = load(save(one, tmp_path / "run"))
    assert again.predict(TEXTS[task]) == [p["prediction"] for p in one.task.predict(one.model, TEXTS[task])]
    fresh = again.task.build_model(fresh=True)  # as a run that was stopped before its first checkpoint
    [filled] = [module for module in fresh.modules() if isinstance(module, Pretrained)]
    assert torch.equal(filled.weight, before)


@pytest.mark.parametrize("task", TASKS.names())
def test_the_sum_is_the_mean_times_the_count(task, tmp_path):
    weights = {}
    for reduction in ("sum", "mean"):
        settings = {
            "training.reduction": reduction,
            "training.optimizer": "sgd",
            "training.learning_rate": 0.01,
            "training.schedule": "constant",
            "training.averaging": "none",
            "training.clip": 0.0,
            "training.batch_size": 2,
        }
        one = ready(task, tmp_path, settings)
        before = [weight.detach().clone() for weight in one.model.parameters()]
        update = next(Trainer(one.task, one.model, one.examples, one.examples, CPU).run())
        after = one.model.parameters()
        weights[reduction] = [new.detach() - old for new, old in zip(after, before, strict=True)]
    for total, mean in zip(weights["sum"], weights["mean"], strict=True):
        torch.testing.assert_close(
            total, mean * update.numbers.count, rtol=1e-3, atol=1e-5
        )  # of weights up to 5


@pytest.mark.parametrize("task", ["lm", "tag", "classify"])
def test_rare_tokens_are_hidden_as_often_as_they_are_rare(task, tmp_path):
    one = ready(task, tmp_path, {"model.rare_dropout": 0.5})
    [hiding] = [module for module in one.model.modules() if isinstance(module, RareTokenDropout)]
    text = DATA[task].lower() if task == "tag" else DATA[task]  # letters tell its case
    words = re.split(r"[\s]+", text)
    [field] = one.task.text_fields.values()
    for word in ("dog", "the"):
        rate = float(hiding.rates[field.vocabulary.id(word)])
        assert rate == pytest.approx(0.5 / (0.5 + words.count(word)))
    assert (hiding.rates[:4] == 0).all()  # markers


@pytest.mark.parametrize("task", TASKS.names())
def test_lower_case_makes_upper_case_equal(task, tmp_path):
    if task == "class2seq":
        one = ready(task, tmp_path, {"text.lowercase": True}, data="I\tLove MY cat\n")
        assert "love" in one.task.field.vocabulary
        assert "Love" not in one.task.field.vocabulary
        return
    one = ready(task, tmp_path, {"text.lowercase": True})
    words = "the dog runs"
    lower, upper = (one.task.predict(one.model, [text])[0]["prediction"] for text in (words, words.upper()))
    assert lower == upper


@pytest.mark.parametrize("task", TASKS.names())
def test_incremental_descent_is_one_thing_G2(task, tmp_path):
    one = ready(task, tmp_path, {"training.optimizer": "incremental", "training.batch_size": None})
    training = one.task.config.training
    assert (training.batch_size, training.batch_tokens, training.reduction) == (1, None, "sum")
    assert (training.schedule, training.averaging, training.clip) == ("constant", "none", 0.0)
    losses = {"lm": 35, "tag": 13 / 4, "classify": 1, "class2seq": 15 / 3, "seq2seq": 24 / 5}[task]
    assert one.statistics.losses_of_example == losses
    rate = 0.5 if task == "class2seq" else min(0.1, 0.5 / losses)
    assert training.learning_rate == pytest.approx(rate, rel=0.05)
    with pytest.raises(ConfigError, match=r"batch_tokens, training\.accumulate would"):
        ready(
            task,
            tmp_path,
            {
                "training.optimizer": "incremental",
                "training.batch_size": None,
                "training.batch_tokens": 50,
                "training.accumulate": 2,
            },
        )


@pytest.mark.parametrize("task", TASKS.names())
def test_settings_that_do_not_fit(task, tmp_path):
    with pytest.raises(ConfigError, match=r"training\.metric is 'los'; did you mean 'loss'"):
        ready(task, tmp_path, {"training.metric": "los"})
    with pytest.raises(ValueError, match="they must agree"):
        ready(task, tmp_path, {"model.hidden": [3, 4], "model.layers": 3})
    with pytest.raises(ConfigError, match=r"model\.cell: no cell named 'ltsm'; did you mean 'lstm'"):
        ready(task, tmp_path, {"model.cell": "ltsm"})


@pytest.mark.parametrize("task", TASKS.names())
def test_what_the_user_set_stays(task, tmp_path):
    settings = {"training.epochs": 3, "training.clip": 0.5, "training.optimizer": "adam"}
    config = ready(task, tmp_path, settings).task.config
    assert (config.training.epochs, config.training.clip) == (3, 0.5)
    assert (config.model.hidden, config.model.layers) == (5, 1)
    assert config.training.learning_rate is not None


def test_every_task_has_tiny_data():
    assert set(TASKS.names()) == set(DATA) == set(TEXTS)
