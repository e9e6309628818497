"""Several models as one step function."""

import pytest
import torch
from step_functions import END, Model, Table, produced, row_of

from elman.decoding.base import decode
from elman.decoding.beam import Beam
from elman.decoding.ensemble import ensemble
from elman.decoding.greedy import Greedy
from elman.errors import ArgumentError


def together(models, N, strategy=None, **options):
    options = {"end": END, "max_length": 6, **options}
    step, state = ensemble(models), tuple(model.start(N) for model in models)
    return decode(step, torch.arange(N), state, strategy or Beam(beam=3), **options)


def test_probabilities_are_averaged_at_every_step():
    models, N = [Model(seed) for seed in range(3)], 4
    for row, found in enumerate(together(models, N, n_best=2)):
        for one in found.hypotheses:
            states, previous, total = [row_of(model, N, row) for model in models], row, 0.0
            for token in produced(one):
                pairs = zip(models, states, strict=True)
                results = [model(torch.tensor([previous]), state) for model, state in pairs]
                total += torch.stack([log_probs.exp() for log_probs, _, _ in results]).mean(0)[0, token].log()
                states, previous = [state for _, state, _ in results], token
            assert one.log_probability == pytest.approx(float(total))
            assert [int(shown["read"]) for shown in one.shown] == [row, *produced(one)[:-1]]


def test_a_model_with_itself_is_itself():
    model, N = Model(1), 4
    alone = decode(model, torch.arange(N), model.start(N), Beam(beam=3), end=END, max_length=6)
    for count in (1, 2, 3):
        for one, other in zip(together([model] * count, N), alone, strict=True):
            assert one.best.tokens == other.best.tokens
            assert one.best.log_probability == pytest.approx(other.best.log_probability)


def test_what_all_rule_out_stays_out():
    step = ensemble([Table([0.0, 0.6, 0.4]), Table([0.0, 0.1, 0.9])])
    log_probs, _, _ = step(torch.tensor([0]), (None, None))
    assert log_probs[0].exp().tolist() == pytest.approx([0.0, 0.35, 0.65])
    [found] = decode(step, torch.tensor([0]), (None, None), Greedy(), end=0, max_length=2)
    assert found.best.tokens == [2, 2]


def test_members_must_fit():
    with pytest.raises(ArgumentError, match="model 1 of an ensemble knows 2 tokens, the first 3"):
        ensemble([Table([0.2, 0.3, 0.5]), Table([0.5, 0.5])])(torch.tensor([0]), (None, None))
    with pytest.raises(ArgumentError, match="an ensemble of no models"):
        ensemble([])
