from pathlib import Path

import pytest

from model_store import ArtifactError, latents
from model_store.latents import LATENTS, LatentClass

HEAD = "ab" * 32
TWO_BY_TWO = [
    [LatentClass(usage=0.5, words={"père": 0.9, "mer": 0.25}), LatentClass(usage=0.5, words={})]
] * 2


def test_reads_what_was_written(tmp_path: Path) -> None:
    latents.write(TWO_BY_TWO, HEAD, tmp_path)
    assert latents.read(tmp_path / LATENTS, HEAD, 2, 2) == TWO_BY_TWO
    assert list(latents.read(tmp_path / LATENTS, HEAD, 2, 2)[0][0].words) == ["père", "mer"]


def test_writes_one_line_per_dim(tmp_path: Path) -> None:
    latents.write(TWO_BY_TWO, HEAD, tmp_path)
    assert len((tmp_path / LATENTS).read_text(encoding="utf-8").splitlines()) == 4


@pytest.mark.parametrize("shape", [(1, 2), (2, 3)])
def test_rejects_another_shape(tmp_path: Path, shape: tuple[int, int]) -> None:
    latents.write(TWO_BY_TWO, HEAD, tmp_path)
    message = rf"describes 2 latent dims of \[2\] classes, not {shape[0]} of {shape[1]}\."
    with pytest.raises(ArtifactError, match=message):
        latents.read(tmp_path / LATENTS, HEAD, *shape)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[", "is not valid: Invalid JSON"),
        (b"\xff", "is not valid: Invalid JSON"),
        (b"{}", "is not valid: head: Field required"),
        (
            b'{"head": "x", "latents": [[{"usage": "x", "words": {}}]]}',
            "latents.0.0.usage: Input should be a valid number",
        ),
    ],
)
def test_rejects_invalid_file(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / LATENTS).write_bytes(content)
    with pytest.raises(ArtifactError, match=message):
        latents.read(tmp_path / LATENTS, HEAD, 1, 1)


def test_rejects_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="cannot be read: No such file"):
        latents.read(tmp_path / LATENTS, HEAD, 1, 1)


def test_rejects_description_of_another_head(tmp_path: Path) -> None:
    latents.write(TWO_BY_TWO, HEAD, tmp_path)
    with pytest.raises(ArtifactError, match="describes another head, abababababab"):
        latents.read(tmp_path / LATENTS, "cd" * 32, 2, 2)
