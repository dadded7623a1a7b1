"""The engine with impatient clients, too many of them, and a model that fails."""

import asyncio
import random
import threading
from collections.abc import Iterable, Sequence
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.typing import NDArray

from app.engine import EmptyTextError, Encoder, Encoding, Engine
from app.engine import batcher as batcher_module
from app.engine import engine as engine_module
from app.engine.batcher import _Batch
from app.engine.errors import (
    InferenceError,
    OverloadedError,
)
from app.engine.queue import Sentence, Ticket
from app.engine.session import Session
from app.engine.tokenization import Side, Tokens
from app.observe import Metrics
from app.settings import Settings
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


def test_a_batch_that_fails_is_tried_in_parts(engine: Engine, gated: Gated) -> None:
    async def scenario() -> None:
        first = await held(engine, gated)
        gated.fails = lambda batch: len(batch) > 2  # as where memory is short
        many = asyncio.create_task(engine.encode(["a dog", "a man", "a sea", "a ball"], trace()))
        await until(lambda: engine.queue.sentences == 4)
        gated.gate.set()
        await first
        expected = Encoder(gated.artifact, provider="cpu").encode(
            ["a dog", "a man", "a sea", "a ball"]
        )
        np.testing.assert_allclose((await many).mixtures, expected.mixtures, atol=1e-6)

    run(scenario)


def test_a_sentence_that_fails_fails_alone(
    engine: Engine, gated: Gated, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        first = await held(engine, gated)
        poison = gated.tokenize(["a sea"])[0].ids
        gated.fails = lambda batch: poison in batch
        bad = asyncio.create_task(engine.encode(["a sea", "a ball"], trace()))
        good = asyncio.create_task(engine.encode(["a dog", "a man"], trace()))
        await until(lambda: engine.queue.sentences == 4)
        gated.gate.set()
        await first
        assert len((await good).mixtures) == 2
        with pytest.raises(InferenceError, match="log says why"):
            await bad
        assert "out of memory" in caplog.text
        gated.fails = lambda batch: False
        await engine.encode(["a sea"], trace())  # the engine goes on

    run(scenario)


def test_a_fault_of_our_own_does_not_end_the_engine(
    gated: Gated,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    faults = iter([True, False])

    def observe_batch(*batch: object) -> None:
        if next(faults):
            raise ZeroDivisionError("in the metrics")

    metrics = Metrics()
    monkeypatch.setattr(metrics, "observe_batch", observe_batch)
    engine = Engine(gated, settings, metrics)

    async def scenario() -> None:
        with pytest.raises(InferenceError):
            await engine.encode(["a dog"], trace())
        assert "in the metrics" in caplog.text
        assert len((await engine.encode(["a man"], trace())).mixtures) == 1

    run(scenario)
    engine.close()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_non_finite_mixture_fails_its_sentence_and_is_not_cached(
    gated: Gated,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    value: float,
) -> None:
    metrics = Metrics()
    engine = Engine(gated, settings, metrics)
    poison = gated.tokenize(["a sea"])[0].ids
    compute = Session.run

    def overflow(
        self: Session,
        ids: NDArray[np.int64],
        mask: NDArray[np.int64],
        pool: NDArray[np.float32],
    ) -> NDArray[np.float32]:
        mixtures = compute(self, ids, mask, pool).copy()
        mixtures[(ids[:, : len(poison)] == poison).all(axis=1), 0, 0, 0] = value
        return mixtures

    async def scenario() -> None:
        first = await held(engine, gated)
        monkeypatch.setattr(Session, "run", overflow)
        bad = asyncio.create_task(engine.encode(["a sea", "a ball"], trace()))
        good = asyncio.create_task(engine.encode(["a dog"], trace()))
        await until(lambda: engine.queue.sentences == 3)
        gated.gate.set()
        await first
        with pytest.raises(InferenceError):
            await bad
        assert np.isfinite((await good).mixtures).all()
        assert "not finite" in caplog.text
        again = trace()
        with pytest.raises(InferenceError):
            await engine.encode(["a sea"], again)
        assert again.cached == 0
        counted = metrics.render().decode()
        assert 'lattemix_failed_sentences_total{reason="nonfinite"} 2.0' in counted

    run(scenario)
    engine.close()


def test_a_broken_model_is_not_run_for_those_who_have_their_answer(
    engine: Engine, gated: Gated, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        first = await held(engine, gated)
        gated.fails = lambda batch: True
        texts = [f"a {word}" for word in ("dog", "man", "sea", "ball", "park", "child", "week")]
        waits = asyncio.create_task(engine.encode(texts, trace()))
        await until(lambda: engine.queue.sentences == 7)
        gated.gate.set()
        with pytest.raises(InferenceError):
            await waits
        with pytest.raises(InferenceError):
            await first
        await until(lambda: not engine.batcher.flying)
        # One traceback for the batch that was held, one for this one, and not one per sentence.
        assert caplog.text.count("Traceback") == 2

    run(scenario)


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


def test_request_fails_when_one_of_its_batches_fails_and_another_succeeds_at_the_same_time(
    gated: Gated, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    gated.parallel = 2
    engine = Engine(gated, settings)
    poison = gated.tokenize(["a sea"])[0].ids
    gated.fails = lambda batch: poison in batch
    succeeded = threading.Event()
    finish = batcher_module.finish

    def reluctant_to_fail(tickets: Iterable[Ticket], error: Exception | None = None) -> None:
        if error is None:
            finish(tickets)
            succeeded.set()
        else:
            succeeded.wait(0.5)  # let the success overtake the failure, if it can
            finish(tickets, error)

    monkeypatch.setattr(batcher_module, "finish", reluctant_to_fail)
    monkeypatch.setattr(engine.batcher.queue, "_token_budget", 1)  # one sentence per batch

    async def scenario() -> None:
        with pytest.raises(InferenceError):
            await engine.encode(["a sea", "the dog runs in the park"], trace())

    run(scenario)
    engine.close()
