import dataclasses
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from lattemix.build import assemble as assembly
from lattemix.build import calibration
from lattemix.build.arithmetic import Arithmetic, Bytes, Half, Range
from lattemix.build.assemble import assemble
from lattemix.build.backbones import Checkpoint
from lattemix.build.build import build
from lattemix.build.calibration import best_range, calibrate, sentences
from lattemix.build.families import ExportError
from lattemix.build.head import Head, HeadSpec
from lattemix.encoder import Encoder
from model_store import Artifact, Precision, Store
from tests.conftest import SENTENCES

PRECISIONS: tuple[Precision, ...] = ("fp32", "fp16", "int8")


@pytest.fixture(scope="module")
def models(
    head_directory: Path, backbone: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Artifact]:
    store = Store(tmp_path_factory.mktemp("precisions"))
    made = assemble(head_directory, store, "m", str(backbone), precisions=PRECISIONS)
    return {artifact.manifest.precision: artifact for artifact in made}


@pytest.mark.parametrize(("precision", "most"), [("fp32", 1e-5), ("fp16", 5e-3), ("int8", 0.1)])
def test_every_precision_is_near_the_reference(
    models: dict[str, Artifact], head: Head, precision: str, most: float
) -> None:
    parity = models[precision].manifest.parity
    assert parity is not None
    assert parity.probes == len(head.spec.probes)
    assert parity.largest_difference < most
    assert parity.rank_agreement > 0.97


@pytest.mark.parametrize("precision", PRECISIONS)
def test_an_answer_does_not_depend_on_its_batch(
    models: dict[str, Artifact], precision: str
) -> None:
    encoder = Encoder(models[precision], provider="cpu")
    texts = [*SENTENCES, "dog", "the " * 40]
    together = encoder.encode(texts).mixtures
    np.testing.assert_allclose(encoder.encode(texts[::-1]).mixtures[::-1], together, atol=1e-5)
    for text, mixture in zip(texts, together, strict=True):
        np.testing.assert_allclose(encoder.encode([text]).mixtures[0], mixture, atol=1e-5)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_mixtures_are_distributions_in_every_precision(
    models: dict[str, Artifact], precision: str
) -> None:
    mixtures = Encoder(models[precision], provider="cpu").encode(SENTENCES).mixtures
    assert mixtures.dtype == np.float32
    np.testing.assert_allclose(mixtures.sum(axis=-1), 1, atol=1e-5)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(
    "level",
    [
        ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
        ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
        ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
        ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
    ],
)
def test_the_graph_is_valid_and_the_same_at_every_level_of_optimisation(
    models: dict[str, Artifact], precision: str, level: ort.GraphOptimizationLevel
) -> None:
    path = models[precision].model
    onnx.checker.check_model(onnx.load(path), full_check=False)
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    options.log_severity_level = 3
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    ids = np.array([[2, 5, 6, 3, 0], [2, 7, 8, 9, 3]])
    mask = np.array([[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]])
    pool = (mask / mask.sum(axis=1, keepdims=True)).astype(np.float32)[:, None]
    feeds = {"input_ids": ids, "attention_mask": mask, "pool": pool}
    (found,) = session.run(None, feeds)
    encoder = Encoder(models[precision], provider="cpu")
    # Casts that cancel out are rounding that an optimiser may leave out.
    most = 2e-3 if precision == "fp16" else 1e-5
    np.testing.assert_allclose(found, encoder._session.run(ids, mask, pool), atol=most)


def test_what_is_stored_is_small(models: dict[str, Artifact]) -> None:
    kinds = {
        precision: {tensor.data_type for tensor in onnx.load(artifact.model).graph.initializer}
        for precision, artifact in models.items()
    }
    assert onnx.TensorProto.FLOAT16 in kinds["fp16"]
    assert onnx.TensorProto.INT8 in kinds["int8"]
    assert kinds["fp32"] <= {onnx.TensorProto.FLOAT, onnx.TensorProto.INT64}
    for precision, kind in (("fp16", onnx.TensorProto.FLOAT16), ("int8", onnx.TensorProto.INT8)):
        graph = onnx.load(models[precision].model).graph
        matrices = [t for t in graph.initializer if t.name.endswith("dense.weight")]
        assert {tensor.data_type for tensor in matrices} == {kind}


@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_bytes_are_the_same_every_time(
    checkpoint: Checkpoint, head: Head, precision: Precision
) -> None:
    first, second = (
        assembly._build(checkpoint, head, precision).SerializeToString(deterministic=True)
        for _ in range(2)
    )
    assert first == second


def test_float16_stays_finite_where_its_inputs_are_extreme(
    checkpoint: Checkpoint, head: Head
) -> None:
    """A backbone whose residual stream is beyond what float16 holds."""
    wild = {**head.tensors, "mean": head.tensors["mean"] + np.float32(1e6)}
    model = build(checkpoint, dataclasses.replace(head, tensors=wild), Half)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    ids = np.array([[2, 5, 6, 3]])
    pool = np.full((1, 1, 4), 0.25, np.float32)
    feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids), "pool": pool}
    (found,) = session.run(None, feeds)
    assert np.isfinite(found).all()


def test_rare_large_values_are_cut_off_if_that_loses_less() -> None:
    rng = np.random.default_rng(0)
    usual = rng.uniform(-1, 1, 99_000).astype(np.float32)
    assert best_range(usual).scale * 255 == pytest.approx(2, rel=0.01)
    found = best_range(np.append(usual, np.float32(1.2)))
    assert found.scale * (255 - found.zero) < 1.1  # the end that has it
    assert found.scale * found.zero == pytest.approx(1, rel=0.02)  # and not the other


@pytest.mark.parametrize("values", [[0, 0], [3, 7], [-5, -1]])
def test_zero_is_always_a_byte(values: list[float]) -> None:
    found = best_range(np.array(values, np.float32))
    assert found.scale > 0
    assert 0 <= found.zero <= 255
    restored = (np.arange(256) - found.zero) * found.scale
    assert 0 in restored
    assert restored.min() <= min(values) * 0.25
    assert restored.max() >= max(values) * 0.25


PRODUCTS = {
    "head.0",
    *(
        f"encoder.layer.{layer}.{product}"
        for layer in (0, 1)
        for product in (
            "attention.self",
            "attention.output.dense",
            "intermediate.dense",
            "output.dense",
        )
    ),
}


def test_every_product_is_calibrated(checkpoint: Checkpoint, head: Head) -> None:
    assert calibrate(checkpoint, head).keys() == PRODUCTS


def test_channels_have_scales_of_their_own_where_that_loses_less() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(400, 24)).astype(np.float32)
    matrix = rng.normal(size=(24, 32)).astype(np.float32)
    even = calibration._range_of(values, matrix)
    assert even is not None
    assert even.channels is None
    values[:, 3] *= 40  # the same channel in every token, and of no more weight in the product
    matrix[3] /= 40
    uneven = calibration._range_of(values, matrix)
    assert uneven is not None
    assert uneven.channels is not None
    assert uneven.channels[3] > 5 * np.median(uneven.channels)


def test_a_product_that_loses_too_much_stays_in_float(
    checkpoint: Checkpoint, head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(400, 24)).astype(np.float32)
    values[::20] *= 1000  # now and then a token, in every channel: nothing can be scaled away
    matrix = rng.normal(size=(24, 32)).astype(np.float32)
    assert calibration._range_of(values, matrix) is None
    ranges = calibrate(checkpoint, head)
    left = {"encoder.layer.0.attention.self", "encoder.layer.1.output.dense"}
    kept = {name: found for name, found in ranges.items() if name not in left}
    model = build(checkpoint, head, lambda graph: Bytes(graph, kept))
    kinds = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    floats = {name for name in PRODUCTS if kinds[f"{name}.weight"] == onnx.TensorProto.FLOAT}
    assert floats == left


def test_the_sentences_to_calibrate_with_are_many_and_different() -> None:
    assert len(sentences()) == len(set(sentences())) > 90
    assert all(text == text.strip() for text in sentences())


def test_a_graph_in_bytes_that_ranks_otherwise_is_not_published(
    head_directory: Path, backbone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def coarse(checkpoint: Checkpoint, head: Head) -> dict[str, Range]:
        return {name: Range(1e4, 128) for name in calibrate(checkpoint, head)}

    monkeypatch.setattr(assembly, "calibrate", coarse)
    store = Store(tmp_path / "store")
    with pytest.raises(ExportError, match=r"The int8 graph differs .* m:int8 was not published"):
        assemble(head_directory, store, "m", str(backbone), precisions=["int8"])
    assert store.entries() == []


def test_a_file_larger_than_onnx_can_hold(
    checkpoint: Checkpoint, head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lattemix.build.build.LARGEST_FILE", 1000)
    with pytest.raises(ExportError, match=r"The graph has .* GB in fp32, and one ONNX file"):
        build(checkpoint, head, Arithmetic)


def test_scores_of_a_precision_and_what_it_loses(head: Head) -> None:
    evaluation = {
        "stsb-dev/js": 85.5,
        "stsb-dev/cosine": 85.0,
        "stsb/js": 80.0,
        "stsb-dev/js@int8": 85.3,
        "stsb-dev/cosine@int8": 85.2,
        "stsb/js@int8": 70.0,
    }
    spec = HeadSpec(**{**head.spec.model_dump(), "evaluation": evaluation})
    assert spec.scores("fp32") == {"stsb-dev/js": 85.5, "stsb-dev/cosine": 85.0, "stsb/js": 80.0}
    assert spec.scores("int8")["stsb-dev/js"] == 85.3
    assert spec.drop("int8") == 0.2  # by dev alone
    assert spec.drop("fp16") is None
    assert spec.drop("fp32") is None
