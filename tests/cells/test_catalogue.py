"""The catalogue of cells: each beside torchrecurrent's, or beside a plain step, and on the kernels."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn, sigmoid, tanh
from torch.func import functional_call

from comparison import Named, assert_close, disturb, on
from elman import RNN
from elman.bench.catalogue import OTHERWISE, PEERS, absent, our_options, our_weights, their_layer
from elman.cells.base import Cell
from elman.errors import ArgumentError
from elman.layers.rnn import find_cell
from elman.registry import CELLS

B, T, D, H = 3, 5, 3, 4
OTHERS = {
    "elman",
    "lstm",
    "gru",
    "coupled_lstm",
    "mgu",
    "sru",
    "hard_gate",
    "layer_norm_lstm",
    "min_gru",
    "min_lstm",
    "qrnn",
    "lru",
}  # tested elsewhere


class HardSigmoid(nn.Module):
    """Torch's, which differentiates with a factor of 1/6 in float32, whatever the type."""

    def forward(self, a: Tensor) -> Tensor:
        return (a / 6 + 0.5).clamp(0, 1)


EXACT = {name: {"gate_nonlinearity": HardSigmoid()} for name in ("sgu", "dsgu")}


def values_and_gradients(outputs: Tensor, leaves: Named) -> Named:
    upstream = torch.randn(outputs.shape, dtype=outputs.dtype, generator=torch.Generator().manual_seed(3))
    gradients = torch.autograd.grad(outputs, list(leaves.values()), upstream, materialize_grads=True)
    return {"outputs": outputs} | {f"d {name}": g for name, g in zip(leaves, gradients, strict=True)}


@pytest.mark.skipif(absent() is not None, reason=str(absent()))
@pytest.mark.parametrize("name", PEERS)
def test_torchrecurrent_has_the_same_cell(name):
    peer = PEERS[name]
    width = H if peer.square else D
    layer = their_layer(name, width, H, batch_first=True, **EXACT.get(name, {})).double()
    disturb(layer)
    cell = find_cell(name)(width, H, **our_options(name, layer)).double()
    x = torch.randn(B, T, width, dtype=torch.float64, requires_grad=True)
    learned = {n: p for n, p in layer.named_parameters() if n.rpartition(".")[2] not in peer.numbers}
    weights = our_weights(peer, cell, layer.cells[0])
    assert weights.keys() == dict(cell.named_parameters()).keys()
    ours = functional_call(cell, weights, (x,), {"backend": "loop"}).outputs
    leaves = {"x": x, **learned}
    assert_close(values_and_gradients(ours, leaves), values_and_gradients(layer(x)[0], leaves), 1e-10)


# ---- cells that torchrecurrent has not, or has otherwise, as plain steps ----------------------------------


def weights_of(cell: Cell) -> Any:
    """All weights by name: xa, ha and ba are the blocks of gate a."""
    found = dict(cell.named_parameters())
    for letter, name, gates in (
        ("x", "W_x", cell.equations.inputs),
        ("h", "W_h", cell.equations.products),
        ("b", "b", cell.equations.inputs),
    ):
        if gates:
            blocks = found.pop(name).chunk(len(gates), -1)
            found |= {letter + gate: block for gate, block in zip(gates, blocks, strict=True)}
    return SimpleNamespace(**found)


def plain_gru_original(w, x, h):
    r = sigmoid(x @ w.xr + h @ w.hr + w.br)
    z = sigmoid(x @ w.xz + h @ w.hz + w.bz)
    n = tanh(x @ w.xn + (r * h) @ w.U + w.bn)
    return ((1 - z) * n + z * h,)


def plain_lem(w, x, h, z):
    d = sigmoid(x @ w.xd + h @ w.hd + w.bd)
    e = sigmoid(x @ w.xe + h @ w.he + w.be)
    z = (1 - d) * z + d * tanh(x @ w.xz + h @ w.hz + w.bz)
    return (1 - e) * h + e * tanh(x @ w.xu + z @ w.U + w.bu), z


def plain_scrn(w, x, h, c):
    c = 0.05 * (x @ w.xc + w.bc) + 0.95 * c
    return sigmoid(x @ w.xa + h @ w.ha + c @ w.U + w.ba), c


def plain_slstm(w, x, h, c, n, m):
    """As in the paper's first form, without a stabiliser: m is left alone."""
    i = torch.exp(x @ w.xi + h @ w.hi + w.bi)
    f = sigmoid(x @ w.xf + h @ w.hf + w.bf)
    z = tanh(x @ w.xz + h @ w.hz + w.bz)
    o = sigmoid(x @ w.xo + h @ w.ho + w.bo)
    c, n = f * c + i * z, f * n + i
    return o * c / n, c, n, m


def plain_highway(w, x, h):
    z, t = tanh(x @ w.xz + h @ w.hz + w.bz), sigmoid(x @ w.xt + h @ w.ht + w.bt)
    h = t * z + (1 - t) * h
    z, t = tanh(h @ w.Z_2 + w.y_2), sigmoid(h @ w.T_2 + w.u_2)
    h = t * z + (1 - t) * h
    z, t = tanh(h @ w.Z_3 + w.y_3), sigmoid(h @ w.T_3 + w.u_3)
    return (t * z + (1 - t) * h,)


def plain_mogrifier(w, x, h, c):
    x = x @ w.xu + w.bu
    x = 2 * sigmoid(h @ w.Q_1) * x
    h = 2 * sigmoid(x @ w.Q_2) * h
    x = 2 * sigmoid(h @ w.Q_3) * x
    h = 2 * sigmoid(x @ w.Q_4) * h
    i, f = sigmoid(x @ w.X_i + h @ w.H_i + w.v_i), sigmoid(x @ w.X_f + h @ w.H_f + w.v_f)
    z, o = tanh(x @ w.X_z + h @ w.H_z + w.v_z), sigmoid(x @ w.X_o + h @ w.H_o + w.v_o)
    c = f * c + i * z
    return o * tanh(c), c


PLAIN = {
    "gru_original": plain_gru_original,
    "lem": plain_lem,
    "scrn": plain_scrn,
    "slstm": plain_slstm,
    "highway": plain_highway,
    "mogrifier": plain_mogrifier,
}
CATALOGUE = sorted({*PEERS, *PLAIN})


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_step_gives_the_same(name):
    cell = find_cell(name)(D, H).double()
    disturb(cell)
    x = torch.randn(B, T, D, dtype=torch.float64, requires_grad=True)
    state, weights, outputs = cell.initial_state(B, x), weights_of(cell), []
    for x_t in x.unbind(1):
        state = cell.State(*PLAIN[name](weights, x_t, *state))
        outputs.append(cell.O(state))
    leaves = {"x": x, **dict(cell.named_parameters())}
    found = values_and_gradients(cell(x, backend="loop").outputs, leaves)
    assert_close(found, values_and_gradients(torch.stack(outputs, 1), leaves), 1e-10)


def test_no_cell_is_left_out():
    assert OTHERWISE.keys() <= PLAIN.keys()
    assert {*CATALOGUE, *OTHERS} == set(CELLS.names())


def test_the_page_has_the_states_and_counts_the_weights():
    page = (Path(__file__).parents[2] / "docs" / "cells.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in page.split("\n") if line.startswith("| `")]
    found = {name.strip("|` "): rest[:3] for name, *rest in rows}
    for name in CATALOGUE:
        cell = find_cell(name)(D, H)
        products = str(len(cell.equations.products)) + (f" + {len(cell.matrices)}" if cell.matrices else "")
        assert found[name] == [", ".join(cell.state), str(len(cell.equations.inputs)), products], name


@pytest.mark.parametrize("name", CATALOGUE)
def test_kernels_equal_the_loop(name):
    rnn = RNN(name, D, H).double()
    disturb(rnn)
    assert rnn.cells[0][0].equations is not None
    x, lengths = torch.randn(B, T, D, dtype=torch.float64), [T, 1, 3]
    assert_close(on("cpu", rnn, x, lengths), on("loop", rnn, x, lengths), 1e-10)


@pytest.mark.parametrize(
    ("name", "option", "value", "rule"),
    [
        ("highway", "depth", 0, "at least 1"),
        ("mogrifier", "rounds", -1, "at least 0"),
        ("janet", "beta", "1", "a number"),
        ("ind_rnn", "activation", "sine", "one of 'tanh'"),
        ("slstm", "exponential_forget", 1, "True or False"),
    ],
)
def test_options_are_checked(name, option, value, rule):
    with pytest.raises(ArgumentError, match=f"{option} is {value!r}; it must be .*{rule}"):
        RNN(name, D, H, cell_options={option: value})


def test_depth_and_rounds_are_as_many_matrices():
    assert len(find_cell("highway")(D, H, depth=1).matrices) == 0
    assert len(find_cell("highway")(D, H, depth=4).matrices) == 6
    assert len(find_cell("mogrifier")(D, H, rounds=0).matrices) == 8
    assert len(find_cell("mogrifier")(D, H, rounds=5).matrices) == 13
