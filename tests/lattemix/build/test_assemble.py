import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from safetensors.numpy import load_file, save_file
from transformers import AutoModel

from lattemix.build.assemble import assemble
from lattemix.build.backbones import BackboneError, Checkpoint
from lattemix.build.build import build
from lattemix.build.families import ExportError
from lattemix.build.head import Head, HeadError
from lattemix.encoder import Encoder
from model_store import Store, StoreError
from model_store.manifest import sha256_of
from tests.conftest import SENTENCES
from training.backbones import load
from training.cache import VectorCache
from training.corpus import Corpus
from training.encoding import EncodedCorpus
from training.job import make_head
from training.recipe import Recipe


@pytest.fixture
def own_backbone(backbone: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(backbone, tmp_path / "backbone"))


@pytest.fixture
def own_head(head_directory: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(head_directory, tmp_path / "head"))


def reconfigure(directory: Path, **changes: object) -> Checkpoint:
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return Checkpoint.read(directory)


def test_the_artifact_says_what_it_was_made_from(store: Store, head: Head) -> None:
    manifest = store.open("tiny").manifest
    assert manifest.backbone == head.spec.backbone
    assert manifest.head.sha256 == head.spec.sha256
    assert manifest.head.recipe["steps"] == 30
    assert set(manifest.files) == {"model.onnx", "tokenizer.json", "centre.npy", "latents.json"}
    assert manifest.parity is not None
    assert manifest.parity.probes == len(head.spec.probes)
    assert manifest.parity.largest_difference < 1e-5
    assert manifest.parity.rank_agreement > 0.999


def test_the_graph_is_valid_and_the_same_every_time(checkpoint: Checkpoint, head: Head) -> None:
    first, second = build(checkpoint, head), build(checkpoint, head)
    onnx.checker.check_model(first)
    assert first.SerializeToString(deterministic=True) == second.SerializeToString(
        deterministic=True
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"layer": 0},
        {"layer": 1},
        {"encoder_layers": 3},
        {"normalisation": "none"},
        {"normalisation": "centre"},
        {"temperature": 0.03},
        {"token_weighting": "sif"},
    ],
)
def test_every_choice_of_the_recipe_reaches_the_graph(
    checkpoint: Checkpoint,
    encoded: EncodedCorpus,
    recipe: Recipe,
    tmp_path: Path,
    changes: dict[str, object],
) -> None:
    settings = Recipe.model_validate(recipe.model_dump() | changes)
    backbone = load(checkpoint, settings.max_tokens, settings.layer)
    chosen = EncodedCorpus(backbone, encoded.corpus, encoded.cache)
    make_head(chosen, settings, "x", progress=False).save(tmp_path / "head")
    (artifact,) = assemble(tmp_path / "head", Store(tmp_path), "m", str(checkpoint.directory))
    head = Head.load(tmp_path / "head")
    expected = head.mixtures(backbone.encode(SENTENCES))
    found = Encoder(artifact, provider="cpu").encode(SENTENCES).mixtures
    np.testing.assert_allclose(found, expected, atol=1e-5)
    # Only a change of norm needs operators of its own; centring is in the weights.
    kinds = {node.op_type for node in onnx.load(artifact.model).graph.node}
    assert ("Sub" in kinds) == (settings.normalisation == "centre-equal-norm")


def test_pool_weights_choose_what_is_averaged(encoder: Encoder) -> None:
    # The identity gives each token's own distribution; their mean is the sentence's mixture.
    tokens = encoder._tokenizer(["a man is eating"])[0].ids
    ids, mask = np.array([tokens]), np.ones((1, len(tokens)), np.int64)
    each = encoder._session.run(ids, mask, np.eye(len(tokens), dtype=np.float32)[None])
    assert each.shape == (1, len(tokens), 4, 5)
    np.testing.assert_allclose(
        each[0].mean(axis=0), encoder.encode(["a man is eating"]).mixtures[0], atol=1e-6
    )


def test_layers_above_the_chosen_one_are_left_out(checkpoint: Checkpoint, head: Head) -> None:
    backbone = head.spec.backbone.model_copy(update={"layer": 1})
    shallow = dataclasses.replace(head, spec=head.spec.model_copy(update={"backbone": backbone}))
    names = {tensor.name for tensor in build(checkpoint, shallow).graph.initializer}
    assert any(name.startswith("encoder.layer.0.") for name in names)
    assert not any(name.startswith("encoder.layer.1.") for name in names)


def old(name: str) -> str:
    """A tensor's name as bert-base-uncased has it."""
    name = name.replace("LayerNorm.weight", "LayerNorm.gamma")
    return "bert." + name.replace("LayerNorm.bias", "LayerNorm.beta")


def test_a_checkpoint_with_a_task_head_and_old_names_exports_the_same(
    own_backbone: Path, checkpoint: Checkpoint, head: Head
) -> None:
    weights = load_file(own_backbone / "model.safetensors")
    renamed = {old(name): tensor for name, tensor in weights.items()}
    save_file({**renamed, "cls.bias": np.zeros(3)}, own_backbone / "model.safetensors")
    found = build(Checkpoint.read(own_backbone), head)
    assert found.SerializeToString() == build(checkpoint, head).SerializeToString()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"model_type": "gpt2"},
            "of the family 'gpt2', which cannot be exported yet: bert, roberta, xlm-roberta, "
            "camembert, distilbert, mpnet and static word vectors can",
        ),
        ({"hidden_act": "swish"}, "Activation 'swish' cannot be exported yet"),
        ({"position_embedding_type": "relative_key"}, "Only absolute position embeddings"),
        ({"num_hidden_layers": 1}, "Layer 2 was asked for, of 1"),
        (
            {"intermediate_size": 64},
            r"intermediate\.dense\.weight has shape \(32, 16\), but by its config\.json it should "
            r"have \(64, 16\)",
        ),
        ({"num_attention_heads": 3}, "16 values cannot be shared among 3 heads"),
    ],
)
def test_what_cannot_be_exported_is_explained(
    own_backbone: Path, head: Head, changes: dict[str, object], says: str
) -> None:
    with pytest.raises(ExportError, match=says):
        build(reconfigure(own_backbone, **changes), head)


def test_a_missing_tensor_is_named(own_backbone: Path, head: Head) -> None:
    weights = load_file(own_backbone / "model.safetensors")
    del weights["encoder.layer.1.output.dense.weight"]
    save_file(weights, own_backbone / "model.safetensors")
    with pytest.raises(ExportError, match=r"'encoder\.layer\.1\.output\.dense\.weight' is missing"):
        build(Checkpoint.read(own_backbone), head)


def test_truncated_weights_are_refused(own_backbone: Path, head: Head) -> None:
    weights = own_backbone / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(ExportError, match="are damaged or unreadable"):
        build(Checkpoint.read(own_backbone), head)


def test_another_backbone_than_the_heads_is_refused(
    own_backbone: Path, head_directory: Path, tmp_path: Path
) -> None:
    weights = load_file(own_backbone / "model.safetensors")
    weights["embeddings.LayerNorm.bias"] += 1
    save_file(weights, own_backbone / "model.safetensors")
    store = Store(tmp_path / "store")
    with pytest.raises(BackboneError, match=r"The head was trained on tiny-bert.*train a head"):
        assemble(head_directory, store, "m", str(own_backbone))
    assert store.entries() == []


def test_a_wrong_name_is_refused_before_anything_is_fetched(
    head_directory: Path, tmp_path: Path
) -> None:
    with pytest.raises(StoreError, match="'my head' is not a model name"):
        assemble(head_directory, Store(tmp_path), "my head", "/no/backbone/is/looked/for")


def test_more_tokens_than_positions_are_refused(
    own_backbone: Path, head_directory: Path, tmp_path: Path
) -> None:
    reconfigure(own_backbone, max_position_embeddings=8)
    with pytest.raises(BackboneError, match=r"max_tokens is 16, but backbone has 8 positions"):
        assemble(head_directory, Store(tmp_path), "m", str(own_backbone))


def test_a_graph_that_does_not_match_its_reference_is_not_published(
    own_head: Path, backbone: Path, tmp_path: Path
) -> None:
    bias = np.float16(0.5) * np.arange(20, dtype=np.float16)
    change(**{"encoder.0.bias": bias})(own_head)
    (own_head / "latents.json").unlink()  # it tells of the head as it was
    store = Store(tmp_path / "store")
    with pytest.raises(
        ExportError, match=r"differs from the reference by up to .* m:fp32 was not pub"
    ):
        assemble(own_head, store, "m", str(backbone))
    assert store.entries() == []
    assert list(store.root.iterdir()) == []


def test_a_store_that_cannot_be_written(
    head_directory: Path, backbone: Path, tmp_path: Path
) -> None:
    (tmp_path / "store").write_text("a file")
    with pytest.raises(StoreError, match="Cannot write to the model store"):
        assemble(head_directory, Store(tmp_path / "store"), "m", str(backbone))


def damage_json(head: Path) -> None:
    (head / "head.json").write_text("{}")


def damage_bytes(head: Path) -> None:
    tensors = head / "head.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:-1] + b"?")


def no_safetensors(head: Path) -> None:
    (head / "head.safetensors").write_bytes(b"not tensors")
    vouch_for(head)


def no_numbers(head: Path) -> None:
    """Tensors of a kind that numpy does not have."""
    header = b'{"mean":{"dtype":"F8_E4M3","shape":[32],"data_offsets":[0,32]}}'
    content = len(header).to_bytes(8, "little") + header + bytes(32)
    (head / "head.safetensors").write_bytes(content)
    vouch_for(head)


def vouch_for(head: Path) -> None:
    """Record the digest of whatever tensors there are, as if they had been saved so."""
    spec = json.loads((head / "head.json").read_text())
    spec["sha256"] = sha256_of(head / "head.safetensors")
    (head / "head.json").write_text(json.dumps(spec))


def remove_tensors(head: Path) -> None:
    (head / "head.safetensors").unlink()


def change(**changes: np.ndarray | None):
    def damage(head: Path) -> None:
        tensors = {**load_file(head / "head.safetensors"), **changes}
        kept = {name: tensor for name, tensor in tensors.items() if tensor is not None}
        save_file(kept, head / "head.safetensors")
        vouch_for(head)

    return damage


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (damage_json, r"head\.json is not valid: backbone: Field required"),
        (damage_bytes, r"head\.safetensors is damaged: its SHA-256 is"),
        (no_safetensors, r"head\.safetensors cannot be read"),
        (remove_tensors, r"is not a head: it has no head\.safetensors"),
        (change(mean=np.zeros(3)), r"mean has shape \(3,\), but head\.json says \(16,\)"),
        (change(centre=None), r"centre has shape None, but head\.json says \(4, 5\)"),
        (change(**{"encoder.0.weight": np.zeros((20, 8))}), "do not lead from 16 to 20 values"),
        (change(**{"encoder.0.bias": None}), "do not lead from 16 to 20"),
        (
            change(**{"encoder.0.bias": None, "encoder.0.x": np.zeros(1)}),
            r"encoder\.0\.bias is miss",
        ),
        (change(mean=np.zeros(16, np.int32)), "mean cannot be of int32"),
        (no_numbers, r"head\.safetensors cannot be read: .*float8_e4m3fn"),
        (
            change(**{"weighted.ids": np.zeros(2, np.int32)}),
            r"weighted\.weights has shape None, but head\.json says \(2,\)",
        ),
        (
            change(**{"weigher.0.bias": np.zeros(3, np.float32)}),
            r"weigher\.0\.weight has shape None, but head\.json says \(3, 16\)",
        ),
    ],
)
def test_a_damaged_head_is_refused(own_head: Path, damage, says: str) -> None:
    damage(own_head)
    with pytest.raises(HeadError, match=says):
        Head.load(own_head)


def test_a_head_trained_on_shards_is_exported_from_them(
    backbone: Path, recipe: Recipe, prepared: Corpus, cache: VectorCache, tmp_path: Path
) -> None:
    shards = Path(shutil.copytree(backbone, tmp_path / "sharded"))
    (shards / "model.safetensors").unlink()
    AutoModel.from_pretrained(backbone).save_pretrained(shards, max_shard_size="4KB")
    checkpoint = Checkpoint.read(shards)
    encoded = EncodedCorpus(load(checkpoint, recipe.max_tokens), prepared, cache)
    make_head(encoded, recipe, "x", progress=False).save(tmp_path / "head")
    (artifact,) = assemble(tmp_path / "head", Store(tmp_path / "store"), "x", str(shards))
    assert artifact.manifest.backbone.sha256 == checkpoint.sha256
    next(shards.glob("model-*.safetensors")).write_bytes(b"damaged")
    with pytest.raises(BackboneError, match="The head was trained on sharded with weights"):
        assemble(tmp_path / "head", Store(tmp_path / "store"), "x", str(shards))
