"""A clock that is set, by hours, while requests are answered."""

import random
import time

import httpx
import pytest

from app.settings import Settings
from tests.reliability.conftest import PATIENCE, counted, served, similar

HOURS = 5 * 3600


@pytest.fixture
def jumping(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for the time of day gets one that is hours ahead, or hours behind."""
    right, right_ns, chance = time.time, time.time_ns, random.Random(5)
    monkeypatch.setattr(time, "time", lambda: right() + chance.choice((-HOURS, HOURS)))
    monkeypatch.setattr(
        time, "time_ns", lambda: right_ns() + chance.choice((-HOURS, HOURS)) * 10**9
    )


@pytest.mark.usefixtures("jumping")
def test_nothing_waits_by_the_time_of_day(open_settings: Settings) -> None:
    assert len({round(time.time() / HOURS) for _ in range(50)}) > 1  # it does jump
    settings = open_settings.model_copy(update={"cache_bytes": 0})  # all of them wait
    with (
        served(settings) as (server, url),
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
