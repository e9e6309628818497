"""This module measures how far back a gradient reaches: the norms of ``∂y_t/∂s_k`` and ``∂J_t/∂s_k``."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from elman.cells.base import Cell
from elman.errors import ArgumentError, ShapeError
from elman.inspection.chain import Chain, carry_back
from elman.inspection.reach import GradientReach
from elman.layers.rnn import RNN, NetworkState
from elman.tensors.checks import check_choice, check_lengths, check_size, check_tensor

__all__ = ["GradientReach", "compare", "measure_gradients"]

Numbers = Tensor | Sequence[int]  # one a row
Options = Mapping[str, bool | float | str]  # keyword arguments of a cell
Loss = Callable[[Tensor], Tensor]


def measure_gradients(
    rnn: RNN,
    x: Tensor,
    lengths: Numbers | None = None,
    *,
    step: int | Numbers | None = None,
    loss: Loss | None = None,
    loss_reads: str = "step",
    state: NetworkState | None = None,
    name: str | None = None,
) -> GradientReach:
    """Measure how strongly every state ``s_k`` acts on the output ``y_t``, and on a loss ``J_t``.

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
    with torch.inference_mode(False), torch.enable_grad(), one_thread():
        chain, pull = Chain(rnn, x, lengths, state), None
        if loss is not None:
            own = next((p.dtype for p in rnn.parameters()), x.dtype)
            pull = _loss_gradient(loss, loss_reads, chain.outputs, steps, own)
        spectral, frobenius, of_loss = carry_back(chain, steps, pull)
    network = name if name is not None else rnn.cell_class.__name__
    distance = steps[:, None] - torch.arange(T, device=x.device)
    return GradientReach(network, spectral, frobenius, None if loss is None else of_loss, distance, steps)


def compare(
    cells: Sequence[str | type[Cell]] | Mapping[str, RNN] = ("elman", "lstm", "gru"),
    input_size: int = 32,
    hidden_size: int = 64,
    *,
    T: int = 100,
    B: int = 16,
    seed: int = 0,
    cell_options: Mapping[str, Options] | None = None,
    x: Tensor | None = None,
    lengths: Numbers | None = None,
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
        networks = _initial_networks(cells, (input_size, hidden_size), seed, cell_options or {})
    if not networks:
        raise ArgumentError("cells is empty; name at least one cell")
    if x is None:
        first = next(iter(networks.values()))
        sizes = check_size("B", B), check_size("T", T), getattr(first, "input_size", input_size)
        x = torch.randn(sizes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        x = x.to(next((p.device for p in first.parameters()), torch.device("cpu")))
    return {name: measure_gradients(rnn, x, lengths, loss=loss, name=name) for name, rnn in networks.items()}


def _initial_networks(
    cells: Sequence[str | type[Cell]], sizes: tuple[int, int], seed: int, options: Mapping[str, Options]
) -> dict[str, RNN]:
    if isinstance(cells, str):
        raise ArgumentError(f"cells is {cells!r}; it must be a tuple of cells, as in ({cells!r},)")
    if unknown := [name for name in options if name not in cells]:
        raise ArgumentError(f"cell_options names {unknown[0]!r}, which is not among cells: {cells!r}")
    networks = {}
    with torch.random.fork_rng(devices=[]):
        for cell in cells:
            torch.manual_seed(seed)
            own = options.get(cell) if isinstance(cell, str) else None
            rnn = RNN(cell, *sizes, cell_options=own)
            networks[rnn.cell_class.__name__] = rnn
    return networks


@contextmanager
def one_thread() -> Iterator[None]:
    """Thousands of small products and eigenvalues gain little from a second core, and lose everything by
    waiting for one that is busy: beside other work on two cores, two threads took more than twenty times
    as long as one."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _loss_gradient(loss: Loss, reads: str, outputs: Tensor, steps: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the gradient (B, T, M) of the loss by every output."""
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


def _check_steps(step: int | Numbers | None, lengths: Tensor) -> Tensor:
    """Return t (B,) of every row, which must be a real step of it."""
    if step is None:
        return lengths - 1
    steps = torch.as_tensor(step, device=lengths.device)
    if steps.dtype.is_floating_point or steps.dtype == torch.bool or steps.shape not in ((), lengths.shape):
        raise ArgumentError(
            f"step is {step!r}; it must be a whole number, or one for each of the {len(lengths)} rows"
        )
    steps = steps.long().expand_as(lengths)
    for row in ((steps < 0) | (steps >= lengths)).nonzero().flatten().tolist():
        raise ArgumentError(f"step is {steps[row]} for row {row}; its real steps are 0 to {lengths[row] - 1}")
    return steps
