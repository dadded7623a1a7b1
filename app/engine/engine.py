"""A request's way to the model and back, on an event loop that never waits for it."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from app.engine.batcher import Batcher
from app.engine.cache import Cache, Text, key_of
from app.engine.errors import OverloadedError, UnavailableError
from app.engine.queue import Queue, Ticket
from app.observe import Metrics, Trace
from app.settings import Settings
from lattemix.encoder import Encoder, Encoding, TokenEncoding
from lattemix.errors import EmptyTextError, TooLongError
from lattemix.tokenization import Side, Tokens, slices

T = TypeVar("T")


class Wait(Protocol):
    """How someone waits: until the end, or only so long."""

    def __call__(self, work: asyncio.Future[T], /) -> Awaitable[T]:
        """Return what the work does, or raise."""


async def _patiently(work: asyncio.Future[T], /) -> T:
    return await work


_FRESH_SECONDS = 5.0  # a batch that succeeded so lately shows that the model answers
_PATIENCE_SECONDS = 5.0  # for one that is run to find out
_LONGEST_RETRY_SECONDS = 60
_SLICE_CHARACTERS = 100_000  # tokenized at once
_CHARACTERS_PER_SECOND = 3e6  # are tokenized, about
# Work on so little is done at once: it takes less time than handing it to a thread.
_FEW_CHARACTERS = 500
_FEW_SENTENCES = 4
_FEW_REQUESTS = 16  # are never too many, however slow the model is


class Engine:
    """Computes mixtures for requests that come together, remembers them, and knows its limits."""

    def __init__(
        self, encoder: Encoder, settings: Settings, metrics: Metrics | None = None
    ) -> None:
        self.encoder = encoder
        self._shape = (encoder.manifest.latent_dims, encoder.manifest.classes)
        self.cache = Cache(settings.cache_bytes, *self._shape)
        self.batcher = Batcher(encoder, metrics)
        self.draining = False  # still answers, but is not ready
        self._settings = settings
        self._requests = 0
        self._sentences = 0  # in them
        self._arriving = 0  # characters that are not tokenized yet
        # Apart, so that what is on its way to the model does not wait for a large answer, and
        # several, so that a small answer does not.
        self._tokenizing = ThreadPoolExecutor(1, thread_name_prefix="lattemix-tokens")
        self._pool = ThreadPoolExecutor(4, thread_name_prefix="lattemix-pool")

    @property
    def queue(self) -> Queue:
        """What waits for the model."""
        return self.batcher.queue

    @property
    def stopped(self) -> bool:
        """Nothing more is computed."""
        return self.batcher.stopped

    @contextmanager
    def admitted(self, trace: Trace) -> Iterator[None]:
        """A place in the house until a request is answered, or `OverloadedError` at once."""
        if self._requests >= self._settings.max_requests:
            raise self._overloaded(f"{self._requests:,} requests", "LATTEMIX_MAX_REQUESTS")
        self._requests += 1
        try:
            yield
        finally:
            self._requests -= 1
            self._sentences -= trace.held

    def _hold(self, sentences: int, trace: Trace) -> None:
        """Let sentences, and all that becomes of them, take memory until the request ends."""
        if self._sentences >= self._settings.max_sentences:
            raise self._overloaded(f"{self._sentences:,} sentences", "LATTEMIX_MAX_SENTENCES")
        self._sentences += sentences
        trace.held += sentences

    async def encode(
        self,
        texts: Sequence[str],
        trace: Trace,
        truncate: bool = True,
        cut: Side = "right",
        wait: Wait = _patiently,
    ) -> Encoding:
        """Return the mixture of every text, in order, and fill in the trace.

        Where that takes time, `wait` is asked to wait, and may raise instead. Whoever stops
        waiting is forgotten: what only they asked for is not computed any more.

        Raises:
            EmptyTextError: for the first text in which the model finds no words.
            TooLongError: for the first that is too long, if none may be cut.
            OverloadedError: too much waits already.
            InferenceError: the model failed.
            UnavailableError: the service stops.
        """
        start = time.perf_counter()
        self._hold(len(texts), trace)
        keys = [key_of(text, cut) for text in texts]
        mixtures = np.empty((len(texts), *self._shape), np.float32)
        known = await self._recalled(keys, mixtures, wait)
        fresh = [place for place, text in enumerate(known) if text is None]
        tokenize = self.encoder.tokenize
        tokens = await self._read(tokenize, texts, fresh, cut, wait) if fresh else []
        for place, read in zip(fresh, tokens, strict=True):
            known[place] = Text(read.total, read.truncated)
        described = [text for text in known if text is not None]  # all of them
        trace.tokenization += time.perf_counter() - start
        trace.sentences += len(texts)
        trace.cached += len(texts) - len(fresh)
        encoding = Encoding(
            mixtures, [text.tokens for text in described], [text.truncated for text in described]
        )
        trace.truncated += sum(encoding.truncated)
        if not truncate and True in encoding.truncated:
            index = encoding.truncated.index(True)
            raise TooLongError(index, encoding.tokens[index], self.encoder.manifest.max_tokens)
        if fresh:
            ticket = await self._answered(tokens, trace, wait)

            def collect() -> None:
                for place, sentence in zip(fresh, ticket.sentences, strict=True):
                    mixtures[place] = sentence.mixture
                self.cache.keep((keys[i], mixtures[i], described[i]) for i in fresh)

            await self.compute(collect, len(fresh), wait)
        return encoding

    async def encode_tokens(
        self,
        texts: Sequence[str],
        trace: Trace,
        truncate: bool = True,
        cut: Side = "right",
        wait: Wait = _patiently,
    ) -> list[TokenEncoding]:
        """Return the mixture of every token of every text; else like `encode`.

        They are not remembered: a text has many, and they are seldom asked for again.
        """
        start = time.perf_counter()
        self._hold(len(texts), trace)
        parsed = await self._read(self.encoder.parse, texts, range(len(texts)), cut, wait)
        tokens = [text.tokens for text in parsed]
        trace.tokenization += time.perf_counter() - start
        trace.sentences += len(texts)
        trace.truncated += sum(text.truncated for text in tokens)
        for index, text in enumerate(tokens):
            if text.truncated and not truncate:
                raise TooLongError(index, text.total, self.encoder.manifest.max_tokens)
        ticket = await self._answered(tokens, trace, wait)
        return [
            self.encoder.token_encoding(text, sentence.mixture)
            for text, sentence in zip(parsed, ticket.sentences, strict=True)
        ]

    async def _recalled(
        self, keys: list[bytes], mixtures: NDArray[np.float32], wait: Wait
    ) -> list[Text | None]:
        """What is remembered, with the mixtures written."""
        if len(keys) <= _FEW_SENTENCES:
            return self.cache.recall(keys, mixtures)
        loop = asyncio.get_running_loop()
        return await wait(loop.run_in_executor(self._tokenizing, self.cache.recall, keys, mixtures))

    async def compute(self, job: Callable[[], T], mixtures: int, wait: Wait = _patiently) -> T:
        """Do other work (scores, JSON) away from the model, and if it is much from the loop."""
        return job() if mixtures <= _FEW_SENTENCES else await self.off_loop(job, wait)

    async def off_loop(self, job: Callable[[], T], wait: Wait = _patiently) -> T:
        """Do other work in a thread."""
        return await wait(asyncio.get_running_loop().run_in_executor(self._pool, job))

    async def check(self) -> None:
        """Return if the model answers; raise `UnavailableError` or `InferenceError` if not."""
        if self.draining or self.stopped:
            raise UnavailableError("The service is stopping.")
        if time.monotonic() - self.batcher.succeeded < _FRESH_SECONDS:
            return
        ticket = self.batcher.submit([self.encoder.probe])
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await ticket.done
        except TimeoutError:
            raise UnavailableError(
                f"The model has not answered for {_PATIENCE_SECONDS:.0f} seconds."
            ) from None
        finally:
            self.batcher.withdraw(ticket)

    def stop(self) -> None:
        """Take nothing more, and give up what waits."""
        self.batcher.stop()

    def close(self) -> None:
        """Stop, and wait for the batch that runs."""
        self.stop()
        end = time.monotonic() + _PATIENCE_SECONDS
        for thread in self.batcher.threads:  # a model that hangs does not keep the process
            thread.join(max(0.0, end - time.monotonic()))
        for pool in (self._tokenizing, self._pool):
            pool.shutdown(cancel_futures=True)

    async def _read(
        self,
        reader: Callable[[Sequence[str], Side], list[T]],
        texts: Sequence[str],
        places: Sequence[int],
        cut: Side,
        wait: Wait,
    ) -> list[T]:
        """Tokenize some of the texts, if there is room for them."""
        self._check_room()
        wanted = [texts[place] for place in places]
        tokens = list[T]()
        try:
            if sum(map(len, wanted)) <= _FEW_CHARACTERS:
                return reader(wanted, cut)
            # In slices, so that a short text does not wait for another's long ones.
            loop = asyncio.get_running_loop()
            with self._expected(wanted):
                for part in slices(wanted, _SLICE_CHARACTERS):
                    if self.stopped:
                        raise UnavailableError("The service is stopping.")
                    tokens += await wait(loop.run_in_executor(self._tokenizing, reader, part, cut))
        except EmptyTextError as error:
            raise EmptyTextError(places[len(tokens) + error.index]) from None
        self._check_room()
        return tokens

    @contextmanager
    def _expected(self, texts: Sequence[str]) -> Iterator[None]:
        """Count texts as on their way to the model."""
        characters = sum(map(len, texts))
        self._arriving += characters
        try:
            yield
        finally:
            self._arriving -= characters

    async def _answered(self, tokens: list[Tokens], trace: Trace, wait: Wait) -> Ticket:
        start = time.perf_counter()
        ticket = self.batcher.submit(tokens)
        try:
            await wait(ticket.done)
        finally:
            self.batcher.withdraw(ticket)
            trace.tokens += ticket.tokens
            trace.inference += ticket.inference
            trace.queue += max(0.0, time.perf_counter() - start - ticket.inference)
        return ticket

    def _check_room(self) -> None:
        seconds = self._seconds_for(self.queue.ahead)
        if seconds > self._settings.max_wait_seconds and self._requests > _FEW_REQUESTS:
            raise self._overloaded(f"{seconds:.1f} seconds of work", "LATTEMIX_MAX_WAIT_SECONDS")

    def _seconds_for(self, tokens: int) -> float:
        """How long it takes to read them, and what comes before, as far as is known."""
        rate = self.batcher.tokens_per_second
        return self._arriving / _CHARACTERS_PER_SECOND + (tokens / rate if rate else 0.0)

    def _overloaded(self, what: str, setting: str) -> OverloadedError:
        """Refuse, and say when what waits now will be done."""
        seconds = self._seconds_for(self.queue.tokens)
        retry_after = min(max(1, math.ceil(seconds)), _LONGEST_RETRY_SECONDS)
        most = getattr(self._settings, setting.removeprefix("LATTEMIX_").lower())
        return OverloadedError(
            f"{what} are waiting already, and {setting} is {most:,}: try again in {retry_after} s.",
            retry_after,
        )
