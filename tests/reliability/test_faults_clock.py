"""A system clock that jumps by hours while requests are served."""

import random
import time

import httpx
import pytest

from app.settings import Settings
from tests.app.conftest import PATIENCE, serve_in_thread
from tests.reliability.conftest import metric_values, post_similarity

HOURS = 5 * 3600


@pytest.fixture
def jumping_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the time of day be hours ahead or behind, at random."""
    now, now_ns, rng = time.time, time.time_ns, random.Random(5)
    monkeypatch.setattr(time, "time", lambda: now() + rng.choice((-HOURS, HOURS)))
    monkeypatch.setattr(time, "time_ns", lambda: now_ns() + rng.choice((-HOURS, HOURS)) * 10**9)


@pytest.mark.usefixtures("jumping_clock")
def test_timeouts_do_not_use_the_time_of_day(open_settings: Settings) -> None:
    assert len({round(time.time() / HOURS) for _ in range(50)}) > 1  # the clock jumps
    settings = open_settings.model_copy(update={"cache_bytes": 0})  # every request is queued
    with (
        serve_in_thread(settings) as (server, url),
        httpx.Client(base_url=url, timeout=PATIENCE) as client,
    ):
        for _ in range(20):
            assert client.get("/ready").status_code == 200
            response = client.post("/embed", json={"inputs": ["a dog", "the sea was calm"]})
            assert response.status_code == 200
            assert 0 < float(response.headers["x-total-time"]) < PATIENCE * 1000
            post_similarity(url)
        values = metric_values(url)
        assert values.total("lattemix_requests_total", "POST", "200") == 40
        seconds = sum(v for (name, *_), v in values.items() if name.endswith("_seconds_sum"))
        assert 0 < seconds < 40 * PATIENCE
        assert server._host.requests == 0
