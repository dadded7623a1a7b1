"""Every node of a graph for GPUs has a CUDA kernel, so that ONNX Runtime leaves none to the CPU.

`cuda_kernels.json` has the operators of our graphs from ONNX Runtime's published kernel table, with
the kernels for our opset.
"""

import json
from collections.abc import Iterator
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from lattemix.build.backbones import Checkpoint, words
from lattemix.build.families import FAMILIES
from lattemix.build.float16 import Float16Graph
from lattemix.build.graph import Graph
from lattemix.build.head import Head
from lattemix.build.network import OPSET, build_model, to_model
from tests.lattemix.build.test_transformer import write_backbone
from tests.tiny import random_head
from training.backbones import load

TABLE = json.loads(Path(__file__).with_name("cuda_kernels.json").read_text(encoding="utf-8"))
KERNELS: dict[str, dict[str, Any]] = TABLE["kernels"]
# Arguments in the CPU's memory, by the kernel definitions in onnxruntime/core/providers/cuda. A
# tensor that one node writes to the GPU's memory and another reads from the CPU's is copied.
CPU_INPUTS = {"Slice": {1, 2, 3, 4}, "Reshape": {1}, "CumSum": {1}}
CPU_OUTPUTS = {"Shape"}

GRAPHS = {"fp32": Graph, "fp16": Float16Graph}
on_gpus = pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)


def name_of(data_type: int) -> str:
    return helper.tensor_dtype_to_np_dtype(data_type).name.replace("float32", "float")


def missing_kernels(model: onnx.ModelProto) -> list[str]:
    """Return the nodes without a CUDA kernel, and why; infer all types by the kernel table."""
    graph = model.graph
    types = {tensor.name: name_of(tensor.data_type) for tensor in graph.initializer}
    types |= {value.name: name_of(value.type.tensor_type.elem_type) for value in graph.input}
    missing = []
    for node in graph.node:
        kernel = KERNELS.get(f"{node.domain}.{node.op_type}" if node.domain else node.op_type)
        if kernel is None:
            missing.append(f"{node.name}: no kernel")
            continue
        bound: dict[str, str] = {}
        # Max takes any number of inputs: the last variable is that of all others.
        variables = chain(kernel["inputs"], repeat(kernel["inputs"][-1]))
        for variable, name in zip(variables, node.input, strict=False):
            if name and bound.setdefault(variable, types[name]) != types[name]:
                missing.append(f"{node.name}: {variable} is {bound[variable]} and {types[name]}")
        for variable, kind in bound.items():
            if kind not in kernel["types"].get(variable, [kind]):
                missing.append(f"{node.name}: {variable} is {kind}")
        for variable, name in zip(kernel["outputs"], node.output, strict=False):
            types[name] = bound.get(variable) or output_type(node, kernel["types"][variable])
    assert types[graph.output[0].name] == "float"
    return missing


def output_type(node: onnx.NodeProto, allowed: list[str]) -> str:
    """Type of an output that no input has."""
    if node.op_type == "Cast":
        assert name_of(node.attribute[0].i) in allowed
        return name_of(node.attribute[0].i)
    (only,) = allowed
    return only


def copied_tensors(model: onnx.ModelProto) -> Iterator[str]:
    """Yield the tensors that one node writes to one memory and another reads from the other."""
    on_cpu = {node.output[0] for node in model.graph.node if node.op_type in CPU_OUTPUTS}
    stored = {tensor.name for tensor in model.graph.initializer}  # copied once, at the start
    for node in model.graph.node:
        for index, name in enumerate(node.input):
            read_on_cpu = index in CPU_INPUTS.get(node.op_type, set())
            if name and name not in stored and read_on_cpu != (name in on_cpu):
                yield f"{node.name}: {name}"


def assert_runs_on_cuda(model: onnx.ModelProto) -> None:
    assert missing_kernels(model) == []
    assert list(copied_tensors(model)) == []


def test_table_is_of_our_opset() -> None:
    assert TABLE["opset"] == OPSET


@on_gpus
@pytest.mark.parametrize("family", FAMILIES)
def test_transformer_runs_on_cuda(family: str, graph: type[Graph], tmp_path: Path) -> None:
    checkpoint = write_backbone(family, tmp_path / family)
    head = random_head(checkpoint, load(checkpoint, 32).encode, layer=3, max_tokens=32)
    assert_runs_on_cuda(build_model(checkpoint, head, graph()))


@on_gpus
@pytest.mark.parametrize(
    "fields",
    [
        {"layer": 0},
        {"depth": 3},
        {"normalisation": "none"},
        {"normalisation": "centre"},
        {"normalisation": "equal-norm"},
        {"normalisation": "centre-equal-norm"},
    ],
    ids=str,
)
def test_head_runs_on_cuda(
    checkpoint: Checkpoint, graph: type[Graph], fields: dict[str, Any]
) -> None:
    options = {"layer": 2, **fields}
    head = random_head(checkpoint, load(checkpoint, 16, options["layer"]).encode, **options)
    assert_runs_on_cuda(build_model(checkpoint, head, graph()))


@on_gpus
@pytest.mark.parametrize("limit", [1_000_000, 0], ids=["stored", "computed"])
def test_static_model_runs_on_cuda(
    graph: type[Graph], limit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors = np.random.default_rng(0).normal(size=(2, 8)).astype(np.float32)
    words.save(["dog", "cat"], vectors, tmp_path / "words")
    checkpoint = Checkpoint.read(tmp_path / "words")
    head = random_head(checkpoint, load(checkpoint, 16).encode, layer=0, probes=["dog", "cat"])
    monkeypatch.setattr("lattemix.build.network.MAX_STORED", limit)
    model = build_model(checkpoint, head, graph())
    assert ("Softmax" in {node.op_type for node in model.graph.node}) == (limit == 0)
    assert_runs_on_cuda(model)


def test_finds_nodes_without_a_kernel() -> None:
    graph = Graph()
    graph.fused("BiasGelu", "input_ids", "attention_mask")
    half = graph.constant("half", np.ones((2, 2), np.float16))
    graph.op("MatMul", half, graph.constant("single", np.ones((2, 2), np.float32)))
    graph.op("Max", half, "single")
    graph.op("Hardmax", half)
    total = graph.op("Cast", "input_ids", to=TensorProto.FLOAT)
    assert missing_kernels(to_model(graph, total, "mixture", ["B", "S"])) == [
        "BiasGelu_0: T is int64",
        "MatMul_1: T is float16 and float",
        "Max_2: T is float16 and float",
        "Hardmax_3: no kernel",
    ]


def test_finds_copies() -> None:
    """The length of a Slice is read by the CPU, but a sum is computed on the GPU."""
    graph = Graph()
    length = graph.op("Shape", "input_ids")
    total = graph.op("Add", length, graph.constant("one", np.array([1])))
    graph.op("Slice", "input_ids", total, total)
    model = helper.make_model(helper.make_graph(graph.nodes, "g", [], [], graph.initializers))
    assert list(copied_tensors(model)) == [
        "Add_1: Shape_0",
        "Slice_2: Add_1",
        "Slice_2: Add_1",
    ]


def test_softmax_over_classes_is_in_float32(checkpoint: Checkpoint, head: Head) -> None:
    nodes = {
        node.output[0]: node for node in build_model(checkpoint, head, Float16Graph()).graph.node
    }
    (softmax,) = (node for node in nodes.values() if node.op_type == "Softmax")
    cast = nodes[nodes[softmax.input[0]].input[0]]  # before the Reshape
    assert cast.op_type == "Cast"
    assert cast.attribute[0].i == TensorProto.FLOAT
