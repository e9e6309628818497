"""Large products: whatever the factors' layout, the same numbers, and nothing slow behind them."""

import pytest
import torch

from elman.tensors import products
from elman.tensors.products import affine, multiply

N, K, M = 96, 64, 96


def layouts(rows, columns):
    """The same matrix as it lies, transposed, and as slices of something larger."""
    matrix = torch.randn(rows, columns)
    yield matrix
    yield matrix.t().contiguous().t()
    wide = torch.randn(rows, 3, columns)
    wide[:, 1] = matrix
    yield wide[:, 1]
    double = torch.randn(rows, 2 * columns)
    double[:, ::2] = matrix
    yield double[:, ::2]


def test_every_layout_gives_the_same(monkeypatch):
    monkeypatch.setattr(products, "LARGE", 0)
    torch.manual_seed(0)
    for a in layouts(N, K):
        for b in layouts(K, M):
            torch.testing.assert_close(multiply(a, b), a @ b, rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(affine(a, b), a @ b, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")
def test_one_library_never_sees_a_matrix_with_gaps(monkeypatch):
    """oneDNN walks such a matrix number by number: a hundred times slower."""
    monkeypatch.setattr(products, "LARGE", 0)
    seen = []
    dense = products._dense
    monkeypatch.setattr(products, "_dense", lambda matrix: seen.append(dense(matrix)) or seen[-1])
    for a in layouts(N, K):
        for b in layouts(K, M):
            multiply(a, b)
    assert len(seen) == 32
    assert all(one.is_contiguous() or one.t().is_contiguous() for one in seen)


def test_one_library_serves_the_cpu_alone(monkeypatch):
    """oneDNN has no products for a GPU."""
    monkeypatch.setattr(products, "LARGE", 0)
    monkeypatch.setattr(products, "_dense", lambda matrix: pytest.fail("oneDNN is asked"))
    a, b = torch.empty(N, K, device="meta"), torch.empty(K, M, device="meta")
    assert multiply(a, b).shape == (N, M)


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")
def test_sizes_that_change_from_batch_to_batch_come_again(monkeypatch):
    """oneDNN makes code for every size that it has not seen lately."""
    monkeypatch.setattr(products, "LARGE", 0)
    rounded, sizes = products._rounded, set()
    monkeypatch.setattr(
        products, "_rounded", lambda a, b: sizes.add((found := rounded(a, b))[0].shape) or found
    )
    torch.manual_seed(0)
    for rows in (63, 64, 65, 100, 128):
        x, y = torch.randn(rows, K), torch.randn(rows, M)
        weight = torch.randn(K, M)
        torch.testing.assert_close(multiply(x, weight, y[0]), x @ weight + y[0], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(multiply(x.t(), y), x.t() @ y, rtol=1e-4, atol=1e-4)
    assert sizes == {(64, K), (128, K), (K, 64), (K, 128)}
