"""The engine as requests meet it: together, impatient, and with a model that may fail."""

import asyncio
import random
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.typing import NDArray

from app.engine import EmptyTextError, Encoder, Engine
from app.engine import engine as engine_module
from app.engine.errors import (
    InferenceError,
    OverloadedError,
    TooLongError,
    UnavailableError,
)
from app.engine.queue import Sentence, Ticket
from app.engine.tokenization import Side, Tokens
from app.observe import Trace
from app.settings import Settings
from model_store import Artifact
from tests.conftest import SENTENCES

Batch = list[list[int]]


class Gated(Encoder):
    """A real encoder whose runs can be held up, watched and made to fail."""

    def __init__(self, artifact: Artifact, **options: int) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.batches: list[Batch] = []
        self.began = threading.Event()
        self.fails: Callable[[Batch], bool] = lambda batch: False
        self.artifact = artifact
        super().__init__(artifact, provider="cpu", **options)
        self.parallel = 1  # one batch after the other, so that what waits can be seen
        self.batches.clear()  # of the warm-up

    def run(self, batch: Sequence[Tokens]) -> NDArray[np.float32]:
        ids = [tokens.ids for tokens in batch]
        self.batches.append(ids)
        self.began.set()
        assert self.gate.wait(10)
        if self.fails(ids):
            raise RuntimeError("out of memory")
        return super().run(batch)


@pytest.fixture
def gated(artifact: Artifact) -> Gated:
    return Gated(artifact, token_budget=64)


@pytest.fixture
def engine(gated: Gated, settings: Settings) -> Iterator[Engine]:
    engine = Engine(gated, settings)
    yield engine
    gated.gate.set()
    engine.close()


def trace() -> Trace:
    return Trace("test")


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


async def held(
    engine: Engine, gated: Gated, text: str = "nobody likes cold coffee"
) -> asyncio.Task:
    """A request whose batch is being run, and will be until the gate opens."""
    gated.gate.clear()
    gated.began.clear()
    task = asyncio.create_task(engine.encode([text], trace()))
    await until(gated.began.is_set)
    return task


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(scenario())  # type: ignore[arg-type]


def test_answers_are_those_of_the_encoder(engine: Engine, encoder: Encoder) -> None:
    async def scenario() -> None:
        found = await engine.encode([*SENTENCES, "dog " * 20, SENTENCES[0]], trace())
        expected = encoder.encode([*SENTENCES, "dog " * 20, SENTENCES[0]])
        np.testing.assert_allclose(found.mixtures, expected.mixtures, atol=1e-6)
        assert (found.tokens, found.truncated) == (expected.tokens, expected.truncated)

    run(scenario)


def test_answers_do_not_depend_on_who_else_asks(engine: Engine, gated: Gated) -> None:
    async def scenario() -> None:
        first = await held(engine, gated)
        together = [asyncio.create_task(engine.encode([text], trace())) for text in SENTENCES[:9]]
        await until(lambda: engine.queue.sentences == 9)
        gated.gate.set()
        await first
        rows = [(await task).mixtures[0] for task in together]
        assert max(map(len, gated.batches)) > 1  # they did share batches
        alone = Encoder(gated.artifact, provider="cpu")
        for text, row in zip(SENTENCES, rows, strict=False):
            np.testing.assert_allclose(row, alone.encode([text]).mixtures[0], atol=1e-6)

    run(scenario)


def test_batches_run_side_by_side(gated: Gated, settings: Settings) -> None:
    gated.parallel = 3
    engine = Engine(gated, settings)
    gated.gate.clear()

    async def scenario() -> None:
        texts = ["dog", "dog " * 3, "dog " * 6, "dog " * 12]  # too unlike for one batch
        waits = asyncio.create_task(engine.encode(texts, trace()))
        await until(lambda: len(gated.batches) == 3)
        assert engine.queue.sentences == 1
        gated.gate.set()
        expected = Encoder(gated.artifact, provider="cpu").encode(texts)
        np.testing.assert_allclose((await waits).mixtures, expected.mixtures, atol=1e-6)

    run(scenario)
    engine.close()


def test_a_sentence_in_flight_is_computed_once(engine: Engine, gated: Gated) -> None:
    async def scenario() -> None:
        first = await held(engine, gated, "a dog is running outside")
        again = [
            asyncio.create_task(engine.encode(["a dog is running outside", "A DOG"], trace()))
            for _ in range(3)
        ]
        await until(lambda: engine.queue.sentences == 1)  # "a dog"; the other is being computed
        gated.gate.set()
        answers = [await first, *[await task for task in again]]
        for answer in answers:
            np.testing.assert_array_equal(answer.mixtures[0], answers[0].mixtures[0])
        assert sum(map(len, gated.batches)) == 2

    run(scenario)


def test_what_is_remembered_is_not_computed_again(engine: Engine, gated: Gated) -> None:
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


def test_what_is_remembered_leaves_no_trace_in_the_queue(engine: Engine) -> None:
    async def scenario() -> None:
        await engine.encode(["a dog"], trace())
        for _ in range(10):
            await engine.encode(["a dog"], trace())
        assert len(engine.queue._turns) <= 1  # what is left of the first is swept at the next batch

    run(scenario)


def test_nothing_is_remembered_without_memory_for_it(gated: Gated, settings: Settings) -> None:
    engine = Engine(gated, settings.model_copy(update={"cache_bytes": 0}))

    async def scenario() -> None:
        await engine.encode(["a dog"], trace())
        await engine.encode(["a dog"], trace())
        assert len(gated.batches) == 2

    run(scenario)
    engine.close()


def test_cutting_the_other_side_is_another_sentence(engine: Engine, gated: Gated) -> None:
    text = "a man " + "dog " * 20 + "sea"

    async def scenario() -> None:
        right = await engine.encode([text], trace(), cut="right")
        left = await engine.encode([text], trace(), cut="left")
        assert (right.tokens, right.truncated) == (left.tokens, left.truncated) == ([25], [True])
        a, b = (batch[0] for batch in gated.batches)
        assert len(a) == len(b) == 16
        assert (a[0], a[-1]) == (b[0], b[-1])  # [CLS] and [SEP] stay
        assert a[1:3] != b[1:3]
        assert a[-2] != b[-2]
        assert not np.array_equal(right.mixtures, left.mixtures)

    run(scenario)


def test_a_long_text_is_refused_where_it_may_not_be_cut(engine: Engine, gated: Gated) -> None:
    async def scenario() -> None:
        with pytest.raises(TooLongError, match="has 22 tokens, more than the 16") as caught:
            await engine.encode(["a", "dog " * 20], trace(), truncate=False)
        assert caught.value.index == 1
        assert gated.batches == []

    run(scenario)


def test_an_empty_text_is_named(engine: Engine) -> None:
    async def scenario() -> None:
        with pytest.raises(EmptyTextError) as caught:
            await engine.encode(["a", " "], trace())
        assert caught.value.index == 1

    run(scenario)


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


def test_a_full_queue_refuses_and_says_when_to_return(gated: Gated, settings: Settings) -> None:
    engine = Engine(gated, settings.model_copy(update={"max_waiting_tokens": 10}))

    async def scenario() -> None:
        first = await held(engine, gated)
        waits = asyncio.create_task(engine.encode(SENTENCES[:5], trace()))  # once in, all of it
        await until(lambda: engine.queue.tokens > 10)
        with pytest.raises(OverloadedError, match="LATTEMIX_MAX_WAITING_TOKENS is 10") as caught:
            await engine.encode(["a dog"], trace())
        assert 1 <= caught.value.retry_after <= 60
        gated.gate.set()
        await first
        assert len((await waits).mixtures) == 5
        await engine.encode(["a dog"], trace())  # there is room again

    run(scenario)
    engine.close()


def test_retry_after_is_how_long_the_queue_will_take(engine: Engine) -> None:
    engine._tokens_per_second = 100.0
    engine.queue = SimpleNamespace(tokens=1234)  # type: ignore[assignment]
    assert engine._overloaded("much", "LATTEMIX_MAX_REQUESTS").retry_after == 13
    engine._arriving = 700
    assert engine._overloaded("much", "LATTEMIX_MAX_REQUESTS").retry_after == 20
    engine.queue.tokens = 10**6
    assert engine._overloaded("much", "LATTEMIX_MAX_REQUESTS").retry_after == 60


def test_too_many_requests_are_refused(gated: Gated, settings: Settings) -> None:
    engine = Engine(gated, settings.model_copy(update={"max_requests": 2}))
    overloaded = pytest.raises(OverloadedError, match="LATTEMIX_MAX_REQUESTS is 2")
    with engine.admitted(), engine.admitted(), overloaded:
        engine.admitted().__enter__()
    with engine.admitted():
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


def test_the_trace_says_where_the_time_went(engine: Engine, gated: Gated) -> None:
    async def scenario() -> None:
        first = await held(engine, gated)
        noted = trace()
        task = asyncio.create_task(engine.encode(["a dog", "dog " * 20, "a dog"], noted))
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


def test_watchers_see_every_batch(gated: Gated, settings: Settings) -> None:
    seen = []
    engine = Engine(gated, settings, lambda *batch: seen.append(batch))

    async def scenario() -> None:
        await engine.encode(["a dog runs", "a man"], trace())

    run(scenario)
    engine.close()
    assert [batch[:3] for batch in seen] == [(2, 9, 10)]
    assert seen[0][3] > 0


def test_ready_asks_the_model(
    engine: Engine, gated: Gated, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        await engine.check()
        assert gated.batches == []  # the warm-up has just shown it
        monkeypatch.setattr(engine_module, "_FRESH_SECONDS", 0.0)
        await engine.check()
        await engine.check()
        assert len(gated.batches) == 2  # nothing is remembered here
        gated.fails = lambda batch: True
        with pytest.raises(InferenceError):
            await engine.check()

    run(scenario)


def test_a_failure_makes_ready_ask_again(engine: Engine, gated: Gated) -> None:
    async def scenario() -> None:
        gated.fails = lambda batch: True
        with pytest.raises(InferenceError):
            await engine.encode(["a dog"], trace())
        with pytest.raises(InferenceError):
            await engine.check()
        gated.fails = lambda batch: False
        await engine.check()

    run(scenario)


def test_a_model_that_hangs_is_not_ready(
    engine: Engine, gated: Gated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "_FRESH_SECONDS", 0.0)
    monkeypatch.setattr(engine_module, "_PATIENCE_SECONDS", 0.01)

    async def scenario() -> None:
        first = await held(engine, gated)
        with pytest.raises(UnavailableError, match="has not answered"):
            await engine.check()
        assert engine.queue.sentences == 0  # the question is withdrawn
        gated.gate.set()
        await first

    run(scenario)


def test_a_full_queue_that_hangs_is_not_ready(
    gated: Gated, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "_FRESH_SECONDS", 0.0)
    monkeypatch.setattr(engine_module, "_PATIENCE_SECONDS", 0.01)
    engine = Engine(gated, settings.model_copy(update={"max_waiting_tokens": 1}))

    async def scenario() -> None:
        first = await held(engine, gated)
        waits = asyncio.create_task(engine.encode(["a dog"], trace()))
        await until(lambda: engine.queue.sentences)
        with pytest.raises(UnavailableError, match="has not answered"):
            await engine.check()
        gated.gate.set()
        await first
        await waits

    run(scenario)
    engine.close()


def test_draining_is_not_ready_but_still_answers(engine: Engine) -> None:
    async def scenario() -> None:
        engine.draining = True
        with pytest.raises(UnavailableError, match="stopping"):
            await engine.check()
        assert len((await engine.encode(["a dog"], trace())).mixtures) == 1

    run(scenario)


def test_stopping_gives_up_what_waits_and_takes_no_more(engine: Engine, gated: Gated) -> None:
    async def scenario() -> None:
        first = await held(engine, gated)
        waits = asyncio.create_task(engine.encode(["a dog"], trace()))
        await until(lambda: engine.queue.sentences == 1)
        engine.stop()
        for task in (first, waits):
            with pytest.raises(UnavailableError, match="send it again"):
                await task
        with pytest.raises(UnavailableError, match="stopping"):
            await engine.encode(["a man"], trace())

    run(scenario)


def test_work_beside_the_model_does_not_wait_for_it(engine: Engine, gated: Gated) -> None:
    async def scenario() -> None:
        first = await held(engine, gated)
        assert await engine.compute(lambda: threading.current_thread().name) != "MainThread"
        gated.gate.set()
        await first

    run(scenario)


def test_closing_ends_the_threads(gated: Gated, settings: Settings) -> None:
    before = set(threading.enumerate())
    engine = Engine(gated, settings)
    run(lambda: engine.encode(["a dog"], trace()))
    assert len(set(threading.enumerate()) - before) >= 3  # the model's, the tokenizer's, the pool's
    engine.close()
    assert set(threading.enumerate()) <= before


def test_a_model_that_hangs_does_not_keep_the_process(
    gated: Gated, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "_PATIENCE_SECONDS", 0.01)
    engine = Engine(gated, settings)

    async def scenario() -> None:
        first = await held(engine, gated)
        engine.close()
        with pytest.raises(UnavailableError):
            await first

    run(scenario)
    (thread,) = engine._threads
    assert thread.is_alive()
    assert thread.daemon
    gated.gate.set()


def test_a_fault_of_our_own_does_not_end_the_engine(
    gated: Gated, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    faults = iter([True, False])

    def watch(*batch: object) -> None:
        if next(faults):
            raise ZeroDivisionError("in the watcher")

    engine = Engine(gated, settings, watch)

    async def scenario() -> None:
        with pytest.raises(InferenceError):
            await engine.encode(["a dog"], trace())
        assert "in the watcher" in caplog.text
        assert len((await engine.encode(["a man"], trace())).mixtures) == 1

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
        await until(lambda: not engine._flying)
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
        await until(lambda: engine._flying and next(iter(engine._flying.values())).tickets)
        gated.gate.set()
        assert len((await again).mixtures) == 1
        assert len(gated.batches) == 1

    run(scenario)


def test_what_was_dropped_at_the_last_moment_can_be_asked_for_again(
    engine: Engine, gated: Gated, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = engine._begin

    async def scenario() -> None:
        left = asyncio.create_task(engine.encode(["a dog"], trace()))
        taken, proceed = threading.Event(), threading.Event()

        def slowly(batch: list[Sentence]) -> tuple[list[Sentence], set[Ticket]]:
            taken.set()
            assert proceed.wait(10)
            return begin(batch)

        monkeypatch.setattr(engine, "_begin", slowly)
        await until(taken.is_set)
        left.cancel()  # after its batch was chosen, before it is run
        await asyncio.wait({left})
        proceed.set()
        await until(lambda: not engine._flying)
        assert gated.batches == []
        assert len((await engine.encode(["a dog"], trace())).mixtures) == 1

    run(scenario)


def test_batches_side_by_side_take_the_time_of_the_clock(gated: Gated, settings: Settings) -> None:
    gated.parallel = 3
    engine = Engine(gated, settings)
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


def test_only_what_was_computed_is_counted(engine: Engine, gated: Gated) -> None:
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


def test_texts_that_are_being_tokenized_count_as_waiting(
    gated: Gated, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(gated, settings.model_copy(update={"max_waiting_tokens": 30}))
    proceed, tokenize = threading.Event(), gated.tokenize
    parts: list[int] = []

    def slow(texts: Sequence[str], cut: Side) -> list[Tokens]:
        assert proceed.wait(10)
        parts.append(len(texts))
        return tokenize(texts, cut)

    monkeypatch.setattr(gated, "tokenize", slow)
    monkeypatch.setattr(engine_module, "_SLICE_CHARACTERS", 100)

    async def scenario() -> None:
        large = asyncio.create_task(engine.encode(["dog " * 20, "sea " * 20, "a", " "], trace()))
        await until(lambda: engine._arriving == 32)  # no more than is read of them
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
        await until(lambda: not engine._flying)
        assert (engine.queue.sentences, engine.queue.tokens, engine._arriving) == (0, 0, 0)

    run(scenario)
    engine.close()
