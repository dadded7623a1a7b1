import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from lattemix.build import assemble as module
from lattemix.build.activations import measure_activations
from lattemix.build.assemble import assemble
from lattemix.build.backbones import BackboneError, Checkpoint, words
from lattemix.build.families import ExportError
from lattemix.build.graph import Quantisation
from lattemix.build.head import Head
from lattemix.encoder import Encoder
from lattemix.errors import EmptyTextError
from model_store import ArtifactError, Store, StoreError
from model_store.calibration import CALIBRATION, Calibration, calibration_of, read
from model_store.store import HEADS
from tests.tiny import random_head
from training.backbones import load


@pytest.fixture
def backbone_copy(backbone: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(backbone, tmp_path / "backbone"))


@pytest.fixture
def new_store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def test_manifest_records_the_origin(store: Store, head: Head) -> None:
    manifest = store.open("tiny").manifest
    assert manifest.backbone == head.spec.backbone
    assert manifest.head.sha256 == head.spec.sha256
    assert manifest.head.recipe["steps"] == 30
    assert set(manifest.files) == {"model.onnx", "tokenizer.json", "centre.npy", "latents.json"}
    assert manifest.parity is not None


def test_reports_progress(head_directory: Path, backbone: Path, new_store: Store) -> None:
    messages: list[str] = []
    assemble(head_directory, new_store, "m", str(backbone), messages.append)
    assert messages == [
        f"Opening the backbone {backbone}",
        "Building the graph in fp32",
        "Checking it against the reference",
    ]


def test_rejects_other_weights_than_the_heads(
    backbone_copy: Path, head_directory: Path, new_store: Store
) -> None:
    weights = load_file(backbone_copy / "model.safetensors")
    weights["embeddings.LayerNorm.bias"] += 1
    save_file(weights, backbone_copy / "model.safetensors")
    with pytest.raises(BackboneError, match=r"The head was trained on tiny-bert.*train a head"):
        assemble(head_directory, new_store, "m", str(backbone_copy))
    assert new_store.entries() == []


def test_checks_the_name_before_the_backbone(head_directory: Path, new_store: Store) -> None:
    with pytest.raises(StoreError, match="'my head' is not a model name"):
        assemble(head_directory, new_store, "my head", "/no/such/backbone")


def test_rejects_max_tokens_over_the_positions(
    backbone_copy: Path, head_directory: Path, new_store: Store
) -> None:
    path = backbone_copy / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"max_position_embeddings": 8}))
    with pytest.raises(BackboneError, match=r"max_tokens is 16, but backbone has 8 positions"):
        assemble(head_directory, new_store, "m", str(backbone_copy))


def test_rejects_descriptions_of_another_head(
    head: Head, head_directory: Path, backbone: Path, new_store: Store, tmp_path: Path
) -> None:
    bias = head.tensors["encoder.0.bias"] + np.float32(1)
    Head(head.spec, {**head.tensors, "encoder.0.bias": bias}).save(tmp_path / "head")
    shutil.copy(head_directory / "latents.json", tmp_path / "head")
    with pytest.raises(ArtifactError, match="describes another head"):
        assemble(tmp_path / "head", new_store, "m", str(backbone))


def test_does_not_publish_a_graph_that_differs_from_the_reference(
    head: Head, backbone: Path, new_store: Store, tmp_path: Path
) -> None:
    bias = np.arange(20, dtype=np.float32) / 2
    Head(head.spec, {**head.tensors, "encoder.0.bias": bias}).save(tmp_path / "head")
    with pytest.raises(ExportError, match=r"The fp32 graph differs .* m:fp32 was not published"):
        assemble(tmp_path / "head", new_store, "m", str(backbone))
    assert list(new_store.root.iterdir()) == []


def test_does_not_publish_a_badly_quantised_graph(
    head_directory: Path, backbone: Path, new_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def coarse(checkpoint: Checkpoint, head: Head) -> dict[str, Quantisation]:
        return {name: Quantisation(1e4, 128) for name in measure_activations(checkpoint, head)}

    monkeypatch.setattr(module, "measure_activations", coarse)
    with pytest.raises(ExportError, match=r"The int8 graph differs .* m:int8 was not published"):
        assemble(head_directory, new_store, "m", str(backbone), precisions=["int8"])
    assert new_store.entries() == []


def test_reports_unwritable_store(head_directory: Path, backbone: Path, new_store: Store) -> None:
    new_store.root.write_text("a file")
    with pytest.raises(StoreError, match="Cannot write to the model store"):
        assemble(head_directory, new_store, "m", str(backbone))


WORDS = ["the", "dog", "runs", "sleeps", ","]
KNOWN = ["the dog runs", "the dog sleeps", "the unknown dog", "the , dog"]
ID_WEIGHTS = {
    "weighted.ids": np.array([0, 5], np.int32),
    "weighted.weights": np.array([0.25, 0], np.float32),
}
UNKNOWN_WEIGHT = {
    "weighted.ids": np.array([5], np.int32),
    "weighted.weights": np.zeros(1, np.float32),
}
RNG = np.random.default_rng(1)
WEIGHER = {
    "weigher.0.weight": RNG.normal(size=(3, 8)).astype(np.float32),
    "weigher.0.bias": np.zeros(3, np.float32),
    "weigher.1.weight": RNG.normal(size=(1, 3)).astype(np.float32),
    "weigher.1.bias": np.zeros(1, np.float32),
}


@pytest.mark.parametrize(
    ("weighting", "tensors"),
    [
        ("uniform", UNKNOWN_WEIGHT),
        ("sif", ID_WEIGHTS),
        ("learned", {**WEIGHER, **UNKNOWN_WEIGHT}),
    ],
)
def test_token_weights_reach_the_artifact(
    tmp_path: Path, new_store: Store, weighting: str, tensors: dict[str, np.ndarray]
) -> None:
    vectors = np.random.default_rng(0).normal(size=(5, 8)).astype(np.float32)
    words.save(WORDS, vectors, tmp_path / "words")
    checkpoint = Checkpoint.read(tmp_path / "words")
    backbone = load(checkpoint, 16)
    head = random_head(
        checkpoint,
        backbone.encode,
        layer=0,
        tensors=tensors,
        probes=KNOWN,
        token_weighting=weighting,
    )
    head.save(tmp_path / "head")
    (artifact,) = assemble(tmp_path / "head", new_store, "static", str(checkpoint.directory))
    assert artifact.manifest.token_weighting == weighting
    encoder = Encoder(artifact, provider="cpu")
    expected = head.mixtures(backbone.encode(KNOWN))
    np.testing.assert_allclose(encoder.encode(KNOWN).mixtures, expected, atol=1e-6)
    with_unknown, without = encoder.encode(["the unknown dog", "the dog"]).mixtures
    np.testing.assert_allclose(with_unknown, without, atol=1e-6)
    with pytest.raises(EmptyTextError, match="Text 2 is empty"):
        encoder.encode(["the dog", "nothing known"])


def test_copies_the_calibration_of_the_head(
    head_directory: Path, backbone: Path, new_store: Store, tmp_path: Path, calibration: Calibration
) -> None:
    directory = Path(shutil.copytree(head_directory, tmp_path / "head"))
    calibration.write(directory / CALIBRATION)
    (artifact,) = assemble(directory, new_store, "m", str(backbone))
    assert calibration_of(artifact) == calibration


def test_rejects_the_calibration_of_another_head(
    head_directory: Path, backbone: Path, new_store: Store, tmp_path: Path, calibration: Calibration
) -> None:
    directory = Path(shutil.copytree(head_directory, tmp_path / "head"))
    calibration.model_copy(update={"head": "ab" * 32}).write(directory / CALIBRATION)
    with pytest.raises(ArtifactError, match="was fitted on the scores of other weights"):
        assemble(directory, new_store, "m", str(backbone))
    assert new_store.entries() == []


@pytest.mark.parametrize("name", ["default", "fast"])
def test_shipped_calibrations_are_of_the_shipped_heads(name: str) -> None:
    head = Head.load(HEADS / name)
    calibration = read(HEADS / name / CALIBRATION, head.spec.sha256)
    assert (calibration.kind, calibration.scale) == ("rating", (0, 5))
    assert calibration.metric == head.spec.recommended_metric
    assert "STS benchmark" in calibration.about
