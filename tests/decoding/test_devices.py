"""Distributions may lie on another device than what the search knows of its rows: the choice is the same."""

import pytest
import torch
from step_functions import STOP, Model, run

from elman.decoding import base, beam, greedy
from elman.decoding.beam import Beam
from elman.decoding.candidates import best_candidates, best_candidates_apart, best_of_rows
from elman.decoding.diverse import Diverse
from elman.decoding.greedy import Greedy
from elman.decoding.processors import NoRepeat, Prefix
from elman.decoding.sample import Sample
from elman.tensors.nested import map_tensors
from elman.tensors.rows import Groups
from elman.tensors.transfer import fetched

STRATEGIES = {
    "greedy": (Greedy, {}, 1),
    "beam": (Beam, {"beam": 4}, 3),
    "short": (Beam, {"beam": 3, "length_penalty": 0.0}, 1),
    "wide": (Beam, {"beam": 9}, 9),
    "sample": (Sample, {"seed": 2, "top_p": 0.9}, 3),
    "diverse": (Diverse, {"seed": 2}, 3),
}
RULES = [
    {},
    {"stop": {STOP}, "min_length": 2},
    {"banned": [0], "processors": [NoRepeat(2), Prefix([[1, 2], [], [3], [], [1], [], [2]])]},
]


def searched(strategy, *, model=None, **options):
    kind, own, n_best = STRATEGIES[strategy]
    model = model or Model(1, sharpness=1.5)
    return run(kind(**own), 7, model, n_best=n_best, keep_shown=False, **options)


@pytest.mark.parametrize("grain", [None, 0.5, 4.0])
@pytest.mark.parametrize(("size", "k"), [(5, 3), (5, 5), (5, 8), (600, 4)])
def test_the_best_of_each_row_are_enough(size, k, grain):
    for seed in range(20):
        draw = torch.Generator().manual_seed(seed)
        examples = torch.randint(6, (9,), generator=draw).sort().values
        log_probs = torch.randn(9, size, generator=draw)
        log_probs = log_probs if grain is None else (log_probs / grain).round() * grain  # ties
        log_probs[torch.rand(9, size, generator=draw) < 0.3] = -torch.inf
        so_far = torch.randint(3, (9,), generator=draw).double()
        groups = Groups.of(examples)
        expected = best_candidates(log_probs, so_far, groups, k)
        found, values = best_candidates_apart(log_probs, so_far, groups, k)
        real = expected.values != -torch.inf
        assert torch.equal(found.values, expected.values)
        assert torch.equal(found.rows[real], expected.rows[real])
        assert torch.equal(found.tokens[real], expected.tokens[real])
        assert torch.equal(values[real], log_probs[found.rows, found.tokens][real])


def test_a_nan_is_among_the_best():
    values, _ = best_of_rows(torch.tensor([[0.0, torch.nan, 1.0]]), 1)
    assert values.isnan().all()


@pytest.mark.parametrize("rules", RULES, ids=["free", "stops", "rules"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_choice_is_the_same_where_distributions_lie_elsewhere(strategy, rules, monkeypatch):
    expected = searched(strategy, **rules)
    for module in (base, beam, greedy):
        monkeypatch.setattr(module, "apart", lambda *_: True)
    assert (searched(strategy, **rules)) == (expected)
    model = Model(2, grain=0.5)
    tied = searched(strategy, model=model, **rules)
    monkeypatch.undo()
    assert (tied) == (searched(strategy, model=model, **rules))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("rules", RULES, ids=["free", "stops", "rules"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_card_finds_the_same(strategy, rules):
    expected = searched(strategy, **rules)
    model = Model(1, sharpness=1.5)
    model.embedding, model.W, model.U = (part.cuda() for part in (model.embedding, model.W, model.U))
    kind, own, n_best = STRATEGIES[strategy]
    start = map_tensors(torch.Tensor.cuda, model.start(7))
    first = (torch.arange(7) % 4).cuda()
    options = {"n_best": n_best, "keep_shown": False, "trace": 2, **rules}
    found = run(kind(**own), 7, model, start, first, **options)
    for one, other in zip(found, expected, strict=True):
        assert [mine.tokens for mine in one.hypotheses] == [theirs.tokens for theirs in other.hypotheses]
        scores = [theirs.score for theirs in other.hypotheses]
        assert [mine.score for mine in one.hypotheses] == pytest.approx(scores)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_all_that_is_fetched_arrives():
    given = torch.tensor([[1, 2**40]]), torch.tensor([0.1, -torch.inf]), torch.tensor([True, False])
    for found, expected in zip(fetched(*(one.cuda() for one in given)), given, strict=True):
        assert found.is_cpu
        assert torch.equal(found, expected)
        assert found.dtype == expected.dtype
