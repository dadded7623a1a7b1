from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from lattemix.build.backbones import BackboneError, open_backbone, packages
from lattemix.build.backbones.packages import PinnedPackage
from model_store.manifest import sha256_of


def test_opens_a_directory(backbone: Path) -> None:
    with open_backbone(str(backbone)) as checkpoint:
        assert checkpoint.directory == backbone
        assert checkpoint.name == backbone.name


def test_converts_a_file_of_word_vectors(tmp_path: Path) -> None:
    (tmp_path / "w.txt").write_text("dog 1 2\ncat 3 4\n")
    with open_backbone(str(tmp_path / "w.txt")) as checkpoint:
        assert checkpoint.name == "w.txt"
        assert (checkpoint.is_static, checkpoint.config["vocab_size"]) == (True, 3)
    assert not checkpoint.directory.exists()


@pytest.mark.parametrize(
    "reference",
    [
        "/no/such/directory",
        "./nor/this",
        "~nobody-here/x",
        "a/b/c",
        "no hub id",
        "a..b",
        "x.vec",
        "",
    ],
)
def test_rejects_unknown_references(reference: str) -> None:
    message = "--backbone takes a directory, a file of word vectors, a hub id"
    with pytest.raises(BackboneError, match=message), open_backbone(reference):
        pytest.fail("opened")


def test_converts_word_vectors_of_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "v.npy", np.ones((2, 4), np.float32))
    (tmp_path / "v.txt").write_text("dog\ncat\n")
    files = {name: sha256_of(tmp_path / name) for name in ("v.npy", "v.txt")}
    package = PinnedPackage("words==1", "0" * 64, "data", files, word_vectors="v.npy")
    monkeypatch.setitem(packages.PINNED, "words", package)
    installed = SimpleNamespace(locate_file=lambda folder: tmp_path)
    monkeypatch.setattr("importlib.metadata.distribution", lambda name: installed)
    with open_backbone("words") as checkpoint:
        assert checkpoint.name == "words"
        assert (checkpoint.is_static, checkpoint.config["vocab_size"]) == (True, 3)
    assert not checkpoint.directory.exists()
    (tmp_path / "v.txt").write_text("dog\nrat\n")
    message = r"v\.txt is not the public model's"
    with pytest.raises(BackboneError, match=message), open_backbone("words"):
        pytest.fail("opened")
