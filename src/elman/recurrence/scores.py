"""Reads an attention's score as equations: pointwise operations, and products with learned matrices.

The score is run once on stand-ins for query and keys. What it may do is what the built-in scores do: layers
without shift or with it (``nn.Linear``), pointwise operations, ``q[:, :, None]`` beside ``k[:, None]``, a
product with the turned keys, a product with a learned vector or a sum over the last dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, TypeAlias, Union

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elman.errors import EquationError
from elman.recurrence.looks import POSITIONS, Score, make_score
from elman.recurrence.symbols import Graph, Symbol, pointwise

Given: TypeAlias = Union["_Value", Tensor, float]  # what a score may join
KEYS, OWN = "K", "attention."  # the memory of a score, and how names of its own tensors begin


@dataclass
class TracedScore:
    """What was read: the result, scores by name, and the attention's tensors by the step's names for them."""

    graph: Graph
    result: Symbol | None = None
    scores: dict[str, Score] = field(default_factory=dict)
    matrices: list[str] = field(default_factory=list)  # weights of layers, which are turned
    vectors: list[str] = field(default_factory=list)
    filters: dict[str, tuple[str, int]] = field(default_factory=dict)  # a layer's weights: filters, how many
    dims: dict[str, int] = field(default_factory=dict)


def trace_score(
    graph: Graph,
    attention: nn.Module,
    score: Callable[..., Any],
    query: Symbol,
    keys: int,
    previous: Symbol | None,
) -> TracedScore:
    """The score of a query over keys of this width; raises EquationError where it does something else.

    ``previous``: where it looked last, by position, for a score that wants to know.
    """
    found = TracedScore(graph)
    trace = _Trace(found, {id(p): (name, p) for name, p in attention.named_parameters()})
    try:
        last = None if previous is None else _Value(trace, "previous", previous)
        result = score(
            _Value(trace, "query", query), _Value(trace, "keys", graph.leaf("m", KEYS, str(keys))), last
        )
    except EquationError:
        raise
    except (TypeError, AttributeError, IndexError, ValueError, RuntimeError) as error:
        raise EquationError(f"its score does what equations cannot: {error}") from None
    if not isinstance(result, _Value) or result.kind != "scores":
        raise EquationError("its score does not come out as one number for each position")
    found.result = result.symbol
    return found


def tensors_of(score: TracedScore, attention: nn.Module) -> dict[str, Tensor]:
    """The tensors of an attention that a step reads, as they are now, by the walk's names for them."""

    def now(name: str) -> Tensor:
        found: Tensor = attrgetter(name.removeprefix(OWN))(attention)
        return found

    tensors = {name: now(name).t() for name in score.matrices}
    tensors |= {f"v {name}": now(name) for name in score.vectors}
    for name, (filters, _) in score.filters.items():  # filters and the layer after them are one matrix
        taps = now(filters)[:, 0].t() @ now(name).t()
        tensors |= {f"v {name}.{c}": row for c, row in enumerate(taps)}
    return tensors


@dataclass
class _Trace:
    found: TracedScore
    parameters: Mapping[int, tuple[str, Tensor]]
    arguments: list[Symbol] = field(default_factory=list)  # of the score that is being written
    located: Located | None = None  # the neighbours that have part in it

    def parameter(self, tensor: Tensor) -> str:
        if id(tensor) not in self.parameters:
            raise EquationError("its score uses a tensor that is no parameter of its own")
        return f"{OWN}{self.parameters[id(tensor)][0]}"

    def vector(self, tensor: Tensor) -> Symbol:
        """A learned vector as a value of the step."""
        if tensor.dim() != 1:
            raise EquationError("its score multiplies by a matrix in a way that equations cannot")
        name, size = self.parameter(tensor), str(len(tensor))
        self.found.vectors += [name] if name not in self.found.vectors else []
        self.found.dims[size] = len(tensor)
        return self.found.graph.leaf("v", name, size)

    def argument(self, value: Symbol) -> Symbol:
        """A value of the step inside an expression over all positions."""
        self.arguments.append(value)
        return self.found.graph.leaf("e", str(len(self.arguments) - 1), value.node.dim)

    def finish(self, expression: Symbol) -> Symbol:
        """The sum of an expression over the units, for every position."""
        graph, arguments, located = self.found.graph, self.arguments, self.located
        self.arguments, self.located = [], None
        memory = graph.leaf("m", KEYS, expression.node.dim)
        plain = [graph.leaf("e", str(i), a.node.dim) * memory for i, a in enumerate(arguments)]
        if located is not None:
            name = f"score{len(self.found.scores)}"
            near = {"near": located.taps, "reach": located.reach}
            self.found.scores[name] = make_score(graph, KEYS, expression, len(arguments), **near)
            return graph.look("score", [*arguments, located.previous], name, POSITIONS)
        if len(arguments) == 1 and expression.node in (
            plain[0].node,
            (memory * graph.leaf("e", "0", expression.node.dim)).node,
        ):
            return graph.look("fit", arguments, KEYS, POSITIONS)
        name = f"score{len(self.found.scores)}"
        self.found.scores[name] = make_score(graph, KEYS, expression, len(arguments))
        return graph.look("score", arguments, name, POSITIONS)


class _Value:
    """A stand-in: ``query`` (B, T, ·), ``keys`` (B, S, ·), ``grid`` (B, T, S, ·), ``scores`` (B, T, S), …"""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, trace: _Trace, kind: str, symbol: Symbol) -> None:
        self.trace, self.kind, self.symbol = trace, kind, symbol

    @classmethod
    def __torch_function__(
        cls,
        function: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Any = None,
    ) -> _Value:
        kwargs = kwargs or {}
        trace = next(a.trace for a in (*args, *kwargs.values()) if isinstance(a, _Value))
        if function is F.linear:
            return _linear(trace, *args, **kwargs)
        if function is torch.conv1d:
            return _filtered(trace, *args, **kwargs)
        if function in (torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__):
            return _matmul(trace, *args)
        if function is torch.sum:
            return args[0].sum(*args[1:], **kwargs)  # type: ignore[no-any-return]
        return _pointwise(trace, function, args, kwargs)

    def __getitem__(self, place: Any) -> _Value:
        everything = slice(None)
        if self.kind == "query" and place in (
            (everything, everything, None),
            (everything, everything, None, everything),
        ):
            return _Value(self.trace, "grid", self.trace.argument(self.symbol))
        if self.kind == "keys" and place in ((everything, None), (everything, None, everything)):
            return _Value(self.trace, "grid", self.symbol)
        if self.kind == "previous" and place == (everything, None):
            return _Value(self.trace, "channel", self.symbol)
        raise EquationError("its score takes values apart in a way that equations cannot")

    def unsqueeze(self, dim: int) -> _Value:
        places = {"query": (2, -2), "keys": (1, -3)}.get(self.kind, ())
        if dim in places:
            return self[:, :, None] if self.kind == "query" else self[:, None]
        raise EquationError("its score adds a dimension that equations cannot")

    @property
    def mT(self) -> _Value:
        if self.kind not in ("keys", "filtered"):
            raise EquationError("its score turns what is no keys")
        return _Value(self.trace, "turned" if self.kind == "keys" else "by position", self.symbol)

    def transpose(self, a: int, b: int) -> _Value:
        if {a % 3, b % 3} != {1, 2}:
            raise EquationError("its score turns what is no keys")
        return self.mT

    def sum(self, dim: int = 0, keepdim: bool = False) -> _Value:
        if self.kind != "grid" or dim not in (-1, 3) or keepdim:
            raise EquationError("its score sums over what is not the last dimension")
        return _Value(self.trace, "scores", self.trace.finish(self.symbol))

    def __matmul__(self, other: Given) -> _Value:
        return _matmul(self.trace, self, other)

    def __neg__(self) -> _Value:
        return _pointwise(self.trace, torch.neg, (self,), {})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not hasattr(torch.Tensor, name) or not hasattr(torch, name):
            raise AttributeError(f"equations have no {name!r} of a score's values")
        return lambda *args, **kwargs: _pointwise(self.trace, getattr(torch, name), (self, *args), kwargs)


for _name in ("add", "sub", "mul", "truediv", "pow", "radd", "rsub", "rmul", "rtruediv"):

    def _operator(self: _Value, other: Given, name: str = _name) -> _Value:
        base = name.removeprefix("r") if name.startswith("r") else name
        function = {"truediv": torch.div}.get(base) or getattr(torch, base)
        return _pointwise(self.trace, function, (other, self) if name != base else (self, other), {})

    setattr(_Value, f"__{_name}__", _operator)


@dataclass(frozen=True)
class Located:
    """Where a score looked last, as filters see it."""

    previous: Symbol
    weight: Tensor
    taps: int
    reach: int


def _filtered(
    trace: _Trace,
    value: Given,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> _Value:
    """Filters over where it looked last."""
    taps = weight.shape[-1]
    plain = bias is None and tuple(stride) == (1,) and tuple(dilation) == (1,) and groups == 1
    if (
        not isinstance(value, _Value)
        or value.kind != "channel"
        or not plain
        or tuple(padding) != (taps // 2,)
    ):
        raise EquationError("its score has filters of a kind that equations cannot")
    trace.parameter(weight)
    trace.located = Located(value.symbol, weight, taps, taps // 2)
    return _Value(trace, "filtered", value.symbol)


def _located(trace: _Trace, weight: Tensor) -> _Value:
    """What the filters see, as a part of the keys: the filters and the layer after them are one matrix."""
    located, name, size = trace.located, trace.parameter(weight), str(weight.shape[0])
    assert located is not None
    trace.found.filters[name] = (trace.parameter(located.weight), located.taps)
    trace.found.dims[size] = weight.shape[0]
    found: Symbol | None = None
    for c in range(located.taps):
        tap = trace.argument(trace.found.graph.leaf("v", f"{name}.{c}", size))
        term = tap * trace.found.graph.leaf("w", str(c), "")
        found = term if found is None else found + term
    assert found is not None
    return _Value(trace, "keys", found)


def _linear(trace: _Trace, value: Given, weight: Tensor, bias: Tensor | None = None) -> _Value:
    if isinstance(value, _Value) and value.kind == "by position" and bias is None:
        return _located(trace, weight)
    if not isinstance(value, _Value) or value.kind != "query":
        raise EquationError("its score has a layer of what is no query")
    name, size = trace.parameter(weight), weight.shape[0]
    trace.found.matrices += [name] if name not in trace.found.matrices else []
    trace.found.dims[str(size)] = size
    result = trace.found.graph.product([(value.symbol, name)], str(size))
    return _Value(trace, "query", result if bias is None else result + trace.vector(bias))


def _matmul(trace: _Trace, a: Given, b: Given) -> _Value:
    if isinstance(a, _Value) and a.kind == "query" and isinstance(b, _Value) and b.kind == "turned":
        return _Value(trace, "scores", trace.finish(trace.argument(a.symbol) * b.symbol))
    if isinstance(a, _Value) and a.kind == "grid" and isinstance(b, Tensor):
        return _Value(trace, "scores", trace.finish(a.symbol * trace.argument(trace.vector(b))))
    raise EquationError("its score has a product that equations cannot")


def _pointwise(trace: _Trace, function: Callable[..., Any], args: tuple[Given, ...], kwargs: Any) -> _Value:
    kinds = {a.kind for a in args if isinstance(a, _Value)}
    if len(kinds) != 1 or "turned" in kinds:
        name = getattr(function, "__name__", repr(function))
        raise EquationError(f"its score uses torch's {name!r} for values of different shapes")
    kind = kinds.pop()

    def symbol(a: Given) -> Symbol | float:
        if isinstance(a, _Value):
            return a.symbol
        if not isinstance(a, Tensor):
            return a
        vector = trace.vector(a)
        return trace.argument(vector) if kind in ("grid", "keys") else vector

    return _Value(trace, kind, pointwise(function, *map(symbol, args), **kwargs))
