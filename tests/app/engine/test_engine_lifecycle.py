"""Readiness, draining and shutdown of the engine."""

import asyncio
import threading

import pytest

from app.engine import Engine
from app.engine import engine as engine_module
from app.engine.errors import UnavailableError
from app.settings import Settings
from lattemix.errors import InferenceError
from tests.app.engine.conftest import Gated, held, run, start_engine, trace, until


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Probe the model every time, with a short timeout."""
    monkeypatch.setattr(engine_module, "_RECENT_SECONDS", 0.0)
    monkeypatch.setattr(engine_module, "_TIMEOUT_SECONDS", 0.01)


def test_check_probes_the_model_without_recent_success(
    engine: Engine, gated: Gated, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        await engine.check()
        assert gated.batches == []  # the warm-up succeeded just now
        monkeypatch.setattr(engine_module, "_RECENT_SECONDS", 0.0)
        await engine.check()
        await engine.check()
        assert len(gated.batches) == 2  # probes are not cached
        gated.fails = lambda batch: True
        with pytest.raises(InferenceError):
            await engine.check()

    run(scenario)


def test_check_probes_the_model_after_a_failure(engine: Engine, gated: Gated) -> None:
    async def scenario() -> None:
        gated.fails = lambda batch: True
        with pytest.raises(InferenceError):
            await engine.encode(["a dog"], trace())
        with pytest.raises(InferenceError):
            await engine.check()
        gated.fails = lambda batch: False
        await engine.check()

    run(scenario)


@pytest.mark.usefixtures("impatient")
def test_check_fails_when_the_model_hangs(engine: Engine, gated: Gated) -> None:
    async def scenario() -> None:
        first = await held(engine, gated)
        with pytest.raises(UnavailableError, match="has not answered"):
            await engine.check()
        assert engine.queue.sentences == 0  # the probe is withdrawn
        gated.gate.set()
        await first

    run(scenario)


@pytest.mark.usefixtures("impatient")
def test_check_fails_when_the_model_hangs_and_the_queue_is_full(
    gated: Gated, settings: Settings
) -> None:
    engine = start_engine(gated, settings.model_copy(update={"max_sentences": 2}))

    async def scenario() -> None:
        first = await held(engine, gated)
        waits = asyncio.create_task(engine.encode(["a dog"], trace()))
        await until(lambda: engine.queue.sentences)
        with pytest.raises(UnavailableError, match="has not answered"):
            await engine.check()
        gated.gate.set()
        await first
        await waits

    run(scenario)
    engine.close()


def test_stop_fails_requests_in_flight_and_rejects_new_ones(engine: Engine, gated: Gated) -> None:
    async def scenario() -> None:
        first = await held(engine, gated)
        waits = asyncio.create_task(engine.encode(["a dog"], trace()))
        await until(lambda: engine.queue.sentences == 1)
        engine.stop()
        for task in (first, waits):
            with pytest.raises(UnavailableError, match="send it again"):
                await task
        with pytest.raises(UnavailableError, match="stopping"):
            await engine.encode(["a man"], trace())

    run(scenario)


def test_close_ends_all_threads(gated: Gated, settings: Settings) -> None:
    before = set(threading.enumerate())
    engine = start_engine(gated, settings)
    run(lambda: engine.encode(["a dog " * 99] * 9, trace()))  # too large to be inline
    run(lambda: engine.host.off_loop(lambda: None))
    assert len(set(threading.enumerate()) - before) >= 3  # model, tokenizer, pool
    engine.close()
    engine.host.close()
    assert set(threading.enumerate()) <= before


def test_close_does_not_wait_for_a_model_that_hangs(
    gated: Gated, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "_TIMEOUT_SECONDS", 0.01)
    engine = start_engine(gated, settings)

    async def scenario() -> None:
        first = await held(engine, gated)
        engine.close()
        with pytest.raises(UnavailableError):
            await first

    run(scenario)
    (thread,) = engine.batcher.threads
    assert thread.is_alive()
    assert thread.daemon
    gated.gate.set()
