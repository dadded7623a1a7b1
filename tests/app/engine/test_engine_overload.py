"""Admission limits and estimated wait of the engine, and a stress test."""

import asyncio
import random
import threading
from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
import pytest

from app.engine import Engine
from app.engine import engine as engine_module
from app.engine import host as host_module
from app.engine.errors import OverloadedError
from app.settings import Settings
from lattemix.encoder import Encoder
from lattemix.encodings import Encoding
from lattemix.errors import EmptyTextError, InferenceError
from lattemix.settings import Truncate
from lattemix.tokenization import Tokens
from tests.app.engine.conftest import Gated, held, run, start_engine, trace, until
from tests.tiny import SENTENCES


def test_rejects_sentences_over_max_sentences(gated: Gated, settings: Settings) -> None:
    engine = start_engine(gated, settings.model_copy(update={"max_sentences": 6}))

    async def scenario() -> None:
        first = await held(engine, gated)  # one sentence, not admitted and so never released
        request = trace()
        with engine.host.admitted(request):
            waits = asyncio.create_task(
                engine.encode(SENTENCES[:7], request)
            )  # all of a request is admitted
            await until(lambda: engine.queue.sentences == 7)
            with pytest.raises(OverloadedError, match="LATTEMIX_MAX_SENTENCES is 6") as caught:
                await engine.encode(["a dog"], trace())
            assert str(caught.value).startswith("8 sentences are in progress")
            assert 1 <= caught.value.retry_after <= 60
            gated.gate.set()
            await first
            assert len((await waits).mixtures) == 7
            with pytest.raises(OverloadedError):  # until the request ends
                await engine.encode(["a dog"], trace())
        await engine.encode(["a dog"], trace())  # after it has ended

    run(scenario)
    engine.close()


def test_rejects_when_the_estimated_wait_is_too_long(
    gated: Gated, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = start_engine(gated, settings)
    monkeypatch.setattr(host_module, "_MIN_REQUESTS", 2)

    async def admitted(*texts: str) -> Encoding:
        request = trace()
        with engine.host.admitted(request):
            return await engine.encode(texts, request)

    async def scenario() -> None:
        first = await held(engine, gated)
        waiting = [asyncio.create_task(admitted(*SENTENCES[:5]))]
        await until(lambda: engine.queue.tokens)
        engine.batcher.tokens_per_second = engine.queue.tokens_ahead / 1.1
        waiting.append(asyncio.create_task(admitted("a dog")))  # among the first two
        await until(lambda: engine.queue.sentences == 6)
        engine.batcher.tokens_per_second = engine.queue.tokens_ahead / 1.1
        with pytest.raises(OverloadedError) as caught:
            await admitted("a sea")
        assert str(caught.value) == (
            "1.1 seconds of work are queued, and LATTEMIX_MAX_WAIT_SECONDS is 1.0: "
            "try again in 2 s."
        )
        engine.batcher.tokens_per_second = engine.queue.tokens_ahead / 0.9
        waiting.append(asyncio.create_task(admitted("a sea")))
        await until(lambda: engine.queue.sentences == 7)
        gated.gate.set()
        await asyncio.gather(first, *waiting)

    run(scenario)
    engine.close()


def test_measures_throughput_only_under_load(engine: Engine, gated: Gated) -> None:
    async def scenario() -> None:
        engine.batcher.tokens_per_second = 1e9
        await engine.encode(["a dog"], trace())
        assert engine.batcher.tokens_per_second == 1e9
        first = await held(engine, gated)
        waits = asyncio.create_task(engine.encode(["a man"], trace()))
        await until(lambda: engine.queue.sentences)
        gated.gate.set()
        await first
        await waits
        assert engine.batcher.tokens_per_second < 1e9

    run(scenario)


def test_retry_after_is_the_estimated_time_of_the_queue(engine: Engine) -> None:
    engine.batcher.tokens_per_second = 100.0
    engine.batcher.queue = SimpleNamespace(tokens=1234)  # type: ignore[assignment]
    assert engine.host._overloaded("much", "LATTEMIX_MAX_REQUESTS").retry_after == 13
    engine._characters = 20_000_000
    assert engine.host._overloaded("much", "LATTEMIX_MAX_REQUESTS").retry_after == 20
    engine.queue.tokens = 10**6
    assert engine.host._overloaded("much", "LATTEMIX_MAX_REQUESTS").retry_after == 60


def test_rejects_requests_over_max_requests(gated: Gated, settings: Settings) -> None:
    engine = start_engine(gated, settings.model_copy(update={"max_requests": 2}))
    overloaded = pytest.raises(OverloadedError, match="LATTEMIX_MAX_REQUESTS is 2")
    with engine.host.admitted(trace()), engine.host.admitted(trace()), overloaded:
        engine.host.admitted(trace()).__enter__()
    with engine.host.admitted(trace()):
        pass
    engine.close()


def test_estimated_wait_includes_tokenization(
    gated: Gated, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = start_engine(gated, settings.model_copy(update={"max_wait_seconds": 1e-5}))
    proceed, tokenize = threading.Event(), gated.tokenize
    parts: list[int] = []

    def slow(texts: Sequence[str], truncate: Truncate) -> list[Tokens]:
        assert proceed.wait(10)
        parts.append(len(texts))
        return tokenize(texts, truncate)

    monkeypatch.setattr(gated, "tokenize", slow)
    monkeypatch.setattr(engine_module, "_INLINE_CHARACTERS", 0)
    monkeypatch.setattr(engine_module, "_SLICE_CHARACTERS", 100)
    monkeypatch.setattr(host_module, "_MIN_REQUESTS", -1)

    async def scenario() -> None:
        large = asyncio.create_task(engine.encode(["dog " * 20, "sea " * 20, "a", " "], trace()))
        await until(lambda: engine._characters == 162)
        with pytest.raises(OverloadedError):
            await engine.encode(["a dog"], trace())
        proceed.set()
        with pytest.raises(EmptyTextError) as caught:
            await large
        assert caught.value.index == 3  # among all texts
        assert parts == [1, 3]  # in slices
        assert engine._characters == 0

    run(scenario)
    engine.close()


def test_concurrent_requests_get_their_own_mixtures(
    gated: Gated, settings: Settings, encoder: Encoder
) -> None:
    """Requests overlap, are cancelled and fail, on several threads."""
    chance = random.Random(5)
    gated.parallel = 3
    poison = gated.tokenize(["the sea was calm and blue"])[0].ids
    gated.fails = lambda batch: poison in batch or chance.random() < 0.05
    engine = start_engine(gated, settings.model_copy(update={"cache_bytes": 2_000}))
    expected = {text: encoder.encode([text]).mixtures[0] for text in SENTENCES}

    async def request() -> str:
        texts = chance.choices(SENTENCES, k=chance.randint(1, 6))
        try:
            async with asyncio.timeout(chance.choice([0.0, 0.001, 0.01, 30])):
                encoding = await engine.encode(texts, trace())
        except TimeoutError:
            return "cancelled"
        except InferenceError:
            return "failed"
        for text, mixture in zip(texts, encoding.mixtures, strict=True):
            np.testing.assert_allclose(mixture, expected[text], atol=1e-6)
        return "answered"

    async def scenario() -> None:
        outcomes = await asyncio.gather(*(request() for _ in range(400)))
        assert set(outcomes) == {"cancelled", "failed", "answered"}
        await until(lambda: not engine.batcher.in_flight)
        assert (engine.queue.sentences, engine.queue.tokens, engine._characters) == (0, 0, 0)
        assert not engine.queue._rotation

    run(scenario)
    engine.close()
