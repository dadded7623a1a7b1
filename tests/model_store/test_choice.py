import shutil
from pathlib import Path

import pytest

from model_store import Artifact, Precision, Store, StoreError
from model_store.choice import Device, choose


def add(store: Store, root: Path, precision: Precision, drop: float | None = None) -> None:
    """Copy the tiny model, with another precision and drop in its manifest."""
    source = store.open("tiny:fp32")
    target = root / "tiny" / precision
    shutil.copytree(source.path, target)
    manifest = source.manifest.model_copy(update={"precision": precision, "drop": drop})
    manifest.write(target)
    assert repr(Artifact.read(target).manifest.drop) == repr(drop)


@pytest.mark.parametrize(
    ("drop", "device", "precision", "reason"),
    [
        (0.17, "cpu", "int8", "int8 loses 0.17 points on STSb dev (limit 0.3)"),
        (-0.1, "cpu", "int8", "int8 loses -0.10 points on STSb dev (limit 0.3)"),
        (0.4, "cpu", "fp32", "int8 loses 0.40 points on STSb dev (limit 0.3)"),
        (float("nan"), "cpu", "fp32", "int8 loses nan points on STSb dev (limit 0.3)"),
        (None, "cpu", "fp32", "the loss of int8 was not measured"),
        (0.17, "cuda", "fp16", "it is the fastest on a GPU"),
    ],
)
def test_chooses_precision_for_the_device(
    store: Store,
    tmp_path: Path,
    drop: float | None,
    device: Device,
    precision: str,
    reason: str,
) -> None:
    add(store, tmp_path, "fp32")
    add(store, tmp_path, "int8", drop)
    add(store, tmp_path, "fp16")
    chosen = choose(Store(tmp_path), "tiny", device)
    assert chosen.artifact.manifest.precision == precision
    assert chosen.reason == reason


def test_uses_the_requested_precision(store: Store, tmp_path: Path) -> None:
    add(store, tmp_path, "fp32")
    add(store, tmp_path, "int8", 5.0)
    chosen = choose(Store(tmp_path), "tiny:int8", "cpu")
    assert (chosen.artifact.manifest.precision, chosen.reason) == ("int8", "it was requested")


def test_states_the_loss_of_the_only_precision(store: Store, tmp_path: Path) -> None:
    add(store, tmp_path, "int8", 0.17)
    reason = "int8 loses 0.17 points on STSb dev (limit 0.3)"
    assert choose(Store(tmp_path), "tiny", "cpu").reason == reason


def test_uses_the_available_precision(store: Store, tmp_path: Path) -> None:
    add(store, tmp_path, "int8", 5.0)
    assert choose(Store(tmp_path), "tiny", "cpu").reason == "it is the only precision in the store"
    chosen = choose(Store(tmp_path), "tiny", "cuda")
    assert (chosen.artifact.manifest.precision, chosen.reason) == (
        "int8",
        "the store has no fp16 artifact",
    )
    with pytest.raises(StoreError, match="There is no model 'other'"):
        choose(Store(tmp_path), "other", "cpu")


@pytest.mark.parametrize("name", ["../tiny", "x" * 300, "tiny\0", ""], ids=repr)
def test_rejects_invalid_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(StoreError, match="is not a model name"):
        choose(Store(tmp_path), name, "cpu")
