"""Output directories that get their name when they are complete, and can be resumed until then."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError

from model_store import LatteMixError

# Readers of whole directories, such as Spark and pyarrow, skip names with this prefix.
LOCK, PLAN = "_lock", "_plan.json"

Plan = TypeVar("Plan", bound=BaseModel)
Result = TypeVar("Result", bound=BaseModel)


def partial_path(output: Path) -> Path:
    """Path of an output directory until it is complete."""
    return Path(f"{output}.partial")


def check_new(output: Path) -> None:
    """Raise `LatteMixError` if a directory exists, or cannot be created."""
    if output.exists():
        raise LatteMixError(f"{output} exists: remove it, or choose another.")
    if not output.parent.is_dir():
        raise LatteMixError(f"{output}: there is no directory {output.parent}.")


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Make a directory and exclude other runs; remove it if it is still empty at the end."""
    directory.mkdir(exist_ok=True)
    with (directory / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise LatteMixError(f"Another run is writing to {directory}.") from None
        try:
            yield
        finally:
            if directory.exists() and not (directory / PLAN).exists():
                (directory / LOCK).unlink()
                with suppress(OSError):  # not empty
                    directory.rmdir()


def read_plan(directory: Path, make: Callable[[], Plan], kind: type[Plan]) -> Plan:
    """Return the plan of an interrupted run, or make and write a new one."""
    path = directory / PLAN
    try:
        return kind.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        plan = make()
        write_text(path, plan.model_dump_json())
        return plan
    except ValidationError:
        raise LatteMixError(f"{path} is damaged: remove {directory}.") from None


def check_same(directory: Path, difference: str | None) -> None:
    """Raise `LatteMixError` if an interrupted run had another task."""
    if difference is not None:
        raise LatteMixError(
            f"{directory} was started with {difference}: "
            "continue with the same, or remove it to start again."
        )


def task_difference(
    planned: BaseModel, task: BaseModel, special: Callable[[str, object], str | None]
) -> str | None:
    """Describe the first field of a task that differs, as an option; None if none does.

    `special` describes fields that are not options, given a name and the planned value.
    """
    values = dict(planned)
    for name, value in task:
        if values[name] == value:
            continue
        if description := special(name, values[name]):
            return description
        shown = ",".join(values[name]) if isinstance(values[name], tuple) else values[name]
        option = name.replace("_", "-")
        return f"--{option} {shown}" if shown else f"no --{option}"
    return None


@contextmanager
def atomic(path: Path) -> Iterator[BinaryIO]:
    """Open a file to write, which gets its name when it is complete."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with part.open("wb") as file:
            yield file
        part.replace(path)
    except OSError as error:
        error.filename = error.filename or str(path)  # a full disk's error names no file
        raise
    finally:
        part.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with atomic(path) as file:
        file.write(text.encode())


def write_arrays(path: Path, **arrays: NDArray[Any]) -> None:
    """Write an .npz file atomically."""
    with atomic(path) as file:
        np.savez(file, allow_pickle=False, **arrays)


def read_result(path: Path, kind: type[Result]) -> Result | None:
    """Return the result of a part; None if it is not finished."""
    try:
        return kind.model_validate_json(path.read_bytes())
    except (FileNotFoundError, ValidationError):  # truncated by a power failure
        return None
