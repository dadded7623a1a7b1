"""`Client`: an `AsyncClient` on a thread of its own, called from synchronous code."""

import asyncio
import os
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from threading import Thread
from typing import Any, ParamSpec, TypeVar

import httpx
import numpy as np
from numpy.typing import NDArray

from lattemix.client import calls
from lattemix.client.asynchronous import IN_FLIGHT, RETRIES, TIMEOUT_SECONDS, AsyncClient
from lattemix.client.calls import METRICS, Answer, Embedded, Item, Many, Pair, Refusal, Row
from lattemix.responses import (
    Explanation,
    InfoResponse,
    MatrixResponse,
    PairSimilarity,
    RankResponse,
    RankResult,
    SimilarityResponse,
)
from model_store import LatteMixError, Metric

P = ParamSpec("P")
T = TypeVar("T")


class Client:
    """A synchronous `AsyncClient`: see there for the arguments and the errors.

    Closing it is optional: its thread ends when the client is collected or the program exits.
    """

    def __init__(
        self,
        url: str,
        api_key: str | None = None,
        timeout: float = TIMEOUT_SECONDS,
        retries: int = RETRIES,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._client = AsyncClient(url, api_key, timeout, retries, transport)
        self.url = self._client.url
        opened: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        # A daemon: the interpreter does not wait for it at exit.
        self._thread = Thread(
            target=_run, args=(self._client, opened), name="lattemix-client", daemon=True
        )
        self._thread.start()
        self._loop, stop = opened.result()
        self._process = os.getpid()
        # Runs on close() or when the client is collected. At exit the thread simply ends.
        self._stop = weakref.finalize(self, self._loop.call_soon_threadsafe, stop.set)
        self._stop.atexit = False

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections and end the thread."""
        self._stop()
        self._thread.join()

    def info(self) -> InfoResponse:
        """What is being served, and within which limits."""
        return self._call(self._client.info)

    def similarity(
        self, pairs: Iterable[Pair], metrics: Sequence[Metric] = METRICS, truncate: bool = True
    ) -> SimilarityResponse:
        """How alike the sentences of each pair are, however many pairs there are."""
        return self._call(self._client.similarity, pairs, metrics, truncate)

    def embed(self, texts: Iterable[str], truncate: bool = True) -> NDArray[np.float32]:
        """The mixtures [N, L, C] of any number of sentences."""
        return self._call(self._client.embed, texts, truncate)

    def rank(
        self,
        query: str,
        candidates: Iterable[str],
        metric: Metric | None = None,
        top_k: int | None = None,
        truncate: bool = True,
    ) -> RankResponse:
        """Any number of candidates, the most similar to the query first."""
        return self._call(self._client.rank, query, candidates, metric, top_k, truncate)

    def matrix(
        self,
        texts: Iterable[str],
        metric: Metric | None = None,
        threshold: float | None = None,
        top_k: int | None = None,
        truncate: bool = True,
    ) -> MatrixResponse:
        """Pairs among sentences that fit one request, the most similar first."""
        return self._call(self._client.matrix, texts, metric, threshold, top_k, truncate)

    def explain(
        self, a: str, b: str, metric: Metric | None = None, truncate: bool = True
    ) -> Explanation:
        """Why two sentences are as similar as they are: by tokens, words and latent dims."""
        return self._call(self._client.explain, a, b, metric, truncate)

    def iter_similarity(
        self, pairs: Iterable[Pair], metrics: Sequence[Metric] = METRICS, truncate: bool = True
    ) -> Iterator[PairSimilarity | Refusal]:
        """Each pair's similarities, as they come; a pair that is refused costs only itself."""
        for row in self._each(calls.compare(metrics, truncate), pairs):
            yield row if isinstance(row, Refusal) else row[0]

    def iter_embed(
        self, texts: Iterable[str], truncate: bool = True
    ) -> Iterator[Embedded | Refusal]:
        """Each sentence's mixture, as they come; one that is refused costs only itself."""
        return self._each(calls.embed(truncate), texts)

    def iter_rank(
        self,
        query: str,
        candidates: Iterable[str],
        metric: Metric | None = None,
        truncate: bool = True,
    ) -> Iterator[RankResult | Refusal]:
        """Each candidate's similarity to the query, in the order of the candidates."""
        rows = self._each(calls.rank(query, metric, truncate), candidates)
        for place, row in enumerate(rows):
            yield row if isinstance(row, Refusal) else calls.at(place, row[0])

    def _each(
        self, many: Many[Item, Answer, Row], items: Iterable[Item]
    ) -> Iterator[Row | Refusal]:
        """Every item's row, in order. The items are read here, so that they may be slow to come."""
        waiting: deque[Future[list[Row | Refusal]]] = deque()
        try:
            for chunk in many.chunks(items, self._call(self._client.limits)):
                waiting.append(self._start(self._client.settle, many, chunk, False))
                if len(waiting) == IN_FLIGHT:
                    yield from _result(waiting.popleft())
            while waiting:
                yield from _result(waiting.popleft())
        finally:
            for future in waiting:
                future.cancel()

    def _call(
        self, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **options: P.kwargs
    ) -> T:
        """Run a coroutine function on the client's thread, and wait for its result."""
        return _result(self._start(function, *args, **options))

    def _start(
        self, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **options: P.kwargs
    ) -> Future[T]:
        if os.getpid() != self._process:
            raise LatteMixError(
                "This client was made in another process, and threads do not survive a fork: "
                "make a client in every process."
            )
        if not self._stop.alive:
            raise LatteMixError("This client is closed.")
        return asyncio.run_coroutine_threadsafe(function(*args, **options), self._loop)


def _result(future: Future[T]) -> T:
    try:
        return future.result()
    except CancelledError:
        raise LatteMixError("This client was closed during the call.") from None
    finally:
        future.cancel()  # where the wait was interrupted


def _run(
    client: AsyncClient, opened: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]]
) -> None:
    """Keep a client open on an event loop of its own until its event is set."""

    async def run() -> None:
        stop = asyncio.Event()
        async with client:
            opened.set_result((asyncio.get_running_loop(), stop))
            await stop.wait()

    try:
        asyncio.run(run())
    except BaseException as error:
        if opened.done():
            raise
        opened.set_exception(error)
