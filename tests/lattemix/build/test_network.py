import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from safetensors.numpy import load_file, save_file

from lattemix.build.assemble import assemble
from lattemix.build.backbones import Checkpoint, words
from lattemix.build.families import ExportError
from lattemix.build.head import Head
from lattemix.build.network import build_model, stores_distributions
from lattemix.encoder import Encoder
from model_store import Precision, Store
from tests.tiny import RECIPE, SENTENCES, random_head
from training.backbones import load


@pytest.fixture
def backbone_copy(backbone: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(backbone, tmp_path / "backbone"))


@pytest.mark.parametrize(
    "fields",
    [
        {"layer": 0},
        {"layer": 1},
        {"depth": 3},
        {"normalisation": "none"},
        {"normalisation": "centre"},
        {"temperature": 0.03},
    ],
    ids=str,
)
def test_graph_matches_the_head_reference(
    checkpoint: Checkpoint, tmp_path: Path, fields: dict[str, object]
) -> None:
    options = {"layer": 2, **fields}
    backbone = load(checkpoint, 16, int(str(options["layer"])))
    head = random_head(checkpoint, backbone.encode, **options)  # type: ignore[arg-type]
    head.save(tmp_path / "head")
    (artifact,) = assemble(tmp_path / "head", Store(tmp_path), "m", str(checkpoint.directory))
    mixtures = Encoder(artifact, provider="cpu").encode(SENTENCES).mixtures
    np.testing.assert_allclose(mixtures, head.mixtures(backbone.encode(SENTENCES)), atol=1e-5)
    # Only equal norm needs operators: centring is folded into the weights.
    kinds = {node.op_type for node in onnx.load(artifact.model).graph.node}
    assert ("Sub" in kinds) == (head.spec.normalisation == "centre-equal-norm")


def test_identity_pool_returns_the_distribution_of_each_token(encoder: Encoder) -> None:
    tokens = encoder.tokenizer(["a man is eating"])[0].ids
    ids, mask = np.array([tokens]), np.ones((1, len(tokens)), np.int64)
    per_token = encoder._session.run(ids, mask, np.eye(len(tokens), dtype=np.float32)[None])
    assert per_token.shape == (1, len(tokens), 4, 5)
    mixture = encoder.encode(["a man is eating"]).mixtures[0]
    np.testing.assert_allclose(per_token[0].mean(axis=0), mixture, atol=1e-6)


def test_omits_layers_above_the_head_layer(checkpoint: Checkpoint, head: Head) -> None:
    backbone = head.spec.backbone.model_copy(update={"layer": 1})
    shallow = dataclasses.replace(head, spec=head.spec.model_copy(update={"backbone": backbone}))
    names = {tensor.name for tensor in build_model(checkpoint, shallow).graph.initializer}
    assert any(name.startswith("encoder.layer.0.") for name in names)
    assert not any(name.startswith("encoder.layer.1.") for name in names)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"model_type": "gpt2"},
            "of the family 'gpt2', which cannot be exported: only bert, roberta, xlm-roberta, "
            "camembert, distilbert, mpnet and static word vectors can",
        ),
        ({"hidden_act": "swish"}, "Activation 'swish' cannot be exported"),
        ({"position_embedding_type": "relative_key"}, "Only absolute position embeddings"),
        ({"num_hidden_layers": 1}, "The head reads layer 2, but there are 1 layers"),
        (
            {"intermediate_size": 64},
            r"intermediate\.dense\.weight has shape \(32, 16\), but config\.json implies "
            r"\(64, 16\)",
        ),
        ({"num_attention_heads": 3}, "hidden size 16, which is not a multiple of its 3 heads"),
    ],
)
def test_rejects_config_that_cannot_be_exported(
    backbone_copy: Path, head: Head, changes: dict[str, object], message: str
) -> None:
    path = backbone_copy / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(ExportError, match=message):
        build_model(Checkpoint.read(backbone_copy), head)


def test_rejects_head_of_another_width(checkpoint: Checkpoint, head: Head) -> None:
    backbone = head.spec.backbone.model_copy(update={"hidden_size": 8})
    narrow = dataclasses.replace(head, spec=head.spec.model_copy(update={"backbone": backbone}))
    with pytest.raises(ExportError, match="has vectors of 16 values, but the head reads 8"):
        build_model(checkpoint, narrow)


@pytest.mark.parametrize("model", ["normal", "autoencoder"])
def test_rejects_heads_of_baselines(checkpoint: Checkpoint, head: Head, model: str) -> None:
    baseline = dataclasses.replace(head, spec=head.spec.model_copy(update={"model": model}))
    with pytest.raises(ExportError, match=f"of the {model} model, a baseline"):
        build_model(checkpoint, baseline)


def test_names_a_missing_tensor(backbone_copy: Path, head: Head) -> None:
    weights = load_file(backbone_copy / "model.safetensors")
    del weights["encoder.layer.1.output.dense.weight"]
    save_file(weights, backbone_copy / "model.safetensors")
    with pytest.raises(ExportError, match=r"'encoder\.layer\.1\.output\.dense\.weight' is missing"):
        build_model(Checkpoint.read(backbone_copy), head)


def test_rejects_truncated_weights(backbone_copy: Path, head: Head) -> None:
    weights = backbone_copy / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(ExportError, match="are damaged or unreadable"):
        build_model(Checkpoint.read(backbone_copy), head)


def test_rejects_graph_larger_than_a_protobuf(
    checkpoint: Checkpoint, head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lattemix.build.network.MAX_BYTES", 1000)
    with pytest.raises(ExportError, match=r"The graph has .* GB in fp32, but one ONNX file"):
        build_model(checkpoint, head)


WORDS = ["the", "dog", "runs", "sleeps", "cat"]
TEXTS = ["the dog runs", "the cat sleeps", "dog", "cat cat dog", "runs the"]


@pytest.fixture
def word_vectors(tmp_path: Path) -> Checkpoint:
    vectors = np.random.default_rng(0).normal(size=(5, 8)).astype(np.float32)
    words.save(WORDS, vectors, tmp_path / "words")
    return Checkpoint.read(tmp_path / "words")


@pytest.fixture
def static_head(word_vectors: Checkpoint) -> Head:
    return random_head(word_vectors, load(word_vectors, 16).encode, layer=0, probes=TEXTS)


@pytest.mark.parametrize(
    ("precision", "kinds", "tolerance"),
    [
        ("fp32", {"Gather", "MatMul", "Reshape", "Identity"}, 1e-6),
        ("fp16", {"Gather", "Cast", "MatMul", "Reshape", "Identity"}, 5e-4),
        ("int8", {"Gather", "DequantizeLinear", "MatMul", "Reshape", "Identity"}, 1 / 255),
    ],
)
def test_static_model_looks_distributions_up(
    word_vectors: Checkpoint,
    static_head: Head,
    tmp_path: Path,
    precision: Precision,
    kinds: set[str],
    tolerance: float,
) -> None:
    static_head.save(tmp_path / "head")
    source = str(word_vectors.directory)
    (artifact,) = assemble(tmp_path / "head", Store(tmp_path), "m", source, precisions=[precision])
    assert {node.op_type for node in onnx.load(artifact.model).graph.node} == kinds
    mixtures = Encoder(artifact, provider="cpu").encode(TEXTS).mixtures
    np.testing.assert_allclose(mixtures, static_head.tensors["probes"], atol=tolerance)
    np.testing.assert_allclose(
        mixtures.sum(axis=-1), 1, atol=tolerance if precision == "fp16" else 1e-6
    )


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-6), ("int8", 0.1)])
def test_large_static_model_computes_distributions(
    word_vectors: Checkpoint,
    static_head: Head,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    precision: Precision,
    tolerance: float,
) -> None:
    size = 6 * RECIPE.latent_dims * RECIPE.classes  # five words and the unknown token
    monkeypatch.setattr("lattemix.build.network.MAX_STORED", size)
    assert stores_distributions(word_vectors, static_head)
    monkeypatch.setattr("lattemix.build.network.MAX_STORED", size - 1)
    static_head.save(tmp_path / "head")
    source = str(word_vectors.directory)
    (artifact,) = assemble(tmp_path / "head", Store(tmp_path), "m", source, precisions=[precision])
    assert "Softmax" in {node.op_type for node in onnx.load(artifact.model).graph.node}
    mixtures = Encoder(artifact, provider="cpu").encode(TEXTS).mixtures
    np.testing.assert_allclose(mixtures, static_head.tensors["probes"], atol=tolerance)


def test_static_head_of_another_width_is_rejected(
    word_vectors: Checkpoint, head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in (500, 0):
        monkeypatch.setattr("lattemix.build.network.MAX_STORED", limit)
        with pytest.raises(ExportError, match="has vectors of 8 values, but the head reads 16"):
            build_model(word_vectors, head)


def test_rejects_distributions_that_are_not_finite(
    word_vectors: Checkpoint, static_head: Head
) -> None:
    bias = np.full_like(static_head.tensors["encoder.0.bias"], np.nan)
    damaged = Head(static_head.spec, {**static_head.tensors, "encoder.0.bias": bias})
    with pytest.raises(ExportError, match="distributions of the tokens 0 to 5 of words are not"):
        build_model(word_vectors, damaged)
