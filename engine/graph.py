"""Writes ONNX graphs node by node; needs `onnx`, which is imported when the first one is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

OPSET = 17
IR_VERSION = 9
"""Both old enough for every ONNX runtime of the last years."""

RUNTIME = "com.microsoft"
"""Domain of the operations that ONNX runtime has beside the standard's."""

Shapes = Mapping[str, Sequence[str | int]]
"""Dimensions by name of the value; one that is not fixed is a name itself."""


class Graph:
    """A graph under construction; values are named by number."""

    def __init__(self) -> None:
        self._onnx: Any = import_module("onnx")
        self._nodes: list[Any] = []
        self._constants: list[Any] = []

    def constant(self, value: npt.ArrayLike, dtype: npt.DTypeLike = np.float32) -> str:
        name = f"c{len(self._constants)}"
        array = np.ascontiguousarray(value, dtype) if np.ndim(value) else np.asarray(value, dtype)
        self._constants.append(self._onnx.numpy_helper.from_array(array, name))
        return name

    def indices(self, *values: int) -> str:
        return self.constant(values, np.int64)

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Append one operation and name its only, or first, output."""
        return self.split(op, 1, *inputs, **attributes)[0]

    def split(self, op: str, outputs: int, *inputs: str, **attributes: Any) -> list[str]:
        """Append one operation and name all its outputs."""
        name = f"v{len(self._nodes)}"
        names = [name, *(f"{name}.{number}" for number in range(1, outputs))]
        self._nodes.append(self._onnx.helper.make_node(op, list(inputs), names, **attributes))
        return names

    def model(self, inputs: Shapes, value: str, output: tuple[str, Sequence[str | int]]) -> bytes:
        """The finished model of floats: `value` becomes `output`, a name and a shape."""
        name, shape = output
        return self.models(inputs, {name: value}, {name: shape})

    def models(
        self, inputs: Shapes, values: Mapping[str, str], outputs: Shapes, whole: frozenset[str] = frozenset()
    ) -> bytes:
        """The finished model of several outputs, by name; those in `whole`, in or out, are int64."""
        helper, kinds = self._onnx.helper, self._onnx.TensorProto
        for name, value in values.items():
            self._nodes.append(helper.make_node("Identity", [value], [name]))

        def described(shapes: Shapes) -> list[Any]:
            return [
                helper.make_tensor_value_info(key, kinds.INT64 if key in whole else kinds.FLOAT, shape)
                for key, shape in shapes.items()
            ]

        graph = helper.make_graph(
            self._nodes, next(iter(values)), described(inputs), described(outputs), self._constants
        )
        # The checker knows the standard's operations alone.
        beyond = any(node.domain == RUNTIME for node in self._nodes)
        domains = [helper.make_opsetid("", OPSET), *([helper.make_opsetid(RUNTIME, 1)] if beyond else [])]
        made = helper.make_model(
            graph, opset_imports=domains, ir_version=IR_VERSION, producer_name="seamscribe"
        )
        self._onnx.checker.check_model(made, full_check=not beyond)
        data: bytes = made.SerializeToString(deterministic=True)
        return data
