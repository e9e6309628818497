"""Dynamic evaluation and the neural cache against plain loops; a run keeps its weights."""

import json
import math
from functools import partial

import pytest
import torch
from torch.nn import functional as F

from comparison import assert_close
from elman.config import changed
from elman.errors import ArgumentError
from elman.predictor import load
from elman.tasks import lm_adaptation
from elman.tasks.lm_adaptation import AdaptiveReader, NeuralCache, adaptive_reader
from elman.tasks.lm_settings import LmEvaluation
from elman.text.vocabulary import END
from tiny import elman
from tiny_tasks import DATA, ready, save

BOTH = {"evaluation.dynamic": True, "evaluation.cache": True, "evaluation.dynamic_steps": 3}


def stream(one):
    return torch.from_numpy(one.examples.store.fields["token"].values.astype("int64"))


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(lm_adaptation, "FIRST", 2)


def test_dynamic_evaluation_is_the_plain_loop(tmp_path):
    """θ ← θ − η g / (r + r̄) + λ min(r / r̄, 1/λ) (θ_trained − θ), weight by weight."""
    settings = LmEvaluation(dynamic=True, dynamic_rate=0.01, dynamic_decay=0.3, dynamic_steps=4)
    one = ready("lm", tmp_path, data=3 * DATA["lm"])
    ids, before = stream(one)[:33], {n: w.detach().clone() for n, w in one.model.named_parameters()}
    found, mixed = AdaptiveReader(one.model, settings, dynamic=True, cache=False).read(ids, carry=False)
    assert torch.equal(found, mixed)
    for name, weight in one.model.named_parameters():
        assert torch.equal(weight, before[name])

    weights, state, expected, squares = dict(one.model.named_parameters()), None, [], None
    for segment in range(8):
        part = ids[4 * segment : 4 * segment + 5]
        outputs, state = one.model(part[None, :-1], None, state)
        log_probs = one.model.logits(outputs)[0].log_softmax(-1)
        expected.append(log_probs.gather(1, part[1:, None])[:, 0].detach())
        gradients = torch.autograd.grad(F.nll_loss(log_probs, part[1:]), list(weights.values()))
        state = tuple(type(layer)(*(field.detach() for field in layer)) for layer in state)
        new = [g**2 for g in gradients]
        squares = new if squares is None else [s + n for s, n in zip(squares, new, strict=True)]
        if segment < 2:
            continue
        r = [(s / (segment + 1)).sqrt() for s in squares]
        mean = sum(x.sum() for x in r) / sum(x.numel() for x in r)
        with torch.no_grad():
            for (name, weight), g, size in zip(weights.items(), gradients, r, strict=True):
                back = 0.3 * (size / mean).clamp(max=1 / 0.3)
                weight += back * (before[name] - weight) - 0.01 * g / (size + mean)
    assert_close({"log p": found}, {"log p": torch.cat(expected)}, 1e-4)


def test_the_cache_is_the_plain_loop_and_a_distribution():
    torch.manual_seed(3)
    T, V, n = 23, 7, 6
    outputs, targets = torch.randn(T, 5), torch.randint(V, (T,))
    expected = torch.zeros(T, V)
    for t in range(1, T):
        m = sum(outputs[i] @ outputs[i] for i in range(t)) / t
        kept = range(max(0, t - n), t)
        shares = torch.stack([4.0 * outputs[t] @ outputs[i] / m for i in kept]).softmax(0)
        for share, i in zip(shares, kept, strict=True):
            expected[t, targets[i]] += share
    for size in (1, 4, 23):
        cache = NeuralCache(size=n, weight=0.2, sharpness=4.0)
        parts = zip(outputs.split(size), targets.split(size), strict=True)
        found = [cache.read(*part, V) for part in parts]
        distribution, there = (torch.cat(one) for one in zip(*found, strict=True))
        assert_close({"p": distribution}, {"p": expected}, 1e-5)
        assert there.tolist() == [False] + [True] * (T - 1)
        assert_close({"sum": distribution[1:].sum(-1)}, {"sum": torch.ones(T - 1)}, 1e-5)
    model = torch.randn(T, V).log_softmax(-1)
    mixed = NeuralCache(size=n, weight=0.2, sharpness=4.0).mixed(model, outputs, targets).exp()
    assert_close({"p": mixed[1:]}, {"p": 0.8 * model.exp()[1:] + 0.2 * expected[1:]}, 1e-5)
    assert_close({"p": mixed[:1]}, {"p": model.exp()[:1]}, 1e-6)
    assert_close({"sum": mixed.sum(-1)}, {"sum": torch.ones(T)}, 1e-5)


@pytest.mark.parametrize("context", ["stream", "sentence"])
@pytest.mark.parametrize("unit", ["word", "character"])
def test_figures_stand_apart_and_scores_are_theirs(context, unit, tmp_path):
    """In a stream the last line is scored given all before; sentence by sentence, what was learned stays."""
    asked = {**BOTH, "text.context": context, "text.unit": unit}
    one = ready("lm", tmp_path, asked)
    plain = ready("lm", tmp_path, {"text.context": context, "text.unit": unit})
    plain.model.load_state_dict(one.model.state_dict())
    figures, without = (each.task.evaluate(each.model, each.examples) for each in (one, plain))
    assert {name: figures[name] for name in without} == without
    names = {"cache", "dynamic", "dynamic_cache"}
    assert {name.removesuffix("_loss") for name in figures if name.endswith("_loss")} == names
    for name in names:
        loss = figures[f"{name}_loss"]
        assert figures[f"{name}_perplexity"] == pytest.approx(math.exp(loss))
        assert math.isfinite(loss)
        assert loss != figures["loss"]
        if unit == "character":
            assert figures[f"{name}_bits_per_character"] == pytest.approx(loss / math.log(2))
    assert one.task.evaluate(one.model, one.examples, quick=True) == plain.task.evaluate(
        plain.model, plain.examples, quick=True
    )
    assert adaptive_reader(plain.model, plain.task.config) is None
    score, texts = scores(one), DATA["lm"].split("\n")[:-1]
    scored = [*score(texts[:3]), *score(texts[3:])]
    assert [token for token, _ in scored[0]] == [*one.task.field.split(texts[0]), END]
    if context == "sentence" or unit == "character":
        return  # of a stream, evaluation cuts elsewhere
    cached = scores(one, {"evaluation.dynamic": False})
    total = sum(value for line in cached(texts) for _, value in line)
    assert total == pytest.approx(-figures["tokens"] * figures["cache_loss"], rel=1e-4)


def scores(one, settings=None):
    return partial(
        one.task.score, one.model, reader=adaptive_reader(one.model, changed(one.task.config, settings or {}))
    )


def test_a_counted_model_has_nothing_to_adapt(tmp_path):
    one = ready("lm", tmp_path, {"model.network": "ngram", "evaluation.cache": True})
    with pytest.raises(ArgumentError, match="a counted model has no dynamic evaluation"):
        one.task.evaluate(one.model, one.examples)
    with pytest.raises(ArgumentError, match="a counted model"):
        scores(one)


def test_the_command_line_and_the_run(tmp_path):
    one = ready("lm", tmp_path)
    run = save(one, tmp_path / "run")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    answer = elman(
        "evaluate", run, one.path, "--dynamic", "--cache", "--set", "evaluation.dynamic_steps=4", "--json"
    )
    assert answer.code == 0, answer.err
    assert {"perplexity", "cache_perplexity", "dynamic_perplexity", "dynamic_cache_perplexity"} <= {
        *json.loads(answer.out)
    }
    texts = "the dog sees it\nthe dog sees it\n"
    plain = elman("score", run, stdin=texts.encode()).out.split()
    both = [
        line.split("\t") for line in elman("score", run, "--cache", stdin=texts.encode()).out.splitlines()
    ]
    assert [first for first, _ in both] == plain
    assert float(both[1][1]) > float(both[0][1])  # which came lately
    named = json.loads(elman("score", run, "--cache", "--json", stdin=texts.encode()).out.splitlines()[1])
    assert named["adapted_log_probability"] == pytest.approx(float(both[1][1]), abs=1e-5)
    shown = elman("score", run, "--cache", "--tokens", stdin=texts.encode()).out.splitlines()[0].split("\t")
    assert len(shown[0].split()) == 3
    refused = elman("score", run, "--cache", "--pairs", stdin=b"a\tb\n")
    assert refused.code == 2
    assert "pairs are compared text by text" in refused.err
    unread = elman("evaluate", run, one.path, "--set", "evaluation.cache_size=4")
    assert "it is read where evaluation.cache is set" in unread.err
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    loaded = load(run, settings={"evaluation.dynamic": True})
    weights = {name: weight.clone() for name, weight in loaded.model.state_dict().items()}
    loaded.adapted()(["the dog sees it"] * 5)
    assert all(torch.equal(weight, weights[name]) for name, weight in loaded.model.state_dict().items())


def test_another_task_has_no_such_options(tmp_path):
    one = ready("classify", tmp_path)
    answer = elman("evaluate", save(one, tmp_path / "run"), one.path, "--dynamic")
    assert answer.code == 2
    assert "evaluation" in answer.err
