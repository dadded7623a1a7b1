"""A model that fails in every way it can, and the requests that wait for it."""

import asyncio
import threading
from collections.abc import Sequence

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from app.engine import Engine
from app.run import _Server
from app.settings import Settings
from lattemix.encoder import Encoder
from lattemix.errors import InferenceError
from lattemix.tokenization import Side, Tokens
from model_store import Artifact
from tests.app.conftest import failure
from tests.app.engine.conftest import Batch, Gated, held, run, trace, until
from tests.app.test_run import held as held_over_http
from tests.reliability.conftest import PATIENCE, served, similar


class PanicError(BaseException):
    """As libraries in Rust raise: no `Exception`, so that nobody catches it by accident."""


FAULTS = [SystemExit, KeyboardInterrupt, PanicError, MemoryError]


@pytest.mark.parametrize("fault", FAULTS)
def test_what_would_end_a_thread_fails_its_requests_and_the_thread_goes_on(
    engine: Engine, gated: Gated, fault: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    def dying(batch: Batch) -> bool:
        raise fault

    async def scenario() -> None:
        first = await held(engine, gated)
        waits = [asyncio.create_task(engine.encode([text], trace())) for text in ("a dog", "a sea")]
        await until(lambda: engine.queue.sentences == 2)
        gated.fails = dying
        gated.gate.set()
        for request in (first, *waits):
            with pytest.raises(InferenceError, match="log says why"):
                await asyncio.wait_for(request, PATIENCE)
        assert fault.__name__ in caplog.text
        with pytest.raises(InferenceError):  # not ready
            await asyncio.wait_for(engine.check(), PATIENCE)
        gated.fails = lambda batch: False
        await asyncio.wait_for(engine.check(), PATIENCE)
        assert len((await engine.encode(["a dog", "a sea"], trace())).mixtures) == 2

    run(scenario)
    assert all(thread.is_alive() for thread in engine.batcher.threads)
    assert (engine.batcher.in_flight, engine.queue.sentences) == ({}, 0)
    assert engine.batcher._running == 0


@pytest.mark.parametrize("fault", FAULTS)
def test_a_batch_that_cannot_be_taken_fails_what_waits(
    engine: Engine,
    gated: Gated,
    fault: type[BaseException],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def none() -> None:
        raise fault

    async def scenario() -> None:
        first = await held(engine, gated)
        waits = asyncio.create_task(engine.encode(["a dog", "a sea"], trace()))
        await until(lambda: engine.queue.sentences == 2)
        monkeypatch.setattr(engine.queue, "take", none)
        gated.gate.set()
        assert len((await asyncio.wait_for(first, PATIENCE)).mixtures) == 1  # it had been taken
        with pytest.raises(InferenceError):
            await asyncio.wait_for(waits, PATIENCE)
        assert len((await engine.encode(["a dog", "a sea"], trace())).mixtures) == 2

    run(scenario)
    assert fault.__name__ in caplog.text
    assert (engine.batcher.in_flight, engine.queue.sentences) == ({}, 0)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_request_that_cannot_be_let_wait_leaves_nothing_behind(
    engine: Engine, gated: Gated, fault: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> None:
        raise fault

    async def scenario() -> None:
        first = await held(engine, gated)
        monkeypatch.setattr(engine.queue, "add", full)
        with pytest.raises(fault):
            engine.batcher.submit(gated.tokenize(["a dog"]))
        gated.gate.set()
        with pytest.raises(InferenceError):
            await asyncio.wait_for(first, PATIENCE)
        assert len((await engine.encode(["a dog", "a sea"], trace())).mixtures) == 2

    run(scenario)
    assert (engine.batcher.in_flight, engine.queue.sentences) == ({}, 0)


def poison(encoder: Encoder, guilty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let one text have a token that the model has no vector for."""
    tokenize = encoder.tokenize

    def poisoned(texts: Sequence[str], cut: Side) -> list[Tokens]:
        tokens = tokenize(texts, cut)
        for place, text in enumerate(texts):
            if text == guilty:
                tokens[place].ids[-1] = 10**6
        return tokens

    def even(tokens: Tokens) -> NDArray[np.float32]:
        return np.ones(len(tokens.ids), np.float32)

    monkeypatch.setattr(encoder, "tokenize", poisoned)
    monkeypatch.setattr(encoder, "_weigh", even)


def test_an_error_of_onnx_runtime_is_only_the_guilty_requests(
    open_settings: Settings,
    artifact: Artifact,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """In one batch with another client's sentence, over HTTP."""
    guilty, innocent = "a man is eating", "a dog is running"  # of the same length
    release, together = threading.Event(), list[int]()

    async def scenario(server: _Server, url: str) -> list[httpx.Response]:
        first = await held_over_http(server, url, release)
        async with httpx.AsyncClient(base_url=url, timeout=PATIENCE) as client:
            asked = [
                asyncio.create_task(client.post("/embed", json={"inputs": text}))
                for text in (guilty, innocent)
            ]
            await until(lambda: server._engine.queue.sentences == 2)
            release.set()
            return [await first, *[await answer for answer in asked]]

    # One batch at a time, so that the two wait until they can share one.
    with served(open_settings.model_copy(update={"threads": 1})) as (server, url):
        encoder = server._engine.encoder
        poison(encoder, guilty, monkeypatch)
        compute = encoder.run

        def watched(batch: Sequence[Tokens], alone: bool) -> NDArray[np.float32]:
            together.append(len(batch))
            return compute(batch, alone)

        monkeypatch.setattr(encoder, "run", watched)
        first, bad, good = asyncio.run(scenario(server, url))
        alone = Encoder(artifact, provider="cpu").encode([innocent]).mixtures[0]
        assert together == [1, 2, 1, 1]  # then each by itself
        assert failure(bad)[:2] == (424, "Backend")
        assert first.status_code == 200
        np.testing.assert_allclose(good.json()["embeddings"][0], alone, atol=1e-5)
        similar(url)  # and it goes on
    assert "idx=1000000" in caplog.text  # ONNX Runtime's own words
