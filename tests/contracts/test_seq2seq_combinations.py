"""Every part of an encoder–decoder fits every other: a sample in which all pairs of choices meet."""

import json
import random
from itertools import combinations

import numpy as np
import pytest
import torch

from elman.registry import ATTENTIONS
from elman.tasks.seq2seq_settings import Seq2SeqDecoding
from elman.text.vocabulary import END
from elman.training.loop import Trainer
from tiny_tasks import CPU, TEXTS, ready

CELLS = ("elman", "gru", "lstm", "layer_norm_lstm")
DEPTHS = (1, 2, 3)
FACTORS = {
    "model.encoder.cell": CELLS,
    "model.decoder.cell": CELLS,
    "model.encoder.layers": DEPTHS,
    "model.decoder.layers": DEPTHS,
    "model.decoder.hidden": (5, 10, 3),  # as wide as one direction of the encoder, as both, and narrower
    "model.encoder.bidirectional": (False, True),
    "model.start": ("copy", "transform", "zero"),
    "model.context": ("start", "every-step"),
    "model.attention": ("none", *ATTENTIONS.names()),
    "model.placement": ("before", "after"),
    "model.input_feeding": (False, True),
    "model.tied": (False, True, "all"),
    "model.dropout": (0.0, 0.3),
    "training.teacher_forcing": (1.0, 0.5),
    "training.teacher_forcing_schedule": ("constant", "linear"),
}
NAMES = tuple(FACTORS)
SAMPLE = 56
TRIED = 40  # combinations of which the one that brings most is taken


def meetings(case, order):
    """The choices that meet in a case, as so many at a time."""
    return set(combinations(((name, case[name]) for name in NAMES), order))


def spread_sample():
    """Cases that bring together new triples of choices, as many as possible each."""
    draw, seen, cases = random.Random(1), set(), []
    while len(cases) < SAMPLE:
        tried = [{name: draw.choice(values) for name, values in FACTORS.items()} for _ in range(TRIED)]
        best = max(tried, key=lambda case: len(meetings(case, 3) - seen))
        seen |= meetings(best, 3)
        cases.append(best)
    for case in cases:
        if case["model.attention"] == "none":
            case["model.placement"] = "before"  # where nobody looks, nothing reads another
    return cases


TWO = spread_sample()
ONE = [  # one network has fewer parts (row E6)
    {"model.form": form, "model.cell": cell, "model.layers": layers, "model.tied": tied}
    for form, cell, layers, tied in (
        ("single", "elman", 1, False),
        ("single", "gru", 2, True),
        ("single", "lstm", 3, "all"),
        ("single", "layer_norm_lstm", 1, True),
        ("naive", "elman", 3, True),
        ("naive", "gru", 1, "all"),
        ("naive", "lstm", 2, False),
        ("naive", "layer_norm_lstm", 2, False),
    )
]


def named(cases):
    return [pytest.param(case, id=" ".join(str(value) for value in case.values())) for case in cases]


def test_all_pairs_meet():
    wanted = set()
    for (one, values), (other, others) in combinations(FACTORS.items(), 2):
        wanted |= {((one, a), (other, b)) for a in values for b in others}
    wanted.remove((("model.attention", "none"), ("model.placement", "after")))
    found = set().union(*(meetings(case, 2) for case in TWO))
    assert found == wanted


@pytest.mark.parametrize("case", named([*TWO, *ONE]))
def test_it_trains_decodes_and_continues(case, tmp_path):
    settings = {
        **case,
        "text.shared": case["model.tied"] == "all",
        "model.input_dropout": 0.1,
        "training.batch_size": 3,
        "training.max_steps": 2,
    }
    one = ready("seq2seq", tmp_path, settings)
    before = {name: weight.clone() for name, weight in one.model.state_dict().items()}
    straight = trained(one, one.model, 2)
    one.model.load_state_dict(before)
    first = trained(one, one.model, 1)
    continued = trained(one, one.task.build_model(), 1, after=first)
    assert_same(continued, straight)
    assert any(not torch.equal(weight, before[name]) for name, weight in one.model.named_parameters())
    one.model.eval()
    check_decoding(one)


def trained(one, model, updates, after=None):
    """What a trainer could be continued from after some updates, themselves the first or later ones."""
    torch.manual_seed(5)
    trainer = Trainer(one.task, model, one.examples, one.examples, CPU)
    if after is not None:
        trainer.restore(**after)
    run = trainer.run()
    for _ in range(updates):
        next(run)
    found = trainer.snapshot()
    state = json.loads(json.dumps(found.pop("state")))
    parts = {part: {name: tensor.clone() for name, tensor in found[part].items()} for part in found}
    return {**parts, "state": state}


def assert_same(found, expected):
    """Bit for bit."""
    assert found["state"] == expected["state"]
    for part in ("model", "optimizer", "extra"):
        assert found[part].keys() == expected[part].keys()
        for name, tensor in found[part].items():
            assert torch.equal(tensor, expected[part][name]), name


def check_decoding(one):
    """What search says of a sequence is what the network says that reads it as the truth."""
    task, model, texts = one.task, one.model, TEXTS["seq2seq"]
    sources = [text for text in texts if text]
    wide = Seq2SeqDecoding(beam=3, n_best=2, max_length=6)
    for source, found in zip(sources, task.generation.search(model, sources, wide), strict=True):
        assert 1 <= len(found.hypotheses) <= 2
        for hypothesis in found.hypotheses:
            forced = probability(one, source, hypothesis)
            assert hypothesis.log_probability == pytest.approx(forced, abs=1e-4)
    greedy, narrow = (
        [answer["tokens"] for answer in task._write(model, texts, settings)]
        for settings in (
            Seq2SeqDecoding(strategy="greedy", min_length=2, max_length=6),
            Seq2SeqDecoding(strategy="beam", beam=1, min_length=2, max_length=6),
        )
    )
    assert greedy == narrow
    assert [len(tokens) >= 2 for tokens in greedy] == [bool(text) for text in texts]


def probability(one, source, hypothesis):
    """The logarithm, of the whole sequence at once."""
    task = one.task
    rows, first = task.writer.first_tokens([np.array(task.source.ids(source))])
    end = [task.target.vocabulary.id(END)] if hypothesis.stopped == "end" else []
    target = torch.tensor([*hypothesis.tokens, *end])
    previous = torch.cat([torch.as_tensor(first), target[:-1]])
    read = torch.as_tensor(rows[0])[None]
    with torch.no_grad():
        memory = one.model.read(read, torch.tensor([read.shape[1]]))
        readouts = one.model(memory, previous[None], torch.tensor([len(target)]))
        log_probs = one.model.logits(readouts).log_softmax(-1)
    return float(log_probs[torch.arange(len(target)), target].sum())
