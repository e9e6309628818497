"""Writes a graph of ONNX node by node: values are names, weights are kept once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor

OPSET = 17
IR = 8  # the version of the file format that came with it
Value = str | float | int | NDArray[Any]  # a name, or numbers that become constants
KINDS = {"float": TensorProto.FLOAT, "int64": TensorProto.INT64, "bool": TensorProto.BOOL}


class GraphWriter:
    """The nodes, inputs, outputs and constants of a graph.

    int8: matrices are kept in 8 bits with a scale for each row (or column), and computed with in float32.
    A body, of a loop, has nodes of its own and reads the values and the constants of what is around it.
    """

    def __init__(self, *, int8: bool = False, around: GraphWriter | None = None) -> None:
        self.int8 = int8
        self._root: GraphWriter = self if around is None else around._root
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self.constants: list[onnx.TensorProto] = []
        self._kept: dict[Any, str] = {}
        self._count = 0

    def body(self) -> GraphWriter:
        return GraphWriter(int8=self.int8, around=self)

    def input(self, name: str, kind: str, *shape: int | str | None) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, KINDS[kind], list(shape)))
        return name

    def output(self, name: str, value: str, kind: str, *shape: int | str | None) -> None:
        self.nodes.append(helper.make_node("Identity", [value], [name]))
        self.outputs.append(helper.make_tensor_value_info(name, KINDS[kind], list(shape)))

    def op(self, kind: str, *given: Value, **attributes: Any) -> str:
        [found] = self.ops(kind, 1, *given, **attributes)
        return found

    def ops(self, kind: str, count: int, *given: Value, **attributes: Any) -> list[str]:
        """A node with several results."""
        names = [self._fresh(kind.lower()) for _ in range(count)]
        values = [one if isinstance(one, str) else self.constant(one) for one in given]
        self.nodes.append(helper.make_node(kind, values, names, **attributes))
        return names

    def constant(self, value: float | int | NDArray[Any]) -> str:
        """Numbers: a float is float32, a whole number int64."""
        kind = (
            None
            if isinstance(value, np.ndarray)
            else np.dtype(np.float32 if isinstance(value, float) else np.int64)
        )
        array = np.ascontiguousarray(np.asarray(value, dtype=kind)).reshape(np.shape(value))
        key = (array.dtype.str, array.shape, array.tobytes())
        root = self._root
        if key not in root._kept:
            root._kept[key] = root._fresh("constant")
            root.constants.append(numpy_helper.from_array(array, root._kept[key]))
        return root._kept[key]

    def weight(self, tensor: Tensor | NDArray[Any], *, axis: int = 0) -> str:
        """A learned tensor; of a matrix that is kept in 8 bits, ``axis`` has the scales."""
        array = tensor.detach().float().cpu().numpy() if isinstance(tensor, Tensor) else tensor
        if not self.int8 or array.ndim != 2 or min(array.shape) < 2:
            return self.constant(np.array(array))
        codes, scales = quantised(array, axis)
        root, zero = self._root, np.zeros(len(scales), np.int8)
        key = (codes.tobytes(), scales.tobytes(), codes.shape)
        if key not in root._kept:
            root._kept[key] = root.op("DequantizeLinear", codes, scales, zero, axis=axis)
        return root._kept[key]

    def matrix(self, tensor: Tensor) -> str:
        """A learned matrix (in, out), for a product from the left."""
        return self.weight(tensor, axis=1)

    def linear(self, x: str, layer: Any) -> str:
        """``x Wᵀ + b`` of one of torch's layers."""
        y = self.op("MatMul", x, self.matrix(layer.weight.t()))
        return y if layer.bias is None else self.op("Add", y, self.weight(layer.bias))

    def concat(self, parts: Sequence[str], axis: int = -1) -> str:
        return parts[0] if len(parts) == 1 else self.op("Concat", *parts, axis=axis)

    def split(self, x: str, sizes: Sequence[int], axis: int = -1) -> list[str]:
        if len(sizes) == 1:
            return [x]
        return self.ops("Split", len(sizes), x, np.array(sizes, np.int64), axis=axis)

    def graph(self, name: str) -> onnx.GraphProto:
        constants = self.constants if self._root is self else []
        return helper.make_graph(self.nodes, name, self.inputs, self.outputs, constants)

    def save(self, path: Path) -> None:
        operators = [helper.make_opsetid("", OPSET)]
        graph = self.graph(path.stem)
        model = helper.make_model(graph, opset_imports=operators, ir_version=IR, producer_name="elman")
        onnx.checker.check_model(model)
        onnx.save(model, str(path))

    def _fresh(self, kind: str) -> str:
        self._root._count += 1
        return f"{kind}_{self._root._count}"


def quantised(array: NDArray[Any], axis: int) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Whole numbers from -127 to 127, and what each row (or column) of them is multiplied by."""
    largest = np.abs(array).max(1 - axis, keepdims=True)
    scales = np.where(largest > 0, largest / 127, 1.0).astype(np.float32)
    return np.round(array / scales).astype(np.int8), scales.reshape(-1)
