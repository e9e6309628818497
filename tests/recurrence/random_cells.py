"""Random cells, and the question whether a backend computes what the plain loop computes.

A seed gives a cell of random equations over all operations, random sizes, lengths, noise, start and use of
the results. There are two families: in the first, equations are pointwise; in the second, they also reduce
over units and multiply by matrices, so that a step takes several phases. The definition is the loop over
every row by itself, in float64: values and gradients, and where these are not numbers. Equations at random
are often ill-conditioned; so a difference counts only if it is larger than what the loop itself does when
its inputs change by some units in the last place.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from elman import Cell
from elman.layers.dropout import Regularisers
from elman.recurrence.contract import NO_NOISE, Noise
from elman.recurrence.functions import norm, rms

UNARY: dict[str, Callable[[Any], Any]] = {
    "neg": lambda a: -a,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "relu": torch.relu,
    "exp": torch.exp,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "abs": torch.abs,
    "sign": torch.sign,
    "erf": torch.erf,
    "sin": torch.sin,
    "cos": torch.cos,
    "square": torch.square,
    "reciprocal": torch.reciprocal,
    "silu": F.silu,
    "softsign": F.softsign,
    "softplus": F.softplus,
    "softplus2": lambda a: F.softplus(a, beta=2.0, threshold=5.0),
    "gelu": F.gelu,
    "gelu_tanh": lambda a: F.gelu(a, approximate="tanh"),
    "clamp": lambda a: torch.clamp(a, -0.7, 0.9),
    "clamp_min": lambda a: torch.clamp(a, min=0.1),
    "clamp_max": lambda a: torch.clamp(a, max=0.2),
    "cube": lambda a: a**3,
    "power": lambda a: a**1.5,
    "base": lambda a: 0.6**a,
    "leave": lambda a: 1.0 - a,
}
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "pow": lambda a, b: torch.pow(a, b),
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "bounded": lambda a, b: a / (1.0 + torch.abs(b)),
    "blend": lambda a, b: torch.sigmoid(a) * b,
}
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "both": lambda a, b: (a > 0) & (b > 0),
    "either": lambda a, b: (a > 0) | ~(b > 0),
}
NUMBERS_OF_ROWS: dict[str, Callable[[Any], Any]] = {
    "sum": lambda a: a.sum(-1, keepdim=True),
    "mean": lambda a: torch.mean(a, dim=-1, keepdim=True),
    "amax": lambda a: torch.amax(a, -1, keepdim=True),
}
OVER_UNITS: dict[str, Callable[..., Any]] = {
    "softmax": lambda a: torch.softmax(a, -1),
    "norm": norm,
    "rms": rms,
    "norm of two": lambda a, b: norm(a, b)[0],
    "rms of two": lambda a, b: rms(a, b)[1],
}
DEEPEST = 3  # products of products
TAME = ("sigmoid", "tanh", "add", "mul", "blend", "sub", "softsign", "sin")  # half of all operations
Tree = tuple[Any, ...]


def grow(rng: random.Random, leaves: list[Tree], depth: int) -> Tree:
    """A random expression."""
    if depth == 0 or rng.random() < 0.15:
        return rng.choice(leaves) if rng.random() < 0.85 else ("number", round(rng.uniform(-2, 2), 2))
    kind = rng.choice(TAME) if rng.random() < 0.5 else rng.choice([*UNARY, *BINARY, "where"])
    if kind == "where":
        parts = [grow(rng, leaves, depth - 1) for _ in range(4)]
        return ("where", rng.choice(list(COMPARE)), *parts)
    count = 1 if kind in UNARY else 2
    return (kind, *(grow(rng, leaves, depth - 1) for _ in range(count)))


class PhasedGrowth:
    """Random expressions with reductions and learned products, sometimes twice of one value."""

    def __init__(self, rng: random.Random, leaves: list[Tree], matrices: tuple[str, ...]) -> None:
        self.rng, self.leaves, self.matrices = rng, leaves, matrices
        self.multiplied: list[tuple[Tree, int]] = []  # with the depth of the products in it

    def grow(self, depth: int, products: int = DEEPEST) -> Tree:
        rng, drawn = self.rng, self.rng.random()
        if depth == 0 or drawn < 0.12:
            return grow(rng, self.leaves, 0)
        if drawn < 0.35 and self.matrices and products:
            return self._product(depth, products)
        if drawn < 0.6:
            kind = rng.choice([*NUMBERS_OF_ROWS, *OVER_UNITS])
            count = 2 if kind.endswith("of two") else 1
            return (kind, *(self._with_units(self.grow(depth - 1, products)) for _ in range(count)))
        kind, *rest = grow(rng, [("place",)], 1)  # an operation, or nothing but the place
        parts = [self.grow(depth - 1, products) if part == ("place",) else part for part in rest]
        return (kind, *parts) if kind != "place" else self.grow(depth - 1, products)

    def _product(self, depth: int, products: int) -> Tree:
        known = [tree for tree, deep in self.multiplied if deep < products]
        if known and self.rng.random() < 0.3:
            value = self.rng.choice(known)
        else:
            value = self._with_units(self.grow(depth - 1, products - 1))
            self.multiplied.append((value, _products_in(value)))
        return ("product", self.rng.choice(self.matrices), value)

    def _with_units(self, tree: Tree) -> Tree:
        """The same, with a state where it is one number for a row: that cannot be reduced or multiplied."""
        return tree if _has_units(tree) else ("add", tree, self.leaves[0])


def _parts(tree: Tree) -> list[Tree]:
    return [part for part in tree[1:] if isinstance(part, tuple)]


def _products_in(tree: Tree) -> int:
    return (tree[0] == "product") + max(map(_products_in, _parts(tree)), default=0)


def _has_units(tree: Tree) -> bool:
    if tree[0] in ("number", "option", *NUMBERS_OF_ROWS):
        return False
    return tree[0] in ("x", "h", "s", "v", "product") or any(map(_has_units, _parts(tree)))


def value_of(tree: Tree, leaf: Callable[[str, str], Any], like: Any) -> Any:
    """The expression as torch computes it, on tensors or symbols; numbers become values like ``like``."""
    kind, *rest = tree
    if kind == "number":
        return torch.zeros_like(like) + rest[0]
    if kind in ("x", "h", "s", "v", "option"):
        return leaf(kind, rest[0])
    if kind == "where":
        a, b, c, d = (value_of(part, leaf, like) for part in rest[1:])
        return torch.where(COMPARE[rest[0]](a, b), c, d)
    if kind == "product":
        return leaf("matrix", rest[0])(value_of(rest[1], leaf, like))
    parts = [value_of(part, leaf, like) for part in rest]
    if kind in (*NUMBERS_OF_ROWS, *OVER_UNITS) and isinstance(parts[0], Tensor):
        parts = [leaf("reduced", "")(part) for part in parts]
    return (UNARY | BINARY | NUMBERS_OF_ROWS | OVER_UNITS)[kind](*parts)


def random_class(rng: random.Random, *, phased: bool = False) -> type[Cell]:
    """A cell of 1–4 states, 0–6 gates, vectors, an option, and sometimes an output of its own."""
    states = tuple("hcmn"[: rng.randint(1, 4)])
    gate_names = tuple("abdefg"[: rng.randint(0, 6)])
    vector_names = tuple("pq"[: rng.randint(0, 2)])
    leaves: list[Tree] = [("s", name) for name in states]
    leaves += [(kind, gate) for gate in gate_names for kind in ("x", "h") if rng.random() < 0.8] * 2
    leaves += [("v", name) for name in vector_names] + [("option", "k")]
    matrix_names: tuple[str, ...] = ()
    if phased:
        matrix_names = tuple("UV"[: rng.randint(0, 2)])
        growth = PhasedGrowth(rng, leaves, matrix_names)
        trees = {name: growth.grow(rng.randint(1, 5)) for name in states}
    else:
        trees = {name: grow(rng, leaves, rng.randint(1, 4)) for name in states}
    shown = rng.choice([None, None, None, states])

    class Random(Cell):
        state, gates, vectors, matrices = states, gate_names, vector_names, matrix_names
        equations_written = trees
        _shaken = 0.0  # by how much what is summed is changed, as another order of the sum would change it

        def __init__(self, *sizes: int, k: float = 0.5, **rest: Any) -> None:
            super().__init__(*sizes, **rest)
            self.k = k

        def R(self, x: Any, h: Any, s: Any) -> Any:
            def leaf(kind: str, name: str) -> Any:
                if kind == "reduced":
                    return lambda a: a if not self._shaken else a * (1 + self._shaken * pattern(a))
                if kind in ("v", "option", "matrix"):
                    found = getattr(self, name)
                    return found if kind != "option" else torch.zeros_like(s[0]) + found
                return getattr({"x": x, "h": h, "s": s}[kind], name)

            return self.State(*(value_of(trees[name], leaf, s[0]) for name in states))

    if shown is not None:
        Random.O = lambda self, s: torch.cat([torch.tanh(s[0]), *s[1:]], -1)  # type: ignore[method-assign]
    return Random


def pattern(a: Tensor) -> Tensor:
    """Numbers between -1 and 1, another one for each unit."""
    return torch.sin(7.0 * torch.arange(a.shape[-1], dtype=a.dtype))


@dataclass
class Case:
    """A cell, its input and what is asked of it."""

    cell: Cell
    x: Tensor
    state: list[Tensor] | None
    lengths: list[int] | None
    reverse: bool
    noise: Noise
    shown: Tensor | None  # weights of the outputs in the loss; None: they are not in it
    finals: dict[int, Tensor]  # the same for final states

    def __str__(self) -> str:
        names = (
            f"H={self.cell.hidden_size} x={tuple(self.x.shape)} lengths={self.lengths} reverse={self.reverse}"
        )
        used = f"outputs={self.shown is not None} finals={list(self.finals)} state={self.state is not None}"
        zoneout = {name: type(drawn).__name__ for name, drawn in self.noise.zoneout.items()}
        noise = f"mask={self.noise.mask is not None} zoneout={zoneout} drop={self.noise.weight is not None}"
        return f"{names} {used} {noise}\n  {self.cell.equations_written}"


def random_case(
    seed: int, dtype: torch.dtype = torch.float64, *, wide: bool = False, phased: bool = False
) -> Case:
    """The case of a seed; ``wide``: sizes that a GPU's tiles care about; ``phased``: of the second family."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    kind = random_class(rng, phased=phased)
    B, T, D = rng.randint(1, 5), rng.randint(1, 6), rng.randint(1, 3)
    H = rng.choice([1, 3, 8, 17, 20] if not wide else [1, 16, 24, 40, 96])
    cell = kind(D, H, k=round(rng.uniform(-1, 1), 2)).to(dtype)
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.copy_(torch.randn(parameter.shape, dtype=torch.float64) * 0.7)
    x = torch.randn(B, T, D, dtype=torch.float64).to(dtype)
    state = None
    if rng.random() < 0.5:
        state = [torch.randn(B, H, dtype=torch.float64).to(dtype) for _ in cell.state]
    lengths = [rng.randint(1, T) for _ in range(B)] if rng.random() < 0.5 else None
    noise = NO_NOISE
    if rng.random() < 0.4:
        rates = {name: rng.choice([0.0, 0.4]) for name in cell.state}
        regularisers = Regularisers(0.0, rng.choice([0.0, 0.3]), rates, rng.choice([0.0, 0.2]))
        noise = regularisers.draw(cell, B, T, x, training=rng.random() < 0.7).applied(cell, cell.W_h)
    shown = torch.randn(B, T, cell.output_size).to(dtype) if rng.random() < 0.7 else None
    finals = {i: torch.randn(B, H).to(dtype) for i in range(len(cell.state)) if rng.random() < 0.35}
    if shown is None and not finals:
        finals = {0: torch.randn(B, H).to(dtype)}
    return Case(cell, x, state, lengths, rng.random() < 0.4, noise, shown, finals)


def run(case: Case, backend: str, *, create_graph: bool = False) -> list[Tensor]:
    """Outputs, final states and all gradients of a case on a backend."""
    leaves = _leaves(case)
    x, state = leaves[0], None if case.state is None else leaves[1 : 1 + len(case.state)]
    found = case.cell(x, state, case.lengths, reverse=case.reverse, noise=_attached(case), backend=backend)
    loss = x.new_zeros(())
    if case.shown is not None:
        loss = loss + (found.outputs * _masked(case, case.shown)).sum()
    for place, weight in case.finals.items():
        loss = loss + (found.state[place] * weight).sum()
    return [found.outputs, *found.state, *_gradients(loss, [*leaves, *case.cell.parameters()], create_graph)]


def run_by_rows(case: Case) -> list[Tensor]:
    """The definition: every row by itself, without padding, on the plain loop."""
    leaves = _leaves(case)
    B, T, _ = case.x.shape
    noise, loss, outputs, finals = _attached(case), case.x.new_zeros(()), [], []
    for b in range(B):
        L = T if case.lengths is None else case.lengths[b]
        zoneout = {n: z if isinstance(z, float) else z[b : b + 1, :L] for n, z in noise.zoneout.items()}
        mask = None if noise.mask is None else noise.mask[b : b + 1]
        state = None if case.state is None else [s[b : b + 1] for s in leaves[1 : 1 + len(case.state)]]
        own = replace(noise, mask=mask, zoneout=zoneout)
        found = case.cell(leaves[0][b : b + 1, :L], state, reverse=case.reverse, noise=own, backend="loop")
        outputs.append(F.pad(found.outputs[0], (0, 0, 0, T - L)))
        finals.append([field[0] for field in found.state])
        if case.shown is not None:
            loss = loss + (found.outputs[0] * case.shown[b, :L]).sum()
        for place, weight in case.finals.items():
            loss = loss + (found.state[place][0] * weight[b]).sum()
    states = [torch.stack(field) for field in zip(*finals, strict=True)]
    gradients = _gradients(loss, [*leaves, *case.cell.parameters()], False)
    return [torch.stack(outputs), *states, *gradients]


def _leaves(case: Case) -> list[Tensor]:
    return [t.detach().clone().requires_grad_() for t in (case.x, *(case.state or []))]


def _attached(case: Case) -> Noise:
    """Weight drop as it reaches the weights of the cell now."""

    def kept(own: Tensor, drawn: Tensor) -> Tensor:
        return own * ((drawn != 0).to(case.x.dtype) / 0.8)

    noise, own = case.noise, case.cell.learned_matrices()
    weight = None if noise.weight is None else kept(case.cell.W_h, noise.weight)
    matrices = {name: kept(own[name], drawn) for name, drawn in noise.matrices.items()}
    return replace(noise, weight=weight, matrices=matrices)


def _masked(case: Case, weight: Tensor) -> Tensor:
    if case.lengths is None:
        return weight
    real = torch.arange(weight.shape[1], device=weight.device) < torch.tensor(case.lengths)[:, None].to(
        weight.device
    )
    return weight * real[..., None]


def _gradients(loss: Tensor, leaves: list[Tensor], create_graph: bool) -> list[Tensor]:
    if not loss.requires_grad:  # equations of numbers alone
        return [torch.zeros_like(leaf) for leaf in leaves]
    found = torch.autograd.grad(loss, leaves, allow_unused=True, create_graph=create_graph)
    zeros = zip(found, leaves, strict=True)
    return [torch.zeros_like(leaf) if g is None else g.detach() for g, leaf in zeros]


def difference(
    case: Case, found: list[Tensor], expected: list[Tensor], epsilon: float, room: float
) -> str | None:
    """What differs by more than ``room`` and by more than the definition itself under small changes.

    ``epsilon`` is the rounding of whatever was found; the changes are one to six times that size.
    """
    expected = _without_blocks(case, found, expected)
    if _first_difference(found, expected, room, None) is None:
        return None
    around = [run_by_rows(_shaken(case, epsilon * (1 + n), n)) for n in range(6)]
    differs = _first_difference(found, expected, room, around)
    if differs and (case.lengths is None or min(case.lengths) == case.x.shape[1]):
        # All rows at once are the definition too: the matrix library may make 0 or -0 of a sum of zeros.
        return _first_difference(found, _without_blocks(case, found, run(case, "loop")), room, around)
    return differs


def _without_blocks(case: Case, found: list[Tensor], expected: list[Tensor]) -> list[Tensor]:
    """The definition without what it multiplies by zero: recurrent parts that are only compared.

    The loop has all blocks of W_h in one product, and NaN times zero is NaN.
    """
    if case.cell.W_h is None or case.cell.equations.pointwise:
        return expected
    place = [parameter is case.cell.W_h for parameter in case.cell.parameters()].index(True)
    place -= len(list(case.cell.parameters()))
    nowhere = torch.isnan(expected[place]) & (found[place] == 0)
    expected = list(expected)
    expected[place] = expected[place].masked_fill(nowhere, 0.0)
    return expected


def _shaken(case: Case, size: float, seed: int) -> Case:
    """The case with all its numbers changed in their last places."""
    generator = torch.Generator().manual_seed(seed)

    def shake(t: Tensor) -> Tensor:
        drawn = torch.randn(t.shape, generator=generator, dtype=torch.float64)
        return (t.double() * (1 + size * drawn)).to(t.dtype)

    shaken = changed(case, shake)
    shaken.cell._shaken = size
    return shaken


def changed(case: Case, change: Callable[[Tensor], Tensor]) -> Case:
    """The same case with all its numbers changed."""
    cell = type(case.cell)(case.cell.input_size, case.cell.hidden_size, k=case.cell.k)
    for new, old in zip(cell.parameters(), case.cell.parameters(), strict=True):
        new.data = change(old.detach())
    cell.train(case.cell.training)
    device = change(case.x).device

    def moved(t: Any) -> Any:  # what is drawn only goes where the others go
        return t.to(device) if isinstance(t, Tensor) else t

    return replace(
        case,
        cell=cell,
        x=change(case.x),
        state=None if case.state is None else [change(s) for s in case.state],
        noise=Noise(
            weight=moved(case.noise.weight),
            mask=moved(case.noise.mask),
            zoneout={name: moved(drawn) for name, drawn in case.noise.zoneout.items()},
            matrices={name: moved(drawn) for name, drawn in case.noise.matrices.items()},
        ),
        shown=moved(case.shown),
        finals={place: moved(weight) for place, weight in case.finals.items()},
    )


def _first_difference(
    found: list[Tensor], expected: list[Tensor], room: float, around: list[list[Tensor]] | None
) -> str | None:
    for place, (a, b) in enumerate(zip(found, expected, strict=True)):
        a, b = a.detach().double(), b.detach().double()
        near = None if around is None else torch.stack([one[place].detach().double() for one in around])
        kinds = _kind(a) != _kind(b)
        if near is not None:
            kinds &= (_kind(near) == _kind(b)).all(0)
        if kinds.any():
            where = tuple(kinds.nonzero()[0].tolist())
            return f"result {place} at {where}: {a[where]} instead of {b[where]}"
        both = torch.isfinite(a) & torch.isfinite(b)
        largest = b[torch.isfinite(b)].abs().max() if torch.isfinite(b).any() else b.new_zeros(())
        allowed = room * (largest + b.abs() + 1.0)
        if near is not None:
            allowed = allowed + 1e3 * (near - b).abs().nan_to_num(math.inf).max(0).values
        wrong = both & ((a - b).abs() > allowed)
        if wrong.any():
            where = tuple(wrong.nonzero()[0].tolist())
            return f"result {place} at {where}: {a[where]} instead of {b[where]}"
    return None


def _kind(t: Tensor) -> Tensor:
    """0: a number, 1: not a number, 2 and 3: the infinities."""
    return torch.isnan(t) + 2 * torch.isposinf(t) + 3 * torch.isneginf(t)
