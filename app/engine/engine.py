"""Many requests, one model: their sentences share batches, and equal ones are computed once."""

import asyncio
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from app.engine.cache import Cache
from app.engine.encoder import Encoder, Encoding
from app.engine.errors import (
    EmptyTextError,
    InferenceError,
    OverloadedError,
    TooLongError,
    UnavailableError,
)
from app.engine.queue import Queue, Sentence, Ticket, key_of
from app.engine.tokenization import Side, Tokens, slices
from app.observe import Trace
from app.settings import Settings

log = logging.getLogger("lattemix")

T = TypeVar("T")

BatchWatcher = Callable[[int, int, int, float], None]  # sentences, tokens, padded tokens, seconds

_FRESH_SECONDS = 5.0  # a batch that succeeded so lately shows that the model answers
_PATIENCE_SECONDS = 5.0  # for one that is run to find out
_LONGEST_RETRY_SECONDS = 60
_CHARACTERS_PER_TOKEN = 4  # about, to know what is coming
_SLICE_CHARACTERS = 100_000  # tokenized at once: some 30 ms


class Engine:
    """Computes mixtures for requests that come together, on threads of its own.

    The event loop never computes. Threads run the model, batch after batch, taking whatever waits
    by then: a queue fills while the batches before run, so nothing is delayed to be gathered.
    """

    def __init__(
        self, encoder: Encoder, settings: Settings, on_batch: BatchWatcher | None = None
    ) -> None:
        self.encoder = encoder
        self.cache = Cache(settings.cache_bytes)
        self.queue = Queue(encoder.padded_length)
        self._settings = settings
        self._on_batch = on_batch
        self._flying: dict[bytes, Sentence] = {}  # waiting or being computed
        self._requests = 0
        self._arriving = 0  # tokens, about, of texts that are not tokenized yet
        self._tokens_per_second = 0.0
        self._succeeded = time.monotonic()  # the warm-up did
        self.draining = False  # still answers, but is not ready
        self.stopped = False
        self._changed = threading.Condition()  # guards the queue, the cache and `_flying`
        # Apart, and several, so that a text or a small answer does not wait for a large answer.
        self._tokenizing = ThreadPoolExecutor(1, thread_name_prefix="lattemix-tokens")
        self._pool = ThreadPoolExecutor(4, thread_name_prefix="lattemix-pool")
        self._threads = [
            threading.Thread(target=self._work, name=f"lattemix-model-{number}", daemon=True)
            for number in range(encoder.parallel)
        ]
        for thread in self._threads:
            thread.start()

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """A place in the house, or `OverloadedError` at once."""
        if self._requests >= self._settings.max_requests:
            raise self._overloaded(f"{self._requests:,} requests", "LATTEMIX_MAX_REQUESTS")
        self._requests += 1
        try:
            yield
        finally:
            self._requests -= 1

    async def encode(
        self, texts: Sequence[str], trace: Trace, truncate: bool = True, cut: Side = "right"
    ) -> Encoding:
        """Return the mixture of every text, in order, and fill in the trace.

        Whoever stops waiting is forgotten: what only they asked for is not computed any more.

        Raises:
            EmptyTextError: for the first text in which the model finds no words.
            TooLongError: for the first that is too long, if none may be cut.
            OverloadedError: more tokens wait than may.
            InferenceError: the model failed.
            UnavailableError: the service stops.
        """
        self._check_room()
        start = time.perf_counter()
        tokens = await self._tokenized(texts, cut)
        trace.tokenization += time.perf_counter() - start
        trace.sentences += len(tokens)
        truncated = [text.truncated for text in tokens]
        trace.truncated += sum(truncated)
        if not truncate and any(truncated):
            index = truncated.index(True)
            raise TooLongError(index, tokens[index].total, self.encoder.manifest.max_tokens)
        ticket = await self._answered(tokens, trace)
        mixtures = await self.compute(ticket.mixtures)
        return Encoding(mixtures, [text.total for text in tokens], truncated)

    async def compute(self, job: Callable[[], T]) -> T:
        """Do other work (scores, JSON) away from the event loop and from the model."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, job)

    async def check(self) -> None:
        """Return if the model answers; raise `UnavailableError` or `InferenceError` if not."""
        if self.draining or self.stopped:
            raise UnavailableError("The service is stopping.")
        if time.monotonic() - self._succeeded < _FRESH_SECONDS:
            return
        ticket = self._submit([self.encoder.probe], probing=True)
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await ticket.done
        except TimeoutError:
            raise UnavailableError(
                f"The model has not answered for {_PATIENCE_SECONDS:.0f} seconds."
            ) from None
        finally:
            self._withdraw(ticket)

    def stop(self) -> None:
        """Take nothing more, and give up what waits."""
        with self._changed:
            self.stopped = True
            waiting = {ticket for s in self._flying.values() for ticket in s.tickets}
            self.queue, self._flying = Queue(self.encoder.padded_length), {}
            self._changed.notify_all()
        for ticket in waiting:
            ticket.finish(
                UnavailableError("The service stopped before this was done: send it again.")
            )

    def close(self) -> None:
        """Stop, and wait for the batch that runs."""
        self.stop()
        end = time.monotonic() + _PATIENCE_SECONDS
        for thread in self._threads:  # a model that hangs does not keep the process
            thread.join(max(0.0, end - time.monotonic()))
        for pool in (self._tokenizing, self._pool):
            pool.shutdown(cancel_futures=True)

    async def _tokenized(self, texts: Sequence[str], cut: Side) -> list[Tokens]:
        """Tokenize in slices, so that a short text does not wait for another's long ones."""
        limit = self.encoder.manifest.max_tokens
        expected = sum(min(len(text) // _CHARACTERS_PER_TOKEN, limit) for text in texts)
        loop, tokens = asyncio.get_running_loop(), list[Tokens]()
        self._arriving += expected
        try:
            for part in slices(texts, _SLICE_CHARACTERS):
                if self.stopped:
                    raise UnavailableError("The service is stopping.")
                tokens += await loop.run_in_executor(
                    self._tokenizing, self.encoder.tokenize, part, cut
                )
        except EmptyTextError as error:
            raise EmptyTextError(len(tokens) + error.index) from None
        finally:
            self._arriving -= expected
        return tokens

    async def _answered(self, tokens: list[Tokens], trace: Trace) -> Ticket:
        start = time.perf_counter()
        ticket = self._submit(tokens)
        trace.cached += sum(not isinstance(found, Sentence) for found in ticket.found)
        try:
            await ticket.done
        finally:
            self._withdraw(ticket)
            trace.tokens += ticket.tokens
            trace.inference += ticket.inference
            trace.queue += max(0.0, time.perf_counter() - start - ticket.inference)
        return ticket

    def _submit(self, tokens: list[Tokens], probing: bool = False) -> Ticket:
        """Find each text in memory or in flight, and let the others wait.

        A probe is let in however full it is, and asks the model even what is remembered.
        """
        ticket = Ticket(asyncio.get_running_loop())
        fresh: list[Sentence] = []
        with self._changed:
            if self.stopped:
                raise UnavailableError("The service is stopping.")
            if not probing:
                self._check_room()
            for text in tokens:
                key = key_of(text)
                mixture = None if probing else self.cache.get(key)
                if mixture is not None:
                    ticket.found.append(mixture)
                    continue
                sentence = self._flying.get(key)
                if sentence is None:
                    sentence = self._flying[key] = Sentence(text)
                    fresh.append(sentence)
                if sentence not in ticket.awaited:
                    ticket.awaited.add(sentence)
                    sentence.tickets.append(ticket)
                ticket.found.append(sentence)
            if fresh:
                self.queue.add(fresh)
                self._changed.notify_all()
        if not ticket.awaited:
            ticket.finish()
        return ticket

    def _withdraw(self, ticket: Ticket) -> None:
        """Forget a request; sentences that nobody else waits for are not computed."""
        with self._changed:
            for sentence in ticket.awaited:
                sentence.tickets.remove(ticket)
                if not sentence.tickets and self.queue.discard(sentence):
                    del self._flying[sentence.key]
            ticket.awaited.clear()

    def _work(self) -> None:
        """A thread of the model's: batch after batch, until told to stop."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self.stopped or self.queue.sentences)
                if self.stopped:
                    return
                batch = self.queue.take(self.encoder.token_budget)
            try:
                self._run(batch)
            except Exception:  # a fault of our own must not end the thread
                log.exception("The engine failed")
                self._deliver(batch, failed=True)

    def _run(self, batch: list[Sentence], again: bool = False) -> None:
        batch, tickets = self._begin(batch)
        if not batch:
            return
        start = time.perf_counter()
        try:
            mixtures = self.encoder.run([sentence.tokens for sentence in batch])
        except Exception:
            if not again:
                # For the operator. Tracebacks show code, not values, so no sentence is logged.
                log.exception("The model failed")
            self._end(tickets)
            if len(batch) == 1:
                self._succeeded = -math.inf
                self._deliver(batch, failed=True)
                return
            # It may be the size of the batch, or one sentence in it: spare the others.
            self._run(batch[::2], again=True)
            self._run(batch[1::2], again=True)
            return
        seconds = time.perf_counter() - start
        for sentence, mixture in zip(batch, mixtures, strict=True):
            sentence.mixture = mixture.copy()  # else one that is kept would keep its whole batch
        self._end(tickets)
        self._note(batch, seconds)
        self._deliver(batch)

    def _begin(self, batch: list[Sentence]) -> tuple[list[Sentence], set[Ticket]]:
        """What is still wanted of a batch, and by whom."""
        with self._changed:
            for sentence in batch:
                if not sentence.tickets and self._flying.get(sentence.key) is sentence:
                    del self._flying[sentence.key]
            tickets = {ticket for sentence in batch for ticket in sentence.tickets}
            for ticket in tickets:
                ticket.begin()
            return [sentence for sentence in batch if sentence.tickets], tickets

    def _end(self, tickets: set[Ticket]) -> None:
        with self._changed:
            for ticket in tickets:
                ticket.end()

    def _note(self, batch: list[Sentence], seconds: float) -> None:
        self._succeeded = time.monotonic()
        tokens = sum(map(len, batch))
        padded = self.encoder.padded_length(max(map(len, batch))) * len(batch)
        rate = tokens / seconds * self.encoder.parallel
        known = self._tokens_per_second or rate
        self._tokens_per_second = known + (rate - known) / 8  # of the last few batches
        if self._on_batch is not None:
            self._on_batch(len(batch), tokens, padded, seconds)

    def _deliver(self, batch: list[Sentence], failed: bool = False) -> None:
        """Hand a batch's results to whoever waits for them."""
        with self._changed:
            involved: set[Ticket] = set()
            for sentence in batch:
                if self._flying.get(sentence.key) is sentence:
                    del self._flying[sentence.key]
                if not failed:
                    self.cache.put(sentence.key, sentence.mixture)
                    for ticket in sentence.tickets[:1]:
                        ticket.tokens += len(sentence)
                for ticket in sentence.tickets:
                    ticket.awaited.discard(sentence)
                    involved.add(ticket)
                sentence.tickets = []
            for ticket in involved:
                if failed:
                    ticket.finish(InferenceError())
                elif not ticket.awaited:
                    ticket.finish()

    @property
    def _waiting(self) -> int:
        """Tokens that the model has yet to read."""
        return self.queue.tokens + self._arriving

    def _check_room(self) -> None:
        if self._waiting >= self._settings.max_waiting_tokens:
            raise self._overloaded(f"{self._waiting:,} tokens", "LATTEMIX_MAX_WAITING_TOKENS")

    def _overloaded(self, what: str, setting: str) -> OverloadedError:
        """Refuse, and say when what waits now will be done."""
        wait = self._waiting / self._tokens_per_second if self._tokens_per_second else 1.0
        retry_after = min(max(1, math.ceil(wait)), _LONGEST_RETRY_SECONDS)
        most = getattr(self._settings, setting.removeprefix("LATTEMIX_").lower())
        return OverloadedError(
            f"{what} are waiting already, and {setting} is {most:,}: try again in {retry_after} s.",
            retry_after,
        )
