"""Batches: shared sentences, withdrawn requests and failures."""

import asyncio
import threading
from collections.abc import Iterable

import numpy as np
import pytest
from numpy.typing import NDArray

from app.engine import Engine
from app.engine import batcher as batcher_module
from app.engine.batcher import _Batch
from app.engine.queue import Sentence, Submission
from app.observe import Metrics, ModelMetrics
from app.settings import Settings
from lattemix.encoder import Encoder
from lattemix.errors import InferenceError
from lattemix.session import Session
from tests.app.engine.conftest import Gated, held, run, start_engine, trace, until


def test_does_not_compute_sentences_of_a_cancelled_request(engine: Engine, gated: Gated) -> None:
    async def scenario() -> None:
        first = await held(engine, gated)
        cancelled = asyncio.create_task(engine.encode(["a dog", "a man"], trace()))
        stays = asyncio.create_task(engine.encode(["a man"], trace()))
        await until(lambda: engine.queue.sentences == 2)
        cancelled.cancel()
        await until(lambda: engine.queue.sentences == 1)  # another request waits for "a man"
        gated.gate.set()
        await first
        await stays
        assert sum(map(len, gated.batches)) == 2
        with pytest.raises(asyncio.CancelledError):
            await cancelled

    run(scenario)


def test_request_joins_a_running_batch_whose_request_was_cancelled(
    engine: Engine, gated: Gated
) -> None:
    async def scenario() -> None:
        first = await held(engine, gated, "a dog")
        first.cancel()
        await asyncio.wait({first})
        again = asyncio.create_task(engine.encode(["a dog"], trace()))
        await until(
            lambda: (
                engine.batcher.in_flight
                and next(iter(engine.batcher.in_flight.values())).submissions
            )
        )
        gated.gate.set()
        assert len((await again).mixtures) == 1
        assert len(gated.batches) == 1

    run(scenario)


def test_drops_a_batch_cancelled_before_it_runs(
    engine: Engine, gated: Gated, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = engine.batcher._begin

    async def scenario() -> None:
        cancelled = asyncio.create_task(engine.encode(["a dog"], trace()))
        taken, proceed = threading.Event(), threading.Event()

        def delayed(batch: list[Sentence]) -> _Batch:
            taken.set()
            assert proceed.wait(10)
            return begin(batch)

        monkeypatch.setattr(engine.batcher, "_begin", delayed)
        await until(taken.is_set)
        cancelled.cancel()  # after its batch was taken, before it runs
        await asyncio.wait({cancelled})
        proceed.set()
        await until(lambda: not engine.batcher.in_flight)
        assert gated.batches == []
        assert len((await engine.encode(["a dog"], trace())).mixtures) == 1

    run(scenario)


def test_retries_a_failed_batch_in_halves(engine: Engine, gated: Gated) -> None:
    async def scenario() -> None:
        first = await held(engine, gated)
        gated.fails = lambda batch: len(batch) > 2  # as when memory is short
        many = asyncio.create_task(engine.encode(["a dog", "a man", "a sea", "a ball"], trace()))
        await until(lambda: engine.queue.sentences == 4)
        gated.gate.set()
        await first
        expected = Encoder(gated.artifact, provider="cpu").encode(
            ["a dog", "a man", "a sea", "a ball"]
        )
        np.testing.assert_allclose((await many).mixtures, expected.mixtures, atol=1e-6)

    run(scenario)


def test_failing_sentence_fails_only_its_own_request(
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
        await engine.encode(["a sea"], trace())  # the engine still works

    run(scenario)


def test_thread_survives_an_internal_error(
    gated: Gated,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    faults = iter([True, False])

    def observe_batch(*batch: object) -> None:
        if next(faults):
            raise ZeroDivisionError("in the metrics")

    monkeypatch.setattr(ModelMetrics, "observe_batch", observe_batch)
    engine = start_engine(gated, settings, Metrics().of_model("tiny"))

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
    engine = start_engine(gated, settings, metrics.of_model("tiny"))
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
        assert 'lattemix_failed_sentences_total{model="tiny",reason="nonfinite"} 2.0' in counted

    run(scenario)
    engine.close()


def test_logs_one_traceback_per_failed_batch(
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
        await until(lambda: not engine.batcher.in_flight)
        # One for the paused batch and one for this one, not one per sentence.
        assert caplog.text.count("Traceback") == 2

    run(scenario)


def test_request_fails_when_one_of_its_batches_fails_and_another_succeeds_at_the_same_time(
    gated: Gated, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    gated.parallel = 2
    engine = start_engine(gated, settings)
    poison = gated.tokenize(["a sea"])[0].ids
    gated.fails = lambda batch: poison in batch
    succeeded = threading.Event()
    resolve = batcher_module.resolve

    def delay_failure(submissions: Iterable[Submission], error: Exception | None = None) -> None:
        if error is None:
            resolve(submissions)
            succeeded.set()
        else:
            succeeded.wait(0.5)  # let the success overtake the failure, if it can
            resolve(submissions, error)

    monkeypatch.setattr(batcher_module, "resolve", delay_failure)
    monkeypatch.setattr(engine.batcher.queue, "_token_budget", 1)  # one sentence per batch

    async def scenario() -> None:
        with pytest.raises(InferenceError):
            await engine.encode(["a sea", "the dog runs in the park"], trace())

    run(scenario)
    engine.close()
