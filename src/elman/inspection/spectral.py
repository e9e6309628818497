"""The largest singular values of Jacobians that nobody writes down, by Lanczos' bidiagonalisation."""

from collections.abc import Sequence

import torch
from torch import Tensor

ROUNDS = 30  # so many, or as many as a row has numbers; further ones change nothing that is shown
LOOK = 5  # rounds between two looks whether that is so already
SETTLED = 1e-10  # share of the largest value that a round still adds


def largest_singular_values(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Tensor:
    """(B,) for outputs that were computed from inputs, row by row: of each row the norm of ∂outputs/∂inputs.

    >>> x = torch.tensor([[1.0, 0.0], [0.0, 2.0]], dtype=torch.float64, requires_grad=True)
    >>> largest_singular_values([x], [3 * x * x]).round().tolist()
    [6.0, 12.0]
    """
    jacobian = Jacobian(inputs, outputs)
    like, B, N = inputs[0], len(inputs[0]), jacobian.inputs_wide
    generator = torch.Generator().manual_seed(0)
    v = _normal(torch.randn(B, N, generator=generator, dtype=like.dtype).to(like.device))[0]
    U, V, diagonal, beside = list[Tensor](), [v], list[Tensor](), list[Tensor]()
    largest = like.new_zeros(B)
    for number in range(1, min(ROUNDS, N) + 1):
        u, length = _normal(_apart(jacobian.push(V[-1]), U))
        U.append(u)
        diagonal.append(length)
        v, length = _normal(_apart(jacobian.pull(u), V))
        V.append(v)
        beside.append(length)
        if number % LOOK == 0 or number == min(ROUNDS, N):
            before, largest = largest, _largest(diagonal, beside)
            if ((largest - before) <= SETTLED * largest).all():
                break
    return largest


def _largest(diagonal: list[Tensor], beside: list[Tensor]) -> Tensor:
    """(B,) the largest singular values of bidiagonal matrices: on the diagonal, and above it."""
    bidiagonal = torch.diag_embed(torch.stack(diagonal, 1))
    if len(beside) > 1:
        bidiagonal = bidiagonal + torch.diag_embed(torch.stack(beside[:-1], 1), 1)
    found: Tensor = torch.linalg.svdvals(bidiagonal)[:, 0]
    return found


class Jacobian:
    """∂outputs/∂inputs of every row, as what it does to vectors: ``push`` J v and ``pull`` Jᵀ u."""

    def __init__(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        self.inputs, self.outputs = list(inputs), list(outputs)
        self.inputs_wide, self.outputs_wide = (
            sum(one[0].numel() for one in part) for part in (self.inputs, self.outputs)
        )
        # Pulling is linear in the vector, so that its derivative by the vector pushes.
        self._vector = inputs[0].new_zeros(len(inputs[0]), self.outputs_wide).requires_grad_()
        self._pulled = self._pull(self._vector, create_graph=True)

    def push(self, v: Tensor) -> Tensor:
        if not self._pulled.requires_grad:
            return v.new_zeros(len(v), self.outputs_wide)
        return torch.autograd.grad(self._pulled, self._vector, v, retain_graph=True, materialize_grads=True)[
            0
        ]

    def pull(self, u: Tensor) -> Tensor:
        return self._pull(u, create_graph=False)

    def _pull(self, u: Tensor, *, create_graph: bool) -> Tensor:
        parts = u.split([one[0].numel() for one in self.outputs], 1)
        pairs = [
            (one, part.view_as(one))
            for one, part in zip(self.outputs, parts, strict=True)
            if one.requires_grad
        ]
        if not pairs:
            return u.new_zeros(len(u), self.inputs_wide)
        reached, vectors = zip(*pairs, strict=True)
        found = torch.autograd.grad(
            reached,
            self.inputs,
            vectors,
            retain_graph=True,
            create_graph=create_graph,
            materialize_grads=True,
        )
        return torch.cat([one.flatten(1) for one in found], 1)


def _apart(vector: Tensor, others: Sequence[Tensor]) -> Tensor:
    """What is left of the vectors (B, N) beside the others, which are orthogonal; twice, for rounding."""
    if not others:
        return vector
    basis = torch.stack(list(others), 1)  # (B, n, N)
    for _ in range(2):
        vector = vector - (basis.mT @ (basis @ vector[..., None]))[..., 0]
    return vector


def _normal(vector: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of length 1, and the lengths (B,) that they had; a row of zeros stays one."""
    length = torch.linalg.vector_norm(vector, dim=1)
    known = length > 1e-13
    return vector / length.where(known, 1.0)[:, None] * known[:, None], length * known
