"""Whether the engine is ready, and how it ends."""

import asyncio
import threading

import pytest

from app.engine import Engine
from app.engine import engine as engine_module
from app.engine.errors import UnavailableError
from app.settings import Settings
from lattemix.errors import InferenceError
from tests.app.engine.conftest import Gated, held, run, trace, until


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asks the model every time, and does not wait for it."""
    monkeypatch.setattr(engine_module, "_FRESH_SECONDS", 0.0)
    monkeypatch.setattr(engine_module, "_PATIENCE_SECONDS", 0.01)


def test_ready_asks_the_model(
    engine: Engine, gated: Gated, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        await engine.check()
        assert gated.batches == []  # the warm-up has just shown it
        monkeypatch.setattr(engine_module, "_FRESH_SECONDS", 0.0)
        await engine.check()
        await engine.check()
        assert len(gated.batches) == 2  # nothing is remembered here
        gated.fails = lambda batch: True
        with pytest.raises(InferenceError):
            await engine.check()

    run(scenario)


def test_a_failure_makes_ready_ask_again(engine: Engine, gated: Gated) -> None:
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
def test_a_model_that_hangs_is_not_ready(engine: Engine, gated: Gated) -> None:
    async def scenario() -> None:
        first = await held(engine, gated)
        with pytest.raises(UnavailableError, match="has not answered"):
            await engine.check()
        assert engine.queue.sentences == 0  # the question is withdrawn
        gated.gate.set()
        await first

    run(scenario)


@pytest.mark.usefixtures("impatient")
def test_a_full_queue_that_hangs_is_not_ready(gated: Gated, settings: Settings) -> None:
    engine = Engine(gated, settings.model_copy(update={"max_sentences": 2}))

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


def test_draining_is_not_ready_but_still_answers(engine: Engine) -> None:
    async def scenario() -> None:
        engine.draining = True
        with pytest.raises(UnavailableError, match="stopping"):
            await engine.check()
        assert len((await engine.encode(["a dog"], trace())).mixtures) == 1

    run(scenario)


def test_stopping_gives_up_what_waits_and_takes_no_more(engine: Engine, gated: Gated) -> None:
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


def test_closing_ends_the_threads(gated: Gated, settings: Settings) -> None:
    before = set(threading.enumerate())
    engine = Engine(gated, settings)
    run(lambda: engine.encode(["a dog " * 99] * 9, trace()))  # enough to need threads for
    assert len(set(threading.enumerate()) - before) >= 3  # the model's, the tokenizer's, the pool's
    engine.close()
    assert set(threading.enumerate()) <= before


def test_a_model_that_hangs_does_not_keep_the_process(
    gated: Gated, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "_PATIENCE_SECONDS", 0.01)
    engine = Engine(gated, settings)

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
