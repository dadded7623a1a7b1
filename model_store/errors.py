"""Errors a user can act on: each message is a sentence that names what is wrong and what to do."""


class LatteMixError(Exception):
    """Base of every error Latte-Mix raises on purpose; its message is meant for the user."""


class ArtifactError(LatteMixError):
    """An artifact is missing, damaged, or not what its manifest says."""


class StoreError(LatteMixError):
    """The model store cannot be read or written as asked."""
