"""Threads that run the model on queued sentences, one batch after the other."""

import asyncio
import logging
import math
import os
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.engine.errors import UnavailableError
from app.engine.queue import Queue, Sentence, Submission, TokenKey, resolve, token_key
from app.observe import ModelMetrics
from app.observe.metrics import FailureReason
from lattemix.encoder import Encoder
from lattemix.errors import InferenceError, NonFiniteError
from lattemix.tokenization import Tokens

log = logging.getLogger("lattemix")

_NICENESS = 5
_RATE_SECONDS = 0.2  # time constant of the moving average of the throughput


class _Batch(NamedTuple):
    """Sentences to run and the submissions that wait for them."""

    sentences: list[Sentence]
    submissions: set[Submission]
    alone: bool  # no other batch runs and nothing is queued


class StaticEncoding(NamedTuple):
    """Mixtures of texts from a static model, and the seconds of each stage."""

    mixtures: NDArray[np.float32]  # [N, L, C]
    lengths: NDArray[np.int64]  # [N], in tokens
    tokenization: float
    inference: float


class Batcher:
    """Runs sentences of many requests in shared batches, each distinct sentence once.

    A free thread takes what is queued without delay: the queue fills while other batches run.
    """

    def __init__(self, encoder: Encoder, metrics: ModelMetrics | None = None) -> None:
        self.encoder = encoder
        self.queue = self._empty_queue()
        self.in_flight: dict[TokenKey, Sentence] = {}  # queued or running
        self.tokens_per_second = encoder.tokens_per_second  # moving average under load
        self.last_success = time.monotonic()  # of the warm-up, at first
        self.stopped = False
        self._metrics = metrics
        self._running = 0  # batches
        self._idle = True  # nothing was queued when the last batch ended
        self._changed = threading.Condition()  # guards the queue and `in_flight`
        self.threads = [
            threading.Thread(target=self._work, name=f"lattemix-model-{number}", daemon=True)
            for number in range(encoder.parallel)
        ]
        for thread in self.threads:
            thread.start()

    def submit(self, texts: list[Tokens]) -> Submission:
        """Queue texts, except those that are in flight already."""
        submission = Submission(asyncio.get_running_loop())
        with self._changed:
            if self.stopped:
                raise UnavailableError("The service is stopping.")
            try:
                self._add(submission, texts)
            except BaseException:  # such as MemoryError: the queue may be inconsistent
                self._deliver(self._drop_queue(), failed=True)
                raise
        return submission

    def _add(self, submission: Submission, texts: list[Tokens]) -> None:
        queued: dict[Sentence, None] = {}
        for text in texts:
            key = token_key(text)
            sentence = self.in_flight.get(key)
            if sentence is None:
                sentence = self.in_flight[key] = Sentence(text, key)
                queued[sentence] = None
            elif sentence in self.queue:
                queued[sentence] = None
            submission.append(sentence)
        self.queue.add(submission, list(queued))
        self._changed.notify(len(queued))

    def withdraw(self, submission: Submission) -> None:
        """Forget a submission; sentences that no other waits for are not computed."""
        with self._changed:
            for sentence in self.queue.withdraw(submission):
                del self.in_flight[sentence.key]

    def encode_static(self, texts: Sequence[str]) -> list[StaticEncoding]:
        """Encode texts with a static model in the calling thread; return a list of one result.

        Texts of several requests in one batch would gain nothing.
        """
        model = self.encoder.static
        assert model is not None
        if self.stopped:
            raise UnavailableError("The service is stopping.")
        start = time.perf_counter()
        tokens = model.tokenize(texts)
        tokenized = time.perf_counter()
        try:
            mixtures = model.mixtures(tokens)
        except BaseException as error:  # panics of some libraries are not Exceptions
            log.exception("The model failed")
            self._count_failures(error, len(texts))
            raise InferenceError from None
        seconds = time.perf_counter() - tokenized
        self.last_success = time.monotonic()
        if self._metrics is not None:
            count = len(tokens.ids)
            self._metrics.observe_batch(len(texts), count, count, seconds)
        return [StaticEncoding(mixtures, tokens.lengths, tokenized - start, seconds)]

    def stop(self) -> None:
        """Reject new submissions and fail those in flight."""
        with self._changed:
            self.stopped = True
            waiting = {each for s in self.in_flight.values() for each in s.submissions}
            self.queue, self.in_flight = self._empty_queue(), {}
            self._changed.notify_all()
        resolve(
            waiting, UnavailableError("The service stopped before this was done: send it again.")
        )

    def _empty_queue(self) -> Queue:
        encoder = self.encoder
        return Queue(
            encoder.token_budget, encoder.padded_length, encoder.overhead, encoder.parallel
        )

    def _drop_queue(self) -> list[Sentence]:
        """Empty the queue, which may be inconsistent after an error; return all in flight."""
        with self._changed:
            self.queue = self._empty_queue()
            return list(self.in_flight.values())

    def _work(self) -> None:
        """Run batches until stopped."""
        # The event loop has priority: it feeds the queue. Only on Linux is niceness per thread.
        if sys.platform == "linux":
            with suppress(OSError):  # forbidden in some sandboxes
                os.nice(_NICENESS)
        while not self.stopped:
            sentences: list[Sentence] = []
            try:
                sentences = self._take()
                self._run(sentences)
            # The thread must survive everything, even a library's panic or a MemoryError in
            # `_take`: without it no request would be answered.
            except BaseException:
                log.exception("The engine failed")
                self._deliver(sentences or self._drop_queue(), failed=True)

    def _take(self) -> list[Sentence]:
        """Wait for the next batch; empty if stopped."""
        with self._changed:
            self._changed.wait_for(lambda: self.stopped or self.queue.sentences)
            return [] if self.stopped else self.queue.take()

    def _run(self, sentences: list[Sentence], retry: bool = False) -> None:
        batch = self._begin(sentences)
        if not batch.sentences:
            return
        start = time.perf_counter()
        try:
            tokens = [sentence.tokens for sentence in batch.sentences]
            mixtures = self.encoder.run(tokens, batch.alone)
            for sentence, mixture in zip(batch.sentences, mixtures, strict=True):
                # A view would keep the whole batch, in ONNX Runtime's memory, until the last of its
                # requests is answered.
                sentence.mixture = mixture.copy()
        except BaseException as error:  # panics of some libraries are not Exceptions
            self._end(batch)
            self._fail(batch.sentences, error, retry)
            return
        seconds = time.perf_counter() - start
        self._end(batch)
        self._record(batch, seconds)
        self._deliver(batch.sentences)

    def _fail(self, sentences: list[Sentence], error: BaseException, retry: bool) -> None:
        if not retry:
            # Tracebacks show code, not values, so no sentence is logged.
            log.exception("The model failed")
        if len(sentences) == 1:
            self._count_failures(error, 1)
            self._deliver(sentences, failed=True)
            return
        # The cause may be the batch's size or one sentence: retry in halves to spare the others.
        self._run(sentences[::2], retry=True)
        self._run(sentences[1::2], retry=True)

    def _count_failures(self, error: BaseException, sentences: int) -> None:
        self.last_success = -math.inf
        if self._metrics is not None:
            reason: FailureReason = "nonfinite" if isinstance(error, NonFiniteError) else "error"
            self._metrics.observe_failures(reason, sentences)

    def _begin(self, sentences: list[Sentence]) -> _Batch:
        """Drop sentences that no submission waits for any more, and start the clocks."""
        with self._changed:
            for sentence in sentences:
                if not sentence.submissions:
                    self._remove_in_flight(sentence)
            wanted = [sentence for sentence in sentences if sentence.submissions]
            submissions = {each for sentence in wanted for each in sentence.submissions}
            for submission in submissions:
                submission.batch_started()
            alone = self._idle and not self._running and not self.queue.sentences
            self._running += bool(wanted)
            return _Batch(wanted, submissions, alone)

    def _remove_in_flight(self, sentence: Sentence) -> None:
        """Remove a sentence from those in flight, but not a newer one with the same key."""
        if self.in_flight.get(sentence.key) is sentence:
            del self.in_flight[sentence.key]

    def _end(self, batch: _Batch) -> None:
        with self._changed:
            self._running -= 1
            self._idle = not self._running and not self.queue.sentences
            for submission in batch.submissions:
                submission.batch_ended()

    def _record(self, batch: _Batch, seconds: float) -> None:
        self.last_success = time.monotonic()
        sentences = batch.sentences
        tokens = sum(map(len, sentences))
        padded = self.encoder.padded_length(max(map(len, sentences))) * len(sentences)
        if self.queue.sentences:  # without load, batches are small and their rate says little
            rate = tokens / seconds * (1 if batch.alone else self.encoder.parallel)
            average = self.tokens_per_second or rate
            self.tokens_per_second = average + (rate - average) * min(1.0, seconds / _RATE_SECONDS)
        if self._metrics is not None:
            self._metrics.observe_batch(len(sentences), tokens, padded, seconds)

    def _deliver(self, sentences: list[Sentence], failed: bool = False) -> None:
        """Mark sentences as done and resolve submissions with none pending.

        If `failed`, all submissions of the sentences fail.
        """
        with self._changed:
            waiting: set[Submission] = set()
            for sentence in sentences:
                self._remove_in_flight(sentence)
                if sentence.submissions and not failed:
                    sentence.submissions[0].computed_tokens += len(sentence)
                for submission in sentence.submissions:
                    submission.pending.discard(sentence)
                    waiting.add(submission)
                sentence.submissions = []
            # Under the lock: the success of a submission's last batch must not overtake the failure
            # of another.
            if failed:
                resolve(waiting, InferenceError())
            else:
                resolve(each for each in waiting if not each.pending)
