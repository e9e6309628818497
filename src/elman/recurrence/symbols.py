"""Symbols: stand-ins for tensors that write down what torch functions and operators do to them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeAlias, Union

import torch
from torch.nn import functional as F

from elman.errors import EquationError
from elman.recurrence.operations import OPERATIONS
from elman.recurrence.reductions import (
    largest_over_units,
    mean_over_units,
    softmax_over_units,
    sum_over_units,
)

# What may stand beside a symbol; a tensor is refused.
Operand: TypeAlias = Union["Symbol", torch.Tensor, float]
UNITS = "H"  # the dimension of a cell's own values
FREE_FORM = "write a free-form cell instead: override step(self, x, s, product) with any torch code"


@dataclass(frozen=True, eq=False)
class Node:
    """One value of the graph; ``index`` grows from arguments to results.

    dim: what it has one number for: the units of a layer (a cell's: "H"), the positions of a memory ("S");
    "": it is one number for a whole row, and stands beside any other.
    """

    index: int
    op: str
    args: tuple[Node, ...] = field(default=(), repr=False)  # shared ones would be shown over and over
    name: str = ""
    value: float | None = None
    dim: str = ""

    @property
    def boolean(self) -> bool:
        return self.op in ("p", "real") or (self.op in OPERATIONS and OPERATIONS[self.op].boolean)


def reach(roots: Iterable[Node], stop: Iterable[Node] = ()) -> dict[int, Node]:
    """All nodes that the roots are computed from, not going beyond ``stop``."""
    found: dict[int, Node] = {}
    ends = {node.index for node in stop}
    todo = list(roots)
    while todo:
        node = todo.pop()
        if node.index not in found:
            found[node.index] = node
            if node.index not in ends:
                todo.extend(node.args)
    return found


@dataclass
class Graph:
    """Nodes, each value only once."""

    known: dict[tuple[str | int, ...], Node] = field(default_factory=dict)
    reading: bool = False  # R is at work, and not the engine
    phased: bool = False  # it looks at all units, and not at one after another

    def leaf(self, kind: str, name: str, dim: str = UNITS) -> Symbol:
        return Symbol(self, self._node(kind, name=name, dim=dim))

    def size(self, dim: str) -> Symbol:
        """How many numbers there are in this dimension, which is known only where it is computed."""
        return self.leaf("size", dim, "")

    def reduce(self, op: str, a: Symbol) -> Symbol:
        """One number for all of a dimension: ``sum``, ``max``, or ``top``, a maximum without gradient."""
        self.phased = True
        return Symbol(self, self._node(op, (a.node,)))

    def look(self, op: str, a: Sequence[Symbol], memory: str, dim: str) -> Symbol:
        """What a row finds in its memory (see ``looks.py``)."""
        return Symbol(self, self._node(op, tuple(s.node for s in a), memory, dim=dim))

    def product(self, terms: Sequence[tuple[Symbol, str]], dim: str) -> Symbol:
        """``Σ a M`` over these values and matrices; the name of one that is turned ends in ``'``."""
        names = " ".join(name for _, name in terms)
        return Symbol(self, self._node("product", tuple(a.node for a, _ in terms), names, dim=dim))

    def constant(self, value: float) -> Symbol:
        return Symbol(self, self._node("constant", value=value))

    def apply(self, op: str, *arguments: Symbol | float) -> Symbol:
        """The result of an operation, with the few identities that gradients bring in folded."""
        if self.reading and not torch.is_grad_enabled():
            raise EquationError(
                "equations cannot stop or replace a gradient (torch.no_grad and its like, a Function with a "
                f"backward of its own); {FREE_FORM}"
            )
        symbols = [a if isinstance(a, Symbol) else self.constant(float(a)) for a in arguments]
        _check_truth(op, symbols)
        if op not in ("and", "or", "not"):
            first = 1 if op == "where" else 0
            numbers = [self.apply("where", s, 1.0, 0.0) if s.node.boolean else s for s in symbols[first:]]
            symbols[first:] = numbers
        if op == "mul" and 1.0 in (symbols[0].value, symbols[1].value):
            return symbols[1] if symbols[0].value == 1.0 else symbols[0]
        if op == "neg" and symbols[0].node.op == "neg":
            return Symbol(self, symbols[0].node.args[0])
        dims = {s.node.dim for s in symbols} - {""}
        if len(dims) > 1:
            raise EquationError(f"{op!r} of values of different dimensions: {', '.join(sorted(dims))}")
        return Symbol(self, self._node(op, tuple(s.node for s in symbols), dim="".join(dims)))

    def _node(
        self, op: str, args: tuple[Node, ...] = (), name: str = "", value: float | None = None, dim: str = ""
    ) -> Node:
        key: tuple[str | int, ...] = (op, name, dim, repr(value), *(node.index for node in args))
        if key not in self.known:
            self.known[key] = Node(len(self.known), op, args, name, value, dim)
        return self.known[key]


def _operator(op: str, *, reflected: bool = False) -> Callable[..., Symbol]:
    return lambda *operands: _PLAIN[op](*(reversed(operands) if reflected else operands))


class Symbol:
    """A stand-in for a tensor inside R: every operation on it is written down."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, graph: Graph, node: Node) -> None:
        self.graph = graph
        self.node = node

    @property
    def value(self) -> float | None:
        return self.node.value

    @classmethod
    def __torch_function__(
        cls,
        function: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Operand, ...] = (),
        kwargs: Mapping[str, Operand] | None = None,
    ) -> Symbol:
        name = getattr(function, "__name__", repr(function))
        if function in _FUNCTIONS:
            return _call(name, _FUNCTIONS[function], args, kwargs or {})
        raise EquationError(f"equations cannot use torch's {name!r}; {FREE_FORM}")

    def __getattr__(self, name: str) -> Callable[..., Symbol]:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in _METHODS and not hasattr(torch.Tensor, name):
            raise EquationError(f"tensors have no method {name!r}; use the function of that name")
        if name in _METHODS:
            return lambda *args, **kwargs: _call(name, _METHODS[name], (self, *args), kwargs)
        raise EquationError(f"equations cannot use {name!r} of a tensor; {FREE_FORM}")

    def choose(self, a: Operand, b: Operand) -> Symbol:
        """``a`` where this is true, ``b`` elsewhere; torch's own method is ``a.where(this, b)``."""
        return _where(self, a, b)

    def __bool__(self) -> bool:
        raise EquationError("equations cannot branch on a value (if, and, or, not); use torch.where")

    def __float__(self) -> float:
        raise EquationError("equations cannot turn a value into a Python number; use torch functions")

    def _take_apart(self, *place: int) -> NoReturn:
        raise EquationError(f"equations cannot take a value apart by its units; {FREE_FORM}")

    __iter__ = __getitem__ = __len__ = _take_apart

    def __array_ufunc__(
        self, function: Callable[..., Any], method: str, *arguments: Operand, **rest: Operand
    ) -> Symbol:
        """A number of numpy met a symbol; anything but plain arithmetic is refused."""
        if function.__name__ in _NUMPY and method == "__call__":
            return _PLAIN[_NUMPY[function.__name__]](*arguments)
        raise EquationError(
            f"equations cannot use numpy's {function.__name__!r}; use torch's, or {FREE_FORM}"
        )

    __int__ = __index__ = __float__

    __add__, __radd__ = _operator("add"), _operator("add", reflected=True)
    __sub__, __rsub__ = _operator("sub"), _operator("sub", reflected=True)
    __mul__, __rmul__ = _operator("mul"), _operator("mul", reflected=True)
    __truediv__, __rtruediv__ = _operator("div"), _operator("div", reflected=True)
    __neg__, __abs__, __invert__ = _operator("neg"), _operator("abs"), _operator("not")
    __and__ = __rand__ = _operator("and")
    __or__ = __ror__ = _operator("or")
    __lt__, __le__, __gt__, __ge__ = map(_operator, ("lt", "le", "gt", "ge"))
    __eq__, __ne__ = map(_operator, ("eq", "ne"))  # type: ignore[assignment]

    def __pow__(self, other: Operand) -> Symbol:
        return _pow(self, other)

    def __rpow__(self, other: Operand) -> Symbol:
        return _pow(other, self)

    def __pos__(self) -> Symbol:
        return self

    def __matmul__(self, other: Operand) -> NoReturn:
        raise EquationError(
            "equations cannot multiply by a matrix ('@'): declare a gate and read h.<gate>, or declare "
            f'matrices = ("m",) and call self.m(value), or {FREE_FORM}'
        )

    __rmatmul__ = __matmul__

    def __repr__(self) -> str:
        return f"<{self.node.op} {self.node.name or self.node.value or ''}>"


def _refuse(operator: str) -> Callable[..., NoReturn]:
    def refuse(self: Symbol, *arguments: Operand) -> NoReturn:
        change = "; write a = a + b" if operator.endswith("=") else ""
        raise EquationError(f"equations cannot use {operator!r}{change}; {FREE_FORM}")

    return refuse


for _name, _text in (
    *(("mod", "%"), ("floordiv", "//"), ("divmod", "divmod"), ("xor", "^")),
    *(("lshift", "<<"), ("rshift", ">>"), ("round", "round")),
):
    setattr(Symbol, f"__{_name}__", _refuse(_text))
    setattr(Symbol, f"__r{_name}__", _refuse(_text))
for _name, _text in {"add": "+=", "sub": "-=", "mul": "*=", "truediv": "/=", "pow": "**="}.items():
    setattr(Symbol, f"__i{_name}__", _refuse(_text))


def _check_truth(op: str, symbols: list[Symbol]) -> None:
    """Truth values are joined by & | ~ and become numbers beside numbers, as in torch; no more."""
    truths = [s.node.boolean for s in symbols]
    if op in ("and", "or", "not"):
        if not all(truths):
            raise EquationError(f"{op!r} joins comparisons, as in (x.a > 0) & (x.b > 0), not numbers")
    elif (op in ("sub", "neg") and any(truths)) or (op != "where" and all(truths)):
        raise EquationError(f"{op!r} of a comparison: make it a number first, torch.where(x.a > 0, 1.0, 0.0)")


def _symbol(graph: Graph, argument: Operand | str | bytes | bytearray) -> Symbol:
    if isinstance(argument, Symbol):
        return argument
    if isinstance(argument, torch.Tensor):
        raise EquationError(
            'equations hold a tensor; a learned per-unit vector is declared as vectors = ("name",) and read '
            f"as self.name, a constant is a Python number; for anything else {FREE_FORM}"
        )
    try:
        if not isinstance(argument, (str, bytes, bytearray)):  # of which float() would read digits
            return graph.constant(float(argument))
    except (TypeError, ValueError, OverflowError):
        pass
    raise EquationError(f"equations cannot use {argument!r}; values are numbers and symbols")


def _call(
    name: str, function: Callable[..., Symbol], args: tuple[Operand, ...], kwargs: Mapping[str, Operand]
) -> Symbol:
    try:
        return function(*args, **kwargs)
    except EquationError:
        raise
    except TypeError as error:
        reason = f"equations cannot use {name!r} with these arguments: {error}"
        raise EquationError(f"{reason}; {FREE_FORM}") from None


def _plain(op: str, arity: int) -> Callable[..., Symbol]:
    """The table's operation as a function of symbols and numbers."""

    def function(*args: Operand) -> Symbol:
        if len(args) != arity:
            raise TypeError(f"{arity} arguments expected, {len(args)} given")
        graph = next(a.graph for a in args if isinstance(a, Symbol))
        return graph.apply(op, *(_symbol(graph, a) for a in args))

    return function


# Every row of the table as a function; how many arguments it takes is seen in its text.
_PLAIN = {op: _plain(op, row.text.count("{")) for op, row in OPERATIONS.items()}
_NUMPY = {"add": "add", "subtract": "sub", "multiply": "mul", "divide": "div", "true_divide": "div"}
_NUMPY |= {"less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge"}
_NUMPY |= {"equal": "eq", "not_equal": "ne"}


def pointwise(function: Callable[..., Any], *args: Operand, **kwargs: Operand) -> Symbol:
    """What a function of torch gives for symbols; one that equations cannot use is an EquationError."""
    return Symbol.__torch_function__(function, (), args, kwargs)


def _pow(a: Operand, b: Operand) -> Symbol:
    """Small whole powers become products, as torch computes them."""
    if isinstance(a, Symbol) and not isinstance(b, Symbol):
        exponent = _symbol(a.graph, b).value
        if exponent in (1.0, 2.0, 3.0, 4.0):
            return math.prod([a] * (int(exponent) - 1), start=a)
        if exponent == 0.5:
            return a.sqrt()
        if exponent == 0.0:
            return a.graph.constant(1.0)
    return _PLAIN["pow"](a, b)


def _where(condition: Operand, a: Operand, b: Operand) -> Symbol:
    if not (isinstance(condition, Symbol) and condition.node.boolean):
        raise EquationError(
            "torch.where needs a comparison as its condition, as in torch.where(x.i > 0, a, b)"
        )
    return _PLAIN["where"](condition, a, b)


def _clamp(a: Symbol, min: Operand | None = None, max: Operand | None = None) -> Symbol:
    if min is None and max is None:
        raise EquationError("clamp needs min, max or both")
    if isinstance(min, Symbol) or isinstance(max, Symbol):
        raise EquationError(
            "clamp takes numbers as its bounds; use torch.maximum and torch.minimum for values"
        )
    return _PLAIN["clamp"](a, -math.inf if min is None else min, math.inf if max is None else max)


def _softplus(a: Symbol, beta: float = 1.0, threshold: float = 20.0) -> Symbol:
    scaled = a if beta == 1 else a * beta
    result = a.graph.apply("softplus", scaled)
    return (scaled > threshold).choose(a, result if beta == 1 else result / beta)


def _gelu(a: Symbol, approximate: str = "none") -> Symbol:
    if approximate == "tanh":
        return 0.5 * a * (1.0 + (0.7978845608028654 * (a + 0.044715 * a * a * a)).tanh())
    return a.graph.apply("gelu", a)


def _out_of_place(function: Callable[[Symbol], Symbol]) -> Callable[..., Symbol]:
    def out_of_place(a: Symbol, inplace: bool = False) -> Symbol:
        if inplace:
            raise EquationError("equations cannot change a value in place; leave out inplace=True")
        return function(a)

    return out_of_place


def _scaled(op: str) -> Callable[..., Symbol]:
    """A sum or a difference whose second term may have a factor, ``alpha``."""
    return lambda a, b, *, alpha=1.0: _PLAIN[op](a, b if alpha == 1 else b * alpha)


_METHODS: dict[str, Callable[..., Symbol]] = {
    **{op: function for op, function in _PLAIN.items() if op not in ("where", "and", "or", "not")},
    "add": _scaled("add"),
    "sub": _scaled("sub"),
    "pow": _pow,
    "clamp": _clamp,
    "clip": _clamp,
    "softplus": _softplus,
    "softsign": lambda a: a / (1.0 + a.abs()),
    "gelu": _gelu,
    "square": lambda a: a * a,
    "reciprocal": lambda a: 1.0 / a,
    "rsqrt": lambda a: 1.0 / a.sqrt(),
    "silu": _out_of_place(lambda a: a * a.sigmoid()),
    "where": lambda a, condition, other: _where(condition, a, other),
    "zeros_like": lambda a: a.graph.constant(0.0),
    "ones_like": lambda a: a.graph.constant(1.0),
    "sum": sum_over_units,
    "mean": mean_over_units,
    "amax": largest_over_units,
    "softmax": softmax_over_units,
    "logical_and": _PLAIN["and"],
    "logical_or": _PLAIN["or"],
    "logical_not": _PLAIN["not"],
}

_FUNCTIONS: dict[Callable[..., Any], Callable[..., Symbol]] = {
    getattr(home, name): function
    for name, function in _METHODS.items()
    for home in (torch, torch.special, F)
    if hasattr(home, name)
} | {
    torch.where: _where,
    torch.special.expit: _PLAIN["sigmoid"],
    torch.subtract: _scaled("sub"),
    torch.multiply: _PLAIN["mul"],
    torch.divide: _PLAIN["div"],
    torch.true_divide: _PLAIN["div"],
    F.relu: _out_of_place(_PLAIN["relu"]),
}
