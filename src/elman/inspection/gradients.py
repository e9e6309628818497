"""How far back a gradient reaches: the norms of ``∂y_t/∂s_k`` and ``∂J_t/∂s_k``, for any network."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from elman.cells.base import Cell
from elman.errors import ArgumentError, ShapeError
from elman.layers.rnn import RNN
from elman.recurrence.contract import Noise
from elman.recurrence.loop import walk_parts
from elman.recurrence.unroll import unroll
from elman.tensors.checks import check_choice, check_lengths, check_size, check_tensor

NORMS = ("spectral", "frobenius", "loss")
LOST = 0.01  # share of what it is at step t below which a gradient no longer counts beside it
BURST = 1 / LOST  # and the factor beyond which that at step t no longer counts beside it

Loss = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class GradientReach:
    """What ``measure_gradients`` found; all norms are float64 (B, T), indexed by k.

    Position ``[b, k]`` is about the state after step k (counted from 0) of row b, and about the
    output at the step ``steps[b]`` of that row. Where k lies after that step, padding included, there
    is no gradient: the norms are NaN there, and ``distance`` is negative.

    network: what the network is called, in ``sentence`` and in pictures.
    spectral: largest singular value of the Jacobian ``∂y_t/∂s_k``.
    frobenius: root of the sum of its squared entries.
    loss: length of the vector ``∂J_t/∂s_k``; None where no loss was given.
    distance: t - k.
    steps: t, one a row.
    """

    network: str
    spectral: Tensor
    frobenius: Tensor
    loss: Tensor | None
    distance: Tensor
    steps: Tensor

    def by_distance(self, norm: str = "spectral") -> Tensor:
        """(B, n): the same norms by how many steps back, 0 first; NaN past a row's first step."""
        values = self._norm(norm)
        distances = torch.arange(int(self.steps.max()) + 1, device=values.device)
        k = self.steps[:, None] - distances
        return values.gather(1, k.clamp(min=0)).where(k >= 0, math.nan)

    def curve(self, norm: str = "spectral") -> Tensor:
        """(n,): the median over the rows, by how many steps back."""
        return self.by_distance(norm).nanmedian(0).values

    def rate(self, norm: str = "spectral") -> float:
        """The factor by which the norm changes for each step back: the median of all slopes of the log."""
        logs = self.curve(norm).log()
        n = torch.arange(len(logs), dtype=logs.dtype, device=logs.device)
        known = logs.isfinite()
        every = -(-len(logs) // 1000)  # a thousand points settle a slope
        logs, n = logs[known][::every], n[known][::every]
        first, second = torch.triu_indices(len(n), len(n), 1, device=n.device)
        if not len(first):
            return math.nan
        slopes = (logs[second] - logs[first]) / (n[second] - n[first])
        return math.exp(float(slopes.median()))

    def steps_until(self, share: float, norm: str = "spectral") -> int | None:
        """How many steps back the norm is below this share of that at t, and stays so; None if nowhere."""
        curve = self.curve(norm)
        above = (curve > share * curve[0] * (1 + 1e-9)).nonzero()
        n = int(above.max()) + 1 if len(above) else 0
        return n if n < len(curve) else None

    def peak(self, norm: str = "spectral") -> tuple[float, int]:
        """By what factor the norm at most exceeds that at t, and how many steps back it does."""
        curve = self.curve(norm).nan_to_num(nan=0.0, posinf=math.inf)
        most = int((curve == curve.max()).nonzero()[0])
        return _ratio(curve[most], curve[0]), most

    def verdict(self, norm: str = "spectral") -> str:
        """What a training would notice within the steps that were looked at.

        A weight acts at every step, and its gradient is a sum with one term from each; the norms are the
        sizes of these terms.

        * ``"explodes"``: somewhere it is more than 100 times what it is at t. That step alone decides the
          update, and clipping leaves less than 1 % of it to what lies near.
        * ``"vanishes"``: otherwise, if it ends below 1 % of what it is at t. Terms from there no longer move
          a weight beside the near ones; what happened there is not learned.
        * ``"holds"``: otherwise. The same rate a step may hold over few steps and vanish over many.
        * ``"undefined"``: where a norm is not a number.
        """
        curve = self.curve(norm)
        if curve.isnan().any():
            return "undefined"
        if self.peak(norm)[0] > BURST:
            return "explodes"
        return "holds" if self.steps_until(LOST, norm) is None else "vanishes"

    def sentence(self, norm: str = "spectral") -> str:
        """What was found, in one plain sentence.

        >>> from elman import RNN
        >>> rnn = RNN("elman", 2, 3)
        >>> _ = nn.init.eye_(rnn.cells[0][0].W_h)
        >>> measure_gradients(rnn, torch.zeros(1, 40, 2)).sentence()
        'Elman: over 39 steps the gradient keeps its size (a factor of 1 a step); it holds.'
        """
        curve = self.curve(norm)
        span = len(curve) - 1
        if not span:
            return f"{self.network}: there is one step only, so no gradient travels through time."
        verdict = self.verdict(norm)
        if verdict == "undefined":
            return f"{self.network}: the gradient is not a number: an equation has no derivative somewhere."
        if not float(curve[0]):
            return f"{self.network}: the output does not depend on the state, so there is no gradient."
        factor, steps = self.peak(norm)
        if verdict == "explodes":
            found = f"grows {growth(factor)} within {_steps(steps)}"
        elif verdict == "vanishes":
            half, lost = self.steps_until(0.5, norm), self.steps_until(LOST, norm)
            found = f"is halved after {half} and below {100 * LOST:g} % after {_steps(cast(int, lost))}"
        else:
            low, high = f"{_ratio(curve.min(), curve[0]):.2g}", f"{factor:.2g}"
            found = "keeps its size" if low == high else f"stays between {low} and {high} times its size"
        rate = self.rate(norm)
        rated = "" if math.isnan(rate) else f" (a factor of {rate:.3g} a step)"
        return f"{self.network}: over {_steps(span)} the gradient {found}{rated}; it {verdict}."

    def _norm(self, norm: str) -> Tensor:
        values = cast(Tensor | None, getattr(self, check_choice("norm", norm, NORMS)))
        if values is None:
            raise ArgumentError("norm is 'loss', but no loss was given to measure_gradients")
        return values


def measure_gradients(
    rnn: RNN,
    x: Tensor,
    lengths: Any = None,
    *,
    step: Any = None,
    loss: Loss | None = None,
    loss_reads: str = "step",
    state: Any = None,
    name: str | None = None,
) -> GradientReach:
    """How strongly every state ``s_k`` acts on the output ``y_t``, and on a loss ``J_t``.

    With ``s`` the whole state (every field of every layer, side by side) and ``A_i = ∂s_i/∂s_{i-1}``,

        ∂y_t/∂s_k = ∂y_t/∂s_t · A_t · A_{t-1} · … · A_{k+1}

    This chain is multiplied from the left, one step at a time, never forming an A: each row of the
    product is carried back through one step of the network. Exact to rounding; the network is copied,
    counts in float64 and runs as in evaluation, without dropout, meanwhile on one thread.

    Args:
        rnn: a network of one direction, of any cell and depth. It is not changed.
        x: (B, T, D).
        lengths: (B,) real steps of each row; None: all are real.
        step: t, counted from 0: one number for all rows or one a row; None: each row's last real step.
        loss: J_t, from the output y_t (B, M) to one number a row (B,), or to their sum.
        loss_reads: ``"step"``: loss is given y_t; ``"sequence"``: all outputs (B, T, M) up to step t,
            with zeros after it, and J_t depends on s_k through each of them.
        state: the state before the first step, as for the network; None: zero or learned.
        name: what to call the network; None: its cell.

    >>> reach = measure_gradients(RNN("lstm", 3, 4, layers=2), torch.randn(2, 9, 3), [9, 5])
    >>> reach.spectral.shape, reach.distance[1].tolist()
    (torch.Size([2, 9]), [4, 3, 2, 1, 0, -1, -2, -3, -4])
    """
    if not isinstance(rnn, RNN):
        raise ArgumentError(f"rnn is a {type(rnn).__name__}; it must be an elman.RNN")
    if rnn.bidirectional:
        raise ArgumentError(
            "rnn is bidirectional: its output depends on states before and after it, so that no single "
            "chain leads back; measure a network with bidirectional=False"
        )
    B, T, _ = check_tensor("x", x, ("B", "T", rnn.input_size)).shape
    check_choice("loss_reads", loss_reads, ("step", "sequence"))
    lengths = check_lengths(torch.full((B,), T) if lengths is None else lengths, B, T, x.device)
    steps = _check_steps(step, lengths)
    with torch.inference_mode(False), torch.enable_grad(), _one_thread():
        chain, pull = _Chain(rnn, x, lengths, state), None
        if loss is not None:
            own = next((p.dtype for p in rnn.parameters()), x.dtype)
            pull = _loss_gradient(loss, loss_reads, chain.outputs, steps, own)
        spectral, frobenius, of_loss = _carry_back(chain, steps, pull)
    return GradientReach(
        network=name if name is not None else rnn.cell_class.__name__,
        spectral=spectral,
        frobenius=frobenius,
        loss=None if loss is None else of_loss,
        distance=steps[:, None] - torch.arange(T, device=x.device),
        steps=steps,
    )


def compare(
    cells: Sequence[str | type[Cell]] | Mapping[str, RNN] = ("elman", "lstm", "gru"),
    input_size: int = 32,
    hidden_size: int = 64,
    *,
    T: int = 100,
    B: int = 16,
    seed: int = 0,
    cell_options: Mapping[str, Mapping[str, Any]] | None = None,
    x: Tensor | None = None,
    lengths: Any = None,
    loss: Loss | None = None,
) -> dict[str, GradientReach]:
    """Measure several networks on the same input, ready for ``gradient_figure``.

    Args:
        cells: names or classes of cells, compared as they start, all from the same seed; or networks
            by label, as they are: trained ones.
        cell_options: by name of a cell, keyword arguments of its constructor; for initial networks.
        x: (B, T, D); None: standard normal numbers from the seed.
        lengths, loss: as for ``measure_gradients``.

    >>> for reach in compare(("elman", "lstm"), 8, 16, T=30, B=4).values():
    ...     sentence = reach.sentence()
    """
    if isinstance(cells, Mapping):
        if cell_options:
            raise ArgumentError("cell_options are for cells given by name; these networks are made already")
        networks = dict(cells)
    else:
        networks = _initial_networks(cells, input_size, hidden_size, seed, cell_options or {})
    if not networks:
        raise ArgumentError("cells is empty; name at least one cell")
    if x is None:
        first = next(iter(networks.values()))
        size = getattr(first, "input_size", input_size)
        numbers = torch.Generator().manual_seed(seed)
        x = torch.randn(check_size("B", B), check_size("T", T), size, generator=numbers, dtype=torch.float64)
        x = x.to(next((p.device for p in first.parameters()), torch.device("cpu")))
    return {
        label: measure_gradients(network, x, lengths, loss=loss, name=label)
        for label, network in networks.items()
    }


def _initial_networks(
    cells: Sequence[str | type[Cell]],
    input_size: int,
    hidden_size: int,
    seed: int,
    options: Mapping[str, Mapping[str, Any]],
) -> dict[str, RNN]:
    if isinstance(cells, str):
        raise ArgumentError(f"cells is {cells!r}; it must be a tuple of cells, as in ({cells!r},)")
    for name in options:
        if name not in cells:
            raise ArgumentError(f"cell_options names {name!r}, which is not among cells: {cells!r}")
    networks = {}
    with torch.random.fork_rng(devices=[]):
        for cell in cells:
            torch.manual_seed(seed)
            own = options.get(cell) if isinstance(cell, str) else None
            rnn = RNN(cell, input_size, hidden_size, cell_options=own)
            networks[rnn.cell_class.__name__] = rnn
    return networks


class _Chain:
    """A network as one chain ``s_k = R(s_{k-1}, x_k)`` of whole states, with the states it went through.

    A whole state is a flat tuple: every field of every layer, each (B, …).
    """

    def __init__(self, rnn: RNN, x: Tensor, lengths: Tensor, state: Any) -> None:
        rnn = copy.deepcopy(rnn).double().eval().requires_grad_(False)
        self.cells = [cast(Cell, cast(nn.ModuleList, layer)[0]) for layer in rnn.cells]
        self.x = x = x.detach().clone().double()
        B, T, _ = x.shape
        starts = rnn._start(_as_double(state), B, x)
        self.noises: list[Noise] = []
        self.history: list[Tensor] = []  # (B, T, …) each
        with torch.no_grad():
            for cell, (start,) in zip(self.cells, starts, strict=True):
                noise = rnn.regularisers.draw(cell, B, T, x, training=False)
                states, _ = walk_parts(cell, cell.project(x), cell.W_h, start, lengths, noise=noise)
                x = cell.O(cell.State(*(field.flatten(0, 1) for field in states))).unflatten(0, (B, T))
                self.noises.append(noise)
                self.history.extend(states)
        self.outputs = x
        self._check_finite(lengths)

    def state(self, rows: Tensor, k: int) -> tuple[Tensor, ...]:
        """The whole state of some rows after step k, to be differentiated by."""
        return tuple(field[rows, k].requires_grad_() for field in self.history)  # indexing copies

    def step(self, state: tuple[Tensor, ...], rows: Tensor, k: int) -> tuple[Tensor, ...]:
        """The whole state after step k from that before it."""
        x, new = self.x[rows, k], []
        for cell, old, noise in zip(self.cells, self._layers(state), self.noises, strict=True):
            _, x, after = unroll(cell, x[:, None], old, noise=noise, backend="loop")
            new.extend(after)
        return tuple(new)

    def output(self, state: tuple[Tensor, ...]) -> Tensor:
        return self.cells[-1].O(self._layers(state)[-1])

    def _layers(self, state: tuple[Tensor, ...]) -> list[Any]:
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


def _carry_back(chain: _Chain, steps: Tensor, pull: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """The three norms (B, T); ``pull`` (B, T, M) is the gradient of the loss by the outputs."""
    B, T, M = chain.outputs.shape
    N = sum(field[0, 0].numel() for field in chain.history)
    jacobian = chain.x.new_zeros(M, B, N)  # ∂y_t/∂s_k
    gradient = chain.x.new_zeros(1 if pull is not None else 0, B, N)  # ∂J_t/∂s_k
    norms = chain.x.new_full((3, B, T), math.nan)
    for k in reversed(range(int(steps.max()) + 1)):
        rows = _rows(steps > k)
        if len(rows):
            before = chain.state(rows, k)
            after = chain.step(before, rows, k + 1)
            carried = _pull_back(after, before, torch.cat([jacobian[:, rows], gradient[:, rows]]))
            jacobian[:, rows], gradient[:, rows] = carried[:M], carried[M:]
        rows = _rows(steps == k)
        if len(rows):
            here = chain.state(rows, k)
            unit = torch.eye(M, dtype=chain.x.dtype, device=chain.x.device)[:, None].expand(M, len(rows), M)
            jacobian[:, rows] = _pull_back((chain.output(here),), here, unit)
        rows = _rows(steps >= k)
        if pull is not None:
            here = chain.state(rows, k)
            gradient[:, rows] += _pull_back((chain.output(here),), here, pull[None, rows, k])
            norms[2, rows, k] = _matrix_norms(gradient[:, rows].transpose(0, 1))[1]
        norms[0, rows, k], norms[1, rows, k] = _matrix_norms(jacobian[:, rows].transpose(0, 1))
    spectral, frobenius, of_loss = _stay_infinite(norms)
    return spectral, frobenius, of_loss


def _pull_back(outputs: tuple[Tensor, ...], inputs: tuple[Tensor, ...], vectors: Tensor) -> Tensor:
    """(V, B, outputs) → (V, B, inputs): each vector times the Jacobian, of each row of the batch."""
    V, B, _ = vectors.shape
    widths = [output[0].numel() for output in outputs]
    parts = [
        part.reshape(V, *output.shape)
        for part, output in zip(vectors.split(widths, -1), outputs, strict=True)
    ]
    pairs = [pair for pair in zip(outputs, parts, strict=True) if pair[0].requires_grad]
    if not pairs:
        return vectors.new_zeros(V, B, sum(field[0].numel() for field in inputs))
    reached, cotangents = zip(*pairs, strict=True)

    def pull(*cotangents: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(reached, inputs, cotangents, materialize_grads=True)

    return torch.cat([result.reshape(V, B, -1) for result in torch.func.vmap(pull)(*cotangents)], -1)


def _matrix_norms(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """Spectral and Frobenius norms of (B, M, N), by the smaller of the two Gram matrices.

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


@contextmanager
def _one_thread() -> Iterator[None]:
    """Thousands of small products and eigenvalues gain little from a second core, and lose everything by
    waiting for one that is busy: beside other work on two cores, two threads took more than twenty times
    as long as one."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _stay_infinite(norms: Tensor) -> Tensor:
    """Once a gradient has left the range of numbers it stays outside, further back."""
    outside = norms.isinf().flip(-1).cumsum(-1).flip(-1) > 0
    return norms.masked_fill(outside, math.inf)


def _loss_gradient(loss: Any, reads: str, outputs: Tensor, steps: Tensor, dtype: torch.dtype) -> Tensor:
    """(B, T, M): the gradient of the loss by every output."""
    if not callable(loss):
        raise ArgumentError(f"loss is a {type(loss).__name__}; it must be a function of the output")
    B, T, _ = outputs.shape
    rows = torch.arange(B, device=outputs.device)
    until = torch.arange(T, device=outputs.device) <= steps[:, None]
    y = outputs.where(until[..., None], 0.0) if reads == "sequence" else outputs[rows, steps]
    y = y.to(dtype, copy=True).requires_grad_()
    J = loss(y)
    if not isinstance(J, Tensor) or J.shape not in ((), (B,)):
        got = f"a tensor of shape {tuple(J.shape)}" if isinstance(J, Tensor) else f"a {type(J).__name__}"
        raise ShapeError(f"loss returned {got}; it must return one number a row, ({B},), or their sum, ()")
    by_y = torch.autograd.grad(J.sum(), y, allow_unused=True)[0] if J.requires_grad else None
    if by_y is None:
        raise ArgumentError("loss does not depend on the output it is given, so it has no gradient")
    pull = torch.zeros_like(outputs)
    if reads == "sequence":
        pull.copy_(by_y).masked_fill_(~until[..., None], 0.0)
    else:
        pull[rows, steps] = by_y.to(pull.dtype)
    return pull


def _check_steps(step: Any, lengths: Tensor) -> Tensor:
    """(B,): t of every row, a real step of it."""
    if step is None:
        return lengths - 1
    steps = torch.as_tensor(step, device=lengths.device)
    if steps.dtype.is_floating_point or steps.dtype == torch.bool or steps.shape not in ((), lengths.shape):
        raise ArgumentError(
            f"step is {step!r}; it must be a whole number, or one for each of the {len(lengths)} rows"
        )
    steps = steps.long().expand_as(lengths)
    for row, (t, length) in enumerate(zip(steps.tolist(), lengths.tolist(), strict=True)):
        if not 0 <= t < length:
            raise ArgumentError(f"step is {t} for row {row}; its real steps are 0 to {length - 1}")
    return steps


def _rows(chosen: Tensor) -> Tensor:
    return chosen.nonzero().squeeze(1)


def _as_double(state: Any) -> Any:
    if isinstance(state, Tensor):
        return state.detach().double()
    return tuple(map(_as_double, state)) if isinstance(state, (tuple, list)) else state


def _steps(n: int) -> str:
    return f"{n} step" if n == 1 else f"{n} steps"


def _ratio(value: Tensor, reference: Tensor) -> float:
    """Their quotient; infinite where either is, and 1 between zeros."""
    if value.isinf() or reference.isinf():
        return math.inf
    return float(value / reference) if float(reference) else 1.0


def growth(factor: float) -> str:
    """A factor in words, as a power of ten where it is large."""
    if math.isinf(factor):
        return "beyond the range of numbers"
    return (
        f"to {factor:.3g} times its size"
        if factor < 1000
        else f"to 10^{math.log10(factor):.0f} times its size"
    )
