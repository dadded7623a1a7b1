"""A backbone's safetensors and a head to one ONNX graph. No torch, no optimiser pass."""

from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper
from safetensors import SafetensorError

from lattemix.build.arithmetic import Arithmetic
from lattemix.build.backbones import Checkpoint
from lattemix.build.backbones.words import TABLE
from lattemix.build.encoder import encode
from lattemix.build.families import FAMILIES, ExportError, Tensors
from lattemix.build.graph import FUSED, Graph
from lattemix.build.head import Head

OPSET = 17
LARGEST_FILE = 2**31 - 1  # bytes of a protobuf


def check(checkpoint: Checkpoint) -> None:
    """Refuse a backbone of a family that cannot be exported."""
    family = checkpoint.config["model_type"]
    if not checkpoint.is_static and family not in FAMILIES:
        raise ExportError(
            f"{checkpoint.name} is of the family {family!r}, which cannot be exported yet: "
            f"{', '.join(FAMILIES)} and static word vectors can."
        )


def build(
    checkpoint: Checkpoint, head: Head, arithmetic: Callable[[Graph], Arithmetic] = Arithmetic
) -> onnx.ModelProto:
    """Return the graph `input_ids, attention_mask, pool -> mixture` of a backbone and a head."""
    check(checkpoint)
    if head.spec.model != "categorical":
        raise ExportError(
            f"This head is of the {head.spec.model} model, a baseline for measuring: only the "
            "categorical one gives mixtures to serve."
        )
    try:
        weights = checkpoint.tensors()
    except (OSError, SafetensorError, ValueError) as error:
        raise ExportError(
            f"The weights in {checkpoint.directory} are damaged or unreadable: {error}."
        ) from error
    numbers = arithmetic(Graph())
    try:
        tokens = _tokens(numbers, checkpoint, weights, head)
    except KeyError as error:
        raise ExportError(
            f"{checkpoint.name}: {error.args[0]!r} is missing from its weights or its config."
        ) from error
    mixture = _mixture(numbers, head, tokens)
    size = sum(len(tensor.raw_data) for tensor in numbers.graph.initializers)
    if size > LARGEST_FILE:
        raise ExportError(
            f"The graph has {size / 1e9:.1f} GB in {numbers.precision}, and one ONNX file holds "
            "2.1: export it in fp16, or read a lower layer."
        )
    return _model(numbers.graph, mixture, head)


def _tokens(numbers: Arithmetic, checkpoint: Checkpoint, weights: Tensors, head: Head) -> str:
    """Token vectors [B, S, H] of the layer that the head reads."""
    width, layers = head.spec.backbone.hidden_size, head.spec.backbone.layer
    if checkpoint.is_static:
        table = weights[TABLE]
        found = table.shape[-1]
        tokens = numbers.look_up(TABLE, table, "input_ids")
    else:
        encoder = FAMILIES[checkpoint.config["model_type"]](checkpoint.config, weights)
        if layers > encoder.layers:
            raise ExportError(f"Layer {layers} was asked for, of {encoder.layers}.")
        found = encoder.width
        tokens = encode(numbers, encoder, layers, head.spec.max_tokens)
    if found != width:
        raise ExportError(
            f"{checkpoint.name} gives vectors of {found} values, but the head reads {width}."
        )
    return tokens


def _mixture(numbers: Arithmetic, head: Head, tokens: str) -> str:
    """From token vectors [B, S, H] to pooled mixtures [B, G, L, C]."""
    graph, spec = numbers.graph, head.spec
    x = _normalise(graph, head, tokens)
    layers = head.encoder
    if spec.normalisation == "centre":  # W (x - mean) + b = W x + (b - W mean)
        (first, first_bias), *rest = layers
        layers = [(first, first_bias - first @ head.tensors["mean"]), *rest]
    for index, (matrix, bias) in enumerate(layers):
        last = index == len(layers) - 1
        # The temperature divides the logits, so it divides what makes them.
        scale = np.float32(1 / spec.temperature) if last else np.float32(1)
        x = numbers.narrow(x)
        x = numbers.widen(numbers.linear(x, f"head.{index}", matrix.T * scale, bias * scale))
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
    """What of the head's normalisation (`lattemix.build.head.normalise`) its weights cannot absorb."""
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
