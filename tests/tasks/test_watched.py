"""Validation examples that are watched: with the truth fed, and with its own outputs."""

import pytest
import torch

from elman.tasks.watched import LONGEST
from tiny_tasks import ready


@pytest.mark.parametrize("task", ["seq2seq", "class2seq"])
def test_what_comes_out_is_what_a_forward_pass_says(task, tmp_path):
    settings = {"model.attention": "additive"} if task == "seq2seq" else {}
    one = ready(task, tmp_path, settings)
    before = torch.get_rng_state()
    found = one.task.watched(one.model, one.examples)
    assert torch.get_rng_state().equal(before)
    field = one.task.target if task == "seq2seq" else one.task.field
    for number, watched in enumerate(found):
        batch = one.task.collate(one.examples, [number], torch.device("cpu"))
        if task == "seq2seq":
            source = one.model.read(batch.sources, batch.source_lengths)
            logits = one.model.logits(one.model(source, batch.previous, batch.lengths))
            shape = len(watched.truth), int(batch.source_lengths)
            assert torch.tensor(watched.weights).shape == shape
            assert torch.tensor(watched.weights).sum(1).sub(1).abs().max() <= 0.005 * shape[1]
        else:
            logits = one.model(batch.classes, batch.previous, batch.lengths)[0]
            assert watched.weights is None
        said = [field.vocabulary.tokens[i] for i in logits.argmax(-1).tolist()]
        assert watched.forced == said[:LONGEST]
        assert watched.free[0] == watched.forced[0]
        assert watched.truth[-1] == field.end


def test_only_tasks_that_write_from_something_are_watched(tmp_path):
    one = ready("lm", tmp_path)
    assert one.task.watched(one.model, one.examples) == []


def test_long_examples_are_cut(tmp_path):
    letters = " ".join("ab" * 40)
    one = ready("seq2seq", tmp_path, {"model.attention": "dot"}, data=f"{letters}\t{letters}\n")
    [watched] = one.task.watched(one.model, one.examples)
    assert len(watched.source) == len(watched.truth) == len(watched.weights) == LONGEST
    assert {len(row) for row in watched.weights} == {LONGEST}
