"""A transformer encoder as fused operators: token ids in, token vectors out."""

import numpy as np
from onnx import TensorProto

from lattemix.build.arithmetic import Arithmetic, Attention
from lattemix.build.families import Architecture, distance_bias
from lattemix.build.graph import Array


def encode(numbers: Arithmetic, encoder: Architecture, layers: int, max_tokens: int) -> str:
    """Token vectors [B, S, H] of a transformer's hidden layer `layers`, in float32."""
    graph, width, inner_width = numbers.graph, encoder.width, encoder.inner_width

    def linear(x: str, block: str, out: int, into: int) -> str:
        matrix = encoder.get(f"{block}.weight", out, into).T
        return numbers.linear(x, block, matrix, encoder.get(f"{block}.bias", out))

    def residual(x: str, skip: str, block: str) -> str:
        """LayerNorm(x + skip)."""
        return _normalise(numbers, encoder, graph.op("Add", numbers.widen(x), skip), block)

    mask = graph.op("Cast", "attention_mask", to=TensorProto.INT32)
    distance = _distance_bias(numbers, encoder, max_tokens)
    x = _embeddings(numbers, encoder)
    for index in range(layers):
        block = f"encoder.layer.{index}"
        name = f"{block}.attention.self"
        attention = Attention(name, *_stack(encoder, name), encoder.heads, mask, distance)
        attended = numbers.attend(numbers.narrow(x), attention)
        attended = linear(attended, f"{block}.attention.output.dense", width, width)
        x = residual(attended, x, f"{block}.attention.output")
        inner = linear(numbers.narrow(x), f"{block}.intermediate.dense", inner_width, width)
        inner = graph.fused("Gelu", inner)
        inner = linear(inner, f"{block}.output.dense", width, inner_width)
        x = residual(inner, x, f"{block}.output")
    return x


def _embeddings(numbers: Arithmetic, encoder: Architecture) -> str:
    """LayerNorm(word + position + first segment): the embedding layer, [B, S, H]."""
    graph, width = numbers.graph, encoder.width
    positions = encoder.get("embeddings.position_embeddings.weight", -1, width)
    if "embeddings.token_type_embeddings.weight" in encoder.weights:
        # Every input is one segment, so its vector is part of every position's.
        positions = positions + encoder.get("embeddings.token_type_embeddings.weight", -1, width)[0]
    table = encoder.get("embeddings.word_embeddings.weight", -1, width)
    words = numbers.look_up("embeddings.word", table, "input_ids")
    at = graph.constant("embeddings.position", positions)
    if encoder.padding_id is None:
        start, along = (graph.constant(f"embeddings.{n}", np.array([0])) for n in ("start", "axis"))
        # Not a Gather of a Range: ONNX Runtime makes an invalid Slice of it.
        at = graph.op("Slice", at, start, _length(numbers), along)  # [S, H]
    else:
        at = graph.op("Gather", at, _positions(numbers, encoder.padding_id))  # [B, S, H]
    return _normalise(numbers, encoder, graph.op("Add", words, at), "embeddings")


def _normalise(numbers: Arithmetic, encoder: Architecture, x: str, block: str) -> str:
    """LayerNorm, in float32."""
    names = [f"{block}.LayerNorm.{part}" for part in ("weight", "bias")]
    weights = [numbers.graph.constant(name, encoder.get(name, encoder.width)) for name in names]
    epsilon = encoder.epsilon
    return numbers.graph.op("LayerNormalization", x, *weights, axis=-1, epsilon=epsilon)


def _length(numbers: Arithmetic) -> str:
    """The number of tokens of the longest sentence, S: [1]."""
    return numbers.graph.op("Shape", "input_ids", start=1, end=2)


def _positions(numbers: Arithmetic, padding_id: int) -> str:
    """RoBERTa's positions [B, S]: tokens that are not padding are counted on from its id."""
    graph = numbers.graph
    padding = graph.constant("positions.padding", np.int64(padding_id))
    real = graph.op("Not", graph.op("Equal", "input_ids", padding))
    real = graph.op("Cast", real, to=TensorProto.INT64)
    along = graph.constant("positions.axis", np.int64(1))
    counted = graph.op("Mul", graph.op("CumSum", real, along), real)
    return graph.op("Add", counted, padding)


def _distance_bias(numbers: Arithmetic, encoder: Architecture, max_tokens: int) -> str | None:
    """MPNet's bias [1, heads, S, S], if it is of that kind."""
    if encoder.distance_bias is None:
        return None
    graph = numbers.graph
    table = distance_bias(encoder.distance_bias, max_tokens)[None]  # [1, heads, longest, longest]
    length = _length(numbers)
    ends = graph.op("Concat", length, length, axis=0)
    starts = graph.constant("distance.starts", np.zeros(2, np.int64))
    axes = graph.constant("distance.axes", np.array([2, 3]))
    return graph.op("Slice", numbers.weight("distance.bias", table), starts, ends, axes)


def _stack(encoder: Architecture, block: str) -> tuple[Array, Array]:
    """Query, key and value side by side, as the fused Attention wants them: [H, 3H] and [3H]."""
    width = encoder.width
    parts = [f"{block}.{part}" for part in ("query", "key", "value")]
    matrices = [encoder.get(f"{part}.weight", width, width).T for part in parts]
    biases = [encoder.get(f"{part}.bias", width) for part in parts]
    return np.concatenate(matrices, axis=1), np.concatenate(biases)
