"""Batches that fail."""

import asyncio
import threading
from collections.abc import Iterable

import numpy as np
import pytest
from numpy.typing import NDArray

from app.engine import Engine
from app.engine import batcher as batcher_module
from app.engine.queue import Ticket
from app.observe import Metrics
from app.settings import Settings
from lattemix.encoder import Encoder
from lattemix.errors import InferenceError
from lattemix.session import Session
from tests.app.engine.conftest import Gated, held, run, trace, until


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
