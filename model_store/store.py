"""The model store: artifacts in `<root>/<name>/<precision>/`, published atomically."""

import ctypes
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast, get_args

from model_store.errors import ArtifactError, StoreError
from model_store.manifest import NAME_PATTERN, Artifact, Precision

PRECISIONS = cast(tuple[Precision, ...], get_args(Precision))
HEADS = Path(__file__).resolve().parent / "heads"  # shipped with the package
# Shipped models that `lattemix build` assembles; others need --head.
DEFAULT_MODELS = ("default", "fast")

_STAGING = ".staging-"
_STALE_SECONDS = 24 * 3600  # longer than any export takes and any clock jumps

# Arguments of Linux's renameat2(2).
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


def default_root() -> Path:
    """Return the store of this checkout, or the user's store if Latte-Mix is installed."""
    package = Path(__file__).resolve().parent
    if (package.parent / "pyproject.toml").is_file():
        return package / "artifacts"
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "lattemix" / "models"


@dataclass(frozen=True)
class Entry:
    """An artifact in the store, or the reason why it cannot be used."""

    reference: str
    artifact: Artifact | None
    problem: str | None = None


class Store:
    """A directory of artifacts."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def entries(self) -> list[Entry]:
        """Verify and list all artifacts, by name."""
        return [self._entry(name, p) for name in self._names() for p in self.precisions(name)]

    def open(self, reference: str) -> Artifact:
        """Open and verify `name` or `name:precision`; raise `StoreError` or `ArtifactError`."""
        name, precision = self._resolve(reference)
        try:
            return self._verified(name, precision)
        except ArtifactError:
            # It may have been replaced between reading its manifest and its files: try again.
            return self._verified(name, precision)

    @contextmanager
    def publish(self, name: str, precision: Precision) -> Iterator[Path]:
        """Yield a directory to fill; it becomes `name:precision` if the block succeeds.

        The directory is flushed to disk and renamed into place. If the block raises or the process
        dies, the store still has the previous artifact.
        """
        check_name(name)
        target = self.root / name / precision
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            self._sweep()
            staging = Path(tempfile.mkdtemp(prefix=_STAGING, dir=self.root))
        except OSError as error:
            raise self._unwritable(error) from error
        try:
            yield staging
            _flush(staging)
            target.parent.mkdir(exist_ok=True)
            _put(staging, target)
        except OSError as error:
            if error.filename and not Path(error.filename).is_relative_to(self.root):
                raise  # from a file that the block was reading
            raise self._unwritable(error) from error
        finally:
            shutil.rmtree(staging, ignore_errors=True)

    def _verified(self, name: str, precision: Precision) -> Artifact:
        artifact = Artifact.read(self.root / name / precision)
        if artifact.manifest.reference != f"{name}:{precision}":
            raise ArtifactError(
                f"{artifact.path} was moved: its manifest says {artifact.manifest.reference}."
            )
        return artifact.verify()

    def _resolve(self, reference: str) -> tuple[str, Precision]:
        name, _, requested = reference.partition(":")
        available = self.precisions(name)
        if requested and requested not in PRECISIONS:
            raise StoreError(
                f"Unknown precision {requested!r} in {reference!r}: use {', '.join(PRECISIONS)}."
            )
        if not available:
            names = self._names()
            missing = [model for model in DEFAULT_MODELS if model not in names]
            shipped = (
                f"assemble {' and '.join(missing)} with `lattemix build`, or " if missing else ""
            )
            raise StoreError(
                f"There is no model {name!r} in {self.root} (it holds "
                f"{', '.join(names) or 'nothing yet'}): {shipped}choose another with --model or "
                "LATTEMIX_MODEL, or another store with LATTEMIX_STORE."
            )
        if requested and requested not in available:
            raise StoreError(
                f"{name!r} has no precision {requested!r} in {self.root}, only "
                f"{', '.join(available)}."
            )
        return name, next(p for p in available if requested in ("", p))

    def _names(self) -> list[str]:
        if not self.root.is_dir():
            return []
        return sorted(p.name for p in self.root.iterdir() if re.fullmatch(NAME_PATTERN, p.name))

    def precisions(self, name: str) -> list[Precision]:
        """Return the precisions of a model in this store."""
        check_name(name)
        return [p for p in PRECISIONS if (self.root / name / p).is_dir()]

    def _entry(self, name: str, precision: Precision) -> Entry:
        reference = f"{name}:{precision}"
        try:
            return Entry(reference, self.open(reference))
        except ArtifactError as error:
            return Entry(reference, None, str(error))

    def _sweep(self) -> None:
        """Remove staging directories of killed processes."""
        for staging in self.root.glob(f"{_STAGING}*"):
            with suppress(FileNotFoundError):  # another process may sweep, too
                if time.time() - staging.stat().st_mtime > _STALE_SECONDS:
                    shutil.rmtree(staging, ignore_errors=True)

    def _unwritable(self, error: OSError) -> StoreError:
        return StoreError(
            f"Cannot write to the model store {self.root}: {error.strerror or error}. "
            "Choose a directory you can write to with LATTEMIX_STORE or --store."
        )


def check_name(name: str) -> None:
    """Raise StoreError unless this is a valid model name."""
    if not re.fullmatch(NAME_PATTERN, name):
        raise StoreError(
            f"{name!r} is not a model name: use up to 64 letters, digits, dots, dashes and "
            "underscores, starting with a letter or digit."
        )


def _put(staging: Path, target: Path) -> None:
    """Rename `staging` to `target`; an existing target becomes `staging`, to be removed."""
    if target.exists():
        _exchange(staging, target)
    else:
        staging.rename(target)
    _sync_directory(target.parent)


def _exchange(a: Path, b: Path) -> None:
    """Swap two directories: atomically with renameat2, else by renames, undone on failure."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    paths = (_AT_FDCWD, os.fsencode(a), _AT_FDCWD, os.fsencode(b))
    if renameat2 and renameat2(*paths, _RENAME_EXCHANGE) == 0:
        return
    old = a.with_name(a.name + "-old")
    b.rename(old)
    try:
        a.rename(b)
    except OSError:
        old.rename(b)
        raise
    old.rename(a)


def _flush(directory: Path) -> None:
    for path in directory.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    # mkdtemp makes it private, but the server may run as another user.
    directory.chmod(0o755)
    _sync_directory(directory)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
