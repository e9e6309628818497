"""Cells as a user would write them, and the plain loops that a user would write without Elman."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, addcmul, addmm, lerp, sigmoid, stack, tanh
from torch.nn.functional import layer_norm, softsign

from elman.cells.base import Cell
from elman.cells.layer_norm_lstm import LayerNormLSTM
from elman.cells.mgu_original import OriginalMGU
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
# step waits for; steps lie one after the other in memory, and a step has as few operations as can be.
# They return the outputs (B, T, H) and the final state.

State = tuple[Tensor, ...]
Loop = Callable[..., State]  # of a cell of its own kind, x (B, T, D) and the state to start from


def project(cell: Cell, x: Tensor, b: Tensor | None) -> Tensor:
    """(B, T, D) → (T, B, ·)"""
    B, T, D = x.shape
    assert cell.W_x is not None
    rows = x.transpose(0, 1).reshape(T * B, D)
    return (rows @ cell.W_x if b is None else addmm(b, rows, cell.W_x)).view(T, B, -1)


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
    assert cell.W_h is not None
    f, z = project(cell, x, cell.b).chunk(2, -1)
    W_f, W_z = cell.W_h.chunk(2, -1)
    hs = []
    for f_t, z_t in zip(f.unbind(), z.unbind(), strict=True):
        gate = sigmoid(addmm(f_t, h, W_f))
        h = lerp(h, tanh(addmm(z_t, gate * h, W_z)), gate)
        hs.append(h)
    return stack(hs, 1), h


def layer_norm_lstm_loop(cell: LayerNormLSTM, x: Tensor, state: State) -> State:
    """The logistic gates lie side by side, so that one call computes them."""
    h, c = state
    H, width, epsilon = cell.hidden_size, (4 * cell.hidden_size,), cell.epsilon
    W_h, gain_h = cell.W_h, cell.gain_h
    assert W_h is not None
    rows = layer_norm(project(cell, x, None), width, cell.gain_x, cell.b, epsilon)
    hs = []
    for x_t in rows.unbind():
        logistic, z = (x_t + layer_norm(h @ W_h, width, gain_h, None, epsilon)).split((3 * H, H), -1)
        i, f, o = sigmoid(logistic).chunk(3, -1)
        c = addcmul(f * c, i, tanh(z))
        h = o * tanh(layer_norm(c, (H,), cell.gain_c, cell.shift_c, epsilon))
        hs.append(h)
    return stack(hs, 1), h, c


LOOPS: dict[type[Cell], Loop] = {SRU: sru_loop, OriginalMGU: mgu_loop, LayerNormLSTM: layer_norm_lstm_loop}
