from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import quantize_dynamic

from lattemix.build.backbones import BackboneError
from training.paper.carriers.quantized import read_weights

MATRIX = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)  # [in, out]
BIAS = np.array([1, 2, 3], np.float32)


def quantized(directory: Path, bias: str = "bert.layer.0.dense.bias") -> Path:
    """Write a linear layer that has lost the name of its matrix, and quantize it."""
    nodes = [
        helper.make_node("MatMul", ["x", "onnx::MatMul_7"], ["product"], name="product"),
        helper.make_node("Add", [bias, "product"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "linear",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 5])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 3])],
        [numpy_helper.from_array(MATRIX, "onnx::MatMul_7"), numpy_helper.from_array(BIAS, bias)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, directory / "float.onnx")
    quantize_dynamic(directory / "float.onnx", directory / "int8.onnx")
    return directory / "int8.onnx"


def test_names_a_matrix_by_its_bias_and_transposes_it(tmp_path: Path) -> None:
    weights = read_weights(quantized(tmp_path))
    assert set(weights) == {"bert.layer.0.dense.weight", "bert.layer.0.dense.bias"}
    step = 2 * np.abs(MATRIX).max() / 254
    np.testing.assert_allclose(weights["bert.layer.0.dense.weight"], MATRIX.T, atol=step)
    np.testing.assert_array_equal(weights["bert.layer.0.dense.bias"], BIAS)


def test_subtracts_the_zero_point(tmp_path: Path) -> None:
    path = quantized(tmp_path)
    model = onnx.load(path)
    name = "bert.words.weight"
    values = {
        f"{name}_quantized": np.array([[130, 126]], np.uint8),
        f"{name}_scale": np.float32(0.5),
        f"{name}_zero_point": np.uint8(128),
    }
    model.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(value), key) for key, value in values.items()
    )
    onnx.save(model, path)
    np.testing.assert_array_equal(read_weights(path)[name], [[1, -1]])


def test_rejects_a_matrix_without_a_named_bias(tmp_path: Path) -> None:
    with pytest.raises(BackboneError, match="no bias"):
        read_weights(quantized(tmp_path, bias="anonymous"))
