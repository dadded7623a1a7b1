"""What all models of a process share: limits on work in progress, and threads."""

import asyncio
import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Protocol, TypeVar

from app.engine.errors import OverloadedError
from app.observe import Trace
from app.settings import Settings

T = TypeVar("T")

_MAX_RETRY_SECONDS = 60
_INLINE_SENTENCES = 4  # work on them takes less time than a round trip to a thread
_MIN_REQUESTS = 16  # accepted however slow the models are


class Backlog(Protocol):
    """The queued work of one model, in seconds."""

    def seconds_ahead(self) -> float:
        """Estimated time before the first turn of a new request."""
        ...

    def seconds_queued(self) -> float:
        """Estimated time until all queued work is done."""
        ...


class Host:
    """Admits work, and runs jobs in threads.

    The limits hold for all models together, which compete for the same memory and cores.
    """

    def __init__(self, settings: Settings) -> None:
        self.draining = False  # not ready, but still serving
        self.requests = 0  # in progress
        self.backlogs: set[Backlog] = set()
        self._settings = settings
        self._sentences = 0  # of the requests in progress
        self._pool = ThreadPoolExecutor(4, thread_name_prefix="lattemix-pool")

    @contextmanager
    def admitted(self, trace: Trace) -> Iterator[None]:
        """Count a request as in progress; raise `OverloadedError` if there are too many."""
        if self.requests >= self._settings.max_requests:
            raise self._overloaded(
                f"{self.requests:,} requests are in progress", "LATTEMIX_MAX_REQUESTS"
            )
        self.requests += 1
        try:
            yield
        finally:
            self.requests -= 1
            self._sentences -= trace.admitted_sentences

    def admit_sentences(self, count: int, trace: Trace) -> None:
        """Count sentences as in progress until the request ends, which bounds memory.

        The request's own sentences never keep it from adding more: alone, it would always fail.
        """
        others = self._sentences - trace.admitted_sentences
        if others >= self._settings.max_sentences:
            raise self._overloaded(
                f"{others:,} sentences are in progress", "LATTEMIX_MAX_SENTENCES"
            )
        self._sentences += count
        trace.admitted_sentences += count

    def check_wait(self) -> None:
        """Raise `OverloadedError` if a new request would wait too long."""
        seconds = sum(backlog.seconds_ahead() for backlog in self.backlogs)
        if seconds > self._settings.max_wait_seconds and self.requests > _MIN_REQUESTS:
            raise self._overloaded(
                f"{seconds:.1f} seconds of work are queued", "LATTEMIX_MAX_WAIT_SECONDS"
            )

    async def compute(self, job: Callable[[], T], mixtures: int) -> T:
        """Run a job inline for a few mixtures, else in a thread."""
        return job() if mixtures <= _INLINE_SENTENCES else await self.off_loop(job)

    async def off_loop(self, job: Callable[[], T]) -> T:
        """Run a job in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, job)

    def close(self) -> None:
        """Wait for running jobs."""
        self._pool.shutdown(cancel_futures=True)

    def _overloaded(self, reason: str, setting: str) -> OverloadedError:
        """Return an error that says when the work queued now will be done."""
        seconds = sum(backlog.seconds_queued() for backlog in self.backlogs)
        retry_after = min(max(1, math.ceil(seconds)), _MAX_RETRY_SECONDS)
        limit = getattr(self._settings, setting.removeprefix("LATTEMIX_").lower())
        return OverloadedError(
            f"{reason}, and {setting} is {limit:,}: try again in {retry_after} s.", retry_after
        )
