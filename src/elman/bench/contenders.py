"""What runs beside each other: our networks, modules of torch, and plain loops of our cells."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from copy import deepcopy
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from elman.bench.cases import OUR_LSTM, OUR_STEPS, TORCHRECURRENT, Case
from elman.bench.catalogue import PEERS, our_options, our_weights, their_layer
from elman.bench.cells import LOOPS, State, UserFourGates, UserLSTM
from elman.bench.others import FLASH, HGRN, FlashLayer, GatedLinearLayer
from elman.cells.base import Cell
from elman.cells.elman import Elman
from elman.cells.gru import GRU
from elman.cells.gru_original import OriginalGRU
from elman.cells.highway import Highway
from elman.cells.layer_norm_lstm import LayerNormLSTM
from elman.cells.lstm import LSTM
from elman.cells.mgu_original import OriginalMGU
from elman.cells.min_gru import MinGRU
from elman.cells.mogrifier import Mogrifier
from elman.cells.multiplicative_lstm import MultiplicativeLSTM
from elman.cells.slstm import SLSTM
from elman.cells.sru import SRU
from elman.layers.rnn import RNN, find_cell
from elman.recurrence.triton.chunks import in_one_piece

Values = dict[str, Tensor]
Module = nn.RNN | nn.LSTM | nn.GRU

DTYPES = {None: torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "tf32": torch.float32}
OURS: dict[str, type[Cell]] = {
    **{cell.__name__: cell for cell in (LSTM, GRU, Elman, SRU)},
    "sLSTM": SLSTM,
    "minimal GRU": MinGRU,
    "linear SRU": SRU,
    "layer-norm LSTM": LayerNormLSTM,
    "original MGU": OriginalMGU,
    "original GRU": OriginalGRU,
    "multiplicative LSTM": MultiplicativeLSTM,
    "highway": Highway,
    "mogrifier": Mogrifier,
    "user's LSTM": UserLSTM,
    "user's four gates": UserFourGates,
}
OPTIONS: dict[str, dict[str, object]] = {"linear SRU": {"peepholes": False}}
SAME = {(LSTM, nn.LSTM), (UserLSTM, nn.LSTM), (GRU, nn.GRU), (Elman, nn.RNN)}  # equations


class Contender(ABC):
    """A network that can be run on a batch; sequences and states are laid out as it likes them."""

    network: nn.Module
    states: tuple[str, ...]

    @abstractmethod
    def unroll(self, x: Tensor, state: State, lengths: Tensor | None) -> State:
        """Outputs and the final state, if it was given one to start from; else outputs alone."""

    def native(self, state: Tensor) -> Tensor:
        """(B, H) in the shape that this contender takes."""
        return state

    def turned(self, sequence: Tensor) -> Tensor:
        """(B, T, ·) as this contender takes and gives it; turned again, it is as before."""
        return sequence

    def translate(self, gradients: Values) -> Values:
        """Gradients of its parameters under Elman's names and in Elman's order."""
        return gradients


class Ours(Contender):
    """A network of Elman's; a state may be given where there is one layer in one direction."""

    def __init__(self, rnn: RNN) -> None:
        self.network = self.rnn = rnn
        self.states = rnn.cell_class.state
        self.cell = next(module for module in rnn.modules() if isinstance(module, Cell))  # the first

    def unroll(self, x: Tensor, state: State, lengths: Tensor | None) -> State:
        result = self.rnn(x, lengths, (state,) if state else None)
        return result.outputs, *(result.state[0] if state else ())

    def reference(self) -> Ours:
        """The same network as the definition has it: the plain loop in float64."""
        rnn = deepcopy(self.rnn).double()
        rnn.backend = "loop"
        return Ours(rnn)


class PlainLoop(Ours):
    """A copy of the cell's weights, unrolled by a loop of ``cells.py``."""

    def __init__(self, ours: Ours) -> None:
        super().__init__(deepcopy(ours.rnn))
        self.loop = LOOPS[type(self.cell)]

    def unroll(self, x: Tensor, state: State, lengths: Tensor | None) -> State:
        assert lengths is None
        found = self.loop(self.cell, x, state or tuple(self.cell.initial_state(len(x), x)))
        return found if state else found[:1]


class Torch(Contender):
    """A module of torch; lengths are packed, by torch itself.

    ``in_order``: rows come with the longest first, as packing likes it.
    """

    def __init__(self, module: Module, *, in_order: bool) -> None:
        self.network = self.module = module
        self.in_order = in_order
        self.states = ("h", "c") if module.mode == "LSTM" else ("h",)

    def native(self, state: Tensor) -> Tensor:
        return state[None].clone()

    def turned(self, sequence: Tensor) -> Tensor:
        return sequence if self.module.batch_first else sequence.transpose(0, 1).contiguous()

    def unroll(self, x: Tensor, state: State, lengths: Tensor | None) -> State:
        start = state if len(state) > 1 else state[0] if state else None
        first, order = self.module.batch_first, self.in_order
        if lengths is None:
            outputs, final = self.module(x, start)
        else:
            packed, final = self.module(pack_padded_sequence(x, lengths, first, order), start)
            outputs, _ = pad_packed_sequence(packed, first, total_length=x.shape[1 if first else 0])
        return outputs, *(final if len(state) > 1 else (final,) if state else ())

    def translate(self, gradients: Values) -> Values:
        found: Values = {}
        for layer in range(self.module.num_layers):
            for direction in range(2 if self.module.bidirectional else 1):
                end = f"l{layer}{'_reverse' if direction else ''}"
                names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
                W_x, W_h, b, b_h = (gradients[f"{name}_{end}"] for name in names)
                own = {"W_x": W_x.t(), "W_h": W_h.t(), "b": b}
                if self.module.mode == "GRU":
                    own["m"] = b_h.chunk(3)[2]
                found |= {f"cells.{layer}.{direction}.{name}": t for name, t in own.items()}
        return found


class TorchRecurrent(Contender):
    """A layer of torchrecurrent, time-major, from a zero state; its weights have no names of ours."""

    states = ()

    def __init__(self, layer: nn.Module) -> None:
        self.network = layer

    def turned(self, sequence: Tensor) -> Tensor:
        return sequence.transpose(0, 1).contiguous()

    def unroll(self, x: Tensor, state: State, lengths: Tensor | None) -> State:
        return (self.network(x)[0],)

    def translate(self, gradients: Values) -> Values:
        return {}


class Stepwise(Ours):
    """A linear recurrence step by step, as any other."""

    def unroll(self, x: Tensor, state: State, lengths: Tensor | None) -> State:
        with in_one_piece():
            return super().unroll(x, state, lengths)


class Other(Contender):
    """A layer of others from a zero state; its weights have no names of ours."""

    states = ()

    def __init__(self, layer: nn.Module) -> None:
        self.network = layer

    def unroll(self, x: Tensor, state: State, lengths: Tensor | None) -> State:
        return (self.network(x),)

    def translate(self, gradients: Values) -> Values:
        return {}


class Pair(NamedTuple):
    """Ours and the peer; ``same``: they have the same equations, and then the same weights."""

    ours: Ours
    peer: Contender
    same: bool


def build(case: Case, device: str = "cpu") -> Pair:
    """Both contenders with fresh weights as torch draws them; a module on CUDA is time-major: its fastest."""
    torch.manual_seed(1)
    if case.peer == TORCHRECURRENT:
        return _catalogued(case, device)
    cell, dtype = OURS[case.ours], DTYPES[case.precision]
    if case.peer in (OUR_STEPS, FLASH, HGRN):
        return _beside_others(case, cell, device)
    if case.peer in ("Python loop", OUR_LSTM):
        ours = Ours(fresh(case, cell))
        _shake(ours.rnn)
        ours.rnn.to(device, dtype)
        if case.peer == OUR_LSTM:
            return Pair(ours, Ours(fresh(case, LSTM).to(device, dtype)), False)
        return Pair(ours, PlainLoop(ours), True)
    kind: type[Module] = getattr(nn, str(case.peer).rpartition(".")[2])
    same = (cell, kind) in SAME
    rnn = fresh(case, LSTM if cell is UserLSTM else cell).to(dtype)
    if cell is LayerNormLSTM:
        _shake(rnn)
    module = rnn.to_torch() if same else kind(case.H, case.H).to(dtype)
    module.batch_first = case.precision is None
    peer = Torch(on_device(module, device), in_order=case.precision is not None)
    if cell is UserLSTM:
        user = fresh(case, cell)
        user.load_state_dict(rnn.state_dict())  # its gates have other names and the same order
        rnn = user
    return Pair(Ours(rnn.to(device)), peer, same)


def _beside_others(case: Case, cell: type[Cell], device: str) -> Pair:
    dtype = DTYPES[case.precision]
    ours = Ours(fresh(case, cell).to(device, dtype))
    if case.peer == OUR_STEPS:
        return Pair(ours, Stepwise(deepcopy(ours.rnn)), True)
    layer: nn.Module
    if case.peer == FLASH:
        layer = FlashLayer("slstm" if cell is SLSTM else "lstm", case.H, case.heads)
    else:
        layer = GatedLinearLayer(case.H)
    return Pair(ours, Other(layer.to(device, dtype)), False)


def _catalogued(case: Case, device: str) -> Pair:
    """A cell of the catalogue beside torchrecurrent's, with its weights where the equations are the same.

    Recurrent weights are made small: as they are drawn, some of these networks are chaotic.
    """
    layer, peer = their_layer(case.ours, case.H, case.H), PEERS.get(case.ours)
    _shake(layer)
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if parameter.dim() > 1 and "ih" not in name:
                parameter.mul_(0.1)
    rnn = fresh(case, find_cell(case.ours), options=our_options(case.ours, layer))
    ours, dtype = Ours(rnn), DTYPES[case.precision]
    if peer is None:
        _shake(rnn)
    else:
        with torch.no_grad():
            ours.cell.load_state_dict(our_weights(peer, ours.cell, layer.get_submodule("cells.0")))
    rnn.to(device, dtype)
    return Pair(ours, TorchRecurrent(layer.to(device, dtype)), peer is not None)


def fresh(
    case: Case, cell: type[Cell], dropout: float = 0.0, options: Mapping[str, object] | None = None
) -> RNN:
    """A network of ours in the sizes of a case: float32, on the CPU."""
    both, own = case.bidirectional, {"heads": case.heads, **OPTIONS.get(case.ours, {})}
    options = {"initialisation": "uniform", **own, **(options or {})}
    return RNN(
        cell, case.H, case.H, layers=case.layers, bidirectional=both, dropout=dropout, cell_options=options
    )


def on_device(module: Module, device: str) -> Module:
    """The module there, its weights in one piece of memory; scattered ones cuDNN gathers at every call.

    Torch puts them together when it moves them, but not those in bfloat16, which ``flatten_parameters``
    passes over. So room is made for as many numbers of float16, and is then read as bfloat16.
    """
    if next(module.parameters()).dtype != torch.bfloat16:
        return module.to(device)
    values = [parameter.detach().clone() for parameter in module.parameters()]
    module.half().to(device)
    for parameter, value in zip(module.parameters(), values, strict=True):
        parameter.data = parameter.data.view(torch.bfloat16).copy_(value)
    return module


def _shake(network: nn.Module) -> None:
    """Give fresh weights some noise, so that no bias, gain or peephole is a plain 0 or 1.

    Gains of layer normalisation are made small: with 1 the network is chaotic, and the rounding of
    float32 grows a thousandfold in 100 steps, whoever computes it.
    """
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if "gain" in name:
                parameter.mul_(0.3)
            rows = (parameter.shape or (1,))[0]
            parameter.add_(0.1 * torch.randn_like(parameter) * rows**-0.5)
