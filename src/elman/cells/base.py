"""The contract of a cell: gates, state and the equations between them; everything else is derived."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from inspect import signature
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from elman.errors import ArgumentError, EquationError
from elman.recurrence.contract import NO_NOISE, Noise, Parts, Product, Shapes, StepInput, Unrolled, Weights
from elman.recurrence.fixed import matrix
from elman.recurrence.loop import RehearsedProduct
from elman.recurrence.misread import misread
from elman.recurrence.symbols import Graph
from elman.recurrence.trace import Equations, trace
from elman.recurrence.unroll import unroll_layer
from elman.tensors.checks import check_choice, check_flag, check_names, check_size
from elman.tensors.nested import NamedTensors, named_tensors
from elman.tensors.products import affine
from elman.users_code import mistake_in, tell_later

_OWN = (
    *("W_x", "W_h", "b", "Inputs", "Products", "state_shapes", "output_size"),
    *("input_size", "hidden_size", "bias", "initialisation", "training", "heads"),
)

# Attributes that are no options: when they change, the equations stay.
_DERIVED = ("training", "_traced", "_options", "_inputs", "_products", "state_shapes", "output_size")


class _Finished(type(nn.Module)):  # type: ignore[misc]
    """Allocates the weights after the whole constructor has run: options shape the equations.

    ``heads`` is an option of every cell, whatever its constructor takes.
    """

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        own = "heads" in signature(cls.__init__).parameters  # type: ignore[misc]
        heads = 1 if own else kwargs.pop("heads", 1)
        cell = super().__call__(*args, **kwargs)
        cell._finish(check_size("heads", heads))
        return cell


class Cell(nn.Module, metaclass=_Finished):
    """One step of a recurrent network: ``s' = R(s, x)`` and ``y = O(s)``.

    A subclass names its ``state`` and ``gates`` and writes the pointwise equations between them:

    >>> from torch import sigmoid, tanh
    >>> class Forgetful(Cell):
    ...     '''f = σ(x W^xf + h W^hf + b_f);  h' = f ⊙ h + (1 - f) ⊙ tanh(x W^xz + b_z)'''
    ...     state = ("h",)
    ...     gates = ("f", "z")
    ...     def R(self, x, h, s):
    ...         f = sigmoid(x.f + h.f)
    ...         return self.State(h=f * s.h + (1 - f) * tanh(x.z))
    >>> cell = Forgetful(3, 5)
    >>> {name: tuple(p.shape) for name, p in cell.named_parameters()}  # no W^hz: nothing reads it
    {'W_x': (3, 10), 'W_h': (5, 5), 'b': (10,)}

    In R, ``x.f`` is the input part of gate f (x W^xf + b_f), ``h.f`` its recurrent part (h W^hf, with
    h the first entry of the state), ``s.h`` the previous state. ``vectors`` names learned per-unit
    vectors, read as attributes; ``matrices`` names learned (H, H) matrices, which multiply whatever R
    computed: ``self.n(r * s.h)``. Options are keyword arguments of the constructor; ``heads=k``, which every
    cell takes, parts the units into k groups that recurrent weights and matrices multiply each by itself.

    A free-form cell overrides ``step`` instead of R and may use any torch code; it runs on the plain
    loop. There ``product(h)`` gives the recurrent parts of all gates and ``product(v, "z")`` that of
    one; a cell without gates gets the input itself as ``x``, one with ``joined = True`` all parts of
    the input in one tensor.
    """

    state: tuple[str, ...] = ()
    gates: tuple[str, ...] = ()
    vectors: tuple[str, ...] = ()
    matrices: tuple[str, ...] = ()
    earlier: ClassVar[Mapping[str, tuple[str, ...]]] = {}  # what earlier versions had side by side
    joined: bool = False  # a free-form step gets x as one tensor, the gates side by side
    heads: int = 1  # groups of units that recurrent weights multiply each by itself
    of_all: ClassVar[Mapping[str, Any]] = {"heads": 1}  # options that no constructor has to name
    State: ClassVar[type[NamedTensors]]

    W_x: Tensor | None  # (D, inputs · H)
    W_h: Tensor | None  # (H, products · H / heads), a head below the other
    b: Tensor | None  # (inputs · H)
    Inputs: type[Parts] | None
    Products: type[Parts]
    state_shapes: Shapes  # of every state, without the batch
    output_size: int

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        try:
            cls._check_names()
        except ArgumentError as mistake:
            tell_later(cls, mistake)

    @classmethod
    def _check_names(cls) -> None:
        for kind in ("state", "gates", "vectors", "matrices"):  # its own, or those of a class beside Cell
            taken = (*_OWN, *dir(Cell)) if kind in ("vectors", "matrices") else ()
            taken += cls.vectors if kind == "matrices" else ()
            names = check_names(f"{cls.__name__}.{kind}", getattr(cls, kind), taken)
            if getattr(cls, kind) != names:  # else a second base class may still bring its own
                setattr(cls, kind, names)
        if not cls.state:
            raise ArgumentError(f"{cls.__name__}.state is empty; name at least one, as in state = ('h',)")
        if not hasattr(cls, "State") or cls.State._fields != cls.state:
            cls.State = named_tensors("State", cls.state)
            cls.State.__module__, cls.State.__qualname__ = cls.__module__, f"{cls.__qualname__}.State"

    def __init__(
        self, input_size: int, hidden_size: int, *, bias: bool = True, initialisation: str = "orthogonal"
    ) -> None:
        """
        Args:
            bias: a learned bias in every input part.
            initialisation: ``"orthogonal"`` recurrent weights with Glorot input weights, or
                ``"uniform"`` in ±1/√H, as torch does it.
        """
        super().__init__()
        if mistake := mistake_in(type(self)):
            raise mistake
        if type(self) is Cell:
            raise EquationError("Cell is a contract; derive a class from it and write its equations")
        self.input_size = check_size("input_size", input_size)
        self.hidden_size = check_size("hidden_size", hidden_size)
        self.bias = check_flag("bias", bias)
        self.initialisation = check_choice("initialisation", initialisation, ("orthogonal", "uniform"))

    # ---- what an author writes -------------------------------------------------------------------

    def R(self, x: Parts, h: Parts, s: NamedTensors) -> NamedTensors:
        """The new state from input parts, recurrent parts and previous state."""
        raise EquationError(f"{type(self).__name__} has no equations: write R(self, x, h, s) or step")

    def O(self, s: NamedTensors) -> Tensor:
        """The output: the first entry of the state, unless a cell says otherwise."""
        return s[0]

    def step(self, x: StepInput, s: NamedTensors, product: Product) -> NamedTensors:
        """The new state; a free-form cell overrides this."""
        return self.R(x, product(s[0]), s)

    def project(self, x: Tensor) -> Tensor:
        """All that depends on the input alone, for any number of steps at once: ``x W^x + b``."""
        if not (self.gates or self._pointwise):
            return x
        if self.W_x is None:
            return x.new_zeros(*x.shape[:-1], 0)
        rows = x.reshape(-1, x.shape[-1])
        return affine(rows, self.W_x, self.b).view(*x.shape[:-1], -1)

    def initial_state(self, batch_size: int, like: Tensor) -> NamedTensors:
        """Zeros (B, H) for every state."""
        return self.State(*(like.new_zeros(batch_size, self.hidden_size) for _ in self.state))

    def reset_parameters(self) -> None:
        """Fresh weights. A cell that wants other values fills its blocks after calling this."""
        if self.initialisation == "uniform":
            for parameter in self.parameters(recurse=False):
                nn.init.uniform_(parameter, -(self.hidden_size**-0.5), self.hidden_size**-0.5)
            return
        for gate in self._inputs:
            nn.init.xavier_uniform_(self.block("W_x", gate))
        blocks = [self.block("W_h", gate) for gate in self._products]
        blocks += [own.detach() for own in self.learned_matrices().values()]
        for head in (head for block in blocks for head in block.chunk(self.heads)):
            wide = head.to(torch.promote_types(head.dtype, torch.float32))  # itself, unless it is short
            head.copy_(nn.init.orthogonal_(wide))
        for vector in (self.b, *self.weights()[3][: len(self.vectors)]):
            if vector is not None:
                nn.init.zeros_(vector)

    # ---- use -------------------------------------------------------------------------------------

    def forward(
        self,
        x: Tensor,
        state: NamedTensors | None = None,
        lengths: Any = None,
        *,
        reverse: bool = False,
        noise: Noise = NO_NOISE,
        backend: str = "auto",
    ) -> Unrolled:
        """``y_{1:n} = RNN*(x_{1:n}, s_0)``: outputs, last output and final state for x (B, T, D).

        ``state`` is the start (None: zero). At a padded step (``lengths``, (B,)) the state is carried and the
        output is zero; with ``reverse`` every row is read from its own last real step to its first.
        """
        outputs, last, (final,) = unroll_layer(
            (self,), x, (state,), lengths, reverse=reverse, noises=(noise,), backend=backend
        )
        return Unrolled(outputs, last, final)

    # ---- what follows from it --------------------------------------------------------------------

    @property
    def equations(self) -> Equations | None:
        """The equations as read from R; None for a free-form cell."""
        found = self._traced.get(self.training)  # R may ask whether it is training
        if found is None and self._pointwise:
            found = self._traced[self.training] = self._trace()
        return found

    @property
    def has_hooks(self) -> bool:
        forward, backward = self._forward_pre_hooks or self._forward_hooks, self._backward_hooks
        return bool(forward or backward or self._backward_pre_hooks)

    @property
    def projects_itself(self) -> bool:
        return type(self).project is not Cell.project or not self._inputs

    @property
    def starts_at_zero(self) -> bool:
        return type(self).initial_state is Cell.initial_state

    @property
    def reads_whole_state(self) -> bool:
        return type(self).O is not Cell.O

    def block(self, weights: str, gate: str) -> Tensor:
        """The part of W_x, W_h or b that belongs to a gate, without its history, to read or to fill."""
        gates = self._products if weights == "W_h" else self._inputs
        parameter: Tensor | None = getattr(self, weights)
        if gate not in gates or parameter is None:
            raise ArgumentError(f"{weights} has no block {gate!r}; it has {', '.join(gates) or 'none'}")
        blocks: tuple[Tensor, ...] = parameter.detach().chunk(len(gates), -1)
        return blocks[gates.index(gate)]

    def weights(self) -> Weights:
        """W_x, b, W_h, vectors and matrices: the attributes, without torch's slow way to them."""
        own, names = self._parameters, self.vectors + self.matrices if self.matrices else self.vectors
        try:
            return own["W_x"], own["b"], own["W_h"], tuple([own[name] for name in names])  # type: ignore[misc]
        except KeyError:  # a parametrisation computes them
            return self.W_x, self.b, self.W_h, tuple(getattr(self, name) for name in names)

    def learned_matrices(self) -> dict[str, Tensor]:
        """The matrices that R calls, by name."""
        return {name: getattr(self, name) for name in self.matrices}

    def with_symbols(self, graph: Graph) -> Cell:
        """The same cell, its learned vectors and matrices being symbols of this graph."""
        view: Cell = object.__new__(type_before_parametrizations(self))  # the other class computes its own
        view.__dict__.update(self.__dict__)
        view.__dict__.update({name: graph.leaf("v", name) for name in self.vectors})
        view.__dict__.update({name: matrix(graph, name) for name in self.matrices})
        return view

    def at_hand(self, multiply: Mapping[str, Callable[[Tensor], Tensor]]) -> Cell:
        """The same cell, its own parameters and modules as plain attributes, which are quick to read."""
        view: Cell = object.__new__(type_before_parametrizations(self) if multiply else type(self))
        view.__dict__.update({**self._parameters, **self._modules, **self.__dict__, **multiply})
        return view

    def part_earlier(self, tensors: dict[str, Any], prefix: str) -> None:
        """Part what an earlier version had side by side: weights by name, or what belongs to each of them."""
        for name, parts in self.earlier.items():
            key, width = f"{prefix}{name}", len(parts) * self.hidden_size
            if key in tensors and tensors[key].shape[-1] == width:
                blocks = zip(parts, tensors.pop(key).chunk(len(parts), -1), strict=True)
                tensors |= {f"{prefix}{part}": block for part, block in blocks}

    def extra_repr(self) -> str:
        free = "" if self._pointwise else ", free-form: plain loop"
        heads = f", heads={self.heads}" if self.heads > 1 else ""
        return f"{self.input_size}, {self.hidden_size}{heads}{'' if self.bias else ', bias=False'}{free}"

    @property
    def _pointwise(self) -> bool:
        return type(self).step is Cell.step

    def _finish(self, heads: int) -> None:
        """Find out which blocks the equations read, and allocate those."""
        D, H = self.input_size, self.hidden_size
        if H % heads:
            raise ArgumentError(f"heads is {heads}; it must divide the hidden size, {H}")
        self.heads = heads
        for name in ("W_x", "W_h", "b", *self.vectors, *self.matrices):
            if hasattr(self, name):
                raise ArgumentError(
                    f"{type(self).__name__} sets {name!r}, but the cell makes W_x, W_h, b and its vectors "
                    "itself; fill them in reset_parameters, and name anything else otherwise"
                )
        for name in self.vectors:
            self.register_parameter(name, nn.Parameter(torch.empty(H)))
        for name in self.matrices:
            self.register_parameter(name, nn.Parameter(torch.empty(H, H // heads)))
        self._traced: dict[bool, Equations] = {}
        e = self.equations
        self._inputs, self._products = (self.gates, self._try_step()) if e is None else (e.inputs, e.products)
        wide, deep = len(self._inputs) * H, len(self._products) * H // heads
        self.register_parameter("W_x", nn.Parameter(torch.empty(D, wide)) if wide else None)
        self.register_parameter("W_h", nn.Parameter(torch.empty(H, deep)) if deep else None)
        self.register_parameter("b", nn.Parameter(torch.empty(wide)) if wide and self.bias else None)
        self.reset_parameters()
        self._name_blocks()
        with torch.no_grad():
            start = self.initial_state(2, torch.zeros(()))
            self.state_shapes = tuple(tuple(field.shape[1:]) for field in start)
            if self._pointwise and set(self.state_shapes) != {(H,)}:
                given = f"initial_state gives the shapes {self.state_shapes} after the batch"
                raise EquationError(f"{given}; equations need ({H},) for each")
            output = self.O(start)
            if not isinstance(output, Tensor) or output.dim() != 2 or len(output) != 2:
                shown = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
                raise EquationError(f"O must return a tensor (B, ·); for B = 2 it returned {shown}")
            self.output_size = output.shape[1]
        self._options = frozenset(self.__dict__)

    def _name_blocks(self) -> None:
        self.Inputs = named_tensors("x", self._inputs) if self.gates and not self.joined else None
        self.Products = named_tensors("h", self._products)

    def _trace(self) -> Equations:
        graph = Graph()
        view = self.with_symbols(graph)
        view.__dict__["_read"] = True
        learned = {"vectors": self.vectors, "matrices": self.matrices}
        try:
            found = trace(view.R, graph=graph, state=self.State, gates=self.gates, **learned)
        except (AttributeError, TypeError) as error:
            raise misread(self, error, of_the_contract=type(self).R is Cell.R) from None
        if "Products" not in self.__dict__:
            return found
        for kind, have, read in (("x", self._inputs, found.inputs), ("h", self._products, found.products)):
            if not set(read) <= set(have):
                raise EquationError(
                    f"an option changed, and R now reads {kind}.{min(set(read) - set(have))}, for which "
                    "the cell has no weights; construct a new cell with that option"
                )
        return replace(found, inputs=self._inputs, products=self._products)

    def _try_step(self) -> tuple[str, ...]:
        """Run a free-form step once on zeros, to see which recurrent products it asks for."""
        product = RehearsedProduct(self.gates, torch.zeros(1, self.hidden_size))
        parts = [product.zero] * len(self.gates)
        x: StepInput = named_tensors("x", self.gates)(*parts)
        if not self.gates:
            x = torch.zeros(1, self.input_size)
        elif self.joined:
            x = torch.cat(parts, -1)
        with torch.no_grad():
            new = self.step(x, self.initial_state(1, torch.zeros(())), product)
        if not isinstance(new, self.State):
            raise EquationError(f"step must return self.State(…), not {type(new).__name__}")
        return tuple(gate for gate in self.gates if gate in product.asked)

    def __setattr__(self, name: str, value: Any) -> None:
        if "_read" in self.__dict__:
            raise EquationError(
                f"R assigns self.{name}, but it is read only once; what a step leaves to the next is a "
                "state, what stays the same is set in __init__"
            )
        changed = self.__dict__.get(name) is not value and name not in _DERIVED
        super().__setattr__(name, value)
        if changed and "_options" in self.__dict__ and not isinstance(value, Tensor) and self._reads(name):
            self._traced.clear()  # an option changed: read the equations anew

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        if "_options" in self.__dict__ and self._reads(name):
            self._traced.clear()

    def _reads(self, name: str) -> bool:
        """Whether R may read this attribute; not what others keep here under a private name."""
        return name[0] != "_" or name in self._options or hasattr(type(self), name)

    def __deepcopy__(self, memo: dict[int, Any]) -> Cell:
        plain: Any = type_before_parametrizations(self)  # the other class refuses to give its state
        copied = memo[id(self)] = self.__new__(type(self))
        plain.__setstate__(copied, deepcopy(plain.__getstate__(self), memo))
        return copied

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        self.part_earlier(state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("_traced", "Inputs", "Products")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._traced = {}
        self._name_blocks()
