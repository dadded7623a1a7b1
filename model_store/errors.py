"""Errors a user can act on: each message is a sentence that names what is wrong and what to do."""

from pydantic import ValidationError


def first_problem(error: ValidationError) -> str:
    """What pydantic found wrong first, as `field.of.field: reason`."""
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    reason = first["msg"].removeprefix("Value error, ")
    return f"{place}: {reason}" if place else reason


class LatteMixError(Exception):
    """Base of every error Latte-Mix raises on purpose; its message is meant for the user."""


class ArtifactError(LatteMixError):
    """An artifact is missing, damaged, or not what its manifest says."""


class StoreError(LatteMixError):
    """The model store cannot be read or written as asked."""
