"""Threads that run the model on what waits, batch after batch."""

import asyncio
import logging
import math
import os
import sys
import threading
import time
from contextlib import suppress
from typing import NamedTuple

from app.engine.errors import UnavailableError
from app.engine.queue import Queue, Sentence, Ticket, finish, key_of
from app.observe import Metrics
from lattemix.encoder import Encoder
from lattemix.errors import InferenceError, NonFiniteError
from lattemix.tokenization import Tokens

log = logging.getLogger("lattemix")

_NICENESS = 5
_LATELY_SECONDS = 0.2  # of running, which say how fast the model is


class _Batch(NamedTuple):
    """Sentences to run, and who waits for them."""

    sentences: list[Sentence]
    tickets: set[Ticket]
    alone: bool  # nothing else runs or waits


class Batcher:
    """Many requests' sentences in shared batches, each distinct one computed once.

    Every thread takes whatever waits by then: a queue fills while the batches before run, so
    nothing is delayed to be gathered.
    """

    def __init__(self, encoder: Encoder, metrics: Metrics | None = None) -> None:
        self.encoder = encoder
        self.queue = self._empty_queue()
        self.flying: dict[bytes, Sentence] = {}  # waiting or being computed
        self.tokens_per_second = encoder.tokens_per_second  # lately, when there is much to do
        self.succeeded = time.monotonic()  # last; the warm-up did
        self.stopped = False
        self._metrics = metrics
        self._running = 0  # batches
        self._quiet = True  # nothing came while the last one ran
        self._changed = threading.Condition()  # guards the queue and `flying`
        self.threads = [
            threading.Thread(target=self._work, name=f"lattemix-model-{number}", daemon=True)
            for number in range(encoder.parallel)
        ]
        for thread in self.threads:
            thread.start()

    def submit(self, texts: list[Tokens]) -> Ticket:
        """Let texts wait; those that others wait for already, or that are computed, only once."""
        ticket = Ticket(asyncio.get_running_loop())
        with self._changed:
            if self.stopped:
                raise UnavailableError("The service is stopping.")
            try:
                self._add(ticket, texts)
            except BaseException:  # no memory: what is half there would be waited for in vain
                self._deliver(self._give_up(), failed=True)
                raise
        return ticket

    def _add(self, ticket: Ticket, texts: list[Tokens]) -> None:
        waiting: list[Sentence] = []
        for text in texts:
            key = key_of(text)
            sentence = self.flying.get(key)
            fresh = sentence is None
            if sentence is None:
                sentence = self.flying[key] = Sentence(text, key)
            if sentence not in ticket.awaited:
                ticket.awaited.add(sentence)
                sentence.tickets.append(ticket)
                if fresh or self.queue.waits(sentence):
                    waiting.append(sentence)
            ticket.sentences.append(sentence)
        self.queue.add(waiting)
        self._changed.notify(len(waiting))

    def withdraw(self, ticket: Ticket) -> None:
        """Forget a request; sentences that nobody else waits for are not computed."""
        with self._changed:
            for sentence in ticket.awaited:
                sentence.tickets.remove(ticket)
                if not sentence.tickets and self.queue.discard(sentence):
                    del self.flying[sentence.key]
            ticket.awaited.clear()

    def stop(self) -> None:
        """Take nothing more, and give up what waits."""
        with self._changed:
            self.stopped = True
            waiting = {ticket for s in self.flying.values() for ticket in s.tickets}
            self.queue, self.flying = self._empty_queue(), {}
            self._changed.notify_all()
        finish(
            waiting, UnavailableError("The service stopped before this was done: send it again.")
        )

    def _empty_queue(self) -> Queue:
        encoder = self.encoder
        return Queue(encoder.token_budget, encoder.padded_length, encoder.overhead)

    def _work(self) -> None:
        """A thread of the model's: batch after batch, until told to stop."""
        # Whoever brings requests or takes answers away goes first, or cores soon have nothing to
        # do. Elsewhere than on Linux this would be of the whole process.
        if sys.platform == "linux":
            with suppress(OSError):  # not every sandbox lets it
                os.nice(_NICENESS)
        while not self.stopped:
            sentences: list[Sentence] = []
            try:
                sentences = self._take()
                self._run(sentences)
            # Nothing may end the thread, be it a panic of a library's or no memory to take a batch:
            # nobody would be left to answer.
            except BaseException:
                log.exception("The engine failed")
                self._deliver(sentences or self._give_up(), failed=True)

    def _take(self) -> list[Sentence]:
        """The next batch, once there is one; none if told to stop."""
        with self._changed:
            self._changed.wait_for(lambda: self.stopped or self.queue.sentences)
            return [] if self.stopped else self.queue.take()

    def _give_up(self) -> list[Sentence]:
        """Everything that waits, and does no longer: what is in the queue cannot be told."""
        with self._changed:
            self.queue = self._empty_queue()
            return list(self.flying.values())

    def _run(self, sentences: list[Sentence], again: bool = False) -> None:
        batch = self._begin(sentences)
        if not batch.sentences:
            return
        start = time.perf_counter()
        try:
            tokens = [sentence.tokens for sentence in batch.sentences]
            mixtures = self.encoder.run(tokens, batch.alone)
            for sentence, mixture in zip(batch.sentences, mixtures, strict=True):
                # A copy: the whole batch is in memory of ONNX Runtime's, which it never gives back,
                # and would be kept until the last of the requests in it is done.
                sentence.mixture = mixture.copy()
        except BaseException as error:  # some libraries' panics are no Exception
            self._end(batch)
            self._fail(batch.sentences, error, again)
            return
        seconds = time.perf_counter() - start
        self._end(batch)
        self._note(batch, seconds)
        self._deliver(batch.sentences)

    def _fail(self, sentences: list[Sentence], error: BaseException, again: bool) -> None:
        if not again:
            # For the operator. Tracebacks show code, not values, so no sentence is logged.
            log.exception("The model failed")
        if len(sentences) == 1:
            self.succeeded = -math.inf
            if self._metrics is not None:
                self._metrics.observe_failure(
                    "nonfinite" if isinstance(error, NonFiniteError) else "error"
                )
            self._deliver(sentences, failed=True)
            return
        # It may be the size of the batch, or one sentence in it: spare the others.
        self._run(sentences[::2], again=True)
        self._run(sentences[1::2], again=True)

    def _begin(self, sentences: list[Sentence]) -> _Batch:
        """What is still wanted."""
        with self._changed:
            for sentence in sentences:
                if not sentence.tickets and self.flying.get(sentence.key) is sentence:
                    del self.flying[sentence.key]
            wanted = [sentence for sentence in sentences if sentence.tickets]
            tickets = {ticket for sentence in wanted for ticket in sentence.tickets}
            for ticket in tickets:
                ticket.begin()
            alone = self._quiet and not self._running and not self.queue.sentences
            self._running += bool(wanted)
            return _Batch(wanted, tickets, alone)

    def _end(self, batch: _Batch) -> None:
        with self._changed:
            self._running -= 1
            self._quiet = not self._running and not self.queue.sentences
            for ticket in batch.tickets:
                ticket.end()

    def _note(self, batch: _Batch, seconds: float) -> None:
        self.succeeded = time.monotonic()
        sentences = batch.sentences
        tokens = sum(map(len, sentences))
        padded = self.encoder.padded_length(max(map(len, sentences))) * len(sentences)
        if self.queue.sentences:  # one that is small because nothing else waits says little
            rate = tokens / seconds * (1 if batch.alone else self.encoder.parallel)
            known = self.tokens_per_second or rate
            self.tokens_per_second = known + (rate - known) * min(1.0, seconds / _LATELY_SECONDS)
        if self._metrics is not None:
            self._metrics.observe_batch(len(sentences), tokens, padded, seconds)

    def _deliver(self, sentences: list[Sentence], failed: bool = False) -> None:
        """Wake the requests that wait for these sentences, where they failed or were the last."""
        with self._changed:
            involved: set[Ticket] = set()
            for sentence in sentences:
                if self.flying.get(sentence.key) is sentence:
                    del self.flying[sentence.key]
                if not failed:
                    for ticket in sentence.tickets[:1]:
                        ticket.tokens += len(sentence)
                for ticket in sentence.tickets:
                    ticket.awaited.discard(sentence)
                    involved.add(ticket)
                sentence.tickets = []
            # Under the lock: the success of a request's last batch must not overtake the failure
            # of another.
            if failed:
                finish(involved, InferenceError())
            else:
                finish(ticket for ticket in involved if not ticket.awaited)
