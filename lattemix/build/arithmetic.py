"""The numbers that large operators compute in: float32, float16, or bytes."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from lattemix.build.graph import Array, Graph
from model_store.manifest import Precision


class Arithmetic:
    """How large operators compute: here in float32, which the other kinds change.

    Between `narrow` and `widen` stand matrix products and what belongs to them. Norms, the
    softmax of the head and the sums of a residual stream are outside, in float32 always.
    """

    precision: Precision = "fp32"

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def narrow(self, x: str) -> str:
        """Into the numbers that large operators take."""
        return x

    def widen(self, x: str) -> str:
        """Back into float32."""
        return x

    def weight(self, name: str, value: Array) -> str:
        """A constant of those numbers."""
        return self.graph.constant(name, value)

    def linear(self, x: str, name: str, matrix: Array, bias: Array) -> str:
        """The product of x [B, S, in] and a matrix [in, out], and a bias [out]."""
        product = self.graph.op("MatMul", x, self.weight(f"{name}.weight", matrix))
        return self.graph.op("Add", product, self.weight(f"{name}.bias", bias))

    def look_up(self, name: str, table: Array, ids: str) -> str:
        """Rows of a table [V, H], in float32."""
        return self.widen(self.graph.op("Gather", self.weight(name, table), ids))

    def attend(self, x: str, attention: "Attention") -> str:
        """Self-attention, its projections included: [B, S, H]."""
        name = attention.name
        return self.graph.fused(
            "Attention",
            x,
            self.weight(f"{name}.weight", attention.matrix),
            self.weight(f"{name}.bias", attention.bias),
            attention.mask,
            *(["", attention.distance] if attention.distance else []),
            num_heads=attention.heads,
        )


@dataclass(frozen=True)
class Attention:
    """Query, key and value side by side, and what else an attention needs."""

    name: str
    matrix: Array  # [H, 3H]
    bias: Array  # [3H]
    heads: int
    mask: str  # [B, S]
    distance: str | None  # MPNet's bias, narrow, [1, heads, S, S]


class Half(Arithmetic):
    """Products in float16, for GPUs."""

    precision: Precision = "fp16"

    def narrow(self, x: str) -> str:
        """Into float16."""
        return self.graph.op("Cast", x, to=TensorProto.FLOAT16)

    def widen(self, x: str) -> str:
        """Back into float32."""
        return self.graph.op("Cast", x, to=TensorProto.FLOAT)

    def weight(self, name: str, value: Array) -> str:
        """In float16."""
        return self.graph.constant(name, value.astype(np.float16))


class Observing(Arithmetic):
    """In float32, remembering the two sides of each product by its name."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.observed: dict[str, tuple[str, Array]] = {}

    def linear(self, x: str, name: str, matrix: Array, bias: Array) -> str:
        """As in float32."""
        self.observed[name] = x, matrix
        return super().linear(x, name, matrix, bias)

    def attend(self, x: str, attention: Attention) -> str:
        """As in float32."""
        self.observed[attention.name] = x, attention.matrix
        return super().attend(x, attention)


@dataclass(frozen=True, eq=False)
class Range:
    """The values that bytes stand for: `channels * scale * (byte - zero)`."""

    scale: float
    zero: int
    channels: Array | None = None  # [in]; all of them 1 if unset


class Bytes(Arithmetic):
    """Products of 8-bit integers, for CPUs.

    The scale of what enters a product was measured beforehand. Found in the data at hand, as
    dynamic quantisation does, it would be one for the whole batch, and a sentence's answer would
    depend on its neighbours. Weights have a scale per column, and 7 bits: where a processor has
    no instructions for bytes, sums of two products of 8 would not fit into 16. A product for
    which there is no range stays in float32.
    """

    precision: Precision = "int8"

    def __init__(self, graph: Graph, ranges: Mapping[str, Range]) -> None:
        super().__init__(graph)
        self.ranges = ranges

    def linear(self, x: str, name: str, matrix: Array, bias: Array) -> str:
        """The product of x [B, S, in] and a matrix [in, out], and a bias [out]."""
        if name not in self.ranges:
            return super().linear(x, name, matrix, bias)
        x, scale, zero = self._quantise(x, name)
        weight, weight_scale, weight_zero = self._weight(name, matrix)
        kept = self.graph.constant(f"{name}.bias", bias)
        inputs = (x, weight, scale, weight_scale, zero, weight_zero, kept)
        return self.graph.fused("MatMulIntegerToFloat", *inputs)

    def look_up(self, name: str, table: Array, ids: str) -> str:
        """Rows of a table [V, H], each with a scale of its own."""
        scales = _scales(table, axis=1, most=127)  # [V, 1]
        rows = self.graph.constant(name, np.round(table / scales).astype(np.int8))
        rows = self.graph.op("Cast", self.graph.op("Gather", rows, ids), to=TensorProto.FLOAT)
        kept = self.graph.constant(f"{name}.scale", scales)
        return self.graph.op("Mul", rows, self.graph.op("Gather", kept, ids))

    def attend(self, x: str, attention: Attention) -> str:
        """Self-attention: the projections in bytes, the rest in float32."""
        if attention.name not in self.ranges:
            return super().attend(x, attention)
        graph, name, mask = self.graph, attention.name, attention.mask
        if attention.distance:  # which the fused operator does not take
            projected = self.linear(x, name, attention.matrix, attention.bias)
            query = graph.op("Split", projected, outputs=3, axis=-1)
            parts = (query, f"{query}_1", f"{query}_2", "", mask, attention.distance)
            return graph.fused("MultiHeadAttention", *parts, num_heads=attention.heads)
        bias = graph.constant(f"{name}.bias", attention.bias)
        x, scale, zero = self._quantise(x, name)
        weight, weight_scale, weight_zero = self._weight(name, attention.matrix)
        inputs = (x, weight, bias, scale, weight_scale, mask, zero, weight_zero)
        return graph.fused("QAttention", *inputs, num_heads=attention.heads)

    def _quantise(self, x: str, name: str) -> tuple[str, str, str]:
        """What enters a product, as bytes, with their scale and their zero."""
        found = self.ranges[name]
        if found.channels is not None:
            channels = self.graph.constant(f"{name}.input.channels", 1 / found.channels)
            x = self.graph.op("Mul", x, channels)
        scale = self.graph.constant(f"{name}.input.scale", np.float32(found.scale))
        zero = self.graph.constant(f"{name}.input.zero", np.uint8(found.zero))
        return self.graph.op("QuantizeLinear", x, scale, zero), scale, zero

    def _weight(self, name: str, matrix: Array) -> tuple[str, str, str]:
        """A matrix [in, out] as bytes, with their scales and their zero."""
        channels = self.ranges[name].channels
        matrix = matrix if channels is None else matrix * channels[:, None]
        rounded, scales = seven_bits(matrix)
        weight = self.graph.constant(f"{name}.weight", rounded)
        scale = self.graph.constant(f"{name}.weight.scale", scales[0])
        return weight, scale, self.graph.constant(f"{name}.weight.zero", np.int8(0))


def seven_bits(matrix: Array) -> tuple[Array, Array]:
    """A matrix [in, out] as integers, and the scale of each column [1, out]."""
    scales = _scales(matrix, axis=0, most=64)
    return np.round(matrix / scales).astype(np.int8), scales


def _scales(matrix: Array, axis: int, most: int) -> Array:
    """What to divide rows or columns by, so that the largest value of each becomes `most`."""
    scales = np.abs(matrix).max(axis=axis, keepdims=True) / most
    return np.where(scales == 0, 1, scales).astype(np.float32)
