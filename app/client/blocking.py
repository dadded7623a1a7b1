"""`Client`: an `AsyncClient` on a thread of its own, asked from ordinary code."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from typing import Any

import httpx
import numpy as np
from anyio.from_thread import start_blocking_portal
from numpy.typing import NDArray

from app.client import calls
from app.client.asynchronous import IN_FLIGHT, RETRIES, TIMEOUT_SECONDS, AsyncClient
from app.client.calls import METRICS, Answer, Embedded, Item, Many, Pair, Refusal, Row
from app.schemas.explain import ExplainResponse
from app.schemas.rank import MatrixResponse, Ranked, RankResponse
from app.schemas.similarity import PairSimilarity, SimilarityResponse
from app.schemas.status import InfoResponse
from model_store import Metric


class Client:
    """What `AsyncClient` is, without asyncio: see there for the arguments and the errors.

    Its thread does not survive a fork: make a client in the process that uses it.
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
        with ExitStack() as opened:
            self._portal = opened.enter_context(start_blocking_portal())
            opened.enter_context(self._portal.wrap_async_context_manager(self._client))
            self._opened = opened.pop_all()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *error: Any) -> None:
        self._opened.__exit__(*error)

    def close(self) -> None:
        """End the connections and the thread."""
        self._opened.close()

    def info(self) -> InfoResponse:
        """What is being served, and within which limits."""
        return self._portal.call(self._client.info)

    def similarity(
        self, pairs: Iterable[Pair], metrics: Sequence[Metric] = METRICS, truncate: bool = True
    ) -> SimilarityResponse:
        """How alike the sentences of each pair are, however many pairs there are."""
        return self._portal.call(self._client.similarity, pairs, metrics, truncate)

    def embed(self, texts: Iterable[str], truncate: bool = True) -> NDArray[np.float32]:
        """The mixtures [N, L, C] of any number of sentences."""
        return self._portal.call(self._client.embed, texts, truncate)

    def rank(
        self,
        query: str,
        candidates: Iterable[str],
        metric: Metric | None = None,
        top_k: int | None = None,
        truncate: bool = True,
    ) -> RankResponse:
        """Any number of candidates, the most similar to the query first."""
        return self._portal.call(self._client.rank, query, candidates, metric, top_k, truncate)

    def matrix(
        self,
        texts: Iterable[str],
        metric: Metric | None = None,
        threshold: float | None = None,
        top_k: int | None = None,
        truncate: bool = True,
    ) -> MatrixResponse:
        """Pairs among sentences that fit one request, the most similar first."""
        return self._portal.call(self._client.matrix, texts, metric, threshold, top_k, truncate)

    def explain(
        self, a: str, b: str, metric: Metric | None = None, truncate: bool = True
    ) -> ExplainResponse:
        """Why two sentences are as similar as they are: by tokens, words and latent dims."""
        return self._portal.call(self._client.explain, a, b, metric, truncate)

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
    ) -> Iterator[Ranked | Refusal]:
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
            for chunk in many.chunks(items, self._portal.call(self._client.limits)):
                waiting.append(
                    self._portal.start_task_soon(self._client.settle, many, chunk, False)
                )
                if len(waiting) == IN_FLIGHT:
                    yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
