"""Ask a Latte-Mix server.

with Client("http://127.0.0.1:8000") as client:
    answer = client.similarity([("A man is eating.", "Someone is having lunch.")])
    print(answer.similarities[0].cosine)
"""

from lattemix.client.asynchronous import AsyncClient
from lattemix.client.blocking import Client
from lattemix.client.calls import Embedded, Refusal, ServerError

__all__ = ["AsyncClient", "Client", "Embedded", "Refusal", "ServerError"]
