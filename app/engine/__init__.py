"""The request queue in front of a model: admission, batching and caching."""

from app.engine.engine import Engine

__all__ = ["Engine"]
