"""The graph of a transformer encoder, in fused operators: token ids to token vectors."""

import numpy as np

from lattemix.build.families import Architecture, relative_position_bias
from lattemix.build.graph import Array, Attention, Embeddings, Graph, Norm


def hidden_states(graph: Graph, model: Architecture, layer: int, max_tokens: int) -> str:
    """Add the layers up to `layer`; return its token vectors: [B, S, H]."""
    width, inner_width = model.width, model.inner_width

    def weights(block: str, outputs: int, inputs: int) -> tuple[str, Array, Array]:
        matrix = model.weight(f"{block}.weight", outputs, inputs).T
        return block, matrix, model.weight(f"{block}.bias", outputs)

    position_bias = _position_bias(graph, model, max_tokens)
    x, mask = graph.embed(_embeddings(model))
    for index in range(layer):
        block = f"encoder.layer.{index}"
        name = f"{block}.attention.self"
        attention = Attention(name, *_projections(model, name), model.heads, mask, position_bias)
        output = weights(f"{block}.attention.output.dense", width, width)
        norm = _norm(model, f"{block}.attention.output")
        x = graph.linear_norm(graph.attend(x, attention), x, *output, norm)
        inner = graph.linear_gelu(x, *weights(f"{block}.intermediate.dense", inner_width, width))
        output = weights(f"{block}.output.dense", width, inner_width)
        x = graph.linear_norm(inner, x, *output, _norm(model, f"{block}.output"))
    return x


def _embeddings(model: Architecture) -> Embeddings:
    positions = model.weight("embeddings.position_embeddings.weight", -1, model.width)
    segments = "embeddings.token_type_embeddings.weight"
    if segments in model.weights:
        # Every input is one segment: add its vector to every position's.
        positions = positions + model.weight(segments, -1, model.width)[0]
    words = model.weight("embeddings.word_embeddings.weight", -1, model.width)
    return Embeddings(words, positions, model.padding_id, _norm(model, "embeddings"))


def _norm(model: Architecture, block: str) -> Norm:
    name = f"{block}.LayerNorm"
    weight, bias = (model.weight(f"{name}.{part}", model.width) for part in ("weight", "bias"))
    return Norm(name, weight, bias, model.epsilon)


def _position_bias(graph: Graph, model: Architecture, max_tokens: int) -> str | None:
    """MPNet's relative position bias [1, heads, S, S]; None for other families."""
    if model.position_bias is None:
        return None
    table = relative_position_bias(model.position_bias, max_tokens)[None]  # [1, heads, P, P]
    rows = graph.first(graph.weight("distance.bias", table), "distance.rows", axis=2)
    return graph.first(rows, "distance.columns", axis=3)


def _projections(model: Architecture, block: str) -> tuple[Array, Array]:
    """Query, key and value side by side, as the fused Attention takes them: [H, 3H] and [3H]."""
    parts = [f"{block}.{part}" for part in ("query", "key", "value")]
    matrices = [model.weight(f"{part}.weight", model.width, model.width).T for part in parts]
    biases = [model.weight(f"{part}.bias", model.width) for part in parts]
    return np.concatenate(matrices, axis=1), np.concatenate(biases)
