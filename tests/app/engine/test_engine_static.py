"""The engine with a static model."""

import asyncio
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from app.engine import Engine
from app.engine import engine as engine_module
from app.engine.errors import OverloadedError, UnavailableError
from app.observe import Metrics
from app.settings import Settings
from lattemix.encoder import Encoder
from lattemix.errors import EmptyTextError, InferenceError, NonFiniteError, TooLongError
from lattemix.static import StaticModel, TokenizedTexts
from model_store import Store
from tests.app.engine.conftest import run, start_engine, trace, until
from tests.tiny import SENTENCES

LONG = "the dog likes the sea " * 400
MANY = SENTENCES * 10  # more characters than are encoded on the event loop


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def engine(static_store: Store, settings: Settings, metrics: Metrics) -> Iterator[Engine]:
    encoder = Encoder(static_store.open("static"), provider="cpu")
    engine = start_engine(encoder, settings, metrics.of_model("tiny"))
    yield engine
    engine.close()


class Gate:
    """Makes a static model wait, and records how often it ran."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open, self.runs = threading.Event(), 0
        mixtures = StaticModel.mixtures

        def waiting(model: StaticModel, tokens: TokenizedTexts) -> NDArray[np.float32]:
            self.runs += 1
            assert self.open.wait(10)
            return mixtures(model, tokens)

        monkeypatch.setattr(StaticModel, "mixtures", waiting)


@pytest.mark.parametrize("texts", [SENTENCES[:2], MANY, [LONG, "a dog"]])
def test_encodes_like_the_encoder_and_fills_in_the_trace(engine: Engine, texts: list[str]) -> None:
    async def scenario() -> None:
        measured = trace()
        encoding = await engine.encode(texts, measured, truncate="error")
        expected = engine.encoder.encode(texts)
        np.testing.assert_array_equal(encoding.mixtures, expected.mixtures)
        assert (encoding.tokens, encoding.truncated) == (expected.tokens, expected.truncated)
        assert (measured.sentences, measured.cached, measured.truncated) == (len(texts), 0, 0)
        assert measured.tokens == sum(expected.tokens)
        assert min(measured.tokenization, measured.inference) > 0

    run(scenario)


def test_slices_of_a_large_request_are_joined(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "_SLICE_CHARACTERS", 100)

    async def scenario() -> None:
        encoding = await engine.encode(MANY, trace())
        expected = engine.encoder.encode(MANY)
        np.testing.assert_array_equal(encoding.mixtures, expected.mixtures)
        assert encoding.tokens == expected.tokens
        with pytest.raises(EmptyTextError) as caught:
            await engine.encode([*MANY, "unknownword"], trace())
        assert caught.value.index == len(MANY)

    run(scenario)


def test_uses_neither_queue_nor_cache(engine: Engine, metrics: Metrics) -> None:
    async def scenario() -> None:
        for _ in range(2):
            await engine.encode(MANY, trace())
        assert engine.queue.sentences == len(engine.cache) == 0
        assert engine.cache._mixtures.nbytes == 0
        assert b'lattemix_batch_sentences_count{model="tiny"} 2.0' in metrics.render()

    run(scenario)


@pytest.mark.parametrize("texts", [["a dog"], MANY])
@pytest.mark.parametrize(
    ("error", "reason"), [(RuntimeError, "error"), (NonFiniteError, "nonfinite")]
)
def test_failure_fails_the_request_and_readiness_until_the_model_works(
    engine: Engine,
    metrics: Metrics,
    monkeypatch: pytest.MonkeyPatch,
    texts: list[str],
    error: type[Exception],
    reason: str,
) -> None:
    def fail(*_: object) -> None:
        raise error

    async def scenario() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(StaticModel, "mixtures", fail)
            patch.setattr(engine.encoder, "run", fail)
            with pytest.raises(InferenceError):
                await engine.encode(texts, trace())
            with pytest.raises(InferenceError):
                await engine.check()
        counted = (
            f'lattemix_failed_sentences_total{{model="tiny",reason="{reason}"}} {len(texts) + 1}.0'
        )
        assert counted in metrics.render().decode()
        await engine.check()
        assert len((await engine.encode(texts, trace())).tokens) == len(texts)

    run(scenario)


def test_explains_up_to_the_limit(engine: Engine) -> None:
    async def scenario() -> None:
        measured = trace()
        (encoding,) = await engine.encode_tokens([LONG], measured)
        assert (encoding.tokens, encoding.truncated, len(encoding.spans)) == (2000, True, 512)
        assert measured.truncated == 1
        with pytest.raises(TooLongError, match="has 2,000 tokens, more than the limit of 512"):
            await engine.encode_tokens([LONG], trace(), truncate="error")

    run(scenario)


def test_rejects_when_overloaded(engine: Engine) -> None:
    async def scenario() -> None:
        engine.host.requests, engine._characters = 17, 10**8
        with pytest.raises(OverloadedError, match=r"33\.3 seconds of work are queued") as caught:
            await engine.encode(MANY, trace())
        assert caught.value.retry_after == 34

    run(scenario)


def test_counts_waiting_characters_until_the_request_ends(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)

    async def scenario() -> None:
        task = asyncio.create_task(engine.encode(MANY, trace()))
        await until(lambda: gate.runs)
        assert engine._characters == sum(map(len, MANY))
        gate.open.set()
        await task
        assert engine._characters == 0

    run(scenario)


def test_cancelled_request_is_not_computed(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, threads = Gate(monkeypatch), engine.encoder.parallel

    async def scenario() -> None:
        running = [asyncio.create_task(engine.encode(MANY, trace())) for _ in range(threads)]
        await until(lambda: gate.runs == threads)
        waiting = asyncio.create_task(engine.encode(MANY, trace()))
        await until(lambda: engine._characters == (threads + 1) * sum(map(len, MANY)))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        gate.open.set()
        await asyncio.gather(*running)
        await engine.encode(MANY[:50], trace())  # follows it in the queue of jobs
        assert gate.runs == threads + 1
        assert engine._characters == 0

    run(scenario)


@pytest.mark.parametrize("texts", [["a dog"], MANY])
def test_rejects_after_stop(engine: Engine, texts: list[str]) -> None:
    async def scenario() -> None:
        engine.stop()
        with pytest.raises(UnavailableError, match="stopping"):
            await engine.encode(texts, trace())

    run(scenario)
