"""Sentences that wait for the model, and how a batch is chosen among them."""

import asyncio
import math
import time
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from lattemix.tokenization import Tokens


class Ticket:
    """One request's wait for its sentences."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.done: asyncio.Future[None] = loop.create_future()
        self.sentences: list[Sentence] = []  # in the order asked
        self.awaited: set[Sentence] = set()
        self.inference = 0.0  # seconds in which one of its sentences was computed
        self.tokens = 0  # computed for this request, and first for it
        self._running = 0  # batches with sentences of it
        self._since = 0.0

    def begin(self) -> None:
        """Note that a batch of its begins; several may run at once."""
        if not self._running:
            self._since = time.perf_counter()
        self._running += 1

    def end(self) -> None:
        """Note that one has ended."""
        self._running -= 1
        if not self._running:
            self.inference += time.perf_counter() - self._since

    def wake(self, error: Exception | None = None) -> None:
        """Let the request go on, on its loop."""
        if self.done.done():  # it has left
            return
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(error)


def finish(tickets: Iterable[Ticket], error: Exception | None = None) -> None:
    """Wake requests, from any thread."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Ticket]] = {}
    for ticket in tickets:
        by_loop.setdefault(ticket.loop, []).append(ticket)

    def wake(together: list[Ticket]) -> None:
        for ticket in together:
            ticket.wake(error)

    for loop, together in by_loop.items():
        with suppress(RuntimeError):  # the loop is closed: nobody is there to wake
            loop.call_soon_threadsafe(wake, together)


class Sentence:
    """A distinct sentence that is computed once, for every request that waits for it."""

    mixture: NDArray[np.float32]  # [L, C], or of each token [S, L, C], once computed

    def __init__(self, tokens: Tokens, key: bytes) -> None:
        self.tokens = tokens
        self.key = key
        self.tickets: list[Ticket] = []
        self.requests: list[_Request] = []  # in whose turn it may be taken, while it waits

    def __len__(self) -> int:
        return len(self.tokens.ids)


def key_of(tokens: Tokens) -> bytes:
    """Equal for texts that the model cannot tell apart, asked for in the same way."""
    return array("i", (tokens.per_token, *tokens.ids)).tobytes()


class _Request:
    """What waits of the sentences that came together."""

    def __init__(self, sentences: Iterable[Sentence]) -> None:
        self.sentences = dict.fromkeys(sorted(sentences, key=len))
        self.tokens = sum(map(len, self.sentences))


class Queue:
    """Waiting sentences. Requests take turns; each turn takes along what is of similar length.

    Every other turn is the oldest request's. So a short request does not wait for all of a long
    one, nor a long one for all the short ones that come while it waits.

    Not thread-safe: its owner holds a lock.
    """

    def __init__(
        self, token_budget: int, padded: Callable[[int], int] = int, overhead: float = 0.0
    ) -> None:
        """What a batch may cost and does, counted in tokens.

        `padded` is the length that sentences of at most the given one are brought to, and
        `overhead` what a batch costs besides.
        """
        self.sentences = 0
        self.tokens = 0
        self._token_budget = token_budget
        self._padded = padded
        self._overhead = overhead
        self._by_length: dict[int, dict[Sentence, None]] = {}  # oldest first
        self._turns: OrderedDict[_Request, None] = OrderedDict()  # by whose turn it is
        self._came: OrderedDict[_Request, None] = OrderedDict()  # the same, the oldest first
        self._by_age = False  # the last turn was the oldest's
        self._round = 0  # tokens that are read if every request has a turn

    @property
    def ahead(self) -> int:
        """Tokens that are read before a request which comes now has its turn, about."""
        return min(self.tokens, 2 * self._round)  # as many of the oldest, if it has so many

    def waits(self, sentence: Sentence) -> bool:
        """Whether a sentence does, and is not being computed."""
        return sentence in self._by_length.get(len(sentence), {})

    def add(self, sentences: list[Sentence]) -> None:
        """Let one request's sentences wait; some of them may wait for others already."""
        if not sentences:
            return
        request = _Request(sentences)
        for sentence in sentences:
            sentence.requests.append(request)
            if not self.waits(sentence):
                self._by_length.setdefault(len(sentence), {})[sentence] = None
                self.sentences += 1
                self.tokens += len(sentence)
        self._round += self._turn_of(request)
        self._turns[request] = self._came[request] = None

    def discard(self, sentence: Sentence) -> bool:
        """Forget a sentence, if it waits; return whether it did."""
        if not self.waits(sentence):
            return False
        same = self._by_length[len(sentence)]
        del same[sentence]
        if not same:
            del self._by_length[len(sentence)]
        self.sentences -= 1
        self.tokens -= len(sentence)
        for request in sentence.requests:
            self._round -= self._turn_of(request)
            del request.sentences[sentence]
            request.tokens -= len(sentence)
            self._round += self._turn_of(request)
            if not request.sentences:
                del self._turns[request], self._came[request]
        sentence.requests = []
        return True

    def _turn_of(self, request: _Request) -> int:
        """Tokens that a turn takes of a request, at most."""
        return min(request.tokens, self._token_budget)

    def take(self) -> list[Sentence]:
        """Remove and return the next batch, which with its padding is within the budget.

        It begins with the sentence whose turn it is, so that no request waits for all of another,
        and goes on with those nearest to it in length, to where a token costs least: more
        sentences share what a batch costs, but are padded more. A sentence longer than the whole
        budget gets a batch of its own.
        """
        first = self._next()
        if first is None:
            return []
        batch: list[Sentence] = []
        longest = tokens = best = 0
        least = math.inf  # cost of a token
        for sentence in self._nearest(first):
            longest = max(longest, len(sentence))
            padded = self._padded(longest) * (len(batch) + 1)
            if batch and padded > self._token_budget:
                break
            batch.append(sentence)
            tokens += len(sentence)
            cost = (self._overhead + padded) / tokens
            if cost <= least:
                least, best = cost, len(batch)
        del batch[best:]
        for sentence in batch:
            self.discard(sentence)
        return batch

    def _next(self) -> Sentence | None:
        """The first waiting sentence of the request whose turn it is."""
        if not self._came:
            return None
        self._by_age = not self._by_age
        oldest = next(iter(self._came))
        if self._by_age:
            return next(iter(oldest.sentences))
        request = next(iter(self._turns))
        if request is oldest and len(self._turns) > 1:  # which has turns enough
            self._turns.move_to_end(request)
            request = next(iter(self._turns))
        self._turns.move_to_end(request)
        return next(iter(request.sentences))

    def _nearest(self, first: Sentence) -> Iterator[Sentence]:
        """Every waiting sentence that is asked for in the same way, by how near its length is."""
        yield first
        for length in sorted(self._by_length, key=lambda length: abs(length - len(first))):
            for sentence in self._by_length[length]:
                if sentence is not first and sentence.tokens.per_token == first.tokens.per_token:
                    yield sentence
