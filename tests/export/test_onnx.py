"""Exports as ONNX answer as their models do, whatever the cell, the task and the parts."""

import itertools
import os
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from elman.errors import ExportError
from elman.export.onnx import open_written, write
from elman.export.onnx_cells import write_sequence, write_single_step
from elman.export.onnx_graph import OPSET, GraphWriter
from elman.export.options import ExportOptions
from elman.export.parity import NEAR, answer_of, distance
from elman.layers.rnn import RNN
from elman.predictor import Predictor
from elman.registry import CELLS
from elman.runtime import load
from tiny_tasks import DATA, TEXTS, descend, ready

TASKS = tuple(DATA)
USERS = f"{Path(__file__).resolve().parents[1] / 'user_cells.py'}:UserLSTM"
WORDS = ["the cat sees a dog", "a Dog runs", "Unknown words lie here and there", "the", "stones, dogs."]


def trained(task, folder, settings=None, data=None, updates=4):
    one = ready(task, folder, settings, data)
    descend(one, updates)
    if one.task.companion is not None:
        one.task.companion.fit(one.model, one.examples)
        one.task.companion.weigh(one.model, one.examples)
    return Predictor(None, one.task, one.model)


def exported(predictor, folder, **options):
    out = folder / "exported"
    out.mkdir()
    write(predictor, out, ExportOptions(**options))
    return out


def texts_of(task):
    return TEXTS[task] if task == "class2seq" else [*TEXTS[task], *WORDS]


def check_equal(task, folder, settings=None, data=None, **more):
    predictor = trained(task, folder, settings, data, **more)
    texts = texts_of(task)
    found = open_written(exported(predictor, folder))(texts)
    expected = [answer_of(one) for one in predictor.details(texts)]
    assert [one.line for one in found] == [one.line for one in expected]
    assert max(map(distance, found, expected)) < NEAR
    return predictor


@pytest.mark.parametrize(
    ("task", "cell"),
    [
        ("lm", "lstm"),
        ("lm", "layer_norm_lstm"),
        ("tag", "gru"),
        ("tag", "elman"),
        ("classify", "lstm"),
        ("classify", "layer_norm_lstm"),
        ("class2seq", "elman"),
        ("class2seq", "gru"),
        ("seq2seq", "lstm"),
        ("seq2seq", "elman"),
    ],
)
def test_answers_are_the_models(task, cell, tmp_path):
    check_equal(task, tmp_path, {"model.cell": cell})


LONG = itertools.product(TASKS, ["lstm", "gru", "elman", "layer_norm_lstm", "gru_original", "scrn"])


@pytest.mark.skipif("ELMAN_LONG" not in os.environ, reason="all combinations take a minute")
@pytest.mark.parametrize(("task", "cell"), list(LONG))
def test_answers_are_the_models_in_all_combinations(task, cell, tmp_path):
    check_equal(task, tmp_path, {"model.cell": cell})


SPANS = (
    "Ann\tB-PER\nLee\tI-PER\nsees\tO\nRome\tB-LOC\n\nRome\tB-LOC\nruns\tO\n\nthe\tO\nAnn\tB-PER\nruns\tO\n"
)


@pytest.mark.parametrize(
    ("task", "settings", "data"),
    [
        ("tag", {"model.crf": True}, SPANS),
        ("tag", {"model.shortcut": False, "model.affixes": 0, "model.characters": 0}, None),
        ("classify", {"model.pooling": "attention", "model.head": 3, "model.shortcut": False}, None),
        ("classify", {"model.pooling": "mean_max", "text.unit": "character"}, None),
        ("classify", {"model.pooling": "mean", "model.characters": 3}, None),
        ("classify", {"model.pooling": "last", "model.multilabel": True}, None),
        ("lm", {"model.tied": True, "decoding.beam": 3}, None),
        ("lm", {"text.unit": "character", "decoding.max_length": 12, "model.zoneout": 0.2}, None),
        ("lm", {"text.unit": "byte", "decoding.no_repeat": 2, "decoding.prefix": "ab"}, None),
        ("class2seq", {"model.feedback": "soft"}, None),
        ("class2seq", {"model.embedding": 0, "model.layers": 2}, None),
        ("seq2seq", {"model.attention": "additive", "decoding.beam": 4}, None),
        ("seq2seq", {"model.attention": "location", "model.input_feeding": True, "decoding.beam": 2}, None),
        ("seq2seq", {"model.attention": "dot", "model.placement": "after", "decoding.beam": 1}, None),
        (
            "seq2seq",
            {"model.attention": "bilinear", "decoding.coverage_penalty": 0.2, "decoding.beam": 3},
            None,
        ),
        ("seq2seq", {"model.attention": "none", "model.context": "every-step", "model.start": "copy"}, None),
        ("seq2seq", {"model.form": "single", "model.attention": "none"}, None),
        ("seq2seq", {"model.form": "naive", "model.attention": "none"}, None),
    ],
)
def test_parts_of_models(task, settings, data, tmp_path):
    check_equal(task, tmp_path, settings, data, updates=2)


@pytest.mark.parametrize("task", ["lm", "seq2seq", "tag"])
def test_a_users_cell(task, tmp_path):
    check_equal(task, tmp_path, {"model.cell": USERS})


def run(writer, path, given, names):
    writer.save(path)
    return onnxruntime.InferenceSession(str(path)).run(names, given)


@pytest.mark.parametrize("name", CELLS.names())
@torch.no_grad()
def test_every_cell_of_the_catalogue(name, tmp_path):
    torch.manual_seed(2)
    rnn = RNN(name, 3, 4, layers=2, initial_state="learned").eval()
    both = RNN(name, 3, 4, bidirectional=True).eval()
    for parameter in (*rnn.parameters(), *both.parameters()):
        parameter.add_(0.1 * torch.randn_like(parameter))
    x, lengths = torch.randn(3, 5, 3), torch.tensor([5, 2, 4])
    if any(cell.equations is None for cell in rnn.all_cells()):
        with pytest.raises(ExportError, match="free-form"):
            write_sequence(GraphWriter(), rnn, "x", "lengths")
        return
    given = {"x": x.numpy(), "lengths": lengths.numpy()}
    for network in (rnn, both):
        g = GraphWriter()
        read = write_sequence(
            g, network, g.input("x", "float", "B", "T", 3), g.input("lengths", "int64", "B")
        )
        g.output("outputs", read.outputs, "float", "B", "T", network.output_size)
        g.output("last", read.last, "float", "B", network.output_size)
        expected = network(x, lengths)
        for found, wanted in zip(run(g, tmp_path / "a.onnx", given, None), expected, strict=False):
            np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-4, atol=1e-5)
    s = GraphWriter()
    own = [
        [s.input(f"{n}{c}", "float", "B", 4) for c in cell.state] for n, cell in enumerate(rnn.all_cells())
    ]
    y, _ = write_single_step(s, rnn, s.input("x", "float", "B", 3), own)
    s.output("y", y, "float", "B", rnn.output_size)
    state = expected_state = rnn.start(3)
    fed = {f"{n}{c}": v.numpy() for n, one in enumerate(state) for c, v in zip(one._fields, one, strict=True)}
    [found] = run(s, tmp_path / "b.onnx", {"x": x[:, 0].numpy(), **fed}, None)
    wanted, _ = rnn.step(x[:, 0], expected_state)
    np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_lstm_and_gru_are_native_operators(tmp_path):
    for name in ("lstm", "gru"):
        for more, native in (({}, True), ({"cell_options": {"heads": 2}}, False), ({"zoneout": 0.1}, False)):
            g = GraphWriter()
            rnn = RNN(name, 3, 4, **more).eval()
            write_sequence(g, rnn, g.input("x", "float", "B", "T", 3), g.input("lengths", "int64", "B"))
            kinds = {node.op_type for node in g.nodes}
            assert (name.upper() in kinds, "Scan" in kinds) == (native, not native)


def test_a_folder_has_its_graphs_and_says_its_opset(tmp_path):
    out = exported(trained("seq2seq", tmp_path, {"model.attention": "additive"}), tmp_path)
    assert {path.name for path in out.iterdir()} == {
        *("encoder.onnx", "attention.onnx", "step.onnx", "model.json")
    }
    assert load(out).said["opset"] == OPSET
    for path in out.glob("*.onnx"):
        assert [one.version for one in onnx.load(path).opset_import] == [OPSET]


@pytest.mark.parametrize("task", ["classify", "lm"])
def test_int8_is_smaller_and_says_nearly_the_same(task, tmp_path):
    predictor = trained(task, tmp_path, {"model.hidden": 64, "model.embedding": 32}, updates=3)
    plain = exported(predictor, tmp_path)
    (tmp_path / "more").mkdir()
    small = exported(predictor, tmp_path / "more", int8=True)
    sizes = [(folder / "sequence.onnx").stat().st_size for folder in (plain, small)]
    assert sizes[1] < 0.5 * sizes[0]
    texts = WORDS
    found, wanted = (open_written(folder)(texts) for folder in (small, plain))
    if task == "classify":
        assert max(map(distance, found, wanted)) < 0.1
    else:
        ids = {"ids": np.array([[2, 4, 5]]), "lengths": np.array([3])}
        a, b = (load(folder).sequence.run(["log_probabilities"], ids)[0] for folder in (small, plain))
        assert 0 < np.abs(a - b).max() < 0.1


def test_draws_have_the_models_distribution(tmp_path):
    settings = {"decoding.strategy": "sample", "decoding.max_length": 1, "decoding.temperature": 0.8}
    settings |= {"decoding.top_k": 4, "decoding.n_best": 4000}
    predictor = trained("lm", tmp_path, settings)
    model = load(exported(predictor, tmp_path))
    drawn = [
        [one.text for one in predictor.details(["the"])[0].written.n_best],
        [text for text, *_ in model.details(["the"])[0].n_best],
    ]
    shares = [{word: own.count(word) / len(own) for word in {*drawn[0], *drawn[1]}} for own in drawn]
    assert len(shares[0]) <= 4
    assert all(abs(shares[0][word] - shares[1][word]) < 0.05 for word in shares[0])


@pytest.mark.parametrize(
    ("task", "settings", "said"),
    [
        ("classify", {"model.network": "bag"}, "Bag"),
        ("lm", {"model.network": "window"}, "Window"),
        ("seq2seq", {"decoding.strategy": "diverse", "decoding.n_best": 2}, "diverse"),
    ],
)
def test_what_cannot_be_exported_is_named(task, settings, said, tmp_path):
    one = ready(task, tmp_path, settings)
    with pytest.raises(ExportError, match=said):
        exported(Predictor(None, one.task, one.model), tmp_path)
