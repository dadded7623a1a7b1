import json
import os
from pathlib import Path

import pytest

from model_store import Artifact, ArtifactError, Manifest, Store

RECORD = {"bytes": 1, "sha256": "0" * 64}


@pytest.fixture
def path(private_store: Store) -> Path:
    return private_store.root / "tiny" / "fp32"


def edit(path: Path, **changes: object) -> None:
    file = path / "manifest.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_reads_what_was_written(artifact: Artifact, tmp_path: Path) -> None:
    artifact.manifest.write(tmp_path)
    assert Artifact.read(tmp_path).manifest == artifact.manifest


def test_verifies_intact_artifact(path: Path) -> None:
    assert Artifact.read(path).verify().manifest.reference == "tiny:fp32"


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json", "centre.npy"])
def test_names_a_missing_file(path: Path, name: str) -> None:
    (path / name).unlink()
    with pytest.raises(ArtifactError, match=rf"{name} is missing: assemble the model again"):
        Artifact.read(path).verify()


def test_detects_a_changed_byte(path: Path) -> None:
    model = path / "model.onnx"
    content = bytearray(model.read_bytes())
    content[len(content) // 2] ^= 1
    model.write_bytes(content)
    with pytest.raises(ArtifactError, match=r"model\.onnx is damaged: its SHA-256 is"):
        Artifact.read(path).verify()


def test_reports_the_size_of_a_truncated_file(path: Path) -> None:
    model = path / "model.onnx"
    model.write_bytes(model.read_bytes()[:-1])
    with pytest.raises(
        ArtifactError, match=r"model\.onnx has [\d,]+ bytes where its manifest says"
    ):
        Artifact.read(path).verify()


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_rejects_unknown_schema_version_first(path: Path, version: object) -> None:
    edit(path, schema_version=version, future_field=1)
    with pytest.raises(ArtifactError, match=r"schema version .*, and this Latte-Mix reads 1"):
        Artifact.read(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"latent_dims": 0}, "latent_dims: Input should be greater than 0"),
        ({"surprise": 1}, "surprise: Extra inputs are not permitted"),
        ({"recommended_metric": "euclid"}, "recommended_metric: Input should be"),
        ({"files": {}}, r"files: .*model\.onnx is not listed"),
        (
            {"files": dict.fromkeys(("model.onnx", "tokenizer.json"), RECORD)},
            r"files: .*centre\.npy is not listed",  # the recommended metric is centred
        ),
        ({"files": {"../../etc/passwd": RECORD}}, r"files\.\.\./"),
    ],
)
def test_names_an_invalid_field(path: Path, change: dict[str, object], message: str) -> None:
    edit(path, **change)
    with pytest.raises(ArtifactError, match=message):
        Artifact.read(path)


@pytest.mark.parametrize("content", ["{", "[" * 100_000], ids=["incomplete", "nested"])
def test_rejects_manifest_that_is_not_json(path: Path, content: str) -> None:
    (path / "manifest.json").write_text(content)
    with pytest.raises(ArtifactError, match="is not valid JSON"):
        Artifact.read(path)


def test_rejects_directory_as_manifest(path: Path) -> None:
    (path / "manifest.json").unlink()
    (path / "manifest.json").mkdir()
    with pytest.raises(ArtifactError, match="cannot be read: it is not a regular file"):
        Artifact.read(path)


def test_rejects_empty_directory(tmp_path: Path) -> None:
    with pytest.raises(
        ArtifactError, match=r"manifest\.json is missing: this is not a complete artifact"
    ):
        Artifact.read(tmp_path)


def test_rejects_directory_instead_of_a_file(path: Path) -> None:
    (path / "centre.npy").unlink()
    (path / "centre.npy").mkdir()
    with pytest.raises(ArtifactError, match=r"centre\.npy"):
        Artifact.read(path).verify()


@pytest.mark.parametrize("name", ["manifest.json", "model.onnx", "latents.json"])
def test_rejects_pipe_without_reading_it(path: Path, name: str) -> None:
    (path / name).unlink()
    os.mkfifo(path / name)
    if name != "manifest.json":  # a pipe has size 0, so give it that size in the manifest
        files = json.loads((path / "manifest.json").read_text())["files"]
        files[name]["bytes"] = 0
        edit(path, files=files)
    with pytest.raises(ArtifactError, match=rf"{name} cannot be read: it is not a regular file"):
        Artifact.read(path).verify()


def test_rejects_device_without_reading_it(path: Path) -> None:
    files = json.loads((path / "manifest.json").read_text())["files"]
    edit(path, files=files | {"centre.npy": {"bytes": 0, "sha256": "0" * 64}})
    (path / "centre.npy").unlink()
    (path / "centre.npy").symlink_to("/dev/zero")
    with pytest.raises(ArtifactError, match=r"centre\.npy cannot be read: it is not a regular"):
        Artifact.read(path).verify()


def test_accepts_links_to_intact_files(path: Path, tmp_path: Path) -> None:
    """Kubernetes mounts files as links."""
    for file in list(path.iterdir()):
        file.rename(tmp_path / file.name)
        file.symlink_to(tmp_path / file.name)
    assert Artifact.read(path).verify().manifest.reference == "tiny:fp32"
    (tmp_path / "model.onnx").write_bytes(b"x" * (tmp_path / "model.onnx").stat().st_size)
    with pytest.raises(ArtifactError, match=r"model\.onnx is damaged"):
        Artifact.read(path).verify()


def test_manifest_is_immutable(artifact: Artifact) -> None:
    with pytest.raises(ValueError, match="frozen"):
        artifact.manifest.name = "other"  # type: ignore[misc]


def test_artifact_without_centre(artifact: Artifact) -> None:
    files = {name: f for name, f in artifact.manifest.files.items() if name != "centre.npy"}
    changes = {"files": files, "recommended_metric": "js"}
    manifest = Manifest.model_validate(artifact.manifest.model_dump() | changes)
    assert Artifact(artifact.path, manifest).centre is None


@pytest.mark.parametrize("value", [None, 2, "many"])
def test_rejects_model_with_positions_but_without_maximum_length(path: Path, value: object) -> None:
    edit(path, max_tokens=value)
    with pytest.raises(ArtifactError, match=r"manifest\.json is not a valid manifest: max_tokens"):
        Artifact.read(path)


@pytest.mark.parametrize("change", [{"architecture": "static"}, {"template": "{token}"}])
def test_static_model_has_no_maximum_length(path: Path, change: dict[str, str]) -> None:
    backbone = json.loads((path / "manifest.json").read_text())["backbone"]
    edit(path, max_tokens=16, backbone=backbone | change)
    assert Artifact.read(path).manifest.max_tokens is None
