"""Weights of a dynamically quantized ONNX graph, in float32 and under their Hugging Face names."""

from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import NodeProto, numpy_helper

from lattemix.build.backbones import BackboneError

Weights = dict[str, NDArray[np.float32]]

_SUFFIX = "_quantized"  # onnxruntime's names are X_quantized, X_scale and X_zero_point


def read_weights(path: Path) -> Weights:
    """Return the named weights of an encoder that `onnxruntime.quantize_dynamic` wrote.

    Embeddings, biases and layer norms keep their names in an export; the matrices of linear layers
    do not, and get the name of the bias that is added to their product.
    """
    graph = onnx.load(path).graph
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    weights = {
        name: value
        for name, value in constants.items()
        if name.endswith((".weight", ".bias")) and value.dtype == np.float32
    }
    for name in constants:
        if name.endswith(f".weight{_SUFFIX}"):
            weights[name.removesuffix(_SUFFIX)] = _dequantize(name, constants)
    consumers = {name: node for node in graph.node for name in node.input}
    for node in graph.node:
        if node.op_type == "MatMulInteger" and node.input[1] in constants:
            bias = _bias(node, consumers, weights)
            matrix = _dequantize(node.input[1], constants).T  # a Linear's weight is [out, in]
            weights[bias.removesuffix(".bias") + ".weight"] = np.ascontiguousarray(matrix)
    return weights


def _bias(product: NodeProto, consumers: dict[str, NodeProto], weights: Weights) -> str:
    """Return the name of the bias of a linear layer: the product is cast, scaled, then added to."""
    node = product
    for expected in ("Cast", "Mul", "Add"):
        consumer = consumers.get(node.output[0])
        if consumer is None or consumer.op_type != expected:
            raise BackboneError(
                f"{product.name} is not a quantized linear layer: {node.op_type} is not followed "
                f"by {expected}."
            )
        node = consumer
    for name in node.input:
        if name in weights and name.endswith(".bias"):
            return name
    raise BackboneError(f"{product.name} has no bias to take its name from.")


def _dequantize(name: str, constants: dict[str, NDArray[np.generic]]) -> NDArray[np.float32]:
    base = name.removesuffix(_SUFFIX)
    zero_point = constants[f"{base}_zero_point"].astype(np.int32)
    values = constants[name].astype(np.int32) - zero_point  # a scale per tensor or per column
    return (values * constants[f"{base}_scale"].astype(np.float32)).astype(np.float32)
