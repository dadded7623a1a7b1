"""Damaged model files are read as valid, or raise a `LatteMixError`."""

import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lattemix.build.backbones import TokenVectors
from lattemix.build.head import Head, HeadError
from lattemix.encoder import _load
from lattemix.tokenization import Tokenizer
from model_store import Artifact, ArtifactError, LatteMixError, Store, StoreError, latents
from model_store.choice import choose
from model_store.manifest import sha256_of
from tests.reliability.damage import (
    Edit,
    JsonEdit,
    as_bytes,
    byte_edits,
    damage,
    json_edits,
    rebuild,
)


@pytest.fixture(scope="session")
def scratch(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose manifest is overwritten by each example."""
    root = tmp_path_factory.mktemp("fuzzed") / "store"
    shutil.copytree(store.root, root)
    return root


@pytest.fixture(scope="session")
def full_head(head_directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A head with every optional tensor."""
    directory = tmp_path_factory.mktemp("fuzzed") / "head"
    head = Head.load(head_directory)
    weighted = {
        "weighted.ids": np.arange(3, dtype=np.int32),
        "weighted.weights": np.ones(3, np.float32),
        "weigher.0.weight": np.zeros((2, 16), np.float32),
        "weigher.0.bias": np.zeros(2, np.float32),
        "weigher.1.weight": np.zeros((1, 2), np.float32),
        "weigher.1.bias": np.zeros(1, np.float32),
    }
    Head(head.spec, {**head.tensors, **weighted}).save(directory)
    return directory


def check_manifest(root: Path, original: Path, content: bytes) -> None:
    """The manifest is rejected, or lists exactly the files of the artifact."""
    path = root / "tiny" / "fp32"
    (path / "manifest.json").write_bytes(content)
    with suppress(LatteMixError):
        artifact = Store(root).open("tiny")
        manifest = artifact.manifest
        assert (manifest.reference, artifact.path) == ("tiny:fp32", path)
        for name, record in manifest.files.items():
            assert (path / name).resolve().parent == path.resolve()
            assert (path / name).read_bytes() == (original / name).read_bytes()
            assert record.bytes == (path / name).stat().st_size
        assert (manifest.latent_dims > 0, manifest.classes > 1) == (True, True)
        manifest.write(path)
        again = Artifact.read(path).manifest
        assert again.model_dump_json() == manifest.model_dump_json()
    assert sorted(os.listdir(root)) == ["tiny"]


@given(edits=byte_edits)
def test_manifest_with_damaged_bytes_is_rejected_or_valid(
    scratch: Path, artifact: Artifact, edits: list[Edit]
) -> None:
    content = (artifact.path / "manifest.json").read_bytes()
    check_manifest(scratch, artifact.path, damage(content, edits))


@given(edits=json_edits)
def test_manifest_with_damaged_values_is_rejected_or_valid(
    scratch: Path, artifact: Artifact, edits: list[JsonEdit]
) -> None:
    manifest = json.loads((artifact.path / "manifest.json").read_bytes())
    check_manifest(scratch, artifact.path, as_bytes(rebuild(manifest, edits)))


def check_latents(path: Path, head: str, content: bytes) -> None:
    path.write_bytes(content)
    with suppress(ArtifactError):
        classes = latents.read(path, head, 4, 5)
        assert [len(dim) for dim in classes] == [5] * 4
        assert all(isinstance(word, str) for dim in classes for c in dim for word in c.words)


@given(edits=byte_edits)
def test_latents_with_damaged_bytes_are_rejected_or_valid(
    scratch: Path, artifact: Artifact, edits: list[Edit]
) -> None:
    content = (artifact.path / "latents.json").read_bytes()
    head = artifact.manifest.head.sha256
    check_latents(scratch.parent / "latents.json", head, damage(content, edits))


@given(edits=json_edits)
def test_latents_with_damaged_values_are_rejected_or_valid(
    scratch: Path, artifact: Artifact, edits: list[JsonEdit]
) -> None:
    value = json.loads((artifact.path / "latents.json").read_bytes())
    head = artifact.manifest.head.sha256
    check_latents(scratch.parent / "latents.json", head, as_bytes(rebuild(value, edits)))


def check_head(directory: Path) -> None:
    """The head is rejected, or computes distributions of its declared shape."""
    with suppress(HeadError):
        head = Head.load(directory)
        spec = head.spec
        vectors = np.zeros((2, spec.backbone.hidden_size), np.float32)
        ids, lengths = np.array([0, 9], np.int32), np.array([2], np.int32)
        tokens = TokenVectors(vectors, ids, lengths)
        with np.errstate(all="ignore"):  # any numbers are valid, if the digest matches
            distributions = head.distributions(vectors)
            assert head.weights(tokens).shape == (2,)
            assert head.mixtures(tokens).shape == (1, *distributions.shape[1:])
        width = {"categorical": spec.classes, "normal": 2, "autoencoder": 1}[spec.model]
        assert distributions.shape == (2, spec.latent_dims, width)


def altered(full_head: Path, name: str, content: bytes, with_digest: bool = False) -> Path:
    """Copy the head with one file replaced and, if requested, the digest updated."""
    directory = full_head.parent / "altered"
    shutil.copytree(full_head, directory, dirs_exist_ok=True)
    (directory / name).write_bytes(content)
    if with_digest:
        spec = json.loads((full_head / "head.json").read_bytes())
        spec["sha256"] = sha256_of(directory / "head.safetensors")
        (directory / "head.json").write_text(json.dumps(spec))
    return directory


@given(edits=byte_edits)
def test_head_description_with_damaged_bytes_is_rejected_or_valid(
    full_head: Path, edits: list[Edit]
) -> None:
    content = (full_head / "head.json").read_bytes()
    check_head(altered(full_head, "head.json", damage(content, edits)))


@given(edits=json_edits)
def test_head_description_with_damaged_values_is_rejected_or_valid(
    full_head: Path, edits: list[JsonEdit]
) -> None:
    spec = json.loads((full_head / "head.json").read_bytes())
    check_head(altered(full_head, "head.json", as_bytes(rebuild(spec, edits))))


@given(edits=byte_edits, with_digest=st.booleans())
def test_head_tensors_with_damaged_bytes_are_rejected_or_valid(
    full_head: Path, edits: list[Edit], with_digest: bool
) -> None:
    content = (full_head / "head.safetensors").read_bytes()
    changed = damage(content, edits)
    directory = altered(full_head, "head.safetensors", changed, with_digest)
    if changed != content and not with_digest:
        with pytest.raises(HeadError, match="is damaged"):
            Head.load(directory)
    else:
        check_head(directory)


@given(edits=json_edits)
def test_head_tensors_with_a_damaged_header_are_rejected_or_valid(
    full_head: Path, edits: list[JsonEdit]
) -> None:
    content = (full_head / "head.safetensors").read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = as_bytes(rebuild(json.loads(content[8 : 8 + size]), edits))
    changed = len(header).to_bytes(8, "little") + header + content[8 + size :]
    check_head(altered(full_head, "head.safetensors", changed, with_digest=True))


@given(edits=byte_edits)
def test_array_with_damaged_bytes_is_rejected_or_valid(
    scratch: Path, artifact: Artifact, edits: list[Edit]
) -> None:
    path = scratch.parent / "centre.npy"
    path.write_bytes(damage((artifact.path / "centre.npy").read_bytes(), edits))
    with suppress(ArtifactError):
        array = _load(path, (4, 5))
        assert array is not None
        assert (array.shape, array.dtype) == ((4, 5), np.float32)


def check_tokenizer(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with suppress(LatteMixError):
        tokenizer = Tokenizer(path, 16)
        (tokens,) = tokenizer(["a dog"])
        assert len(tokens.ids) <= 16


@given(edits=byte_edits)
def test_tokenizer_with_damaged_bytes_is_rejected_or_valid(
    scratch: Path, artifact: Artifact, edits: list[Edit]
) -> None:
    check_tokenizer(scratch.parent / "t.json", damage(artifact.tokenizer.read_bytes(), edits))


@given(edits=json_edits)
def test_tokenizer_with_damaged_values_is_rejected_or_valid(
    scratch: Path, artifact: Artifact, edits: list[JsonEdit]
) -> None:
    definition = json.loads(artifact.tokenizer.read_bytes())
    check_tokenizer(scratch.parent / "t.json", as_bytes(rebuild(definition, edits)))


names = st.text(st.characters(exclude_categories=[]), max_size=80) | st.lists(
    st.sampled_from(["..", "/", "tiny", ":", "fp32", "\0", "\n", ".", "~", "\\", "x" * 70]),
    max_size=6,
).map("".join)


@given(name=names)
@example("../store/tiny")
@example("tiny/../tiny")
@example("tiny:../fp32")
def test_opens_no_path_outside_the_store(store: Store, name: str) -> None:
    opened: list[Callable[[], Any]] = [
        lambda: store.open(name),
        lambda: choose(store, name, "cpu").artifact,
    ]
    for find in opened:
        try:
            assert find().path == store.root / "tiny" / "fp32"
        except StoreError:
            assert name not in ("tiny", "tiny:fp32")


@given(name=names)
def test_publishes_nothing_outside_the_store(
    tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    outside = tmp_path_factory.getbasetemp() / "published"
    store = Store(outside / "store")
    with suppress(StoreError), store.publish(name, "fp32") as staging:
        (staging / "file").write_text("x")
        assert staging.parent == store.root
    if outside.exists():
        assert os.listdir(outside) == ["store"]
        assert all(path.is_dir() for path in store.root.iterdir())
        shutil.rmtree(outside)
