"""Serves models to concurrent requests: admission, batching and caching."""

from app.engine.engine import Engine
from app.engine.host import Host
from app.engine.models import Models, ServedModel

__all__ = ["Engine", "Host", "Models", "ServedModel"]
