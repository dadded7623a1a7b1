"""The graph of a transformer encoder, in fused operators: token ids to token vectors."""

import numpy as np
from onnx import TensorProto

from lattemix.build.families import Architecture, relative_position_bias
from lattemix.build.graph import Array, Attention, Graph


def hidden_states(graph: Graph, model: Architecture, layer: int, max_tokens: int) -> str:
    """Add the layers up to `layer`; return its token vectors [B, S, H], in float32."""

    def linear(x: str, block: str, outputs: int, inputs: int) -> str:
        matrix = model.weight(f"{block}.weight", outputs, inputs).T
        return graph.linear(x, block, matrix, model.weight(f"{block}.bias", outputs))

    def residual(x: str, skip: str, block: str) -> str:
        """LayerNorm(x + skip)."""
        return _layer_norm(graph, model, graph.op("Add", graph.widen(x), skip), block)

    width, inner_width = model.width, model.inner_width
    mask = graph.op("Cast", "attention_mask", to=TensorProto.INT32)
    position_bias = _position_bias(graph, model, max_tokens)
    x = _embeddings(graph, model)
    for index in range(layer):
        block = f"encoder.layer.{index}"
        name = f"{block}.attention.self"
        attention = Attention(name, *_projections(model, name), model.heads, mask, position_bias)
        attended = graph.attend(graph.narrow(x), attention)
        attended = linear(attended, f"{block}.attention.output.dense", width, width)
        x = residual(attended, x, f"{block}.attention.output")
        inner = linear(graph.narrow(x), f"{block}.intermediate.dense", inner_width, width)
        inner = graph.fused("Gelu", inner)
        inner = linear(inner, f"{block}.output.dense", width, inner_width)
        x = residual(inner, x, f"{block}.output")
    return x


def _embeddings(graph: Graph, model: Architecture) -> str:
    """LayerNorm(word + position + first segment): [B, S, H]."""
    positions = model.weight("embeddings.position_embeddings.weight", -1, model.width)
    segments = "embeddings.token_type_embeddings.weight"
    if segments in model.weights:
        # Every input is one segment: add its vector to every position's.
        positions = positions + model.weight(segments, -1, model.width)[0]
    table = model.weight("embeddings.word_embeddings.weight", -1, model.width)
    words = graph.look_up("embeddings.word", table, "input_ids")
    rows = graph.constant("embeddings.position", positions)
    if model.padding_id is None:
        start, axis = (graph.constant(f"embeddings.{n}", np.array([0])) for n in ("start", "axis"))
        # Not a Gather of a Range: ONNX Runtime turns that into an invalid Slice.
        rows = graph.op("Slice", rows, start, _length(graph), axis)  # [S, H]
    else:
        rows = graph.op("Gather", rows, _position_ids(graph, model.padding_id))  # [B, S, H]
    return _layer_norm(graph, model, graph.op("Add", words, rows), "embeddings")


def _layer_norm(graph: Graph, model: Architecture, x: str, block: str) -> str:
    names = [f"{block}.LayerNorm.{part}" for part in ("weight", "bias")]
    weights = [graph.constant(name, model.weight(name, model.width)) for name in names]
    return graph.op("LayerNormalization", x, *weights, axis=-1, epsilon=model.epsilon)


def _length(graph: Graph) -> str:
    """The padded length S: [1]."""
    return graph.op("Shape", "input_ids", start=1, end=2)


def _position_ids(graph: Graph, padding_id: int) -> str:
    """RoBERTa's position ids [B, S]: non-padding tokens count up from the padding id + 1."""
    padding = graph.constant("positions.padding", np.int64(padding_id))
    real = graph.op("Not", graph.op("Equal", "input_ids", padding))
    real = graph.op("Cast", real, to=TensorProto.INT64)
    axis = graph.constant("positions.axis", np.int64(1))
    counts = graph.op("Mul", graph.op("CumSum", real, axis), real)
    return graph.op("Add", counts, padding)


def _position_bias(graph: Graph, model: Architecture, max_tokens: int) -> str | None:
    """MPNet's relative position bias [1, heads, S, S]; None for other families."""
    if model.position_bias is None:
        return None
    table = relative_position_bias(model.position_bias, max_tokens)[None]
    length = _length(graph)
    ends = graph.op("Concat", length, length, axis=0)
    starts = graph.constant("distance.starts", np.zeros(2, np.int64))
    axes = graph.constant("distance.axes", np.array([2, 3]))
    return graph.op("Slice", graph.weight("distance.bias", table), starts, ends, axes)


def _projections(model: Architecture, block: str) -> tuple[Array, Array]:
    """Query, key and value side by side, as the fused Attention takes them: [H, 3H] and [3H]."""
    parts = [f"{block}.{part}" for part in ("query", "key", "value")]
    matrices = [model.weight(f"{part}.weight", model.width, model.width).T for part in parts]
    biases = [model.weight(f"{part}.bias", model.width) for part in parts]
    return np.concatenate(matrices, axis=1), np.concatenate(biases)
