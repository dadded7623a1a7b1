"""Output directories that get their name when they are complete, and can be resumed until then."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from model_store import LatteMixError

# Readers of whole directories, such as Spark and pyarrow, skip names with this prefix.
LOCK, PLAN = "_lock", "_plan.json"

Plan = TypeVar("Plan", bound=BaseModel)


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
    """Make a directory and exclude other runs; remove it if no plan was written."""
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


def write_text(path: Path, text: str) -> None:
    """Write a file atomically."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(text, encoding="utf-8")
    part.replace(path)
