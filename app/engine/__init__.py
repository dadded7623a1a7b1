"""Serves one model to concurrent requests: admission, batching and caching."""

from app.engine.engine import Engine

__all__ = ["Engine"]
