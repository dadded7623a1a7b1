"""An ONNX graph under construction."""

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

FUSED = "com.microsoft"

Array = NDArray[Any]


class Graph:
    """A list of nodes; each operator returns the name of its output."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []

    def constant(self, name: str, value: Array | np.generic) -> str:
        """Store a weight under `name`."""
        self.initializers.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def op(
        self, kind: str, *inputs: str, outputs: int = 1, domain: str = "", **attributes: Any
    ) -> str:
        """Append a node; return its first output's name, `name_1` being the next."""
        name = f"{kind}_{len(self.nodes)}"
        names = [name, *(f"{name}_{i}" for i in range(1, outputs))]
        self.nodes.append(
            helper.make_node(kind, list(inputs), names, name=name, domain=domain, **attributes)
        )
        return name

    def fused(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Append one of ONNX Runtime's own operators."""
        return self.op(kind, *inputs, domain=FUSED, **attributes)
