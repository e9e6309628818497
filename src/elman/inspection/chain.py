"""A network is seen as one chain of whole states, through which Jacobians are carried back."""

import copy
import math
from typing import cast

import torch
from torch import Tensor, nn

from elman.cells.base import Cell
from elman.errors import ArgumentError
from elman.layers.rnn import RNN, NetworkState
from elman.recurrence.contract import Noise
from elman.recurrence.loop import unroll_parts
from elman.tensors.nested import NamedTensors, map_tensors

Fields = tuple[Tensor, ...]  # every field of every layer, each (B, …)


class Chain:
    """A network as one chain ``s_k = R(s_{k-1}, x_k)`` of whole states, with the states it went through."""

    def __init__(self, rnn: RNN, x: Tensor, lengths: Tensor, state: NetworkState | None) -> None:
        rnn = copy.deepcopy(rnn).double().eval().requires_grad_(False)
        self.cells = [cast(Cell, cast(nn.ModuleList, layer)[0]) for layer in rnn.cells]
        self.x = x = x.detach().clone().double()
        B, T, _ = x.shape
        self.noises: list[Noise] = []
        self.history: list[Tensor] = []  # (B, T, …) each
        given = map_tensors(lambda field: field.detach().double(), state)
        with torch.no_grad():
            for cell, (start,) in zip(self.cells, rnn.start_states(given, B, x), strict=True):
                noise = rnn.regularisers.draw(cell, B, T, x, training=False)
                states, _ = unroll_parts(cell, cell.project(x), cell.W_h, start, lengths, noise=noise)
                x = cell.O(cell.State(*(field.flatten(0, 1) for field in states))).unflatten(0, (B, T))
                self.noises.append(noise)
                self.history.extend(states)
        self.outputs = x
        self._check_finite(lengths)

    def state(self, rows: Tensor, k: int) -> Fields:
        """Return the whole state of some rows after step k, ready to be differentiated by."""
        return tuple(field[rows, k].requires_grad_() for field in self.history)  # indexing copies

    def step(self, state: Fields, rows: Tensor, k: int) -> Fields:
        x, new = self.x[rows, k], []
        for cell, old, noise in zip(self.cells, self._layers(state), self.noises, strict=True):
            _, x, after = cell.forward(x[:, None], old, noise=noise, backend="loop")
            new.extend(after)
        return tuple(new)

    def output(self, state: Fields) -> Tensor:
        return self.cells[-1].O(self._layers(state)[-1])

    def _layers(self, state: Fields) -> list[NamedTensors]:
        fields = iter(state)
        return [cell.State(*(next(fields) for _ in cell.state)) for cell in self.cells]

    def _check_finite(self, lengths: Tensor) -> None:
        B, T, _ = self.x.shape
        finite = torch.stack([field.reshape(B, T, -1).isfinite().all(-1) for field in self.history]).all(0)
        real = torch.arange(T, device=lengths.device) < lengths[:, None]
        for b, k in (~finite & real).nonzero().tolist():
            raise ArgumentError(
                f"the state after step {k} of row {b} is not finite, so there is nothing to differentiate; "
                f"look for NaN or infinity in x and in the weights"
            )


def carry_back(chain: Chain, steps: Tensor, pull: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return the three norms (B, T); ``pull`` (B, T, M) is the gradient of the loss by the outputs."""
    B, T, M = chain.outputs.shape
    N = sum(field[0, 0].numel() for field in chain.history)
    jacobian = chain.x.new_zeros(M, B, N)  # ∂y_t/∂s_k
    gradient = chain.x.new_zeros(1 if pull is not None else 0, B, N)  # ∂J_t/∂s_k
    norms = chain.x.new_full((3, B, T), math.nan)
    for k in reversed(range(int(steps.max()) + 1)):
        rows = torch.where(steps > k)[0]
        if len(rows):
            before = chain.state(rows, k)
            after = chain.step(before, rows, k + 1)
            carried = _pull_back(after, before, torch.cat([jacobian[:, rows], gradient[:, rows]]))
            jacobian[:, rows], gradient[:, rows] = carried[:M], carried[M:]
        rows = torch.where(steps == k)[0]
        if len(rows):
            here = chain.state(rows, k)
            unit = torch.eye(M, dtype=chain.x.dtype, device=chain.x.device)[:, None].expand(M, len(rows), M)
            jacobian[:, rows] = _pull_back((chain.output(here),), here, unit)
        rows = torch.where(steps >= k)[0]
        if pull is not None:
            here = chain.state(rows, k)
            gradient[:, rows] += _pull_back((chain.output(here),), here, pull[None, rows, k])
            norms[2, rows, k] = _matrix_norms(gradient[:, rows].transpose(0, 1))[1]
        norms[0, rows, k], norms[1, rows, k] = _matrix_norms(jacobian[:, rows].transpose(0, 1))
    outside = norms.isinf().flip(-1).cumsum(-1).flip(-1) > 0  # of the range of numbers: there it stays
    spectral, frobenius, of_loss = norms.masked_fill(outside, math.inf)
    return spectral, frobenius, of_loss


def _pull_back(outputs: Fields, inputs: Fields, vectors: Tensor) -> Tensor:
    """Multiply each vector by the Jacobian of each row of the batch: (V, B, outputs) → (V, B, inputs)."""
    V, B, _ = vectors.shape
    parts = vectors.split([output[0].numel() for output in outputs], -1)
    known = (pair for pair in zip(outputs, parts, strict=True) if pair[0].requires_grad)
    pairs = [(output, part.reshape(V, *output.shape)) for output, part in known]
    if not pairs:
        return vectors.new_zeros(V, B, sum(field[0].numel() for field in inputs))
    reached, cotangents = zip(*pairs, strict=True)

    def pull(*cotangents: Tensor) -> Fields:
        return torch.autograd.grad(reached, inputs, cotangents, materialize_grads=True)

    return torch.cat([result.reshape(V, B, -1) for result in torch.func.vmap(pull)(*cotangents)], -1)


def _matrix_norms(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """Return the spectral and Frobenius norms of (B, M, N), by the smaller of the two Gram matrices.

    Entries are brought near 1 first, for their squares would leave the range of numbers long before
    they do.
    """
    scale = matrices.abs().amax((1, 2))
    usable = scale.isfinite() & (scale > 0)
    normal = torch.where(usable[:, None, None], matrices / scale[:, None, None], 0.0)
    gram = normal @ normal.mT if normal.shape[1] <= normal.shape[2] else normal.mT @ normal
    spectral = scale * torch.linalg.eigvalsh(gram)[:, -1].clamp(min=0).sqrt()
    frobenius = scale * gram.diagonal(dim1=1, dim2=2).sum(1).sqrt()
    return spectral.where(usable, scale), frobenius.where(usable, scale)
