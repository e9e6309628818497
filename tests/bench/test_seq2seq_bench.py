"""The peer of the benchmarks computes what ours does, and the benchmarks run."""

import json
import sys
from pathlib import Path

import pytest
import torch

from elman.bench.timing import Times
from elman.config import DecodingSettings
from elman.tasks.seq2seq_writer import Seq2SeqWriter

FOLDER = Path(__file__).parents[2] / "benchmarks"
WORDS = ("one two three four five six seven eight", "eins zwei drei vier fünf sechs sieben acht")
GREEDY = DecodingSettings(strategy="greedy", max_length=12)


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch):
    """Its files find each other as they do when one of them is run; afterwards nobody else finds them."""
    monkeypatch.syspath_prepend(str(FOLDER))
    yield
    for path in FOLDER.glob("*.py"):
        sys.modules.pop(path.stem, None)


@pytest.fixture
def data():
    """Numbers from one to eight, counted upwards, in two languages."""
    from corpus import Corpus

    source, target = (words.split() for words in WORDS)
    pairs = [
        (" ".join(source[start:end]), " ".join(target[start:end]))
        for end in range(1, 9)
        for start in range(end)
    ]
    return Corpus("counting", pairs, [source for source, _ in pairs[::2]])


@pytest.fixture(params=["after", "before"])
def bench(data, request):
    from contenders import prepare

    return prepare(data, request.param, H=12, batch=6, pairs=36, sentences=18)


def shaken(bench):
    """A model whose outputs differ and end at different lengths, though it has learned nothing."""
    from contenders import fresh

    model = fresh(bench.task).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.5 * torch.randn_like(weight))
    return model


@pytest.mark.parametrize("together", [1, 5])
@pytest.mark.parametrize("beam", [None, 1, 3, 20])
def test_plain_writes_what_ours_writes(bench, beam, together):
    from contenders import PlainWriter, to_plain

    from elman.tasks.generation import Generation

    settings = GREEDY if beam is None else GREEDY.model_copy(update={"strategy": "beam", "beam": beam})
    model = shaken(bench)
    answers = Generation(bench.task.writer).predict(model, bench.sources, settings)
    writer = PlainWriter(to_plain(model), bench.task, settings)
    expected = [answer["text"] for answer in answers]
    assert writer.write(bench.sources, together=together) == expected
    assert writer.write(bench.sources, together=together, by_length=True) == expected
    assert {answer["stopped"] for answer in answers} == {"end", "length"}
    assert len(set(expected)) > 3


def test_plain_has_the_loss_and_the_gradients_of_ours(bench):
    from contenders import ours_loss, pairs, plain_loss, to_plain

    model = shaken(bench)
    peer = to_plain(model)
    for batch in bench.batches(3):
        losses = ours_loss(bench.task, model, batch), plain_loss(peer, batch)
        torch.testing.assert_close(*losses)
        for loss in losses:
            loss.backward()
    for ours, its in pairs(model, peer):
        torch.testing.assert_close(ours.grad, its.grad, rtol=1e-4, atol=1e-5)
    cell = model.rnn.cells[0][0]
    torch.testing.assert_close(cell.W_h.grad, peer.decoder.weight_hh_l0.grad.t(), rtol=1e-4, atol=1e-5)


def test_weights_go_there_and_back(bench):
    from contenders import fresh, from_plain, to_plain

    model, other = shaken(bench), fresh(bench.task)
    from_plain(to_plain(model), other)
    expected = model.state_dict()
    for name, weight in other.state_dict().items():
        assert torch.equal(weight, expected[name]), name


def test_all_weights_of_plain_are_used(bench):
    from contenders import fresh, plain_loss, to_plain

    peer = to_plain(fresh(bench.task))
    plain_loss(peer, next(bench.batches(1))).backward()
    assert all(weight.grad is not None and weight.grad.any() for weight in peer.parameters())


def test_the_report(data, tmp_path, monkeypatch):
    import seq2seq

    monkeypatch.setattr(seq2seq, "FORCED", (3, 6))
    monkeypatch.setattr(seq2seq, "BEAMS", (2,))
    scale = seq2seq.Scale(H=8, batch=6, pairs=36, sentences=9, updates=5, batches=2, rounds=2)
    report = seq2seq.run(data, scale, tmp_path, seq2seq.GROUPS)
    assert json.loads(json.dumps(report, allow_nan=False))["data"] == "counting"
    decoding = [case for case in report["cases"] if case["group"] == "decoding"]
    assert len(decoding) == 2 * 2 * 2  # placements × searches × ways of the peer
    assert all(case["agreement"] == 1 and case["ours"]["runs"] == 2 for case in decoding)
    training = [case for case in report["cases"] if case["group"] == "training"]
    assert len(training) == 2
    assert all(case["agreement"] < 1e-5 for case in training)
    assert [(one["search"], one["length"]) for one in report["lengths"]] == [
        ("greedy", 3),
        ("greedy", 6),
        ("beam 5", 3),
        ("beam 5", 6),
    ]
    assert [one["rows"] for one in report["memory"]] == [18]
    assert len(list(tmp_path.glob("counting-*.pt"))) == 2
    printed = "\n".join(seq2seq.lines(report))
    assert f"{Seq2SeqWriter.together} sentences at once" in printed
    assert "beam 5, before (additive) vs batched" in printed


def test_trained_weights_are_read_again(bench, tmp_path):
    from contenders import trained

    first = trained(bench, 2, tmp_path / "new" / "weights.pt")
    again = trained(bench, 10**9, tmp_path / "new" / "weights.pt")
    for name, weight in again.state_dict().items():
        assert torch.equal(weight, first.state_dict()[name])


def test_a_line_says_what_was_missed():
    import seq2seq

    def row(target):
        both = Times.of([0.5]), Times.of([1.0])
        return seq2seq.comparison_row(
            seq2seq.Comparison("decoding", "a case", "sentences", 100, *both, target, 0.999).as_json()
        )

    assert row(2.0) == ("a case", "200", "100", "2.00×", "2×", "99.9%")
    assert row(2.5)[4] == "2.5× missed"


def test_runs_take_turns():
    import seq2seq

    order = []
    times = seq2seq.in_turn([lambda: order.append("a"), lambda: order.append("b")], 3)
    assert "".join(order) == "baabba"
    assert [one.runs for one in times] == [3, 3]


def test_sentences_are_made_where_there_are_none(tmp_path):
    import corpus

    made = corpus.find(tmp_path)
    assert made == corpus.find(None)
    assert (made.name, len(made.pairs), len(made.sources)) == ("generated", 29_000, 1_000)
    lengths = [len(source.split()) for source, _ in made.pairs]
    assert abs(sum(lengths) / len(lengths) - corpus.MEAN) < 0.1
    assert made.pairs[0][1] == made.pairs[0][0].replace("s", "t")


def test_multi30k_is_found(tmp_path):
    import lzma

    import corpus

    place = tmp_path / corpus.FOLDER
    place.mkdir(parents=True)
    for language, text in (("en", "a dog .\n"), ("de", "ein hund .\n")):
        (place / corpus.TRAIN.format(language)).write_bytes(lzma.compress(text.encode()))
        (place / corpus.TEST.format(language)).write_text(text, encoding="utf-8")
    assert corpus.find(tmp_path) == corpus.Corpus("Multi30k", [("a dog .", "ein hund .")], ["a dog ."])
