"""Graphs of the tiny model in every precision."""

import dataclasses
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from lattemix.build.activations import measure_activations
from lattemix.build.assemble import assemble, build_precision
from lattemix.build.backbones import Checkpoint
from lattemix.build.float16 import Float16Graph
from lattemix.build.graph import Int8Graph, to_bytes
from lattemix.build.head import Head
from lattemix.build.network import build_model
from lattemix.encoder import Encoder
from model_store import Artifact, Precision, Store
from tests.tiny import SENTENCES

PRECISIONS: tuple[Precision, ...] = ("fp32", "fp16", "int8")
IDS = np.array([[2, 5, 6, 3, 0], [2, 7, 8, 9, 3]])
MASK = np.array([[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]])
POOL = (MASK / MASK.sum(axis=1, keepdims=True)).astype(np.float32)[:, None]
FEEDS = {"input_ids": IDS, "attention_mask": MASK, "pool": POOL}


@pytest.fixture(scope="module")
def artifacts(
    head_directory: Path, backbone: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Artifact]:
    store = Store(tmp_path_factory.mktemp("precisions"))
    published = assemble(head_directory, store, "m", str(backbone), precisions=PRECISIONS)
    return {artifact.manifest.precision: artifact for artifact in published}


@pytest.mark.parametrize(
    ("precision", "tolerance"), [("fp32", 1e-5), ("fp16", 5e-3), ("int8", 0.1)]
)
def test_mixtures_are_close_to_the_reference(
    artifacts: dict[str, Artifact], head: Head, precision: str, tolerance: float
) -> None:
    parity = artifacts[precision].manifest.parity
    assert parity is not None
    assert parity.probes == len(head.spec.probes)
    assert parity.largest_difference < tolerance
    assert parity.rank_agreement > 0.97


@pytest.mark.parametrize("precision", PRECISIONS)
def test_mixtures_are_distributions(artifacts: dict[str, Artifact], precision: str) -> None:
    mixtures = Encoder(artifacts[precision], provider="cpu").encode(SENTENCES).mixtures
    assert mixtures.dtype == np.float32
    np.testing.assert_allclose(mixtures.sum(axis=-1), 1, atol=1e-5)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_result_is_the_same_at_every_optimisation_level(
    artifacts: dict[str, Artifact], precision: str
) -> None:
    path = artifacts[precision].model
    onnx.checker.check_model(onnx.load(path), full_check=False)
    expected = Encoder(artifacts[precision], provider="cpu")._session.run(IDS, MASK, POOL)
    # The optimiser may remove pairs of casts, and the rounding with them.
    tolerance = 2e-3 if precision == "fp16" else 1e-5
    for level in (
        ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
        ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
        ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
        ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
    ):
        options = ort.SessionOptions()
        options.graph_optimization_level = level
        options.log_severity_level = 3
        session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        (mixtures,) = session.run(None, FEEDS)
        np.testing.assert_allclose(mixtures, expected, atol=tolerance)


def test_matrices_are_stored_in_the_type_of_the_precision(artifacts: dict[str, Artifact]) -> None:
    for precision, kind in (
        ("fp32", onnx.TensorProto.FLOAT),
        ("fp16", onnx.TensorProto.FLOAT16),
        ("int8", onnx.TensorProto.INT8),
    ):
        graph = onnx.load(artifacts[precision].model).graph
        matrices = [t for t in graph.initializer if t.name.endswith("dense.weight")]
        assert {tensor.data_type for tensor in matrices} == {kind}


@pytest.mark.parametrize("precision", PRECISIONS)
def test_build_is_deterministic(checkpoint: Checkpoint, head: Head, precision: Precision) -> None:
    first, second = (
        build_precision(checkpoint, head, precision).SerializeToString(deterministic=True)
        for _ in range(2)
    )
    assert first == second


def test_float16_does_not_overflow_on_large_activations(checkpoint: Checkpoint, head: Head) -> None:
    shifted = {**head.tensors, "mean": head.tensors["mean"] + np.float32(1e6)}  # over 65504
    model = build_model(checkpoint, dataclasses.replace(head, tensors=shifted), Float16Graph())
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (mixtures,) = session.run(None, FEEDS)
    assert np.isfinite(mixtures).all()


def test_unmeasured_products_stay_in_float32(checkpoint: Checkpoint, head: Head) -> None:
    quantisations = measure_activations(checkpoint, head)
    unmeasured = {"encoder.layer.0.attention.self", "encoder.layer.1.output.dense"}
    measured = {name: q for name, q in quantisations.items() if name not in unmeasured}
    model = build_model(checkpoint, head, Int8Graph(measured))
    kinds = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    in_float = {name for name in quantisations if kinds[f"{name}.weight"] == onnx.TensorProto.FLOAT}
    assert in_float == unmeasured


@pytest.mark.parametrize("classes", [2, 5, 20, 200, 300])
def test_bytes_of_distributions_sum_to_255(classes: int) -> None:
    logits = np.random.default_rng(classes).normal(0, 3, (50, 7, classes))
    odds = np.exp(logits).astype(np.float32)
    distributions = odds / odds.sum(axis=-1, keepdims=True)
    numerators = to_bytes(distributions)
    assert numerators.dtype == np.uint8
    assert (numerators.sum(axis=-1, dtype=np.int64) == 255).all()
    assert np.abs(numerators / 255 - distributions).max() < 1 / 255


def test_bytes_of_even_and_certain_distributions_are_exact() -> None:
    certain = np.array([0, 1, 0], np.float32)
    np.testing.assert_array_equal(to_bytes(certain), [0, 255, 0])
    np.testing.assert_array_equal(to_bytes(np.full(3, 1 / 3, np.float32)), [85, 85, 85])
    np.testing.assert_array_equal(to_bytes(np.full(2, 0.5, np.float32)), [128, 127])
