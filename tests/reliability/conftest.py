"""Raw HTTP requests and metrics, for the reliability tests."""

import socket

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from app.settings import Settings
from model_store import Store
from tests.app.conftest import PATIENCE
from tests.app.engine.conftest import engine, gated  # noqa: F401

PAIR = {"pairs": [["a dog is running outside", "the dog runs in the park"]]}


@pytest.fixture
def open_settings(store: Store) -> Settings:
    """Settings of a server on a free port, without a drain."""
    return Settings(store=store.root, model="tiny", port=0, drain_seconds=0)


class MetricValues(dict[tuple[str, ...], float]):
    """Values of `/metrics` by name and labels."""

    def total(self, name: str, *labels: str) -> float:
        """Return the sum of a metric over all samples with these labels."""
        return sum(
            value
            for (sample, *sample_labels), value in self.items()
            if sample == name and set(labels) <= set(sample_labels)
        )


def metric_values(url: str) -> MetricValues:
    """Return the current metrics of a server."""
    families = text_string_to_metric_families(httpx.get(f"{url}/metrics", timeout=PATIENCE).text)
    return MetricValues(
        {
            (sample.name, *sample.labels.values()): sample.value
            for family in families
            for sample in family.samples
        }
    )


def post_similarity(url: str, metric: str = "cosine") -> float:
    """Return the similarity of `PAIR`, requested on a new connection."""
    response = httpx.post(f"{url}/similarity", json=PAIR | {"metrics": [metric]}, timeout=PATIENCE)
    assert response.status_code == 200, response.text
    score: float = response.json()["similarities"][0][metric]
    return score


def connect(url: str) -> socket.socket:
    """Return a TCP connection to a server."""
    address = httpx.URL(url)
    return socket.create_connection((address.host, address.port or 80), timeout=PATIENCE)


def raw_post(path: str, body: bytes, length: int | None = None) -> bytes:
    """Return the bytes of a request; `length` overrides its content-length."""
    return (
        f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body) if length is None else length}\r\n\r\n"
    ).encode() + body
