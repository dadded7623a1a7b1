"""The ONNX model of a backbone and a head, built from their weights without torch."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import onnx
from onnx import TensorProto, helper
from safetensors import SafetensorError

from lattemix.build.backbones import Checkpoint
from lattemix.build.backbones.words import TABLE
from lattemix.build.families import FAMILIES, Architecture, ExportError, Tensors
from lattemix.build.graph import FUSED, Graph
from lattemix.build.head import Floats, Head
from lattemix.build.transformer import hidden_states

OPSET = 17
MAX_BYTES = 2**31 - 1  # of a protobuf
# Numbers in a stored table of distributions [V, L*C]: 100 MB in int8. Instead of a larger one, the
# graph stores the token vectors and computes their distributions.
MAX_STORED = 100_000_000
_CHUNK = 1024  # tokens whose distributions are computed at once


def check_exportable(checkpoint: Checkpoint) -> None:
    """Raise ExportError if the backbone's family cannot be exported."""
    family = checkpoint.config["model_type"]
    if not checkpoint.is_static and family not in FAMILIES:
        raise ExportError(
            f"{checkpoint.name} is of the family {family!r}, which cannot be exported: only "
            f"{', '.join(FAMILIES)} and static word vectors can."
        )


def build_model(checkpoint: Checkpoint, head: Head, graph: Graph | None = None) -> onnx.ModelProto:
    """Return the model `input_ids, attention_mask, pool -> mixture` of a backbone and a head.

    Args:
        checkpoint: the backbone.
        head: the head, trained on that backbone.
        graph: an empty graph of the wanted precision; default: float32.
    """
    graph = graph or Graph()
    check_exportable(checkpoint)
    if head.spec.model != "categorical":
        raise ExportError(
            f"This head is of the {head.spec.model} model, a baseline for evaluation: only "
            "categorical heads can be served."
        )
    with complete(checkpoint):
        if stores_distributions(checkpoint, head):
            chunks = _vocabulary_distributions(checkpoint, head)
            tokens = graph.look_up_distributions("distributions", chunks, "input_ids")
        else:
            tokens = _distributions(graph, head, _token_vectors(graph, checkpoint, head))
    latent = np.array([0, 0, head.spec.latent_dims, head.spec.classes])
    mixture = graph.op("MatMul", "pool", tokens)  # [B, G, L*C]
    mixture = graph.op("Reshape", mixture, graph.constant("mixture.shape", latent))
    pool = helper.make_tensor_value_info("pool", TensorProto.FLOAT, ["B", "G", "S"])
    shape = ("B", "G", head.spec.latent_dims, head.spec.classes)
    return to_model(graph, mixture, "mixture", shape, [pool])


def stores_distributions(checkpoint: Checkpoint, head: Head) -> bool:
    """Whether the model is a table of the tokens' distributions, computed beforehand."""
    if not checkpoint.is_static:
        return False
    width = head.spec.latent_dims * head.spec.classes
    return int(checkpoint.config["vocab_size"]) * width <= MAX_STORED


def _vocabulary_distributions(checkpoint: Checkpoint, head: Head) -> Iterator[Floats]:
    """Yield the distributions of all rows of a static backbone in chunks: [N, L, C]."""
    table = read_weights(checkpoint)[TABLE]
    _check_width(checkpoint, head, table.shape[-1])
    for start in range(0, len(table), _CHUNK):
        distributions = head.distributions(table[start : start + _CHUNK].astype(np.float32))
        if not np.isfinite(distributions).all():
            raise ExportError(
                f"The distributions of the tokens {start:,} to {start + len(distributions) - 1:,} "
                f"of {checkpoint.name} are not finite: the head or its backbone is damaged."
            )
        yield distributions


@contextmanager
def complete(checkpoint: Checkpoint) -> Iterator[None]:
    """Raise ExportError if a tensor or a config field of the backbone is missing."""
    try:
        yield
    except KeyError as error:
        raise ExportError(
            f"{checkpoint.name}: {error.args[0]!r} is missing from its weights or its config."
        ) from error


def read_weights(checkpoint: Checkpoint) -> Tensors:
    """Return the backbone's tensors; raise ExportError if they cannot be read."""
    try:
        return checkpoint.tensors()
    except (OSError, SafetensorError, ValueError) as error:
        raise ExportError(
            f"The weights in {checkpoint.directory} are damaged or unreadable: {error}."
        ) from error


def read_transformer(checkpoint: Checkpoint) -> Architecture:
    """Return the backbone in BERT's terms."""
    return FAMILIES[checkpoint.config["model_type"]](checkpoint.config, read_weights(checkpoint))


def _token_vectors(graph: Graph, checkpoint: Checkpoint, head: Head) -> str:
    """The token vectors [B, S, H] that the head reads."""
    if checkpoint.is_static:
        table = read_weights(checkpoint)[TABLE]
        _check_width(checkpoint, head, table.shape[-1])
        return graph.look_up(TABLE, table, "input_ids")
    model, layer = read_transformer(checkpoint), head.spec.backbone.layer
    if layer > model.layers:
        raise ExportError(f"The head reads layer {layer}, but there are {model.layers} layers.")
    _check_width(checkpoint, head, model.width)
    return hidden_states(graph, model, layer, head.spec.max_tokens)


def _check_width(checkpoint: Checkpoint, head: Head, width: int) -> None:
    expected = head.spec.backbone.hidden_size
    if width != expected:
        raise ExportError(
            f"{checkpoint.name} has vectors of {width} values, but the head reads {expected}."
        )


def _distributions(graph: Graph, head: Head, tokens: str) -> str:
    """Token vectors [B, S, H] to token distributions [B, S, L*C]."""
    spec = head.spec
    x = _normalise(graph, head, tokens)
    layers = head.encoder
    if spec.normalisation == "centre":  # W (x - mean) + b = W x + (b - W mean)
        (first, first_bias), *rest = layers
        layers = [(first, first_bias - first @ head.tensors["mean"]), *rest]
    for index, (matrix, bias) in enumerate(layers):
        last = index == len(layers) - 1
        # Dividing the logits by the temperature is the same as dividing the last layer's weights.
        scale = np.float32(1 / spec.temperature) if last else np.float32(1)
        x = graph.linear(x, f"head.{index}", matrix.T * scale, bias * scale)
        x = graph.widen(x) if last else graph.op("Relu", x)
    latent = np.array([0, 0, spec.latent_dims, spec.classes])
    latent_shape = graph.constant("head.latent_shape", latent)
    flat = np.array([0, 0, spec.latent_dims * spec.classes])
    flat_shape = graph.constant("head.flat_shape", flat)
    x = graph.op("Reshape", x, latent_shape)
    x = graph.op("Softmax", x, axis=-1)  # [B, S, L, C]
    return graph.op("Reshape", x, flat_shape)  # [B, S, L*C]


def _normalise(graph: Graph, head: Head, tokens: str) -> str:
    """`head.normalise` as operators; centring alone is folded into the weights instead.

    In float32: the squares of large values would overflow in float16.
    """
    how = head.spec.normalisation
    if not how.endswith("equal-norm"):
        return tokens
    tokens = graph.widen(tokens)
    if how.startswith("centre"):
        tokens = graph.op("Sub", tokens, graph.constant("head.mean", head.tensors["mean"]))
    norm = graph.op("ReduceL2", tokens, axes=[-1], keepdims=1)
    tiny = graph.constant("head.tiny", np.float32(1e-12))
    width = graph.constant("head.width", np.float32(np.sqrt(head.spec.backbone.hidden_size)))
    directions = graph.op("Div", tokens, graph.op("Max", norm, tiny))
    return graph.narrow(graph.op("Mul", directions, width))


def to_model(
    graph: Graph,
    output: str,
    name: str,
    shape: Sequence[str | int],
    inputs: Sequence[onnx.ValueInfoProto] = (),
) -> onnx.ModelProto:
    """Return the finished graph as a model.

    Args:
        graph: the graph, which reads `input_ids` and `attention_mask`, [B, S] each.
        output: the graph's name of its result, in float32.
        name: the result's name in the model.
        shape: the result's shape.
        inputs: further inputs.
    """
    size = sum(len(tensor.raw_data) for tensor in graph.initializers)
    if size > MAX_BYTES:
        raise ExportError(
            f"The graph has {size / 1e9:.1f} GB in {graph.precision}, but one ONNX file holds at "
            "most 2.1 GB: export it in fp16, or read a lower layer."
        )
    info = helper.make_tensor_value_info
    graph.nodes.append(helper.make_node("Identity", [output], [name], name=name))
    ids, mask = (info(n, TensorProto.INT64, ["B", "S"]) for n in ("input_ids", "attention_mask"))
    proto = helper.make_graph(
        graph.nodes,
        "latte-mix",
        inputs=[ids, mask, *inputs],
        outputs=[info(name, TensorProto.FLOAT, shape)],
        initializer=graph.initializers,
    )
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(FUSED, 1)]
    return helper.make_model(proto, opset_imports=opsets, ir_version=8, producer_name="lattemix")
