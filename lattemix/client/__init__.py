"""A server's model, from Python: `Client`, and `AsyncClient` for asyncio."""

from lattemix.client.asynchronous import AsyncClient
from lattemix.client.blocking import Client
from lattemix.client.calls import ServerError

__all__ = ["AsyncClient", "Client", "ServerError"]
