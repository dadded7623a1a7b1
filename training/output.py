"""The directory that a run writes into, and the state in it that a resumed run needs."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError, safe_open

from model_store import LatteMixError

STATE, CHECKPOINT = "run", "checkpoint.safetensors"


def saved_step(out: Path) -> int | None:
    """The step that the run in `out` resumes with; None if it has no checkpoint."""
    try:
        with safe_open(out / STATE / CHECKPOINT, framework="numpy") as file:
            return int(file.metadata()["step"])
    except FileNotFoundError:
        return None
    except (OSError, SafetensorError):
        return 0  # damaged: restoring it fails with an error that says what to do


@contextmanager
def exclusive(out: Path) -> Iterator[None]:
    """Create `out` and keep other runs out of it; remove the directories made if left empty."""
    if out.exists() and not out.is_dir():
        raise LatteMixError(f"--out {out} is a file: a head is a directory.")
    missing = [path for path in (out, *out.parents) if not path.exists()]
    try:
        out.mkdir(parents=True, exist_ok=True)
        file = (out / ".lock").open("w")
    except OSError as error:
        _remove_empty(missing)
        raise LatteMixError(
            f"--out {out} cannot be written: {error.strerror}. Choose another directory."
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LatteMixError(
                f"Another run is writing into {out}: wait for it, or choose another --out."
            ) from None
        try:
            yield
        finally:
            (out / ".lock").unlink(missing_ok=True)
            _remove_empty(missing)


def _remove_empty(directories: list[Path]) -> None:
    """Remove directories, innermost first, up to the first that is not empty."""
    for directory in directories:
        try:
            directory.rmdir()
        except FileNotFoundError:
            continue
        except OSError:
            return
