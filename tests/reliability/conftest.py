"""Servers to be mistreated, and what they say of themselves afterwards."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from app.run import _bind, _listen, _Server
from app.server import create_app
from app.settings import Settings
from model_store import Store
from tests.app.engine.conftest import engine, gated  # noqa: F401

PATIENCE = 30  # seconds for what should be a moment: only a hang takes so long

PAIR = {"pairs": [["a dog is running outside", "the dog runs in the park"]]}


@pytest.fixture
def open_settings(store: Store) -> Settings:
    """Of a server on a port of its own, which stops at once."""
    return Settings(store=store.root, model="tiny", port=0, drain_seconds=0)


@contextmanager
def served(settings: Settings) -> Iterator[tuple[_Server, str]]:
    """A server in a thread, whose insides can be reached, and its URL once it listens."""
    listener = _bind(settings)
    _listen(listener, settings)
    server = _Server(create_app(settings), settings)
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        eventually(lambda: server.started)
        yield server, f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
    assert not thread.is_alive()


def eventually(condition: Callable[[], Any]) -> Any:
    """What the condition gives, once it gives something."""
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < end, "It never came true."
        time.sleep(0.01)
    return found


class Counted(dict[tuple[str, ...], float]):
    """What `/metrics` says: the value of each name and its labels."""

    def total(self, name: str, *labels: str) -> float:
        """The sum of a metric over everything that has these labels."""
        return sum(
            value
            for (found, *others), value in self.items()
            if found == name and set(labels) <= set(others)
        )


def counted(url: str) -> Counted:
    """What the server has counted until now."""
    families = text_string_to_metric_families(httpx.get(f"{url}/metrics", timeout=PATIENCE).text)
    return Counted(
        {
            (sample.name, *sample.labels.values()): sample.value
            for family in families
            for sample in family.samples
        }
    )


def similar(url: str, metric: str = "cosine") -> float:
    """The similarity of `PAIR`, asked for on a connection of its own."""
    answer = httpx.post(f"{url}/similarity", json=PAIR | {"metrics": [metric]}, timeout=PATIENCE)
    assert answer.status_code == 200, answer.text
    found: float = answer.json()["similarities"][0][metric]
    return found


def connect(url: str) -> socket.socket:
    """A bare connection to a server."""
    address = httpx.URL(url)
    return socket.create_connection((address.host, address.port or 80), timeout=PATIENCE)


def posted(path: str, body: bytes, length: int | None = None) -> bytes:
    """A request as it goes over the wire; `length` is what its headers claim."""
    return (
        f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body) if length is None else length}\r\n\r\n"
    ).encode() + body
