"""Failures of the model, and the requests that wait for it."""

import asyncio
import threading
from collections.abc import Sequence

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from app.engine import Engine
from app.run import Server
from app.settings import Settings
from lattemix.encoder import Encoder
from lattemix.errors import InferenceError
from lattemix.settings import Truncate
from lattemix.tokenization import Tokens
from model_store import Artifact
from tests.app.conftest import PATIENCE, failure, serve_in_thread
from tests.app.engine.conftest import Batch, Gated, held, run, trace, until
from tests.app.test_run import blocked_request
from tests.reliability.conftest import post_similarity


class PanicError(BaseException):
    """Like the panics of Rust libraries: not an `Exception`."""


ERRORS = [SystemExit, KeyboardInterrupt, PanicError, MemoryError]


@pytest.mark.parametrize("error", ERRORS)
def test_any_error_in_a_batch_fails_its_requests_but_not_the_thread(
    engine: Engine, gated: Gated, error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    def fail(batch: Batch) -> bool:
        raise error

    async def scenario() -> None:
        first = await held(engine, gated)
        waits = [asyncio.create_task(engine.encode([text], trace())) for text in ("a dog", "a sea")]
        await until(lambda: engine.queue.sentences == 2)
        gated.fails = fail
        gated.gate.set()
        for request in (first, *waits):
            with pytest.raises(InferenceError, match="log says why"):
                await asyncio.wait_for(request, PATIENCE)
        assert error.__name__ in caplog.text
        with pytest.raises(InferenceError):  # not ready
            await asyncio.wait_for(engine.check(), PATIENCE)
        gated.fails = lambda batch: False
        await asyncio.wait_for(engine.check(), PATIENCE)
        assert len((await engine.encode(["a dog", "a sea"], trace())).mixtures) == 2

    run(scenario)
    assert all(thread.is_alive() for thread in engine.batcher.threads)
    assert (engine.batcher.in_flight, engine.queue.sentences) == ({}, 0)
    assert engine.batcher._running == 0


@pytest.mark.parametrize("error", ERRORS)
def test_error_in_the_queue_fails_queued_requests(
    engine: Engine,
    gated: Gated,
    error: type[BaseException],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail() -> None:
        raise error

    async def scenario() -> None:
        first = await held(engine, gated)
        waits = asyncio.create_task(engine.encode(["a dog", "a sea"], trace()))
        await until(lambda: engine.queue.sentences == 2)
        monkeypatch.setattr(engine.queue, "take", fail)
        gated.gate.set()
        assert len((await asyncio.wait_for(first, PATIENCE)).mixtures) == 1  # taken before
        with pytest.raises(InferenceError):
            await asyncio.wait_for(waits, PATIENCE)
        assert len((await engine.encode(["a dog", "a sea"], trace())).mixtures) == 2

    run(scenario)
    assert error.__name__ in caplog.text
    assert (engine.batcher.in_flight, engine.queue.sentences) == ({}, 0)


@pytest.mark.parametrize("error", ERRORS)
def test_failed_submission_leaves_nothing_behind(
    engine: Engine, gated: Gated, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise error

    async def scenario() -> None:
        first = await held(engine, gated)
        monkeypatch.setattr(engine.queue, "add", fail)
        with pytest.raises(error):
            engine.batcher.submit(gated.tokenize(["a dog"]))
        gated.gate.set()
        with pytest.raises(InferenceError):
            await asyncio.wait_for(first, PATIENCE)
        assert len((await engine.encode(["a dog", "a sea"], trace())).mixtures) == 2

    run(scenario)
    assert (engine.batcher.in_flight, engine.queue.sentences) == ({}, 0)


def poison(encoder: Encoder, invalid: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give one text a token id outside of the vocabulary."""
    tokenize = encoder.tokenize

    def tokenize_poisoned(texts: Sequence[str], truncate: Truncate) -> list[Tokens]:
        tokens = tokenize(texts, truncate)
        for i, text in enumerate(texts):
            if text == invalid:
                tokens[i].ids[-1] = 10**6
        return tokens

    def equal_weights(ids: Sequence[int]) -> NDArray[np.float32]:
        return np.ones(len(ids), np.float32)

    monkeypatch.setattr(encoder, "tokenize", tokenize_poisoned)
    monkeypatch.setattr(encoder, "_raw_weights", equal_weights)


def test_onnx_runtime_error_fails_only_the_invalid_request(
    open_settings: Settings,
    artifact: Artifact,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The invalid sentence shares a batch with another client's."""
    invalid, valid = "a man is eating", "a dog is running"  # of the same length
    release, batch_sizes = threading.Event(), list[int]()

    async def scenario(server: Server, url: str) -> list[httpx.Response]:
        first = await blocked_request(server, url, release)
        async with httpx.AsyncClient(base_url=url, timeout=PATIENCE) as client:
            requests = [
                asyncio.create_task(client.post("/embed", json={"inputs": text, "format": "dense"}))
                for text in (invalid, valid)
            ]
            await until(lambda: server._models.default.engine.queue.sentences == 2)
            release.set()
            return [await first, *[await request for request in requests]]

    # One batch at a time, so that the two are queued until they share one.
    with serve_in_thread(open_settings.model_copy(update={"threads": 1})) as (server, url):
        encoder = server._models.default.engine.encoder
        poison(encoder, invalid, monkeypatch)
        compute = encoder.run

        def record_size(batch: Sequence[Tokens], alone: bool) -> NDArray[np.float32]:
            batch_sizes.append(len(batch))
            return compute(batch, alone)

        monkeypatch.setattr(encoder, "run", record_size)
        first, bad, good = asyncio.run(scenario(server, url))
        alone = Encoder(artifact, provider="cpu").encode([valid]).mixtures[0]
        assert batch_sizes == [1, 2, 1, 1]  # together, then one by one
        assert failure(bad)[:2] == (424, "Backend")
        assert first.status_code == 200
        np.testing.assert_allclose(good.json()["embeddings"][0], alone, atol=1e-5)
        post_similarity(url)
    assert "idx=1000000" in caplog.text  # ONNX Runtime's message
