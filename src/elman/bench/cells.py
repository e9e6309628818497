"""Cells as a user would write them, and the plain loops that a user would write without Elman."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, addcmul, addmm, cat, lerp, sigmoid, stack, tanh
from torch.nn.functional import layer_norm, softsign

from elman.cells.base import Cell
from elman.cells.gru_original import OriginalGRU
from elman.cells.highway import Highway
from elman.cells.layer_norm_lstm import LayerNormLSTM
from elman.cells.mgu_original import OriginalMGU
from elman.cells.mogrifier import Mogrifier
from elman.cells.multiplicative_lstm import MultiplicativeLSTM
from elman.cells.sru import SRU


class UserLSTM(Cell):
    """The LSTM's equations under other names.

    write, keep, fresh, show are i, f, z, o;  c' = keep ⊙ c + write ⊙ fresh;  h' = show ⊙ tanh(c')
    """

    state = ("h", "c")
    gates = ("write", "keep", "fresh", "show")

    def R(self, x: Any, h: Any, s: Any) -> Any:
        show, keep, write = sigmoid(x.show + h.show), sigmoid(x.keep + h.keep), sigmoid(x.write + h.write)
        c = keep * s.c + write * tanh(x.fresh + h.fresh)
        return self.State(h=show * tanh(c), c=c)


class UserFourGates(Cell):
    """Four gates that are no LSTM: what is forgotten makes room, and the output is a softsign.

    c' = keep ⊙ c + (1 - keep) ⊙ write ⊙ tanh(fresh);  h' = show ⊙ softsign(c')
    """

    state = ("h", "c")
    gates = ("write", "keep", "fresh", "show")

    def R(self, x: Any, h: Any, s: Any) -> Any:
        write, keep, show = sigmoid(x.write + h.write), sigmoid(x.keep + h.keep), sigmoid(x.show + h.show)
        c = keep * s.c + (1 - keep) * write * tanh(x.fresh + h.fresh)
        return self.State(h=show * softsign(c), c=c)


# Every loop takes what depends on the input alone out of the loop, and the same with what no later
# step waits for; steps lie one after the other in memory, and a step has as few operations as can be:
# weights of the same operand are joined, once a call, and so are the gates of one function.
# They return the outputs (B, T, H) and the final state.

State = tuple[Tensor, ...]
Loop = Callable[..., State]  # of a cell of its own kind, x (B, T, D) and the state to start from


def project(cell: Cell, x: Tensor, b: Tensor | None, order: list[int] | None = None) -> Tensor:
    """(B, T, D) → (T, B, ·), gates as they are or in another order."""
    B, T, D = x.shape
    W_x = cell.W_x
    assert W_x is not None
    if order:
        W_x = W_x.unflatten(-1, (len(order), -1))[:, order].flatten(1)
        b = None if b is None else b.unflatten(-1, (len(order), -1))[order].flatten()
    rows = x.transpose(0, 1).reshape(T * B, D)
    return (rows @ W_x if b is None else addmm(b, rows, W_x)).view(T, B, -1)


def joined(cell: Cell, names: str, dim: int = -1) -> Tensor:
    """Learned vectors or matrices side by side."""
    return cat([cell.get_parameter(name) for name in names.split()], dim)


def sru_loop(cell: SRU, x: Tensor, state: State) -> State:
    """Only f and c are in the loop: r and h follow from all c at once."""
    _, c = state
    v_f, v_r = cell.weights()[3]
    f, r, z, k = project(cell, x, cell.b).chunk(4, -1)
    cs = [c]
    for f_t, z_t in zip(f.unbind(), z.unbind(), strict=True):
        c = lerp(z_t, c, sigmoid(addcmul(f_t, v_f, c)))
        cs.append(c)
    all_c = stack(cs)  # (T + 1, B, H)
    h = lerp(k, all_c[1:], sigmoid(addcmul(r, v_r, all_c[:-1])))
    return h.transpose(0, 1), h[-1], c


def mgu_loop(cell: OriginalMGU, x: Tensor, state: State) -> State:
    (h,) = state
    W_f, W_z = cell.get_parameter("W_h"), cell.get_parameter("U")
    f, z = project(cell, x, cell.b).chunk(2, -1)
    hs = []
    for f_t, z_t in zip(f.unbind(), z.unbind(), strict=True):
        gate = sigmoid(addmm(f_t, h, W_f))
        h = lerp(h, tanh(addmm(z_t, gate * h, W_z)), gate)
        hs.append(h)
    return stack(hs, 1), h


def gru_loop(cell: OriginalGRU, x: Tensor, state: State) -> State:
    (h,) = state
    H, W_h, U = cell.hidden_size, cell.get_parameter("W_h"), cell.get_parameter("U")
    gates, n = project(cell, x, cell.b).split((2 * H, H), -1)
    hs = []
    for gates_t, n_t in zip(gates.unbind(), n.unbind(), strict=True):
        r, z = sigmoid(addmm(gates_t, h, W_h)).chunk(2, -1)
        h = lerp(tanh(addmm(n_t, r * h, U)), h, z)
        hs.append(h)
    return stack(hs, 1), h


def multiplicative_lstm_loop(cell: MultiplicativeLSTM, x: Tensor, state: State) -> State:
    h, c = state
    H, W_h, U = cell.hidden_size, cell.get_parameter("W_h"), joined(cell, "U_i U_f U_o U_z")
    m, gates = project(cell, x, cell.b, [0, 1, 2, 4, 3]).split((H, 4 * H), -1)
    hs = []
    for m_t, gates_t in zip(m.unbind(), gates.unbind(), strict=True):
        h, c = lstm_step(addmm(gates_t, m_t * (h @ W_h), U), c)
        hs.append(h)
    return stack(hs, 1), h, c


def lstm_step(gates: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """h' and c' of the sums i, f, o, z, which lie side by side."""
    H = c.shape[-1]
    logistic, z = gates.split((3 * H, H), -1)
    i, f, o = sigmoid(logistic).chunk(3, -1)
    c = addcmul(f * c, i, tanh(z))
    return o * tanh(c), c


def highway_loop(cell: Highway, x: Tensor, state: State) -> State:
    (h,) = state
    W_h, further = cell.get_parameter("W_h"), range(2, cell.depth + 1)
    layers = [(joined(cell, f"y_{k} u_{k}"), joined(cell, f"Z_{k} T_{k}")) for k in further]
    hs = []
    for x_t in project(cell, x, cell.b).unbind():
        z, t = addmm(x_t, h, W_h).chunk(2, -1)
        h = lerp(h, tanh(z), sigmoid(t))
        for bias, weight in layers:
            z, t = addmm(bias, h, weight).chunk(2, -1)
            h = lerp(h, tanh(z), sigmoid(t))
        hs.append(h)
    return stack(hs, 1), h


def mogrifier_loop(cell: Mogrifier, x: Tensor, state: State) -> State:
    """The factors 2 of the gating are in the weights of what it gates: u and h stay without them."""
    h, c = state
    scale = {0: 1.0, 1: 1.0}  # of u and h
    gating = []
    for k in range(cell.rounds):
        gating.append(cell.get_parameter(f"Q_{k + 1}") * scale[1 - k % 2])
        scale[k % 2] *= 2
    of_u, of_h = joined(cell, "X_i X_f X_o X_z") * scale[0], joined(cell, "H_i H_f H_o H_z") * scale[1]
    bias, weight = joined(cell, "v_i v_f v_o v_z"), cat([of_u, of_h])
    hs = []
    for u in project(cell, x, cell.b).unbind():
        for k, Q in enumerate(gating):
            if k % 2:
                h = sigmoid(u @ Q) * h
            else:
                u = sigmoid(h @ Q) * u
        h, c = lstm_step(addmm(bias, cat([u, h], -1), weight), c)
        hs.append(h)
    return stack(hs, 1), h, c


def layer_norm_lstm_loop(cell: LayerNormLSTM, x: Tensor, state: State) -> State:
    """The logistic gates lie side by side, so that one call computes them."""
    h, c = state
    H, width, epsilon = cell.hidden_size, (4 * cell.hidden_size,), cell.epsilon
    W_h, gain_h = cell.get_parameter("W_h"), joined(cell, "gain_i gain_f gain_o gain_z")
    rows = layer_norm(project(cell, x, None), width, cell.gain_x, cell.b, epsilon)
    hs = []
    for x_t in rows.unbind():
        logistic, z = (x_t + layer_norm(h @ W_h, width, gain_h, None, epsilon)).split((3 * H, H), -1)
        i, f, o = sigmoid(logistic).chunk(3, -1)
        c = addcmul(f * c, i, tanh(z))
        h = o * tanh(layer_norm(c, (H,), cell.gain_c, cell.shift_c, epsilon))
        hs.append(h)
    return stack(hs, 1), h, c


LOOPS: dict[type[Cell], Loop] = {
    SRU: sru_loop,
    OriginalMGU: mgu_loop,
    OriginalGRU: gru_loop,
    MultiplicativeLSTM: multiplicative_lstm_loop,
    Highway: highway_loop,
    Mogrifier: mogrifier_loop,
    LayerNormLSTM: layer_norm_lstm_loop,
}
