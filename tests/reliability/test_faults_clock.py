"""A clock that is set, by hours, while requests are answered."""

import itertools
import threading
import time

import httpx
import pytest

from app.settings import Settings
from tests.reliability.conftest import PATIENCE, counted, served, similar

HOURS = 5 * 3600


@pytest.fixture
def jumping(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for the time of day gets one hours ahead, then one hours behind."""
    right, right_ns = time.time, time.time_ns
    jumps, lock = itertools.cycle((HOURS, -HOURS)), threading.Lock()

    def jump() -> int:
        with lock:
            return next(jumps)

    monkeypatch.setattr(time, "time", lambda: right() + jump())
    monkeypatch.setattr(time, "time_ns", lambda: right_ns() + jump() * 10**9)


@pytest.mark.usefixtures("jumping")
def test_nothing_waits_by_the_time_of_day(open_settings: Settings) -> None:
    assert abs(time.time() - time.time()) > HOURS  # it does jump
    with (
        served(open_settings) as (server, url),
        httpx.Client(base_url=url, timeout=PATIENCE) as client,
    ):
        for _ in range(20):
            assert client.get("/ready").status_code == 200
            answer = client.post("/embed", json={"inputs": ["a dog", "the sea was calm"]})
            assert answer.status_code == 200
            assert 0 < float(answer.headers["x-total-time"]) < PATIENCE * 1000
            similar(url)
        found = counted(url)
        assert found.total("lattemix_requests_total", "POST", "200") == 40
        seconds = sum(v for (name, *_), v in found.items() if name.endswith("_seconds_sum"))
        assert 0 < seconds < 40 * PATIENCE
        assert server._engine._requests == 0
