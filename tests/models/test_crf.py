"""The CRF against the sum over all tag sequences, written out."""

import itertools
import math
from fractions import Fraction

import pytest
import torch

from comparison import assert_close
from elman.errors import ArgumentError, ShapeError
from elman.metrics.spans import legal_transitions, well_formed
from elman.models.crf import CRF

LENGTHS = torch.tensor([4, 1, 3, 2])


def made(K=3, dtype=torch.float64):
    crf = CRF(K).to(dtype)
    for parameter in crf.parameters():
        torch.nn.init.normal_(parameter)
    return crf


def score(crf, scores, tags):
    """s(y) of one sentence, by the definition."""
    total = crf.start[tags[0]] + crf.end[tags[-1]]
    total = total + sum(scores[t, tag] for t, tag in enumerate(tags))
    return total + sum(crf.transitions[before, after] for before, after in itertools.pairwise(tags))


def legal_paths(crf, length):
    K, allowed = crf.tags, crf.allowed.tolist()
    for tags in itertools.product(range(K), repeat=length):
        if all(allowed[before][after] for before, after in itertools.pairwise((K, *tags, K))):
            yield tags


def enumerated(crf, scores, tags, lengths):
    rows = []
    for row, length in enumerate(lengths.tolist()):
        everything = torch.stack([score(crf, scores[row], path) for path in legal_paths(crf, length)])
        rows.append(score(crf, scores[row], tags[row, :length].tolist()) - everything.logsumexp(0))
    return torch.stack(rows)


def values_and_gradients(crf, scores, compute):
    crf.zero_grad()
    scores = scores.clone().requires_grad_()
    values = compute(scores)
    (values * torch.arange(1, len(values) + 1)).sum().backward()
    gradients = {
        name: torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
        for name, parameter in crf.named_parameters()
    }
    return {"values": values.detach(), "scores": scores.grad, **gradients}


NO_CONSTRAINT = torch.ones(4, 4, dtype=torch.bool)
SOME = NO_CONSTRAINT.clone()
SOME[0, 1] = SOME[2, 2] = SOME[3, 2] = SOME[0, 3] = False  # two transitions, a start and an end


@pytest.mark.parametrize("allowed", [NO_CONSTRAINT, SOME], ids=["free", "constrained"])
@pytest.mark.parametrize("lengths", [LENGTHS, torch.tensor([1]), torch.tensor([4, 4])])
def test_likelihood_is_that_of_all_sequences_written_out(lengths, allowed):
    crf = made()
    crf.constrain(allowed)
    B, T = len(lengths), int(lengths.max())
    scores = torch.randn(B, T, 3, dtype=torch.float64) * 3
    tags = torch.ones(B, T, dtype=torch.long)  # 1 1 1 … is legal in both
    found = values_and_gradients(crf, scores, lambda s: crf.log_likelihood(s, tags, lengths))
    expected = values_and_gradients(crf, scores, lambda s: enumerated(crf, s, tags, lengths))
    assert_close(found, expected, 1e-9)
    if allowed is SOME:
        assert found["transitions"][0, 1] == found["start"][2] == found["end"][0] == 0


def test_the_likelihoods_of_all_sequences_make_one():
    crf = made()
    crf.constrain(SOME)
    scores = torch.randn(1, 4, 3, dtype=torch.float64)
    paths = torch.tensor(list(legal_paths(crf, 4)))
    found = crf.log_likelihood(scores.expand(len(paths), 4, 3), paths, [4] * len(paths))
    assert math.isclose(found.exp().sum().item(), 1.0, rel_tol=1e-12)


@pytest.mark.parametrize("allowed", [NO_CONSTRAINT, SOME], ids=["free", "constrained"])
def test_decoding_finds_the_best_legal_sequence(allowed):
    crf = made()
    crf.constrain(allowed)
    for _ in range(20):
        scores = torch.randn(4, 4, 3, dtype=torch.float64)
        expected = []
        for row, length in zip(scores, LENGTHS.tolist(), strict=True):
            paths = list(legal_paths(crf, length))
            values = torch.stack([score(crf, row, path) for path in paths])
            expected.append(list(paths[int(values.argmax())]))
        assert crf.decode(scores, LENGTHS) == expected


@pytest.mark.parametrize("filling", [0.0, 1e30, math.inf, math.nan])
def test_padding_reaches_nothing(filling):
    crf = made(dtype=torch.float32)
    real = (torch.arange(6) < LENGTHS[:, None])[..., None]
    scores = torch.randn(4, 6, 3)
    tags = torch.randint(3, (4, 6))
    padded = scores.where(real, filling)
    wrong_tags = tags.where(real[..., 0], -100)
    found = values_and_gradients(crf, padded, lambda s: crf.log_likelihood(s, wrong_tags, LENGTHS))
    assert (found["scores"].where(real, 0) == found["scores"]).all()
    for row, length in enumerate(LENGTHS.tolist()):
        alone = scores[row : row + 1, :length]
        expected = crf.log_likelihood(alone, tags[row : row + 1, :length], [length])
        assert_close({"row": found["values"][row : row + 1]}, {"row": expected.detach()}, 1e-5)
        assert crf.decode(padded, LENGTHS)[row] == crf.decode(alone, [length])[0]
    assert all(gradient.isfinite().all() for gradient in found.values())


@pytest.mark.parametrize("size", [1e-3, 10.0, 100.0])
def test_large_scores_are_summed_as_exactly_as_by_logsumexp(size):
    K, T = 9, 30
    crf = made(K, torch.float32)
    scores, tags = torch.randn(5, T, K) * size, torch.randint(K, (5, T))
    alpha = (crf.start + scores[:, 0]).double()
    for t in range(1, T):
        alpha = (alpha[:, :, None] + crf.transitions).logsumexp(1) + scores[:, t]
    total = (alpha + crf.end).logsumexp(1)
    own = torch.stack(
        [score(crf, row.double(), path) for row, path in zip(scores, tags.tolist(), strict=True)]
    )
    found = values_and_gradients(crf, scores, lambda s: crf.log_likelihood(s, tags, [T] * 5))
    assert_close({"values": found["values"]}, {"values": (own - total).detach().float()}, 1e-4 * size + 1e-4)
    assert all(gradient.isfinite().all() for gradient in found.values())


FLOAT32 = torch.finfo(torch.float32).max
SIZES = {  # of scores, start, transitions and end: what each number is drawn from
    "usual": [3.0],
    "a thousand": [1e3],
    "ten thousand": [1e4],
    "mixed": [1e-3, 1.0, 700.0, 1e4, 1e6],
    "limits of float32": [1.0, 1e4, 1e20, FLOAT32],
}


def exact(crf, scores, tags, lengths):
    """log p(tags) (B,), marginals (B, T, K), expected transitions (K, K) and a best score, from fractions."""
    B, T, K = scores.shape
    start, transitions, end = (
        [[Fraction(x) for x in row] for row in part.detach().reshape(-1, K).tolist()]
        for part in (crf.start, crf.transitions, crf.end)
    )
    likelihoods, best = [], []
    marginals, pairs = torch.zeros(B, T, K, dtype=torch.float64), torch.zeros(K, K, dtype=torch.float64)
    for b, length in enumerate(lengths.tolist()):
        own = [[Fraction(x) for x in row] for row in scores[b].tolist()]
        totals = {}
        for path in legal_paths(crf, length):
            total = start[0][path[0]] + end[0][path[-1]] + sum(own[t][tag] for t, tag in enumerate(path))
            totals[path] = total + sum(transitions[i][j] for i, j in itertools.pairwise(path))
        top = max(totals.values())
        weights = {path: math.exp(max(total - top, -2000)) for path, total in totals.items()}
        Z = math.fsum(weights.values())
        for path, weight in weights.items():
            for t, tag in enumerate(path):
                marginals[b, t, tag] += weight / Z
            for i, j in itertools.pairwise(path):
                pairs[i, j] += weight / Z
        true = totals.get(tuple(tags[b, :length].tolist()))
        likelihoods.append(-math.inf if true is None else float(true - top) - math.log(Z))
        best.append({path for path, total in totals.items() if total == top})
    return torch.tensor(likelihoods, dtype=torch.float64), marginals, pairs, best


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("allowed", [NO_CONSTRAINT, SOME], ids=["free", "constrained"])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_any_finite_scores_are_summed_exactly(sizes, allowed, dtype):
    """Against all sequences in exact fractions: only the rounding of float64 sums is left."""
    crf, lengths = CRF(3).to(dtype), torch.tensor([5, 1, 3])
    crf.constrain(allowed)
    sizes = torch.tensor(sizes, dtype=dtype)

    def drawn(*shape):
        return (torch.rand(shape, dtype=dtype) * 2 - 1) * sizes[torch.randint(len(sizes), shape)]

    for _ in range(8):
        for part in crf.parameters():
            part.data.copy_(drawn(*part.shape))
        scores, tags = drawn(3, 5, 3), torch.randint(3, (3, 5))
        expected, marginals, pairs, best = exact(crf, scores, tags, lengths)
        found = values_and_gradients(
            crf, scores, lambda s, tags=tags: crf.log_likelihood(s, tags, lengths) / torch.arange(1, 4)
        )
        rounding = 1e-14 * float(sizes.max())
        rounded = {"rtol": 1e-6 if dtype == torch.float32 else 1e-13, "atol": 1e-12 + rounding}
        value = crf.log_likelihood(scores, tags, lengths).detach()
        torch.testing.assert_close(value, expected.to(dtype), **rounded)  # beyond the range: -inf
        if rounding > 1e-3:  # where large numbers cancel, what is left of the small ones is rounding
            continue
        close = {"rtol": 0.0, "atol": rounding + (1e-6 if dtype == torch.float32 else 1e-12)}
        torch.testing.assert_close(crf.marginals(scores, lengths).double(), marginals, **close)
        real = (torch.arange(5) < lengths[:, None])[..., None]
        true = torch.nn.functional.one_hot(tags, 3) * real
        kept = crf.permits(tags, lengths)  # what is impossible has no gradient
        by_scores = (true - marginals) * kept[:, None, None]
        torch.testing.assert_close(found["scores"].double(), by_scores, **close)
        if kept.all():
            seen = torch.zeros(3, 3, dtype=torch.float64)
            for row, length in zip(tags.tolist(), lengths.tolist(), strict=True):
                for i, j in itertools.pairwise(row[:length]):
                    seen[i, j] += 1
            torch.testing.assert_close(found["transitions"].double(), seen - pairs, **close)
        for path, candidates in zip(crf.decode(scores, lengths), best, strict=True):
            assert tuple(path) in candidates


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("size", [1e3, 1e4, 1e20, FLOAT32 / 2])
def test_what_lies_far_behind_may_win_in_the_end(size, dtype):
    """The first word speaks for tag 0, the second as loudly for tag 1, which may not follow tag 0."""
    crf = CRF(2).to(dtype)
    allowed = torch.ones(3, 3, dtype=torch.bool)
    allowed[0, 1] = False
    crf.constrain(allowed)
    scores = torch.tensor([[[size, 0], [0, 2 * size]]], dtype=dtype)
    assert crf.decode(scores, [2]) == [[1, 1]]
    assert crf.log_likelihood(scores, torch.tensor([[1, 1]]), [2]).item() == 0
    assert crf.log_likelihood(scores, torch.tensor([[0, 0]]), [2]).item() == pytest.approx(-size, rel=1e-6)
    assert crf.log_likelihood(scores, torch.tensor([[0, 1]]), [2]).item() == -math.inf
    assert crf.marginals(scores, [2]).tolist() == [[[0, 1], [0, 1]]]


@pytest.mark.parametrize("large", [2.0**30, -(2.0**30)])
def test_a_large_score_that_all_tags_share_changes_nothing(large):
    """Only differences make a probability, and none is lost beside a large number."""
    crf, lengths = made(), torch.tensor([4, 2])
    scores, tags = torch.randn(2, 4, 3, dtype=torch.float64), torch.randint(3, (2, 4))
    for part in (scores, *crf.parameters()):
        part.data.add_(large).sub_(large)  # what can be told apart beside it
    expected = values_and_gradients(crf, scores, lambda s: crf.log_likelihood(s, tags, lengths))
    for part in (scores, *crf.parameters()):
        part.data.add_(large)
    found = values_and_gradients(crf, scores, lambda s: crf.log_likelihood(s, tags, lengths))
    assert_close(found, expected, 1e-12)


def test_one_tag_beyond_all_doubt_leaves_the_others_exact():
    crf, lengths = made(), torch.tensor([4, 2])
    scores, tags = torch.randn(2, 4, 3, dtype=torch.float64), torch.randint(3, (2, 4))
    tags[:, 1] = 0
    results = []
    for doubt in (1e4, 1e30):
        scores[:, 1] = torch.tensor([doubt, -doubt, 0.0])
        results.append(values_and_gradients(crf, scores, lambda s: crf.log_likelihood(s, tags, lengths)))
    assert_close(*results, 1e-12)


def test_where_nothing_is_possible_the_least_is_broken():
    """Tags that must go on cannot make a sentence of one word; it gets tags all the same."""
    crf = CRF(2)
    allowed = torch.ones(3, 3, dtype=torch.bool)
    allowed[2, 1] = allowed[0, 2] = allowed[0, 0] = False  # 0 begins, 1 ends
    crf.constrain(allowed)
    scores = torch.tensor([[[3.0, 0.0], [9.0, 0.0]]])
    assert crf.decode(scores, [2]) == [[0, 1]]
    assert crf.decode(scores[:, :1], [1]) in ([[0]], [[1]])
    assert crf.log_likelihood(scores[:, :1], torch.tensor([[0]]), [1]).item() == -math.inf
    assert crf.marginals(scores[:, :1], [1]).isfinite().all()


@pytest.mark.parametrize(
    "tags",
    [
        ["O", "B-x", "I-x", "B-y", "I-y"],
        ["O", "B-x", "I-x", "E-x", "S-x", "S-y"],
        ["B-x", "I-x", "L-x", "U-x", "O"],
    ],
)
def test_only_well_formed_tags_are_decoded(tags):
    crf = CRF(len(tags))
    crf.constrain(legal_transitions(tags))
    scheme = "BIO" if "B-y" in tags else "BIOES"
    lengths = torch.randint(1, 9, (200,))
    scores = torch.randn(200, 8, len(tags)) * 10
    for path in crf.decode(scores, lengths):
        assert well_formed([tags[tag] for tag in path], scheme)
    crf.constrain(torch.ones(len(tags) + 1, len(tags) + 1, dtype=torch.bool))
    free = crf.decode(scores, lengths)
    assert not all(well_formed([tags[tag] for tag in path], scheme) for path in free)


def test_what_the_constraints_permit():
    crf = made()
    crf.constrain(SOME)
    for length in (1, 2, 3):
        legal = set(legal_paths(crf, length))
        paths = list(itertools.product(range(3), repeat=length))
        tags = torch.tensor([[*path, *[1] * (4 - length)] for path in paths])  # padding may hold anything
        found = crf.permits(tags, torch.full((len(paths),), length))
        assert found.tolist() == [path in legal for path in paths]


def test_constraints_travel_with_the_weights():
    crf, other = made(), CRF(3).double()
    crf.constrain(SOME.numpy())
    other.load_state_dict(crf.state_dict())
    assert torch.equal(other.allowed, SOME)
    assert "3 tags, 4 transitions forbidden" in repr(other)


def test_it_learns_transitions_that_scores_do_not_show():
    crf = CRF(3)
    tags = (torch.arange(12) % 3).expand(2, 12)
    scores, lengths = torch.zeros(2, 12, 3), torch.tensor([12, 7])
    optimizer = torch.optim.Adam(crf.parameters(), lr=0.2)
    for _ in range(60):
        optimizer.zero_grad()
        loss = -crf.log_likelihood(scores, tags, lengths).sum()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.1
    assert crf.decode(scores, lengths) == [tags[0].tolist(), tags[0, :7].tolist()]


def test_one_tag_is_certain():
    crf = CRF(1)
    assert crf.log_likelihood(torch.randn(2, 3, 1), torch.zeros(2, 3, dtype=torch.long), [3, 1]).tolist() == [
        0,
        0,
    ]
    assert crf.decode(torch.randn(2, 3, 1), [3, 1]) == [[0, 0, 0], [0]]


def test_autocast_and_half_precision_scores():
    crf = made(dtype=torch.float32)
    scores, tags = torch.randn(4, 4, 3), torch.randint(3, (4, 4))
    plain = crf.log_likelihood(scores.bfloat16().float(), tags, LENGTHS)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = crf.log_likelihood(scores.bfloat16(), tags, LENGTHS)
    assert found.dtype == torch.float32
    assert_close({"values": found.detach()}, {"values": plain.detach()}, 1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda crf: CRF(0), "tags is 0; it must be a whole number of at least 1"),
        (
            lambda crf: crf.decode(torch.zeros(2, 3), [3, 3]),
            r"scores has shape \(2, 3\); it must be \(B, T, 3\)",
        ),
        (lambda crf: crf.decode(torch.zeros(2, 3, 3), [3, 0]), r"lengths\[1\] is 0"),
        (
            lambda crf: crf.log_likelihood(torch.zeros(1, 2, 3), torch.tensor([[0, 3]]), [2]),
            "tags holds 3; there are tags 0 to 2",
        ),
        (
            lambda crf: crf.log_likelihood(torch.zeros(1, 2, 3), torch.tensor([[0, -1]]), [2]),
            "tags holds -1",
        ),
        (
            lambda crf: crf.log_likelihood(torch.zeros(1, 2, 3), torch.tensor([0, 1]), [2]),
            r"tags has shape \(2\)",
        ),
        (lambda crf: crf.constrain(torch.ones(3, 3, dtype=torch.bool)), r"allowed has shape \(3, 3\)"),
        (lambda crf: crf.constrain(torch.ones(4, 4)), "allowed is torch.float32; it must hold truth values"),
    ],
)
def test_mistakes_are_explained(call, message):
    with pytest.raises((ShapeError, ArgumentError), match=message):
        call(CRF(3))


def test_marginals_are_sums_over_all_sequences():
    """Each position's share of every tag, by enumeration; padding has none."""
    crf = made(K=3)
    scores = torch.randn(2, 4, 3, dtype=torch.float64)
    lengths = [4, 2]
    found = crf.marginals(scores, lengths)
    for b, n in enumerate(lengths):
        paths = list(itertools.product(range(3), repeat=n))
        weights = torch.stack([score(crf, scores[b, :n], path) for path in paths]).softmax(0)
        expected = torch.zeros(4, 3, dtype=torch.float64)
        for path, weight in zip(paths, weights, strict=True):
            for t, tag in enumerate(path):
                expected[t, tag] += weight.detach()
        assert torch.allclose(found[b], expected, atol=1e-9)
