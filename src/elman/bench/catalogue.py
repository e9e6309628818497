"""The cells that torchrecurrent has too: what they are called there, and how its weights become ours."""

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from elman.cells.base import Cell

Named = dict[str, Tensor]
MISSING = "torchrecurrent is not installed; pip install torchrecurrent"


@dataclass(frozen=True)
class Peer:
    """A cell of torchrecurrent, and which of ours each of its blocks is.

    x and h name the blocks of its input and recurrent weights, in their order: gates of ours, matrices or
    vectors; b names those of its biases. A bias of the recurrent weights is added to the gate, or is the
    vector, that ``into`` names. ``more`` gives what is left. ``numbers`` are parameters there, options here.
    """

    name: str
    x: str
    h: str = ""
    b: str | None = None
    into: dict[str, str] = field(default_factory=dict)
    more: Callable[[Any], Named] = lambda cell: {}
    options: dict[str, Any] = field(default_factory=dict)
    ours: dict[str, Any] = field(default_factory=dict)
    numbers: tuple[str, ...] = ()
    square: bool = False


def parts(weight: Tensor, names: str) -> Named:
    return dict(zip(names.split(), weight.chunk(len(names.split())), strict=True))


def turned(weight: Tensor, names: str) -> Named:
    """Blocks of torch's shape (out, in) as ours are, (in, out)."""
    return {name: block.t() for name, block in parts(weight, names).items()}


def wide(number: Tensor, cell: Any) -> Tensor:
    """One number for all units as a vector."""
    return number.expand(cell.hidden_size)


def identity(cell: Any) -> Tensor:
    return torch.eye(cell.hidden_size).to(cell.weight_ih)


EIGHT = "a0 a1 a2 a3 a4 a5 a6 a7"
PREVIOUS = {"v_z": "z", "v_f": "f", "v_o": "o"}
UNBIASED = {"recurrent_bias": False}
PEERS = {
    "antisymmetric_rnn": Peer(
        *("AntisymmetricRNN", "a", "U"), into={"U": "a"}, ours={"epsilon": 1.0, "gamma": 0.0}
    ),
    "gated_antisymmetric_rnn": Peer(
        *("GatedAntisymmetricRNN", "z a", "U"),
        into={"U": "a"},
        options={"epsilon": 0.3, "gamma": 0.2},
        ours={"epsilon": 0.3, "gamma": 0.2},
    ),
    "atr": Peer("ATR", "p", "p", options=UNBIASED),
    "brc": Peer("BR", "a c z", "w_a w_c", into={"w_a": "a", "w_c": "c"}),
    "nbrc": Peer("NBR", "a c z", "a c"),
    "cfn": Peer("CFN", "f i z", "f i"),
    "memory_controller_lstm": Peer("MCLSTM", "f i o m z", "f i o m z"),
    "mgu_original": Peer("MGU", "f z", "f U", into={"U": "z"}),
    "minimal_rnn": Peer("MinimalRNN", "z", "z", into={"z": "v"}, more=lambda c: {"U": c.weight_mm.t()}),
    "miru1": Peer("MiRU1", "r z", "r U", into={"U": "z"}),
    "miru2": Peer("MiRU2", "z", "z"),
    "co_rnn": Peer("coRNN", "a", "a", more=lambda c: {"U": c.weight_ch.t()}, options={"cell_bias": False}),
    "fast_rnn": Peer("FastRNN", "z", "z", more=lambda c: {"a": wide(c.alpha, c), "d": wide(c.beta, c)}),
    "fast_grnn": Peer(
        *("FastGRNN", "a", "a", "z n"),
        more=lambda c: two_biases(c) | {"u": wide(c.zeta, c), "v": wide(c.nu, c)},
        options={"nonlinearity": "sigmoid"},  # the default is no gate
    ),
    "ind_rnn": Peer("IndRNN", "a", more=lambda c: {"u": c.vector_u}, ours={"activation": "tanh"}),
    "intersection_rnn": Peer(
        "IntersectionRNN", "u z g f", "u z g f", more=lambda c: {"k": identity(c)}, square=True
    ),
    "janet": Peer("JANET", "f z", "f z", numbers=("beta",)),
    "light_ru": Peer("LightRU", "z f", "f"),
    "li_gru": Peer("LiGRU", "f z", "f z"),
    "multiplicative_lstm": Peer(
        *("MultiplicativeLSTM", "m i f z o", "m"),
        more=lambda c: turned(c.weight_mh, "U_i U_f U_z U_o"),
        options={**UNBIASED, "multiplicative_bias": False},
    ),
    "mut1": Peer("MUT1", "z r n", "r U", into={"U": "v"}),
    "mut2": Peer("MUT2", "z r n", "z r U", into={"U": "n"}),
    "mut3": Peer("MUT3", "z r n", "V r U", into={"V": "z", "U": "n"}),
    "nas": Peer("NAS", EIGHT, EIGHT),
    "original_lstm": Peer("OriginalLSTM", "i z o", "i z o"),
    "peephole_lstm": Peer(
        "PeepholeLSTM", "i f z o", "i f z o", more=lambda c: parts(c.weight_ph, "p_i p_f p_o")
    ),
    "ran": Peer("RAN", "z i f", "i f", "i f"),
    "residual_lstm": Peer(
        *("ResLSTM", "i f z o", "i f z o"),
        more=lambda c: {"U": c.weight_proj.t(), "k": c.weight_res.t()} | parts(c.weight_ph, "p_i p_f p_o"),
    ),
    "sgrn": Peer("SGRN", "a", "a", options=UNBIASED),
    "sgu": Peer("SGU", "g z", "U z", into={"U": "v"}),
    "dsgu": Peer("DSGU", "g z", "U z", into={"U": "v"}, more=lambda c: {"V": c.weight_ho.t()}),
    "star": Peer("STAR", "z k", "k"),
    "tau_gru": Peer("tauGRU", "u z g a", "u U g a", into={"U": "z"}),
    "t_rnn": Peer("TRNN", "z f"),
    "t_gru": Peer("TGRU", "z f o", "v_z v_f v_o", into=PREVIOUS),
    "t_lstm": Peer("TLSTM", "z f o", "v_z v_f v_o", into=PREVIOUS),
    "ugrnn": Peer("UGRNN", "z f", "z f"),
    "unicornn": Peer(
        *("UnICORNN", "a", "w"),
        into={"w": "a"},
        more=lambda c: {"v": c.weight_ch},
        options={"alpha": 0.5},
        ours={"alpha": 0.5},
    ),
    "wmc_lstm": Peer(
        *("WMCLSTM", "i f z o", "i f z o"),
        more=lambda c: turned(c.weight_mh, "U_i U_f U_o"),
        options={"memory_bias": False},
    ),
}
# Theirs has other equations of the same size under this name, so that results cannot be compared. SCRN, which
# is more work there and gives less, is left out.
OTHERWISE = {"lem": "LEM"}


def absent() -> str | None:
    """Why there is no torchrecurrent, or None."""
    return None if find_spec("torchrecurrent") else MISSING


def their_layer(name: str, D: int, H: int, **options: Any) -> nn.Module:
    """The layer of torchrecurrent that is this cell of ours, time-major."""
    peer = PEERS.get(name)
    import torchrecurrent  # type: ignore[import-untyped]

    kind = getattr(torchrecurrent, OTHERWISE[name] if peer is None else peer.name)
    layer: nn.Module = kind(D, H, **(peer.options if peer else {}), **options)
    return layer


def our_options(name: str, layer: nn.Module) -> dict[str, Any]:
    """The options with which our cell is that layer."""
    peer = PEERS.get(name)
    if peer is None:
        return {}
    return peer.ours | {n: layer.get_parameter(f"cells.0.{n}").item() for n in peer.numbers}


def two_biases(cell: Any) -> Named:
    gate, candidate = (cell.bias_ih + cell.bias_hh).chunk(2)
    return {"b_a": gate, "d": candidate - gate}


def our_weights(peer: Peer, cell: Cell, theirs: Any) -> Named:
    """Our parameters, computed from theirs, so that gradients go on to these."""
    assert cell.equations is not None
    products, inputs = cell.equations.products, cell.equations.inputs
    given = turned(theirs.weight_ih, peer.x)
    biases = parts(theirs.bias_ih, peer.x if peer.b is None else peer.b)
    found: Named = {}
    blocks: Named = {}
    for name, block in turned(theirs.weight_hh, peer.h).items() if peer.h else ():
        home = found if name in (*cell.vectors, *cell.matrices) else blocks if name in products else given
        home[name] = block
    bias = getattr(theirs, "bias_hh", None)
    for name, part in parts(bias, peer.h or peer.x).items() if bias is not None else ():
        name = peer.into.get(name, name)
        biases[name] = biases[name] + part if name in biases else part
    for name, value in peer.more(theirs).items():
        home = given if name in inputs else biases if name.startswith("b_") else found
        home[name.removeprefix("b_") if home is biases else name] = value
    found |= {name: biases[name] for name in cell.vectors if name in biases}
    zeros = theirs.weight_ih.new_zeros(cell.hidden_size)
    found["W_x"] = torch.cat([given[gate] for gate in inputs], -1)
    found["b"] = torch.cat([biases.get(gate, zeros) for gate in inputs])
    if products:
        found["W_h"] = torch.cat([blocks[gate] for gate in products], -1)
    return found
