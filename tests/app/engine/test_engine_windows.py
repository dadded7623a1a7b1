import asyncio

import numpy as np
import pytest

from app.engine import Engine
from app.engine.errors import OverloadedError
from app.settings import Settings
from lattemix.encoder import Encoder
from lattemix.errors import TooLongError
from tests.app.engine.conftest import Gated, held, run, start_engine, trace, until
from tests.tiny import SENTENCES

LONG = " ".join(SENTENCES)


def test_windows_give_the_mixtures_of_the_library(
    engine: Engine, gated: Gated, encoder: Encoder
) -> None:
    texts = ["a dog", LONG, "dog " * 20, "a man", LONG]

    async def scenario() -> None:
        measured = trace()
        found, expected = await engine.encode(texts, measured), encoder.encode(texts)
        np.testing.assert_allclose(found.mixtures, expected.mixtures, rtol=0, atol=1e-6)
        assert (found.tokens, found.truncated) == (expected.tokens, expected.truncated)
        assert (measured.sentences, measured.truncated) == (5, 0)
        assert all(len(ids) <= 16 for batch in gated.batches for ids in batch)
        assert measured.tokens == sum(len(ids) for batch in gated.batches for ids in batch)

    run(scenario)


def test_caches_windows_apart_from_truncated_texts(engine: Engine, gated: Gated) -> None:
    async def scenario() -> None:
        computed = {}
        for truncate in ("window", "right", "left"):
            computed[truncate] = await engine.encode([LONG], trace(), truncate)
        batches = len(gated.batches)
        for truncate, encoding in computed.items():
            measured = trace()
            again = await engine.encode([LONG], measured, truncate)
            np.testing.assert_array_equal(again.mixtures, encoding.mixtures)
            assert again.truncated == encoding.truncated == [truncate != "window"]
            assert (measured.cached, measured.tokens) == (1, 0)
        assert len(gated.batches) == batches
        assert len({encoding.mixtures.tobytes() for encoding in computed.values()}) == 3
        with pytest.raises(TooLongError):
            await engine.encode([LONG], trace(), "error")

    run(scenario)


def test_windows_count_as_sentences_in_progress(gated: Gated, settings: Settings) -> None:
    engine = start_engine(gated, settings.model_copy(update={"max_sentences": 3}))

    async def scenario() -> None:
        first = await held(engine, gated)
        request = trace()
        with engine.host.admitted(request):
            # 3 windows: a request's own sentences never reject it.
            waits = asyncio.create_task(engine.encode(["dog " * 34], request))
            await until(lambda: request.admitted_sentences == 3)
            with pytest.raises(OverloadedError, match="LATTEMIX_MAX_SENTENCES is 3"):
                await engine.encode(["a dog"], trace())
            gated.gate.set()
            await first
            await waits
        await engine.encode(["a dog"], trace())

    run(scenario)
    engine.close()


def test_rejects_windows_while_others_use_the_limit(gated: Gated, settings: Settings) -> None:
    engine = start_engine(gated, settings.model_copy(update={"max_sentences": 3}))

    async def scenario() -> None:
        first = await held(engine, gated)
        requests = trace(), trace()
        with engine.host.admitted(requests[0]), engine.host.admitted(requests[1]):
            engine.host.admit_sentences(1, requests[1])  # admitted before the other's windows
            waits = asyncio.create_task(engine.encode(["dog " * 34], requests[0]))
            await until(lambda: requests[0].admitted_sentences == 3)
            with pytest.raises(OverloadedError):
                engine.host.admit_sentences(2, requests[1])
            gated.gate.set()
            await first
            await waits

    run(scenario)
    engine.close()


def test_names_the_index_of_a_text_of_too_many_windows(gated: Gated, settings: Settings) -> None:
    gated.tokenizer._max_windows = 2
    engine = start_engine(gated, settings)

    async def scenario() -> None:
        with pytest.raises(TooLongError, match="LATTEMIX_MAX_WINDOWS=2") as caught:
            await engine.encode(["a dog", "dog " * 24, "dog " * 25], trace())
        assert caught.value.index == 2
        assert gated.batches == []

    run(scenario)
    engine.close()
