"""`Client`: the methods of `Model`, computed by a server; without asyncio."""

import asyncio
import os
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from threading import Thread
from typing import Any, ParamSpec, TypeVar, overload

import httpx
from numpy.typing import NDArray

from lattemix.arguments import (
    Pair,
    TruncateOption,
    as_metrics,
    as_pairs,
    as_texts,
    check_top_k,
    iter_pairs,
    iter_texts,
    warn_truncated,
)
from lattemix.calibrated import ThresholdOn
from lattemix.client import calls
from lattemix.client.calls import Body, BulkCall, Floats, Item, Row
from lattemix.client.connection import IN_FLIGHT, RETRIES, TIMEOUT_SECONDS, Connection
from lattemix.quantization import DType, check_dtype
from lattemix.responses import (
    EncodedText,
    Explanation,
    InfoResponse,
    MatrixResponse,
    PairSimilarity,
    RankResult,
    Rejection,
)
from lattemix.stored import check_fingerprint, rank_stored
from model_store import LatteMixError, Metric

P = ParamSpec("P")
T = TypeVar("T")


class Client:
    """A server's model, with the methods of `Model`. See `AsyncClient` for arguments and errors.

    ```python
    client = lattemix.Client("http://127.0.0.1:8000")
    client.similarity("A man is eating.", "Someone is having lunch.")  # one float
    client.similarity([("A man is eating.", "Someone eats.")], metrics=["cosine", "js"])
    client.encode(["A man is eating.", "The sea was calm."])  # mixtures [2, L, C]
    client.rank("I cannot log in.", ["Reset your password.", "The sea was calm."])
    ```

    Requests run on a thread of the client, which ends when the client is closed or collected, or
    the program exits.
    """

    def __init__(
        self,
        url: str,
        api_key: str | None = None,
        timeout: float = TIMEOUT_SECONDS,
        retries: int = RETRIES,
        transport: httpx.AsyncBaseTransport | None = None,
        model: str | None = None,
    ) -> None:
        self._connection = Connection(url, api_key, timeout, retries, transport, model)
        self.url = self._connection.url
        started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        # A daemon: the interpreter does not wait for it at exit.
        self._thread = Thread(
            target=_serve, args=(self._connection, started), name="lattemix-client", daemon=True
        )
        self._thread.start()
        self._loop, stop = started.result()
        self._process = os.getpid()
        # Called by close() or when the client is collected. At exit the thread simply ends.
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
        """Describe the served model and the server's limits."""
        return self._run(self._connection.info)

    def encode(self, texts: str | Iterable[str], *, truncate: TruncateOption = None) -> Floats:
        """Return the mixtures [N, L, C] of texts, or [L, C] of a single text."""
        rows, info = self._collect(calls.encode(truncate), as_texts(texts))
        return calls.mixtures(rows, info, single=isinstance(texts, str))

    def vectors(
        self,
        texts: str | Iterable[str],
        *,
        metric: Metric | None = None,
        dimensions: int | None = None,
        dtype: DType = "float32",
        truncate: TruncateOption = None,
    ) -> NDArray[Any]:
        """Return unit vectors [N, D] of texts, or [D] of a single text, for a vector database."""
        bulk = calls.vectors(metric, dimensions, truncate)
        rows, info = self._collect(bulk, as_texts(texts))
        check_dtype(dtype, metric or info.recommended_metric)
        return calls.quantized(rows, info, dimensions, dtype, single=isinstance(texts, str))

    @overload
    def similarity(
        self, a: str, b: str, *, metric: Metric | None = None, truncate: TruncateOption = None
    ) -> float: ...

    @overload
    def similarity(
        self, a: Iterable[Pair], *, metric: Metric | None = None, truncate: TruncateOption = None
    ) -> Floats: ...

    @overload
    def similarity(
        self, a: Iterable[Pair], *, metrics: Sequence[Metric], truncate: TruncateOption = None
    ) -> dict[Metric, Floats]: ...

    def similarity(
        self,
        a: str | Iterable[Pair],
        b: str | None = None,
        *,
        metric: Metric | None = None,
        metrics: Sequence[Metric] | None = None,
        truncate: TruncateOption = None,
    ) -> float | Floats | dict[Metric, Floats]:
        """Compare two sentences, or the sentences of each pair, as `Model.similarity` does."""
        pairs = as_pairs(a, b)
        requested = self._metrics(metric, metrics)
        rows, info = self._collect(calls.similarity(requested, truncate), pairs)
        single, by_metric = isinstance(a, str), metrics is not None
        return calls.scores(rows, info, requested, single=single, by_metric=by_metric)

    def rank(
        self,
        query: str,
        texts: Iterable[str],
        *,
        metric: Metric | None = None,
        top_k: int | None = None,
        truncate: TruncateOption = None,
    ) -> list[RankResult]:
        """Order texts by their similarity to a query, most similar first."""
        check_top_k(top_k)
        texts = as_texts(texts)
        rows, info = self._collect(calls.rank(query, metric, truncate), texts)
        return calls.best(rows, info, texts, top_k)

    def rank_mixtures(
        self,
        query: str,
        mixtures: Iterable[Floats],
        *,
        fingerprint: str,
        metric: Metric | None = None,
        top_k: int | None = None,
        truncate: TruncateOption = None,
    ) -> list[RankResult]:
        """Order stored mixtures by their similarity to a query, as `Model.rank_mixtures` does.

        Every metric but `centred`, whose centre the server does not send.
        """
        check_top_k(top_k)
        chosen = calls.local_metric(metric, self._run(self._connection.cached_info))
        rows, info = self._collect(calls.encode(truncate), [query])
        check_fingerprint("mixtures", fingerprint, info)
        (encoded,) = calls.mixtures(rows, info, single=False)
        return rank_stored(encoded, mixtures, chosen, None, top_k, info.calibration)

    def matrix(
        self,
        texts: Iterable[str],
        *,
        metric: Metric | None = None,
        threshold: float | None = None,
        threshold_on: ThresholdOn = "score",
        top_k: int | None = None,
        truncate: TruncateOption = None,
    ) -> MatrixResponse:
        """Compare every two texts, at most as many as fit one request.

        Returns:
            The pairs that reach the threshold, most similar first.
        """
        check_top_k(top_k)
        options = (metric, threshold, threshold_on, top_k, truncate)
        call = calls.matrix(as_texts(texts), *options)
        return self._run(self._connection.request, call)

    def explain(
        self, a: str, b: str, *, metric: Metric | None = None, truncate: TruncateOption = None
    ) -> Explanation:
        """Break the similarity of two sentences down by token, word and latent dim."""
        return self._run(self._connection.request, calls.explain(a, b, metric, truncate))

    def iter_encode(
        self, texts: Iterable[str], *, truncate: TruncateOption = None
    ) -> Iterator[EncodedText | Rejection]:
        """Yield the mixture of each text; a text that is rejected yields a `Rejection`."""
        return self._rows(calls.encode(truncate), iter_texts(texts))

    def iter_similarity(
        self,
        pairs: Iterable[Pair],
        metrics: Sequence[Metric] | None = None,
        *,
        truncate: TruncateOption = None,
    ) -> Iterator[PairSimilarity | Rejection]:
        """Yield the similarities of each pair; one that is rejected yields a `Rejection`."""
        bulk = calls.similarity(self._metrics(None, metrics), truncate)
        return self._rows(bulk, iter_pairs(pairs))

    def iter_rank(
        self,
        query: str,
        texts: Iterable[str],
        metric: Metric | None = None,
        *,
        truncate: TruncateOption = None,
    ) -> Iterator[RankResult | Rejection]:
        """Yield each text's similarity to the query, in order of the texts; or a `Rejection`."""
        warned = False
        rows = self._rows(calls.rank(query, metric, truncate), iter_texts(texts))
        for position, row in enumerate(rows):
            if isinstance(row, Rejection):
                yield row
                continue
            result, query_truncated = row
            if query_truncated and not warned:
                warn_truncated([True], self._run(self._connection.cached_info).max_input_length)
                warned = True
            yield result.model_copy(update={"index": position})

    def _metrics(self, metric: Metric | None, metrics: Sequence[Metric] | None) -> list[Metric]:
        return as_metrics(
            metric, metrics, self._run(self._connection.cached_info).recommended_metric
        )

    def _collect(
        self, bulk: BulkCall[Item, Body, Row], items: Sequence[Item]
    ) -> tuple[list[Row], InfoResponse]:
        return self._run(self._connection.collect, bulk, items)

    def _rows(
        self, bulk: BulkCall[Item, Body, Row], items: Iterable[Item]
    ) -> Iterator[Row | Rejection]:
        """Yield the row of every item, in order. Items are read on the caller's thread."""
        in_flight: deque[Future[list[Row | Rejection]]] = deque()
        try:
            info = self._run(self._connection.cached_info)
            for chunk in self._connection.chunks(bulk, items, info):
                in_flight.append(self._start(self._connection.send_chunk, bulk, chunk, info))
                if len(in_flight) == IN_FLIGHT:
                    yield from _result(in_flight.popleft())
            while in_flight:
                yield from _result(in_flight.popleft())
        finally:
            for future in in_flight:
                future.cancel()

    def _run(
        self, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **options: P.kwargs
    ) -> T:
        """Run a coroutine function on the client's thread and return its result."""
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
        future.cancel()  # if the wait was interrupted


def _serve(
    connection: Connection, started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]]
) -> None:
    """Run an event loop for a connection until its event is set."""

    async def run() -> None:
        stop = asyncio.Event()
        async with connection:
            started.set_result((asyncio.get_running_loop(), stop))
            await stop.wait()

    try:
        asyncio.run(run())
    except BaseException as error:
        if started.done():
            raise
        started.set_exception(error)
