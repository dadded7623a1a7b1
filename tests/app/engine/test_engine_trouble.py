"""The engine with impatient clients, and too many of them."""

import asyncio
import random
import threading
from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
import pytest

from app.engine import Engine
from app.engine import engine as engine_module
from app.engine.batcher import _Batch
from app.engine.errors import OverloadedError
from app.engine.queue import Sentence
from app.settings import Settings
from lattemix.encoder import Encoder, Encoding
from lattemix.errors import EmptyTextError, InferenceError
from lattemix.tokenization import Side, Tokens
from tests.app.engine.conftest import Gated, held, run, trace, until
from tests.conftest import SENTENCES


def test_what_a_client_left_behind_is_not_computed(engine: Engine, gated: Gated) -> None:
    async def scenario() -> None:
        first = await held(engine, gated)
        left = asyncio.create_task(engine.encode(["a dog", "a man"], trace()))
        stays = asyncio.create_task(engine.encode(["a man"], trace()))
        await until(lambda: engine.queue.sentences == 2)
        left.cancel()
        await until(lambda: engine.queue.sentences == 1)  # "a man" is still wanted
        gated.gate.set()
        await first
        await stays
        assert sum(map(len, gated.batches)) == 2
        with pytest.raises(asyncio.CancelledError):
            await left

    run(scenario)


def test_a_full_house_refuses_and_says_when_to_return(gated: Gated, settings: Settings) -> None:
    engine = Engine(gated, settings.model_copy(update={"max_sentences": 6}))

    async def scenario() -> None:
        first = await held(engine, gated)  # one sentence, which nobody lets go
        entered = trace()
        with engine.admitted(entered):
            waits = asyncio.create_task(engine.encode(SENTENCES[:7], entered))  # once in, all of it
            await until(lambda: engine.queue.sentences == 7)
            with pytest.raises(OverloadedError, match="LATTEMIX_MAX_SENTENCES is 6") as caught:
                await engine.encode(["a dog"], trace())
            assert str(caught.value).startswith("8 sentences are waiting already")
            assert 1 <= caught.value.retry_after <= 60
            gated.gate.set()
            await first
            assert len((await waits).mixtures) == 7
            with pytest.raises(OverloadedError):  # until it is answered
                await engine.encode(["a dog"], trace())
        await engine.encode(["a dog"], trace())  # there is room again

    run(scenario)
    engine.close()


def test_who_would_wait_too_long_is_refused(
    gated: Gated, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(gated, settings)
    monkeypatch.setattr(engine_module, "_FEW_REQUESTS", 2)

    async def admitted(*texts: str) -> Encoding:
        entered = trace()
        with engine.admitted(entered):
            return await engine.encode(texts, entered)

    async def scenario() -> None:
        first = await held(engine, gated)
        waiting = [asyncio.create_task(admitted(*SENTENCES[:5]))]
        await until(lambda: engine.queue.tokens)
        engine.batcher.tokens_per_second = engine.queue.ahead / 1.1
        waiting.append(asyncio.create_task(admitted("a dog")))  # one of few
        await until(lambda: engine.queue.sentences == 6)
        engine.batcher.tokens_per_second = engine.queue.ahead / 1.1
        with pytest.raises(OverloadedError) as caught:
            await admitted("a sea")
        assert str(caught.value) == (
            "1.1 seconds of work are waiting already, and LATTEMIX_MAX_WAIT_SECONDS is 1.0: "
            "try again in 2 s."
        )
        engine.batcher.tokens_per_second = engine.queue.ahead / 0.9
        waiting.append(asyncio.create_task(admitted("a sea")))
        await until(lambda: engine.queue.sentences == 7)
        gated.gate.set()
        await asyncio.gather(first, *waiting)

    run(scenario)
    engine.close()


def test_only_what_ran_while_more_waited_says_how_fast_the_model_is(
    engine: Engine, gated: Gated
) -> None:
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


def test_retry_after_is_how_long_the_queue_will_take(engine: Engine) -> None:
    engine.batcher.tokens_per_second = 100.0
    engine.batcher.queue = SimpleNamespace(tokens=1234)  # type: ignore[assignment]
    assert engine._overloaded("much", "LATTEMIX_MAX_REQUESTS").retry_after == 13
    engine._arriving = 20_000_000  # characters
    assert engine._overloaded("much", "LATTEMIX_MAX_REQUESTS").retry_after == 20
    engine.queue.tokens = 10**6
    assert engine._overloaded("much", "LATTEMIX_MAX_REQUESTS").retry_after == 60


def test_too_many_requests_are_refused(gated: Gated, settings: Settings) -> None:
    engine = Engine(gated, settings.model_copy(update={"max_requests": 2}))
    overloaded = pytest.raises(OverloadedError, match="LATTEMIX_MAX_REQUESTS is 2")
    with engine.admitted(trace()), engine.admitted(trace()), overloaded:
        engine.admitted(trace()).__enter__()
    with engine.admitted(trace()):
        pass
    engine.close()


def test_one_who_asks_again_for_what_is_being_computed_waits_for_it(
    engine: Engine, gated: Gated
) -> None:
    async def scenario() -> None:
        first = await held(engine, gated, "a dog")
        first.cancel()
        await asyncio.wait({first})
        again = asyncio.create_task(engine.encode(["a dog"], trace()))
        await until(
            lambda: engine.batcher.flying and next(iter(engine.batcher.flying.values())).tickets
        )
        gated.gate.set()
        assert len((await again).mixtures) == 1
        assert len(gated.batches) == 1

    run(scenario)


def test_what_was_dropped_at_the_last_moment_can_be_asked_for_again(
    engine: Engine, gated: Gated, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = engine.batcher._begin

    async def scenario() -> None:
        left = asyncio.create_task(engine.encode(["a dog"], trace()))
        taken, proceed = threading.Event(), threading.Event()

        def slowly(batch: list[Sentence]) -> _Batch:
            taken.set()
            assert proceed.wait(10)
            return begin(batch)

        monkeypatch.setattr(engine.batcher, "_begin", slowly)
        await until(taken.is_set)
        left.cancel()  # after its batch was chosen, before it is run
        await asyncio.wait({left})
        proceed.set()
        await until(lambda: not engine.batcher.flying)
        assert gated.batches == []
        assert len((await engine.encode(["a dog"], trace())).mixtures) == 1

    run(scenario)


def test_texts_that_are_being_tokenized_count_as_waiting(
    gated: Gated, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(gated, settings.model_copy(update={"max_wait_seconds": 1e-5}))
    proceed, tokenize = threading.Event(), gated.tokenize
    parts: list[int] = []

    def slow(texts: Sequence[str], cut: Side) -> list[Tokens]:
        assert proceed.wait(10)
        parts.append(len(texts))
        return tokenize(texts, cut)

    monkeypatch.setattr(gated, "tokenize", slow)
    monkeypatch.setattr(engine_module, "_FEW_CHARACTERS", 0)
    monkeypatch.setattr(engine_module, "_SLICE_CHARACTERS", 100)
    monkeypatch.setattr(engine_module, "_FEW_REQUESTS", -1)

    async def scenario() -> None:
        large = asyncio.create_task(engine.encode(["dog " * 20, "sea " * 20, "a", " "], trace()))
        await until(lambda: engine._arriving == 162)
        with pytest.raises(OverloadedError):
            await engine.encode(["a dog"], trace())
        proceed.set()
        with pytest.raises(EmptyTextError) as caught:
            await large
        assert caught.value.index == 3  # among all of them
        assert parts == [1, 3]  # in slices
        assert engine._arriving == 0

    run(scenario)
    engine.close()


def test_in_the_thick_of_it_everyone_gets_their_own_answer(
    gated: Gated, settings: Settings, encoder: Encoder
) -> None:
    """Requests that overlap, leave and fail, on a model of several threads."""
    chance = random.Random(5)
    gated.parallel = 3
    poison = gated.tokenize(["the sea was calm and blue"])[0].ids
    gated.fails = lambda batch: poison in batch or chance.random() < 0.05
    engine = Engine(gated, settings.model_copy(update={"cache_bytes": 2_000}))
    expected = {text: encoder.encode([text]).mixtures[0] for text in SENTENCES}

    async def ask() -> str:
        texts = chance.choices(SENTENCES, k=chance.randint(1, 6))
        try:
            async with asyncio.timeout(chance.choice([0.0, 0.001, 0.01, 30])):
                found = await engine.encode(texts, trace())
        except TimeoutError:
            return "left"
        except InferenceError:
            return "failed"
        for text, mixture in zip(texts, found.mixtures, strict=True):
            np.testing.assert_allclose(mixture, expected[text], atol=1e-6)
        return "answered"

    async def scenario() -> None:
        outcomes = await asyncio.gather(*(ask() for _ in range(400)))
        assert set(outcomes) == {"left", "failed", "answered"}
        await until(lambda: not engine.batcher.flying)
        assert (engine.queue.sentences, engine.queue.tokens, engine._arriving) == (0, 0, 0)

    run(scenario)
    engine.close()
