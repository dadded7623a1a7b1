"""The output directory of a run: its lock, its saved state, and the commands to run next."""

import fcntl
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError, safe_open

from model_store import LatteMixError
from model_store.manifest import NAME_PATTERN

STATE, CHECKPOINT = "run", "checkpoint.safetensors"


def saved_step(out: Path) -> int | None:
    """The step at which the run in `out` resumes; None without a checkpoint."""
    try:
        with safe_open(out / STATE / CHECKPOINT, framework="numpy") as file:
            return int(file.metadata()["step"])
    except FileNotFoundError:
        return None
    except (OSError, SafetensorError):
        return 0  # damaged: restoring it fails with an error that says what to do


@contextmanager
def exclusive(out: Path) -> Iterator[None]:
    """Create `out` and lock it against other runs; remove it afterwards if it is empty."""
    if out.exists() and not out.is_dir():
        raise LatteMixError(f"--out {out} is a file: a head is a directory.")
    created = [path for path in (out, *out.parents) if not path.exists()]
    try:
        out.mkdir(parents=True, exist_ok=True)
        file = (out / ".lock").open("w")
    except OSError as error:
        _remove_empty(created)
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
            _remove_empty(created)


@contextmanager
def new_directory(out: Path) -> Iterator[Path]:
    """Yield a directory to write to; it becomes `out`, which must be missing or empty, at the end.

    After an exception `out` is unchanged.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise LatteMixError(f"{out} is not an empty directory: remove it or pass another --out.")
    partial = out.with_name(f"{out.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # left by a killed process
    created = [path for path in (partial, *out.parents) if not path.exists()]
    try:
        partial.mkdir(parents=True)
        yield partial
        partial.replace(out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        _remove_empty(created)


def _remove_empty(directories: list[Path]) -> None:
    """Remove directories, innermost first, up to the first that is not empty."""
    for directory in directories:
        try:
            directory.rmdir()
        except FileNotFoundError:
            continue
        except OSError:
            return


def resume_command(saved: bool) -> str:
    """This process's command line, without `--restart` if there is a checkpoint to resume.

    torchrun is left out: it only speeds up encoding, which is cached.
    """
    dropped = ("--restart",) if saved else ()
    arguments = [argument for argument in sys.argv[1:] if argument not in dropped]
    return shlex.join([*_program(), *arguments])


def export_commands(head: Path, backbone: str | None = None) -> tuple[str, str]:
    """The commands that export a head and serve the model.

    `backbone` is its source, if the name recorded in the head is not enough.
    """
    name = head.resolve().name
    export = [*_program(), "export", "--head", str(head)]
    if not re.fullmatch(NAME_PATTERN, name):
        name = re.sub(r"[^A-Za-z0-9]+", "-", name)[:64].strip("-") or "mine"
        export += ["--name", name]
    if backbone is not None:
        export += ["--backbone", backbone]
    serve = [_short(Path(_program()[0]).with_name("lattemix")), "serve", "--model", name]
    return shlex.join(export), shlex.join(serve)


def _program() -> list[str]:
    """How this process was started: as a script, or with `python -m training`."""
    script = Path(sys.argv[0])
    if script.name == "__main__.py":
        return [_short(Path(sys.executable)), "-m", "training"]
    return [_short(script)]


def _short(program: Path) -> str:
    """The program's name if it is on the PATH, else its path."""
    match = shutil.which(program.name)
    # Not resolved: the `python` of a virtual environment is a link to another interpreter.
    is_same = match is not None and os.path.abspath(match) == os.path.abspath(program)
    return program.name if is_same else str(program)
