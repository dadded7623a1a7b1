"""Mixtures, cache, trace and metrics of the engine."""

import asyncio
import threading
import time

import numpy as np
import pytest

from app.engine import Engine
from app.observe import Metrics, ModelMetrics
from app.settings import Settings
from lattemix.encoder import Encoder
from lattemix.errors import EmptyTextError, TooLongError
from tests.app.engine.conftest import Gated, held, run, start_engine, trace, until
from tests.tiny import SENTENCES


def test_encodes_like_the_encoder(engine: Engine, encoder: Encoder) -> None:
    async def scenario() -> None:
        found = await engine.encode([*SENTENCES, "dog " * 20, SENTENCES[0]], trace())
        expected = encoder.encode([*SENTENCES, "dog " * 20, SENTENCES[0]])
        np.testing.assert_allclose(found.mixtures, expected.mixtures, atol=1e-6)
        assert (found.tokens, found.truncated) == (expected.tokens, expected.truncated)

    run(scenario)


def test_mixtures_do_not_depend_on_the_batch(engine: Engine, gated: Gated) -> None:
    async def scenario() -> None:
        first = await held(engine, gated)
        together = [asyncio.create_task(engine.encode([text], trace())) for text in SENTENCES[:9]]
        await until(lambda: engine.queue.sentences == 9)
        gated.gate.set()
        await first
        rows = [(await task).mixtures[0] for task in together]
        assert max(map(len, gated.batches)) > 1  # requests shared a batch
        alone = Encoder(gated.artifact, provider="cpu")
        for text, row in zip(SENTENCES, rows, strict=False):
            np.testing.assert_allclose(row, alone.encode([text]).mixtures[0], atol=1e-6)

    run(scenario)


def test_runs_batches_in_parallel(gated: Gated, settings: Settings) -> None:
    gated.parallel = 3
    gated.overhead = 0.0  # so that only sentences of equal length share a batch
    engine = start_engine(gated, settings)
    gated.gate.clear()

    async def scenario() -> None:
        texts = ["dog", "dog " * 3, "dog " * 6, "dog " * 12]
        waits = asyncio.create_task(engine.encode(texts, trace()))
        await until(lambda: len(gated.batches) == 3)
        assert engine.queue.sentences == 1
        gated.gate.set()
        expected = Encoder(gated.artifact, provider="cpu").encode(texts)
        np.testing.assert_allclose((await waits).mixtures, expected.mixtures, atol=1e-6)

    run(scenario)
    engine.close()


def test_computes_a_sentence_in_flight_once(engine: Engine, gated: Gated) -> None:
    async def scenario() -> None:
        first = await held(engine, gated, "a dog is running outside")
        again = [
            asyncio.create_task(engine.encode(["a dog is running outside", "A DOG"], trace()))
            for _ in range(3)
        ]
        await until(lambda: engine.queue.sentences == 1)  # "a dog"; the other is running
        gated.gate.set()
        answers = [await first, *[await task for task in again]]
        for answer in answers:
            np.testing.assert_array_equal(answer.mixtures[0], answers[0].mixtures[0])
        assert sum(map(len, gated.batches)) == 2

    run(scenario)


def test_does_not_recompute_cached_sentences(engine: Engine, gated: Gated) -> None:
    async def scenario() -> None:
        once, twice = trace(), trace()
        first = await engine.encode(SENTENCES[:3], once)
        count = len(gated.batches)
        second = await engine.encode(SENTENCES[:3], twice)
        assert len(gated.batches) == count
        np.testing.assert_array_equal(first.mixtures, second.mixtures)
        assert (once.cached, once.tokens > 0) == (0, True)
        assert (twice.cached, twice.tokens, twice.inference) == (3, 0, 0.0)

    run(scenario)


def test_caches_nothing_when_cache_bytes_is_0(gated: Gated, settings: Settings) -> None:
    engine = start_engine(gated, settings.model_copy(update={"cache_bytes": 0}))

    async def scenario() -> None:
        await engine.encode(["a dog"], trace())
        await engine.encode(["a dog"], trace())
        assert len(gated.batches) == 2

    run(scenario)
    engine.close()


def test_caches_each_truncation_separately(engine: Engine, gated: Gated) -> None:
    text = "a man " + "dog " * 20 + "sea"

    async def scenario() -> None:
        right = await engine.encode([text], trace(), truncate="right")
        left = await engine.encode([text], trace(), truncate="left")
        assert (right.tokens, right.truncated) == (left.tokens, left.truncated) == ([25], [True])
        a, b = (batch[0] for batch in gated.batches)
        assert len(a) == len(b) == 16
        assert (a[0], a[-1]) == (b[0], b[-1])  # [CLS] and [SEP] stay
        assert a[1:3] != b[1:3]
        assert a[-2] != b[-2]
        assert not np.array_equal(right.mixtures, left.mixtures)

    run(scenario)


def test_rejects_a_long_text_without_truncate(engine: Engine, gated: Gated) -> None:
    async def scenario() -> None:
        with pytest.raises(
            TooLongError, match="has 22 tokens, more than the limit of 16"
        ) as caught:
            await engine.encode(["a", "dog " * 20], trace(), truncate="error")
        assert caught.value.index == 1
        assert gated.batches == []

    run(scenario)


def test_names_the_index_of_an_empty_text(engine: Engine) -> None:
    async def scenario() -> None:
        with pytest.raises(EmptyTextError) as caught:
            await engine.encode(["a", " "], trace())
        assert caught.value.index == 1

    run(scenario)


def test_trace_records_the_stages(engine: Engine, gated: Gated) -> None:
    async def scenario() -> None:
        first = await held(engine, gated)
        noted = trace()
        task = asyncio.create_task(engine.encode(["a dog", "dog " * 20, "a dog"], noted, "right"))
        await until(lambda: engine.queue.sentences == 2)
        await asyncio.sleep(0.05)
        gated.gate.set()
        await first
        await task
        assert (noted.sentences, noted.truncated, noted.tokens) == (3, 1, 4 + 16)
        assert noted.tokenization > 0
        assert noted.queue >= 0.05
        assert noted.inference > 0

    run(scenario)


def test_metrics_count_every_batch(
    gated: Gated, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[float, ...]] = []
    monkeypatch.setattr(ModelMetrics, "observe_batch", lambda _, *batch: seen.append(batch))
    engine = start_engine(gated, settings, Metrics().of_model("tiny"))

    async def scenario() -> None:
        await engine.encode(["a dog runs", "a man"], trace())

    run(scenario)
    engine.close()
    assert [batch[:3] for batch in seen] == [(2, 9, 10)]
    assert seen[0][3] > 0


def test_runs_large_jobs_in_a_thread_while_the_model_is_busy(engine: Engine, gated: Gated) -> None:
    async def scenario() -> None:
        first = await held(engine, gated)
        assert (
            await engine.host.compute(lambda: threading.current_thread().name, 32) != "MainThread"
        )
        assert await engine.host.compute(lambda: threading.current_thread().name, 1) == "MainThread"
        gated.gate.set()
        await first

    run(scenario)


def test_trace_counts_parallel_batches_as_elapsed_time(gated: Gated, settings: Settings) -> None:
    gated.parallel = 3
    gated.overhead = 0.0
    engine = start_engine(gated, settings)
    gated.gate.clear()

    async def scenario() -> None:
        noted, start = trace(), time.perf_counter()
        texts = ["dog", "dog " * 3, "dog " * 6]
        waits = asyncio.create_task(engine.encode(texts, noted))
        await until(lambda: len(gated.batches) == 3)
        await asyncio.sleep(0.05)
        gated.gate.set()
        await waits
        assert 0.05 <= noted.inference <= time.perf_counter() - start

    run(scenario)
    engine.close()


def test_trace_counts_no_tokens_for_a_withdrawn_request(engine: Engine, gated: Gated) -> None:
    async def scenario() -> None:
        first = await held(engine, gated)
        noted = trace()
        left = asyncio.create_task(engine.encode(["a dog"], noted))
        await until(lambda: engine.queue.sentences == 1)
        left.cancel()
        await asyncio.wait({left})
        assert (noted.tokens, noted.queue > 0) == (0, True)
        gated.gate.set()
        await first

    run(scenario)
