"""A backbone's safetensors to one ONNX graph of fused operators. No torch, no optimiser pass."""

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from safetensors import SafetensorError
from safetensors.numpy import load_file

from training.backbones import Checkpoint
from training.backbones.words import TABLE
from training.export.families import (
    FAMILIES,
    Architecture,
    ExportError,
    Tensors,
    distance_bias,
)
from training.head import Head

OPSET = 17
FUSED = "com.microsoft"


class Graph:
    """A list of nodes under construction; each operator returns the name of its output."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []

    def constant(self, name: str, value: NDArray[Any] | np.generic) -> str:
        """Store a weight under `name`."""
        self.initializers.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def op(
        self, kind: str, *inputs: str, outputs: int = 1, domain: str = "", **attributes: Any
    ) -> str:
        """Append a node; return its first output's name."""
        name = f"{kind}_{len(self.nodes)}"
        names = [name, *(f"{name}_{i}" for i in range(1, outputs))]
        self.nodes.append(
            helper.make_node(kind, list(inputs), names, name=name, domain=domain, **attributes)
        )
        return name

    def fused(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Append one of ONNX Runtime's own operators."""
        return self.op(kind, *inputs, domain=FUSED, **attributes)


def check(checkpoint: Checkpoint) -> None:
    """Refuse a backbone of a family that cannot be exported."""
    family = checkpoint.config["model_type"]
    if not checkpoint.is_static and family not in FAMILIES:
        raise ExportError(
            f"{checkpoint.name} is of the family {family!r}, which cannot be exported yet: "
            f"{', '.join(FAMILIES)} and static word vectors can."
        )


def build(checkpoint: Checkpoint, head: Head) -> onnx.ModelProto:
    """Return the graph `input_ids, attention_mask, pool -> mixture` of a backbone and a head."""
    check(checkpoint)
    if head.spec.model != "categorical":
        raise ExportError(
            f"This head is of the {head.spec.model} model, a baseline for measuring: only the "
            "categorical one gives mixtures to serve."
        )
    try:
        weights = load_file(checkpoint.weights)
    except (OSError, SafetensorError, ValueError) as error:
        raise ExportError(f"{checkpoint.weights} is damaged or unreadable: {error}.") from error
    graph = Graph()
    try:
        tokens = _tokens(graph, checkpoint, weights, head)
    except KeyError as error:
        raise ExportError(
            f"{checkpoint.name}: {error.args[0]!r} is missing from its weights or its config."
        ) from error
    mixture = _head(graph, head, tokens)
    return _model(graph, mixture, head)


def _tokens(graph: Graph, checkpoint: Checkpoint, weights: Tensors, head: Head) -> str:
    """Token vectors [B, S, H] of the layer that the head reads."""
    width, layers = head.spec.backbone.hidden_size, head.spec.backbone.layer
    if checkpoint.is_static:
        table = weights[TABLE]
        found = table.shape[-1]
        tokens = graph.op("Gather", graph.constant(TABLE, table), "input_ids")
    else:
        encoder = FAMILIES[checkpoint.config["model_type"]](checkpoint.config, weights)
        if layers > encoder.layers:
            raise ExportError(f"Layer {layers} was asked for, of {encoder.layers}.")
        found = encoder.width
        tokens = _encoder(graph, encoder, layers, head.spec.max_tokens)
    if found != width:
        raise ExportError(
            f"{checkpoint.name} gives vectors of {found} values, but the head reads {width}."
        )
    return tokens


def _encoder(graph: Graph, encoder: Architecture, layers: int, max_tokens: int) -> str:
    """Token vectors [B, S, H] of a transformer's hidden layer `layers`."""
    width, inner_width = encoder.width, encoder.inner_width

    def weight(name: str, *shape: int) -> str:
        return graph.constant(name, encoder.get(name, *shape))

    def linear(x: str, block: str, out: int, into: int) -> str:
        """X W, without the bias: that goes into the operator that follows."""
        matrix = encoder.get(f"{block}.weight", out, into).T  # [in, out]
        return graph.op("MatMul", x, graph.constant(f"{block}.weight", matrix))

    def residual(x: str, skip: str, block: str) -> str:
        """LayerNorm(x + skip + bias)."""
        norm = [weight(f"{block}.LayerNorm.{part}", width) for part in ("weight", "bias")]
        bias = weight(f"{block}.dense.bias", width)
        return graph.fused("SkipLayerNormalization", x, skip, *norm, bias, epsilon=encoder.epsilon)

    mask = graph.op("Cast", "attention_mask", to=TensorProto.INT32)
    bias = _distance_bias(graph, encoder, max_tokens)
    x = _embeddings(graph, encoder)
    for index in range(layers):
        block = f"encoder.layer.{index}"
        matrix, offset = _stack(encoder, f"{block}.attention.self")
        attended = graph.fused(
            "Attention",
            x,
            graph.constant(f"{block}.attention.self.weight", matrix),
            graph.constant(f"{block}.attention.self.bias", offset),
            mask,
            *bias,
            num_heads=encoder.heads,
        )
        attended = linear(attended, f"{block}.attention.output.dense", width, width)
        x = residual(attended, x, f"{block}.attention.output")
        inner = linear(x, f"{block}.intermediate.dense", inner_width, width)
        inner_bias = weight(f"{block}.intermediate.dense.bias", inner_width)
        inner = graph.fused("BiasGelu", inner, inner_bias)
        inner = linear(inner, f"{block}.output.dense", width, inner_width)
        x = residual(inner, x, f"{block}.output")
    return x


def _embeddings(graph: Graph, encoder: Architecture) -> str:
    """LayerNorm(word + position + first segment): the embedding layer, [B, S, H]."""
    positions = encoder.get("embeddings.position_embeddings.weight", -1, encoder.width)
    if "embeddings.token_type_embeddings.weight" in encoder.weights:
        # Every input is one segment, so its vector is part of every position's.
        segments = encoder.get("embeddings.token_type_embeddings.weight", -1, encoder.width)
        positions = positions + segments[0]
    words = encoder.get("embeddings.word_embeddings.weight", -1, encoder.width)
    ids = graph.op("Cast", "input_ids", to=TensorProto.INT32)
    inputs = [
        ids,
        "",  # segments
        graph.constant("embeddings.word", words),
        graph.constant("embeddings.position", positions),
        "",  # of segments
        *(
            graph.constant(f"embeddings.LayerNorm.{part}", encoder.get(name, encoder.width))
            for part in ("weight", "bias")
            for name in [f"embeddings.LayerNorm.{part}"]
        ),
    ]
    if encoder.padding_id is not None:
        inputs += ["", _positions(graph, encoder.padding_id)]
    return graph.fused("EmbedLayerNormalization", *inputs, outputs=2, epsilon=encoder.epsilon)


def _positions(graph: Graph, padding_id: int) -> str:
    """RoBERTa's positions [B, S]: tokens that are not padding are counted on from its id."""
    padding = graph.constant("positions.padding", np.int64(padding_id))
    real = graph.op("Not", graph.op("Equal", "input_ids", padding))
    real = graph.op("Cast", real, to=TensorProto.INT32)
    along = graph.constant("positions.axis", np.int64(1))
    counted = graph.op("Mul", graph.op("CumSum", real, along), real)
    return graph.op("Add", counted, graph.constant("positions.first", np.int32(padding_id)))


def _distance_bias(graph: Graph, encoder: Architecture, max_tokens: int) -> list[str]:
    """Further inputs of every Attention: none, or MPNet's bias [1, heads, S, S]."""
    if encoder.distance_bias is None:
        return []
    table = distance_bias(encoder.distance_bias, max_tokens)[None]  # [1, heads, longest, longest]
    length = graph.op("Shape", "input_ids", start=1, end=2)  # [1]: S
    ends = graph.op("Concat", length, length, axis=0)
    starts = graph.constant("distance.starts", np.zeros(2, np.int64))
    axes = graph.constant("distance.axes", np.array([2, 3]))
    bias = graph.op("Slice", graph.constant("distance.bias", table), starts, ends, axes)
    return ["", bias]  # after the past, which an encoder has none of


def _stack(encoder: Architecture, block: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Query, key and value side by side, as the fused Attention wants them: [H, 3H] and [3H]."""
    width = encoder.width
    parts = [f"{block}.{part}" for part in ("query", "key", "value")]
    matrices = [encoder.get(f"{part}.weight", width, width).T for part in parts]
    biases = [encoder.get(f"{part}.bias", width) for part in parts]
    return np.concatenate(matrices, axis=1), np.concatenate(biases)


def _head(graph: Graph, head: Head, tokens: str) -> str:
    """From token vectors [B, S, H] to pooled mixtures [B, G, L, C]."""
    spec = head.spec
    x = _normalise(graph, head, tokens)
    layers = head.encoder
    if spec.normalisation == "centre":  # W (x - mean) + b = W x + (b - W mean)
        (first, first_bias), *rest = layers
        layers = [(first, first_bias - first @ head.tensors["mean"]), *rest]
    for index, (matrix, bias) in enumerate(layers):
        last = index == len(layers) - 1
        # The temperature divides the logits, so it divides what makes them.
        scale = np.float32(1 / spec.temperature) if last else np.float32(1)
        x = graph.op("MatMul", x, graph.constant(f"head.{index}.weight", matrix.T * scale))
        x = graph.op("Add", x, graph.constant(f"head.{index}.bias", bias * scale))
        x = x if last else graph.op("Relu", x)
    latent = np.array([0, 0, spec.latent_dims, spec.classes])
    latent_shape = graph.constant("head.latent_shape", latent)
    flat_shape = graph.constant(
        "head.flat_shape", np.array([0, 0, spec.latent_dims * spec.classes])
    )
    x = graph.op("Reshape", x, latent_shape)
    x = graph.op("Softmax", x, axis=-1)  # [B, S, L, C]
    x = graph.op("Reshape", x, flat_shape)  # [B, S, L*C]
    x = graph.op("MatMul", "pool", x)  # [B, G, L*C]
    return graph.op("Reshape", x, latent_shape)


def _normalise(graph: Graph, head: Head, tokens: str) -> str:
    """What of the head's normalisation (`training.head.normalise`) its weights cannot absorb."""
    if head.spec.normalisation != "centre-equal-norm":
        return tokens
    centred = graph.op("Sub", tokens, graph.constant("head.mean", head.tensors["mean"]))
    norm = graph.op("ReduceL2", centred, axes=[-1], keepdims=1)
    tiny = graph.constant("head.tiny", np.float32(1e-12))
    width = graph.constant("head.width", np.float32(np.sqrt(head.spec.backbone.hidden_size)))
    return graph.op("Mul", graph.op("Div", centred, graph.op("Max", norm, tiny)), width)


def _model(graph: Graph, mixture: str, head: Head) -> onnx.ModelProto:
    spec = head.spec
    info = helper.make_tensor_value_info
    graph.nodes.append(helper.make_node("Identity", [mixture], ["mixture"], name="mixture"))
    proto = helper.make_graph(
        graph.nodes,
        "latte-mix",
        inputs=[
            info("input_ids", TensorProto.INT64, ["B", "S"]),
            info("attention_mask", TensorProto.INT64, ["B", "S"]),
            info("pool", TensorProto.FLOAT, ["B", "G", "S"]),
        ],
        outputs=[info("mixture", TensorProto.FLOAT, ["B", "G", spec.latent_dims, spec.classes])],
        initializer=graph.initializers,
    )
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(FUSED, 1)]
    return helper.make_model(proto, opset_imports=opsets, ir_version=8, producer_name="lattemix")
