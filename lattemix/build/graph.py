"""ONNX graphs under construction: in float32, float16 or 8-bit integers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from model_store.manifest import Precision

FUSED = "com.microsoft"  # the domain of ONNX Runtime's own operators

Array = NDArray[Any]


@dataclass(frozen=True)
class Attention:
    """Weights and inputs of a self-attention, its projections included."""

    name: str
    matrix: Array  # query, key and value: [H, 3H]
    bias: Array  # [3H]
    heads: int
    mask: str  # [B, S], or each text's length: [B]
    position_bias: str | None  # MPNet's: [1, heads, S, S]


@dataclass(frozen=True)
class Norm:
    """A layer norm."""

    name: str
    weight: Array  # [H]
    bias: Array  # [H]
    epsilon: float


@dataclass(frozen=True)
class Embeddings:
    """The embeddings of a transformer."""

    words: Array  # [V, H]
    positions: Array  # [P, H]
    padding_id: int | None  # see `Architecture`
    norm: Norm


class Graph:
    """A graph in float32. Every operator is a method that returns the name of its output.

    Subclasses compute in another precision, between `narrow` and `widen`. The head's softmax is
    always in float32.
    """

    precision: Precision = "fp32"

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []

    def constant(self, name: str, value: Array | np.generic) -> str:
        """Store an array as it is."""
        self.initializers.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def op(
        self, kind: str, *inputs: str, outputs: int = 1, domain: str = "", **attributes: Any
    ) -> str:
        """Append a node and return its first output; the others are called `name_1` and so on."""
        name = f"{kind}_{len(self.nodes)}"
        names = [name, *(f"{name}_{i}" for i in range(1, outputs))]
        self.nodes.append(
            helper.make_node(kind, list(inputs), names, name=name, domain=domain, **attributes)
        )
        return name

    def fused(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Append one of ONNX Runtime's own operators."""
        return self.op(kind, *inputs, domain=FUSED, **attributes)

    def narrow(self, x: str) -> str:
        """Cast float32 to the type of activations."""
        return x

    def widen(self, x: str) -> str:
        """Cast activations to float32."""
        return x

    def weight(self, name: str, value: Array) -> str:
        """Store an array in the type of activations."""
        return self.constant(name, value)

    def linear(self, x: str, name: str, matrix: Array, bias: Array) -> str:
        """Multiply x [B, S, in] by a matrix [in, out] and add a bias [out]."""
        product = self.op("MatMul", x, self.weight(f"{name}.weight", matrix))
        return self.op("Add", product, self.weight(f"{name}.bias", bias))

    def linear_gelu(self, x: str, name: str, matrix: Array, bias: Array) -> str:
        """Apply `linear`, then gelu."""
        return self.fused("Gelu", self.linear(x, name, matrix, bias))

    def linear_norm(
        self, x: str, skip: str, name: str, matrix: Array, bias: Array, norm: Norm
    ) -> str:
        """Apply `linear`, add `skip` [B, S, out] and normalise."""
        return self.normalise(self.op("Add", self.linear(x, name, matrix, bias), skip), norm)

    def normalise(self, x: str, norm: Norm) -> str:
        """Apply a layer norm to x: [B, S, H]."""
        weights = self.norm_weights(norm)
        return self.op("LayerNormalization", x, *weights, axis=-1, epsilon=norm.epsilon)

    def norm_weights(self, norm: Norm) -> tuple[str, str]:
        """Store the weight and the bias of a layer norm."""
        return (
            self.weight(f"{norm.name}.weight", norm.weight),
            self.weight(f"{norm.name}.bias", norm.bias),
        )

    def embed(self, embeddings: Embeddings) -> tuple[str, str]:
        """Return the embeddings of `input_ids` [B, S, H] and the mask for `attend`."""
        mask = self.op("Cast", "attention_mask", to=TensorProto.INT32)
        words = self.look_up("embeddings.word", embeddings.words, "input_ids")
        rows = self.constant("embeddings.position", embeddings.positions)
        if embeddings.padding_id is None:
            # Not a Gather of a Range: ONNX Runtime turns that into an invalid Slice.
            rows = self.first(rows, "embeddings", axis=0)  # [S, H]
        else:
            rows = self.op("Gather", rows, self.position_ids(embeddings.padding_id))  # [B, S, H]
        return self.normalise(self.op("Add", words, rows), embeddings.norm), mask

    def first(self, x: str, name: str, axis: int) -> str:
        """Return the first S values of an axis, S being the padded length."""
        start = self.constant(f"{name}.start", np.array([0]))
        axes = self.constant(f"{name}.axis", np.array([axis]))
        length = self.op("Shape", "input_ids", start=1, end=2)  # [1]
        return self.op("Slice", x, start, length, axes)

    def position_ids(self, padding_id: int) -> str:
        """Return RoBERTa's position ids [B, S]: non-padding tokens count from the padding id + 1.

        int64.
        """
        padding = self.constant("positions.padding", np.int64(padding_id))
        real = self.op("Not", self.op("Equal", "input_ids", padding))
        real = self.op("Cast", real, to=TensorProto.INT64)
        axis = self.constant("positions.axis", np.int64(1))
        counts = self.op("Mul", self.op("CumSum", real, axis), real)
        return self.op("Add", counts, padding)

    def look_up(self, name: str, table: Array, ids: str) -> str:
        """Return rows of a table [V, H]."""
        return self.op("Gather", self.weight(name, table), ids)

    def look_up_distributions(self, name: str, chunks: Iterable[Array], ids: str) -> str:
        """Return rows [B, S, L*C] of a table of distributions, in float32.

        Args:
            name: the table's name.
            chunks: the table's rows in order, [N, L, C] each.
            ids: the rows to return, [B, S].
        """
        table = np.concatenate([_flat(chunk) for chunk in chunks])  # [V, L*C]
        return self.op("Gather", self.constant(name, table), ids)

    def attend(self, x: str, attention: Attention) -> str:
        """Apply self-attention to x: [B, S, H]."""
        name = attention.name
        return self.fused(
            "Attention",
            x,
            self.weight(f"{name}.weight", attention.matrix),
            self.weight(f"{name}.bias", attention.bias),
            attention.mask,
            *(["", attention.position_bias] if attention.position_bias else []),
            num_heads=attention.heads,
        )


class RecordingGraph(Graph):
    """A float32 graph that records the input and the matrix of every product."""

    def __init__(self) -> None:
        super().__init__()
        self.products: dict[str, tuple[str, Array]] = {}

    def linear(self, x: str, name: str, matrix: Array, bias: Array) -> str:
        """Record the product."""
        self.products[name] = x, matrix
        return super().linear(x, name, matrix, bias)

    def attend(self, x: str, attention: Attention) -> str:
        """Record the product with the projections."""
        self.products[attention.name] = x, attention.matrix
        return super().attend(x, attention)


@dataclass(frozen=True, eq=False)
class Quantisation:
    """Affine quantisation: value = channel_scales * scale * (byte - zero_point)."""

    scale: float
    zero_point: int
    channel_scales: Array | None = None  # [in]; None is all 1


class Int8Graph(Graph):
    """Matrix products of 8-bit integers, for CPUs.

    Static quantisation: the scales of the inputs were measured beforehand. Dynamic quantisation has
    one scale per batch, so that a sentence's result would depend on its neighbours. Weights have a
    scale per column and 7 bits: on processors without 8-bit dot products, the sum of two 8-bit
    products overflows 16 bits. A product without an entry in `quantisations` stays in float32.
    """

    precision: Precision = "int8"

    def __init__(self, quantisations: Mapping[str, Quantisation]) -> None:
        super().__init__()
        self.quantisations = quantisations

    def linear(self, x: str, name: str, matrix: Array, bias: Array) -> str:
        """Multiply x [B, S, in] by a matrix [in, out] and add a bias [out]."""
        if name not in self.quantisations:
            return super().linear(x, name, matrix, bias)
        x, scale, zero = self._quantised_input(x, name)
        weight, weight_scale, weight_zero = self._quantised_weight(name, matrix)
        bias_name = self.constant(f"{name}.bias", bias)
        inputs = (x, weight, scale, weight_scale, zero, weight_zero, bias_name)
        return self.fused("MatMulIntegerToFloat", *inputs)

    def look_up(self, name: str, table: Array, ids: str) -> str:
        """Return rows of a table [V, H], stored with a scale per row."""
        scales = _scales(table, axis=1, largest=127)  # [V, 1]
        rows = self.constant(name, np.round(table / scales).astype(np.int8))
        rows = self.op("Cast", self.op("Gather", rows, ids), to=TensorProto.FLOAT)
        scale = self.constant(f"{name}.scale", scales)
        return self.op("Mul", rows, self.op("Gather", scale, ids))

    def look_up_distributions(self, name: str, chunks: Iterable[Array], ids: str) -> str:
        """Return rows of a table stored in bytes, in 255ths."""
        rows = super().look_up_distributions(name, map(to_bytes, chunks), ids)
        unit = self.constant(f"{name}.unit", np.array(1 / 255, np.float32))
        return self.op("DequantizeLinear", rows, unit)

    def attend(self, x: str, attention: Attention) -> str:
        """Apply self-attention, with its projections in 8 bits and the rest in float32."""
        name, mask, position_bias = attention.name, attention.mask, attention.position_bias
        if name not in self.quantisations:
            return super().attend(x, attention)
        if position_bias:  # QAttention does not take one
            projected = self.linear(x, name, attention.matrix, attention.bias)
            query = self.op("Split", projected, outputs=3, axis=-1)
            parts = (query, f"{query}_1", f"{query}_2", "", mask, position_bias)
            return self.fused("MultiHeadAttention", *parts, num_heads=attention.heads)
        bias = self.constant(f"{name}.bias", attention.bias)
        x, scale, zero = self._quantised_input(x, name)
        weight, weight_scale, weight_zero = self._quantised_weight(name, attention.matrix)
        inputs = (x, weight, bias, scale, weight_scale, mask, zero, weight_zero)
        return self.fused("QAttention", *inputs, num_heads=attention.heads)

    def _quantised_input(self, x: str, name: str) -> tuple[str, str, str]:
        """Quantise the input of a product; return it with its scale and zero point."""
        quantisation = self.quantisations[name]
        if quantisation.channel_scales is not None:
            inverse = self.constant(f"{name}.input.channels", 1 / quantisation.channel_scales)
            x = self.op("Mul", x, inverse)
        scale = self.constant(f"{name}.input.scale", np.float32(quantisation.scale))
        zero = self.constant(f"{name}.input.zero", np.uint8(quantisation.zero_point))
        return self.op("QuantizeLinear", x, scale, zero), scale, zero

    def _quantised_weight(self, name: str, matrix: Array) -> tuple[str, str, str]:
        """Store a matrix [in, out] in 7 bits; return it with its scales and zero point."""
        channel_scales = self.quantisations[name].channel_scales
        matrix = matrix if channel_scales is None else matrix * channel_scales[:, None]
        integers, scales = quantise_weight(matrix)
        weight = self.constant(f"{name}.weight", integers)
        scale = self.constant(f"{name}.weight.scale", scales[0])
        return weight, scale, self.constant(f"{name}.weight.zero", np.int8(0))


def to_bytes(distributions: Array) -> Array:
    """Round distributions [..., C] to 255ths, whose numerators sum to 255 exactly.

    Largest-remainder rounding: round down, then add 1 where the most was lost.
    """
    exact = distributions * np.float32(255)
    floors = np.floor(exact)
    missing = 255 - floors.sum(axis=-1, keepdims=True)  # [..., 1]
    order = np.argsort(floors - exact, axis=-1, kind="stable")  # largest loss first
    rounded_up = np.empty(order.shape, np.uint8)
    ranks = np.arange(order.shape[-1])
    np.put_along_axis(rounded_up, order, (ranks < missing).astype(np.uint8), axis=-1)
    return floors.astype(np.uint8) + rounded_up


def _flat(distributions: Array) -> Array:
    """[N, L, C] -> [N, L*C]."""
    return distributions.reshape(len(distributions), -1)


def quantise_weight(matrix: Array) -> tuple[Array, Array]:
    """Round a matrix [in, out] to 7-bit integers; return them and each column's scale [1, out]."""
    scales = _scales(matrix, axis=0, largest=64)
    return np.round(matrix / scales).astype(np.int8), scales


def _scales(matrix: Array, axis: int, largest: int) -> Array:
    """Divisors after which the largest absolute value along `axis` is `largest`."""
    scales = np.abs(matrix).max(axis=axis, keepdims=True) / largest
    return np.where(scales == 0, 1, scales).astype(np.float32)
