"""A backbone's safetensors to one ONNX graph of fused operators. No torch, no optimiser pass."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from safetensors import SafetensorError
from safetensors.numpy import load_file

from model_store import LatteMixError
from training.backbones import Checkpoint
from training.backbones.words import TABLE
from training.head import Head

OPSET = 17
FUSED = "com.microsoft"

Tensors = Mapping[str, NDArray[Any]]


class ExportError(LatteMixError):
    """A backbone and a head cannot be made into a graph."""


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
    """Refuse a backbone that cannot be exported."""
    config = checkpoint.config
    family = config["model_type"]
    if family not in _FAMILIES:
        raise ExportError(
            f"{checkpoint.name} is of the family {family!r}, which cannot be exported yet: "
            f"{', '.join(_FAMILIES)} can."
        )
    if checkpoint.is_static:
        return
    activation = config.get("hidden_act")
    if activation != "gelu":
        raise ExportError(f"Activation {activation!r} cannot be exported yet: gelu can.")
    if config.get("position_embedding_type", "absolute") != "absolute":
        raise ExportError("Only absolute position embeddings can be exported yet.")


def build(checkpoint: Checkpoint, head: Head) -> onnx.ModelProto:
    """Return the graph `input_ids, attention_mask, pool -> mixture` of a backbone and a head."""
    check(checkpoint)
    if head.spec.model != "categorical":
        raise ExportError(
            f"This head is of the {head.spec.model} model, a baseline for measuring: only the "
            "categorical one gives mixtures to serve."
        )
    backbone = _FAMILIES[checkpoint.config["model_type"]]
    try:
        weights = load_file(checkpoint.weights)
    except (OSError, SafetensorError, ValueError) as error:
        raise ExportError(f"{checkpoint.weights} is damaged or unreadable: {error}.") from error
    graph = Graph()
    try:
        tokens = backbone(graph, checkpoint.config, weights, head.spec.backbone.layer)
    except KeyError as error:
        raise ExportError(
            f"{checkpoint.name}: {error.args[0]!r} is missing from its weights or its config."
        ) from error
    mixture = _head(graph, head, tokens)
    return _model(graph, mixture, head)


def _bert(graph: Graph, config: Mapping[str, Any], weights: Tensors, layers: int) -> str:
    """Token vectors [B, S, H] of BERT's hidden layer `layers`."""
    if layers > config["num_hidden_layers"]:
        raise ExportError(f"Layer {layers} was asked for, of {config['num_hidden_layers']}.")
    weights = {_modern(name): tensor for name, tensor in weights.items()}
    epsilon = config["layer_norm_eps"]

    def weight(name: str) -> str:
        return graph.constant(name, weights[name].astype(np.float32))

    def matrix(name: str) -> str:
        return graph.constant(name, weights[name].astype(np.float32).T)  # [out, in] -> [in, out]

    def residual(x: str, skip: str, block: str) -> str:
        """LayerNorm(x + skip + bias)."""
        norm = f"{block}.LayerNorm"
        scale = [weight(f"{norm}.weight"), weight(f"{norm}.bias"), weight(f"{block}.dense.bias")]
        return graph.fused("SkipLayerNormalization", x, skip, *scale, epsilon=epsilon)

    mask = graph.op("Cast", "attention_mask", to=TensorProto.INT32)
    x = _bert_embeddings(graph, weights, epsilon)
    for index in range(layers):
        block = f"encoder.layer.{index}"
        query_key_value = _stack(weights, f"{block}.attention.self")
        attended = graph.fused(
            "Attention",
            x,
            graph.constant(f"{block}.attention.self.weight", query_key_value[0]),
            graph.constant(f"{block}.attention.self.bias", query_key_value[1]),
            mask,
            num_heads=config["num_attention_heads"],
        )
        attended = graph.op("MatMul", attended, matrix(f"{block}.attention.output.dense.weight"))
        x = residual(attended, x, f"{block}.attention.output")
        inner = graph.op("MatMul", x, matrix(f"{block}.intermediate.dense.weight"))
        inner = graph.fused("BiasGelu", inner, weight(f"{block}.intermediate.dense.bias"))
        inner = graph.op("MatMul", inner, matrix(f"{block}.output.dense.weight"))
        x = residual(inner, x, f"{block}.output")
    return x


def _modern(name: str) -> str:
    """Checkpoints with a task head say "bert.…", the oldest LayerNorms "gamma" and "beta"."""
    name = name.removeprefix("bert.")
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace(
        "LayerNorm.beta", "LayerNorm.bias"
    )


def _bert_embeddings(graph: Graph, weights: Tensors, epsilon: float) -> str:
    """LayerNorm(word + position + first segment): the embedding layer, [B, S, H]."""
    positions = weights["embeddings.position_embeddings.weight"]
    segment = weights["embeddings.token_type_embeddings.weight"][0]
    tables = {
        "embeddings.word": weights["embeddings.word_embeddings.weight"],
        # Every input is one segment, so its vector is part of every position's.
        "embeddings.position": positions.astype(np.float32) + segment.astype(np.float32),
        "embeddings.LayerNorm.weight": weights["embeddings.LayerNorm.weight"],
        "embeddings.LayerNorm.bias": weights["embeddings.LayerNorm.bias"],
    }
    word, position, gamma, beta = (
        graph.constant(name, table.astype(np.float32)) for name, table in tables.items()
    )
    ids = graph.op("Cast", "input_ids", to=TensorProto.INT32)
    inputs = (ids, "", word, position, "", gamma, beta)
    return graph.fused("EmbedLayerNormalization", *inputs, outputs=2, epsilon=epsilon)


def _stack(weights: Tensors, block: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Query, key and value side by side, as the fused Attention wants them: [H, 3H] and [3H]."""
    parts = [f"{block}.{part}" for part in ("query", "key", "value")]
    matrices = [weights[f"{part}.weight"].astype(np.float32).T for part in parts]
    biases = [weights[f"{part}.bias"].astype(np.float32) for part in parts]
    return np.concatenate(matrices, axis=1), np.concatenate(biases)


def _static(graph: Graph, config: Mapping[str, Any], weights: Tensors, layers: int) -> str:
    """Token vectors [B, S, H] of a table of word vectors."""
    return graph.op("Gather", graph.constant(TABLE, weights[TABLE]), "input_ids")


_FAMILIES: dict[str, Callable[[Graph, Mapping[str, Any], Tensors, int], str]] = {
    "bert": _bert,
    "static": _static,
}


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
