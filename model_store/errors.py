"""Base errors. Messages are for users: they say what is wrong and what to do."""

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

Record = TypeVar("Record", bound=BaseModel)


class LatteMixError(Exception):
    """Base class of all errors that Latte-Mix raises on purpose."""


class ArtifactError(LatteMixError):
    """An artifact is missing, damaged, or different from its manifest."""


class StoreError(LatteMixError):
    """The model store cannot be read or written, or has no such model."""


def first_problem(error: ValidationError) -> str:
    """Return pydantic's first error as `field.of.field: reason`."""
    first = error.errors()[0]
    location = ".".join(str(part) for part in first["loc"])
    reason = first["msg"].removeprefix("Value error, ")
    return f"{location}: {reason}" if location else reason


def read_json(path: Path, kind: type[Record]) -> Record:
    """Read a JSON file of an artifact; raise `ArtifactError` if it is invalid."""
    try:
        return kind.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ArtifactError(f"{path} cannot be read: {error.strerror}.") from error
    except ValidationError as error:
        raise ArtifactError(f"{path} is not valid: {first_problem(error)}.") from error
