import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from lattemix.build.head import Head, HeadError, HeadSpec, normalise
from model_store.manifest import sha256_of

Damage = Callable[[Path], object]


@pytest.fixture
def head_copy(head_directory: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(head_directory, tmp_path / "head"))


def edit_spec(**changes: object) -> Damage:
    def damage(head: Path) -> None:
        spec = json.loads((head / "head.json").read_text())
        (head / "head.json").write_text(json.dumps(spec | changes))

    return damage


def write_tensors(content: bytes) -> Damage:
    def damage(head: Path) -> None:
        (head / "head.safetensors").write_bytes(content)
        update_digest(head)

    return damage


def edit_tensors(**changes: np.ndarray | None) -> Damage:
    """Replace tensors, or remove those that are None."""

    def damage(head: Path) -> None:
        tensors = {**load_file(head / "head.safetensors"), **changes}
        rest = {name: tensor for name, tensor in tensors.items() if tensor is not None}
        save_file(rest, head / "head.safetensors")
        update_digest(head)

    return damage


def update_digest(head: Path) -> None:
    edit_spec(sha256=sha256_of(head / "head.safetensors"))(head)


FLOAT8_HEADER = b'{"mean":{"dtype":"F8_E4M3","shape":[32],"data_offsets":[0,32]}}'
FLOAT8 = len(FLOAT8_HEADER).to_bytes(8, "little") + FLOAT8_HEADER + bytes(32)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda head: (head / "head.json").write_text("{}"),
            r"head\.json is not valid: backbone: Field required",
        ),
        (
            lambda head: (head / "head.safetensors").write_bytes(b"?"),
            r"head\.safetensors is damaged: its SHA-256 is",
        ),
        (
            lambda head: (head / "head.safetensors").unlink(),
            r"is not a head: it has no head\.safetensors",
        ),
        (write_tensors(b"not tensors"), r"head\.safetensors cannot be read"),
        (write_tensors(FLOAT8), r"head\.safetensors cannot be read: .*float8_e4m3fn"),
        (
            edit_tensors(mean=np.zeros(3)),
            r"mean has shape \(3,\), not \(16,\) as head\.json implies",
        ),
        (edit_tensors(mean=np.zeros(16, np.int32)), "mean has the wrong type, int32"),
        (edit_tensors(centre=None), "centre is missing"),
        (edit_tensors(**{"encoder.0.weight": np.zeros((20, 8))}), "do not map 16 to 20 values"),
        (edit_tensors(**{"encoder.0.bias": None}), "do not map 16 to 20"),
        (
            edit_tensors(**{"encoder.0.bias": None, "encoder.0.x": np.zeros(1)}),
            r"encoder\.0\.bias is missing",
        ),
        (
            edit_tensors(**{"weighted.ids": np.zeros(2, np.int32)}),
            r"weighted\.weights is missing",
        ),
        (
            edit_tensors(**{"weigher.0.bias": np.zeros(3, np.float32)}),
            r"weigher\.0\.weight is missing",
        ),
        (edit_spec(model="normal"), "do not map 16 to 8 values"),
    ],
)
def test_rejects_damaged_head(head_copy: Path, damage: Damage, message: str) -> None:
    damage(head_copy)
    with pytest.raises(HeadError, match=message):
        Head.load(head_copy)


def test_saved_head_is_readable_by_all_users(head: Head, tmp_path: Path) -> None:
    head.save(tmp_path)
    assert (tmp_path / "head.safetensors").stat().st_mode & 0o044
    loaded = Head.load(tmp_path)
    assert loaded.spec == head.spec
    for name, tensor in head.tensors.items():
        np.testing.assert_array_equal(loaded.tensors[name], tensor)


def test_normalise() -> None:
    vectors = np.array([[1.0, 2.0], [3.0, 2.0], [2.0, 2.0]], np.float32)
    mean = np.array([2.0, 2.0], np.float32)
    assert normalise(vectors, mean, "none") is vectors
    np.testing.assert_array_equal(normalise(vectors, mean, "centre"), vectors - mean)
    equal = normalise(vectors, mean, "centre-equal-norm")
    np.testing.assert_allclose(np.linalg.norm(equal, axis=1), [np.sqrt(2), np.sqrt(2), 0])


def test_drop_is_the_largest_score_decrease_on_dev(head: Head) -> None:
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
    assert spec.drop("int8") == 0.2
    assert spec.drop("fp16") is None
    assert spec.drop("fp32") is None


def test_saves_arrays_of_any_memory_layout(head: Head, tmp_path: Path) -> None:
    probes = np.asfortranarray(head.tensors["probes"])
    Head(head.spec, {**head.tensors, "probes": probes}).save(tmp_path)
    np.testing.assert_array_equal(Head.load(tmp_path).tensors["probes"], probes)
