"""Errors of the request queue."""

from model_store import LatteMixError


class OverloadedError(LatteMixError):
    """A limit on queued work is reached; retry after `retry_after` seconds."""

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class UnavailableError(LatteMixError):
    """The model cannot answer: it is stopping or does not respond."""
