"""The numbers that large operators compute in: float32, float16, or bytes."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from model_store.manifest import Precision
from training.export.graph import Array, Graph


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

    def linear(self, x: str, name: str, matrix: Array) -> str:
        """The product of x [B, S, in] and a matrix [in, out]."""
        return self.graph.op("MatMul", x, self.weight(f"{name}.weight", matrix))

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
    """In float32, remembering what enters each product."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.observed: dict[str, str] = {}

    def linear(self, x: str, name: str, matrix: Array) -> str:
        """As in float32."""
        self.observed[name] = x
        return super().linear(x, name, matrix)

    def attend(self, x: str, attention: Attention) -> str:
        """As in float32."""
        self.observed[attention.name] = x
        return super().attend(x, attention)


@dataclass(frozen=True)
class Range:
    """The values that eight bits stand for: `scale * (q - zero)` for q in 0..255."""

    scale: float
    zero: int


class Bytes(Arithmetic):
    """Products of 8-bit integers, for CPUs.

    The scale of what enters a product was measured beforehand. Found in the data at hand, as
    dynamic quantisation does, it would be one for the whole batch, and a sentence's answer would
    depend on its neighbours. Weights have a scale per column, and 7 bits: where a processor has
    no instructions for bytes, sums of two products of 8 would not fit into 16.
    """

    precision: Precision = "int8"

    def __init__(self, graph: Graph, ranges: Mapping[str, Range]) -> None:
        super().__init__(graph)
        self.ranges = ranges
        self._done: dict[tuple[str, Range], tuple[str, str, str]] = {}

    def linear(self, x: str, name: str, matrix: Array) -> str:
        """The product of x [B, S, in] and a matrix [in, out]."""
        quantised, scale, zero = self._quantise(x, name)
        weight, weight_scale, weight_zero = self._weight(name, matrix)
        inputs = (quantised, weight, scale, weight_scale, zero, weight_zero)
        return self.graph.fused("MatMulIntegerToFloat", *inputs)

    def look_up(self, name: str, table: Array, ids: str) -> str:
        """Rows of a table [V, H], each with a scale of its own."""
        scales = np.abs(table).max(axis=1, keepdims=True) / 127  # [V, 1]
        scales = np.where(scales == 0, 1, scales).astype(np.float32)
        rows = self.graph.constant(name, np.round(table / scales).astype(np.int8))
        rows = self.graph.op("Cast", self.graph.op("Gather", rows, ids), to=TensorProto.FLOAT)
        kept = self.graph.constant(f"{name}.scale", scales)
        return self.graph.op("Mul", rows, self.graph.op("Gather", kept, ids))

    def attend(self, x: str, attention: Attention) -> str:
        """Self-attention: the projections in bytes, the rest in float32."""
        graph, name, mask = self.graph, attention.name, attention.mask
        if attention.distance:  # which the fused operator does not take
            joined = self.linear(x, name, attention.matrix)
            query = graph.op("Split", joined, outputs=3, axis=-1)
            bias = graph.constant(f"{name}.bias", attention.bias)
            parts = (query, f"{query}_1", f"{query}_2", bias, mask, attention.distance)
            return graph.fused("MultiHeadAttention", *parts, num_heads=attention.heads)
        quantised, scale, zero = self._quantise(x, name)
        weight, weight_scale, weight_zero = self._weight(name, attention.matrix)
        bias = graph.constant(f"{name}.bias", attention.bias)
        inputs = (quantised, weight, bias, scale, weight_scale, mask, zero, weight_zero)
        return graph.fused("QAttention", *inputs, num_heads=attention.heads)

    def _quantise(self, x: str, name: str) -> tuple[str, str, str]:
        """What enters a product, as bytes, with its scale and its zero."""
        found = self.ranges[name]
        if (x, found) not in self._done:
            scale = self.graph.constant(f"{name}.input.scale", np.float32(found.scale))
            zero = self.graph.constant(f"{name}.input.zero", np.uint8(found.zero))
            quantised = self.graph.op("QuantizeLinear", x, scale, zero)
            self._done[x, found] = quantised, scale, zero
        return self._done[x, found]

    def _weight(self, name: str, matrix: Array) -> tuple[str, str, str]:
        scales = np.abs(matrix).max(axis=0) / 64  # [out]
        scales = np.where(scales == 0, 1, scales).astype(np.float32)
        weight = self.graph.constant(f"{name}.weight", np.round(matrix / scales).astype(np.int8))
        scale = self.graph.constant(f"{name}.weight.scale", scales)
        return weight, scale, self.graph.constant(f"{name}.weight.zero", np.int8(0))
