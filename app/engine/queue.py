"""Sentences queued for the model, and how a batch is chosen among them."""

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from lattemix.tokenization import Tokens

TokenKey = tuple[int, ...]

_SMALLEST_SHARE = 64  # tokens: the fixed cost of smaller batches is not worth dividing them

_length = attrgetter("length")


class Sentence:
    """A distinct sentence, computed once for all submissions that contain it."""

    __slots__ = ("key", "length", "mixture", "submissions", "tokens")

    mixture: NDArray[np.float32]  # [L, C], or [S, L, C] per token; set once computed

    def __init__(self, tokens: Tokens, key: TokenKey) -> None:
        self.tokens = tokens
        self.key = key
        self.length = len(tokens.ids)
        self.submissions: list[Submission] = []  # those still waiting for it, oldest first

    def __len__(self) -> int:
        return self.length


def token_key(tokens: Tokens) -> TokenKey:
    """Key of the sentence: equal if the model's input and the kind of result are equal."""
    return (tokens.per_token, *tokens.ids)


class Submission:
    """Sentences that a request submitted together, and their progress."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.done: asyncio.Future[None] = loop.create_future()
        self.sentences: list[Sentence] = []  # in the request's order, with repetitions
        self.pending: set[Sentence] = set()  # not computed yet
        self.queued: dict[Sentence, None] = {}  # not in a batch yet, shortest first
        self.queued_tokens = 0
        self.computed_tokens = 0  # of sentences that no earlier submission waited for
        self.inference = 0.0  # seconds during which at least one of its batches ran
        self._running = 0  # batches
        self._running_since = 0.0

    def append(self, sentence: Sentence) -> None:
        """Add a sentence to wait for."""
        self.sentences.append(sentence)
        if sentence not in self.pending:
            self.pending.add(sentence)
            sentence.submissions.append(self)

    def batch_started(self) -> None:
        """Start the clock; several of its batches may run at once."""
        if not self._running:
            self._running_since = time.perf_counter()
        self._running += 1

    def batch_ended(self) -> None:
        """Stop the clock after the last running batch."""
        self._running -= 1
        if not self._running:
            self.inference += time.perf_counter() - self._running_since


def resolve(submissions: Iterable[Submission], error: Exception | None = None) -> None:
    """Set the result of `done`, or the error, from any thread."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Submission]] = {}
    for submission in submissions:
        by_loop.setdefault(submission.loop, []).append(submission)

    def set_results(group: list[Submission]) -> None:
        for submission in group:
            if submission.done.done():  # cancelled
                continue
            if error is None:
                submission.done.set_result(None)
            else:
                submission.done.set_exception(error)

    for loop, group in by_loop.items():  # one wake-up per loop
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(set_results, group)


class Queue:
    """Queued sentences. Submissions take turns to start a batch.

    Every other turn goes to the oldest submission, the turns between rotate among the others. So a
    short request does not wait for all of a long one, nor a long one for all newer short ones.

    Not thread-safe: the owner holds a lock.
    """

    def __init__(
        self,
        token_budget: int,
        padded: Callable[[int], int] = int,
        overhead: float = 0.0,
        parallel: int = 1,
    ) -> None:
        """Create an empty queue.

        Args:
            token_budget: largest batch, in tokens including padding.
            padded: length that a batch is padded to, given its longest sentence.
            overhead: fixed cost of a batch, in tokens.
            parallel: batches that run at once; a short queue is divided among them.
        """
        self.sentences = 0
        self.tokens = 0
        self._token_budget = token_budget
        self._parallel = parallel
        self._padded = padded
        self._overhead = overhead
        self._by_length: dict[int, dict[Sentence, None]] = {}  # oldest first
        # Not plain dicts, which are slow to find their first entry after deletions at the front.
        self._rotation: OrderedDict[Submission, None] = OrderedDict()  # next turn first
        self._by_age: OrderedDict[Submission, None] = OrderedDict()  # oldest first
        self._oldest_had_turn = False
        self._round_tokens = 0  # tokens of one turn for each submission, at most

    def __contains__(self, sentence: Sentence) -> bool:
        return sentence in self._by_length.get(sentence.length, ())

    @property
    def tokens_ahead(self) -> int:
        """Estimated tokens computed before the first turn of a new submission."""
        # A turn of each submission, and as many turns of the oldest.
        return min(self.tokens, 2 * self._round_tokens)

    def add(self, submission: Submission, sentences: list[Sentence]) -> None:
        """Queue sentences of a submission; some may be queued already for others."""
        if not sentences:
            return
        submission.queued = dict.fromkeys(sorted(sentences, key=_length))
        for sentence in submission.queued:
            submission.queued_tokens += sentence.length
            same_length = self._by_length.setdefault(sentence.length, {})
            if sentence not in same_length:
                same_length[sentence] = None
                self.sentences += 1
                self.tokens += sentence.length
        self._round_tokens += self._turn_tokens(submission)
        self._rotation[submission] = self._by_age[submission] = None

    def discard(self, sentence: Sentence) -> bool:
        """Remove a sentence; return False if it was not queued."""
        same_length = self._by_length.get(sentence.length)
        if same_length is None or sentence not in same_length:
            return False
        del same_length[sentence]
        if not same_length:
            del self._by_length[sentence.length]
        self.sentences -= 1
        self.tokens -= sentence.length
        for submission in sentence.submissions:
            self._round_tokens -= self._turn_tokens(submission)
            del submission.queued[sentence]
            submission.queued_tokens -= sentence.length
            self._round_tokens += self._turn_tokens(submission)
            if not submission.queued:
                del self._rotation[submission], self._by_age[submission]
        return True

    def withdraw(self, submission: Submission) -> list[Sentence]:
        """Remove a submission and the sentences that only it waits for; return these."""
        if submission in self._by_age:
            self._round_tokens -= self._turn_tokens(submission)
            del self._rotation[submission], self._by_age[submission]
        for sentence in submission.pending:
            sentence.submissions.remove(submission)
        removed = [s for s in submission.pending if not s.submissions and self.discard(s)]
        submission.pending.clear()
        return removed

    def _turn_tokens(self, submission: Submission) -> int:
        """Tokens that one turn takes from a submission, at most."""
        return min(submission.queued_tokens, self._token_budget)

    def take(self) -> list[Sentence]:
        """Remove and return the next batch, which fits the budget including padding.

        If the queue is short, the batch is a thread's share of it.

        It starts with the shortest sentence of the submission whose turn it is and adds the
        sentences nearest in length while that lowers the cost per token: more sentences share the
        overhead but need more padding. A sentence over the budget gets a batch of its own.
        """
        first = self._next()
        if first is None:
            return []
        budget: float = self._token_budget
        if self._parallel > 1:
            budget = min(budget, max(_SMALLEST_SHARE, self.tokens / self._parallel))
        batch: list[Sentence] = []
        longest = row = tokens = best_size = 0
        best_cost = math.inf  # per token
        for sentence in self._nearest(first):
            if sentence.length > longest:
                longest = sentence.length
                row = self._padded(longest)
            padded = row * (len(batch) + 1)
            if batch and padded > budget:
                break
            batch.append(sentence)
            tokens += sentence.length
            cost = (self._overhead + padded) / tokens
            if cost <= best_cost:
                best_cost, best_size = cost, len(batch)
        del batch[best_size:]
        for sentence in batch:
            self.discard(sentence)
        return batch

    def _next(self) -> Sentence | None:
        """Shortest queued sentence of the submission whose turn it is."""
        if not self._by_age:
            return None
        submission = oldest = next(iter(self._by_age))
        self._oldest_had_turn = not self._oldest_had_turn
        if not self._oldest_had_turn:
            if next(iter(self._rotation)) is oldest:
                self._rotation.move_to_end(oldest)
            submission = next(iter(self._rotation))
            self._rotation.move_to_end(submission)
        return next(iter(submission.queued))

    def _nearest(self, first: Sentence) -> Iterator[Sentence]:
        """Yield all queued sentences of the same kind, `first` first, by difference in length."""
        yield first
        for length in sorted(self._by_length, key=lambda length: abs(length - first.length)):
            for sentence in self._by_length[length]:
                if sentence is not first and sentence.tokens.per_token == first.tokens.per_token:
                    yield sentence
