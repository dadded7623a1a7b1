import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from lattemix.build.backbones import BackboneError, Checkpoint
from model_store.manifest import sha256_of


@pytest.fixture
def directory(backbone: Path, tmp_path: Path) -> Path:
    """A copy of the tiny backbone."""
    return Path(shutil.copytree(backbone, tmp_path / "b"))


@pytest.fixture
def shards(directory: Path) -> Path:
    """The tiny backbone with its weights in three files."""
    tensors = load_file(directory / "model.safetensors")
    (directory / "model.safetensors").unlink()
    names = sorted(tensors)
    weight_map = {name: f"model-0000{i % 3}.safetensors" for i, name in enumerate(names)}
    for file in set(weight_map.values()):
        shard = {name: tensors[name] for name in names if weight_map[name] == file}
        save_file(shard, directory / file)
    index = {"metadata": {}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    return directory


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("config.json", r"has no config\.json: it is not a backbone"),
        ("model.safetensors", r"has no model\.safetensors"),
        ("tokenizer.json", r"has no tokenizer\.json: write it with transformers"),
    ],
)
def test_rejects_directory_without_a_file(directory: Path, missing: str, message: str) -> None:
    (directory / missing).unlink()
    with pytest.raises(BackboneError, match=message):
        Checkpoint.read(directory)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "pytorch_model-00001-of-00002.bin"])
def test_rejects_pickles(directory: Path, name: str) -> None:
    (directory / "model.safetensors").rename(directory / name)
    with pytest.raises(BackboneError, match=f"has only {name}, a pickle, which can run code when"):
        Checkpoint.read(directory)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("{", "is not valid JSON"),
        ("[]", "has no model_type"),
        (
            '{"model_type": "t5", "is_encoder_decoder": true}',
            r"is an encoder-decoder \(model_type 't5'\): .*bert, roberta",
        ),
    ],
)
def test_rejects_unusable_config(directory: Path, config: str, message: str) -> None:
    (directory / "config.json").write_text(config)
    with pytest.raises(BackboneError, match=message):
        Checkpoint.read(directory)


def test_shards_have_the_tensors_of_the_single_file(shards: Path, checkpoint: Checkpoint) -> None:
    expected, tensors = checkpoint.tensors(), Checkpoint.read(shards).tensors()
    assert tensors.keys() == expected.keys()
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(tensor, expected[name])


def test_digest_covers_every_shard_and_the_index(shards: Path) -> None:
    before = Checkpoint.read(shards).sha256
    files = sorted(shards.glob("*.safetensors*"), key=lambda path: path.name)
    assert len(files) == 4
    lines = [f"{sha256_of(path)}  {path.name}\n" for path in files]
    assert before == hashlib.sha256("".join(lines).encode()).hexdigest()
    last = max(shards.glob("model-*.safetensors"))
    last.write_bytes(last.read_bytes()[:-1] + b"\1")
    assert Checkpoint.read(shards).sha256 != before


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ("{", r"index\.json is not valid JSON"),
        ("[]", r"index\.json has no weight_map"),
        ('{"weight_map": {}}', r"index\.json has no weight_map"),
        ('{"weight_map": {"a": 1}}', r"index\.json has no weight_map"),
        ('{"weight_map": {"a": "../secret.safetensors"}}', r"lists '\.\./secret.*outside"),
        ('{"weight_map": {"a": "/etc/x.safetensors"}}', r"lists '/etc/x.*outside"),
        ('{"weight_map": {"a": "pytorch_model.bin"}}', r"lists 'pytorch_model\.bin'.*safetensors"),
        ('{"weight_map": {"a": "gone.safetensors"}}', r"gone\.safetensors.*is missing"),
    ],
)
def test_rejects_unusable_shard_index(shards: Path, index: str, message: str) -> None:
    (shards / "model.safetensors.index.json").write_text(index)
    with pytest.raises(BackboneError, match=message):
        Checkpoint.read(shards)


@pytest.mark.parametrize(
    ("family", "positions"), [("bert", 40), ("roberta", 38), ("mpnet", 38), ("distilbert", 40)]
)
def test_position_offset_reduces_the_maximum_length(family: str, positions: int) -> None:
    config = {"model_type": family, "max_position_embeddings": 40, "pad_token_id": 1}
    checkpoint = Checkpoint("m", Path(), config, "")
    checkpoint.check_length(positions)
    message = f"max_tokens is {positions + 1}, but m has {positions} positions"
    with pytest.raises(BackboneError, match=message):
        checkpoint.check_length(positions + 1)
