"""Choosing and drawing among many tokens by chunks, against choosing and drawing among all."""

import pytest
import torch

from elman.decoding.candidates import best_candidates, best_tokens, top_places
from elman.decoding.draws import Urn
from elman.tensors.rows import Groups

SIZES = [1, 3, 64, 512, 513, 576, 1000]


def table(N, size, *, tied, seed=0):
    values = torch.randn(N, size, generator=torch.Generator().manual_seed(seed))
    values = values.round() if tied else values
    values[torch.rand(N, size, generator=torch.Generator().manual_seed(seed + 1)) < 0.1] = -torch.inf
    values[-1, size // 2 :] = -torch.inf
    return values


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_the_best_token_is_the_first_argmax(size, tied):
    values = table(20, size, tied=tied)
    expected = [row.index(max(row)) for row in values.tolist()]
    assert best_tokens(values).tolist() == expected


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("k", [1, 4, 30])
def test_the_best_candidates_are_those_of_a_sort(size, tied, k):
    examples = torch.tensor([1, 1, 1, 3, 4, 4, 4, 4, 7])
    values = table(len(examples), size, tied=tied)
    so_far = torch.randn(len(examples), dtype=torch.float64).round(decimals=0 if tied else 5)
    found = best_candidates(values, so_far, Groups.of(examples), k)
    assert found.examples.tolist() == [1, 3, 4, 7]
    for number, example in enumerate(found.examples.tolist()):
        every = [
            (-(so_far[row].item() + value), row, token)
            for row in (examples == example).nonzero().squeeze(1).tolist()
            for token, value in enumerate(values[row].tolist())
            if value > -torch.inf
        ]
        expected = sorted(every)[:k]
        columns = (found.values[number], found.rows[number], found.tokens[number])
        listed = list(zip(*(column.tolist() for column in columns), strict=True))
        assert [(-value, row, token) for value, row, token in listed[: len(expected)]] == expected
        assert all(value == -torch.inf for value, _, _ in listed[len(expected) :])


def test_places_of_the_greatest_of_equals_are_the_first():
    values = torch.zeros(3, 100)
    values[1, 50] = 1.0
    values[2, ::2] = -torch.inf
    assert top_places(values, 3).tolist() == [[0, 1, 2], [0, 1, 50], [1, 3, 5]]
    assert top_places(values[:, :2], 3).tolist() == [[0, 1]] * 3


@pytest.mark.parametrize("size", SIZES)
def test_every_token_is_drawn_as_often_as_its_weight_says(size):
    N, generator = 20_000, torch.Generator().manual_seed(1)
    weights = torch.rand(size, generator=generator) ** 8
    weights[: size // 2] = 0.0  # whole chunks of it
    tokens = Urn(weights.expand(N, -1)).draw(2, generator)
    for column in tokens.unbind(1):
        shares = torch.bincount(column, minlength=size) / N
        assert (shares[weights == 0] == 0).all()
        assert torch.allclose(shares, weights / weights.sum(), atol=0.02)


@pytest.mark.parametrize("size", SIZES)
def test_what_was_removed_is_not_drawn_again(size):
    generator = torch.Generator().manual_seed(2)
    given = torch.rand(5, size, generator=generator) + 0.1
    urn, seen = Urn(given.clone()), []
    assert torch.allclose(urn.total.float(), given.sum(1))
    for _ in range(min(size, 40)):
        tokens = urn.draw(1, generator).squeeze(1)
        assert torch.equal(urn.remove(tokens), given.gather(1, tokens[:, None]).squeeze(1))
        seen.append(tokens.tolist())
    assert all(len(set(row)) == len(seen) for row in zip(*seen, strict=True))
    left = given.scatter(1, torch.tensor(seen).T, 0.0)
    assert torch.allclose(urn.total.float(), left.sum(1), atol=1e-4)
