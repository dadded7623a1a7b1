"""Where artifacts live: `<root>/<name>/<precision>/`. List them, resolve a name, publish safely."""

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

_STAGING = ".staging-"
_STALE_SECONDS = 24 * 3600  # longer than any export takes, and than clocks jump

# Linux's renameat2(2): relative to the working directory, and exchange the two names.
_HERE, _EXCHANGE = -100, 2


def default_root() -> Path:
    """Return the store of this checkout, or the user's own where Latte-Mix was installed."""
    package = Path(__file__).resolve().parent
    if (package.parent / "pyproject.toml").is_file():
        return package / "artifacts"
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "lattemix" / "models"


@dataclass(frozen=True)
class Entry:
    """One place in the store: an artifact, or the reason it is not one."""

    reference: str
    artifact: Artifact | None
    problem: str | None = None


class Store:
    """A directory of artifacts."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def entries(self) -> list[Entry]:
        """Everything published here, readable or not, by name."""
        return [self._entry(name, p) for name in self._names() for p in self.precisions(name)]

    def open(self, reference: str) -> Artifact:
        """Find `name` or `name:precision` and verify it; raise `StoreError` or `ArtifactError`."""
        name, precision = self._resolve(reference)
        try:
            return self._verified(name, precision)
        except ArtifactError:
            # It may have been replaced between reading its manifest and its files: look again.
            return self._verified(name, precision)

    @contextmanager
    def publish(self, name: str, precision: Precision) -> Iterator[Path]:
        """Yield a directory to fill; it becomes `name:precision` if the block succeeds.

        Files are written beside the store's own, flushed to disk and renamed into place as a
        whole. If the block raises, or the process dies, nothing that can be loaded has appeared,
        and what was published before is still there.
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
                raise  # something the block was reading
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
        name, _, wanted = reference.partition(":")
        present = self.precisions(name)
        if wanted and wanted not in PRECISIONS:
            raise StoreError(
                f"Unknown precision {wanted!r} in {reference!r}: use {', '.join(PRECISIONS)}."
            )
        if not present:
            held = ", ".join(self._names()) or "nothing yet"
            raise StoreError(
                f"There is no model {name!r} in {self.root} (it holds {held}): assemble the "
                "default one with `lattemix build`, or set LATTEMIX_MODEL or LATTEMIX_STORE."
            )
        if wanted and wanted not in present:
            raise StoreError(
                f"{name!r} has no precision {wanted!r} in {self.root}, only {', '.join(present)}."
            )
        return name, next(p for p in present if wanted in ("", p))

    def _names(self) -> list[str]:
        if not self.root.is_dir():
            return []
        return sorted(p.name for p in self.root.iterdir() if re.fullmatch(NAME_PATTERN, p.name))

    def precisions(self, name: str) -> list[Precision]:
        """Those of a model that are here."""
        check_name(name)
        return [p for p in PRECISIONS if (self.root / name / p).is_dir()]

    def _entry(self, name: str, precision: Precision) -> Entry:
        reference = f"{name}:{precision}"
        try:
            return Entry(reference, self.open(reference))
        except ArtifactError as error:
            return Entry(reference, None, str(error))

    def _sweep(self) -> None:
        """Remove what publishers that were killed left behind."""
        for left in self.root.glob(f"{_STAGING}*"):
            with suppress(FileNotFoundError):  # another publisher sweeps, too
                if time.time() - left.stat().st_mtime > _STALE_SECONDS:
                    shutil.rmtree(left, ignore_errors=True)

    def _unwritable(self, error: OSError) -> StoreError:
        return StoreError(
            f"Cannot write to the model store {self.root}: {error.strerror or error}. "
            "Choose a directory you can write to with LATTEMIX_STORE or --store."
        )


def check_name(name: str) -> None:
    """Refuse what cannot be a model's name, before any work is done for it."""
    if not re.fullmatch(NAME_PATTERN, name):
        raise StoreError(
            f"{name!r} is not a model name: use up to 64 letters, digits, dots, dashes and "
            "underscores, starting with a letter or digit."
        )


def _put(staging: Path, target: Path) -> None:
    """Make `staging` be `target`; an old one changes places with it, to be removed as staging."""
    if target.exists():
        _exchange(staging, target)
    else:
        staging.rename(target)
    _sync_directory(target.parent)


def _exchange(a: Path, b: Path) -> None:
    """Swap two directories at once where the system can, else by two renames, undone on failure."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 and renameat2(_HERE, os.fsencode(a), _HERE, os.fsencode(b), _EXCHANGE) == 0:
        return
    aside = a.with_name(a.name + "-old")
    b.rename(aside)
    try:
        a.rename(b)
    except OSError:
        aside.rename(b)
        raise
    aside.rename(a)


def _flush(directory: Path) -> None:
    for path in directory.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    # mkdtemp makes it private; a store is read by whoever serves from it.
    directory.chmod(0o755)
    _sync_directory(directory)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
