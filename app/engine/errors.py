"""Errors of the engine."""

from model_store import LatteMixError


class OverloadedError(LatteMixError):
    """A limit on work in progress is reached; retry after `retry_after` seconds."""

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class UnavailableError(LatteMixError):
    """The model cannot answer: it is stopping or does not respond."""


class UnknownModelError(LatteMixError):
    """A request names a model that is not served."""
