import json
import os
from pathlib import Path

import pytest

from model_store import Artifact, ArtifactError, Manifest, Store


@pytest.fixture
def path(private_store: Store) -> Path:
    return private_store.root / "tiny" / "fp32"


def edit(path: Path, **changes: object) -> None:
    file = path / "manifest.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_reading_back_what_was_written(artifact: Artifact, tmp_path: Path) -> None:
    artifact.manifest.write(tmp_path)
    assert Artifact.read(tmp_path).manifest == artifact.manifest


def test_an_intact_artifact_is_accepted(path: Path) -> None:
    assert Artifact.read(path).verify().manifest.reference == "tiny:fp32"


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json", "centre.npy"])
def test_a_missing_file_is_named(path: Path, name: str) -> None:
    (path / name).unlink()
    with pytest.raises(ArtifactError, match=rf"{name} is missing: assemble the model again"):
        Artifact.read(path).verify()


def test_a_changed_byte_is_found(path: Path) -> None:
    model = path / "model.onnx"
    content = bytearray(model.read_bytes())
    content[len(content) // 2] ^= 1
    model.write_bytes(content)
    with pytest.raises(ArtifactError, match=r"model\.onnx is damaged: its SHA-256 is"):
        Artifact.read(path).verify()


def test_a_truncated_file_is_told_from_a_changed_one(path: Path) -> None:
    model = path / "model.onnx"
    model.write_bytes(model.read_bytes()[:-1])
    with pytest.raises(
        ArtifactError, match=r"model\.onnx has [\d,]+ bytes where its manifest says"
    ):
        Artifact.read(path).verify()


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_an_unknown_schema_is_refused_before_anything_else(path: Path, version: object) -> None:
    edit(path, schema_version=version, a_field_of_tomorrow=1)
    with pytest.raises(ArtifactError, match=r"schema version .*, and this Latte-Mix reads 1"):
        Artifact.read(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"latent_dims": 0}, "latent_dims: Input should be greater than 0"),
        ({"surprise": 1}, "surprise: Extra inputs are not permitted"),
        ({"recommended_metric": "euclid"}, "recommended_metric: Input should be"),
        ({"files": {}}, r"files: .*model\.onnx is not listed"),
        ({"files": {"../../etc/passwd": {"bytes": 1, "sha256": "0" * 64}}}, r"files\.\.\./"),
    ],
)
def test_a_wrong_field_is_named(path: Path, change: dict[str, object], message: str) -> None:
    edit(path, **change)
    with pytest.raises(ArtifactError, match=message):
        Artifact.read(path)


@pytest.mark.parametrize("content", ["{", "[" * 100_000], ids=["half", "deep"])
def test_a_manifest_that_is_not_json(path: Path, content: str) -> None:
    (path / "manifest.json").write_text(content)
    with pytest.raises(ArtifactError, match="is not valid JSON"):
        Artifact.read(path)


def test_a_manifest_that_cannot_be_read(path: Path) -> None:
    (path / "manifest.json").unlink()
    (path / "manifest.json").mkdir()
    with pytest.raises(ArtifactError, match="cannot be read: it is not a regular file"):
        Artifact.read(path)


def test_an_empty_directory_is_not_an_artifact(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"manifest\.json is missing: this is not an artifact"):
        Artifact.read(tmp_path)


def test_a_directory_in_place_of_a_file(path: Path) -> None:
    (path / "centre.npy").unlink()
    (path / "centre.npy").mkdir()
    with pytest.raises(ArtifactError, match=r"centre\.npy"):
        Artifact.read(path).verify()


@pytest.mark.parametrize("name", ["manifest.json", "model.onnx", "latents.json"])
def test_a_pipe_in_place_of_a_file_is_refused_and_not_waited_for(path: Path, name: str) -> None:
    (path / name).unlink()
    os.mkfifo(path / name)
    if name != "manifest.json":  # a pipe has no bytes, and a manifest may say so
        files = json.loads((path / "manifest.json").read_text())["files"]
        files[name]["bytes"] = 0
        edit(path, files=files)
    with pytest.raises(ArtifactError, match=rf"{name} cannot be read: it is not a regular file"):
        Artifact.read(path).verify()


def test_a_device_in_place_of_a_file_is_refused(path: Path) -> None:
    files = json.loads((path / "manifest.json").read_text())["files"]
    edit(path, files=files | {"centre.npy": {"bytes": 0, "sha256": "0" * 64}})
    (path / "centre.npy").unlink()
    (path / "centre.npy").symlink_to("/dev/zero")
    with pytest.raises(ArtifactError, match=r"centre\.npy cannot be read: it is not a regular"):
        Artifact.read(path).verify()


def test_files_may_be_links_to_what_the_manifest_says(path: Path, tmp_path: Path) -> None:
    """As Kubernetes mounts them; where they lead does not matter, what is there does."""
    for file in list(path.iterdir()):
        file.rename(tmp_path / file.name)
        file.symlink_to(tmp_path / file.name)
    assert Artifact.read(path).verify().manifest.reference == "tiny:fp32"
    (tmp_path / "model.onnx").write_bytes(b"x" * (tmp_path / "model.onnx").stat().st_size)
    with pytest.raises(ArtifactError, match=r"model\.onnx is damaged"):
        Artifact.read(path).verify()


def test_a_manifest_is_immutable(artifact: Artifact) -> None:
    with pytest.raises(ValueError, match="frozen"):
        artifact.manifest.name = "other"  # type: ignore[misc]


def test_a_recipe_without_a_centre(artifact: Artifact) -> None:
    files = {name: f for name, f in artifact.manifest.files.items() if name != "centre.npy"}
    manifest = Manifest.model_validate(artifact.manifest.model_dump() | {"files": files})
    assert Artifact(artifact.path, manifest).centre is None
