"""Base errors. Messages are for users: they say what is wrong and what to do."""

from pydantic import ValidationError


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
