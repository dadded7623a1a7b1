"""`AsyncClient`: sends what `calls` describes, again where that helps, and some at once."""

import asyncio
import os
import random
from asyncio import sleep
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray

from lattemix.client import calls
from lattemix.client.calls import (
    METRICS,
    Answer,
    Call,
    Chunk,
    Embedded,
    Item,
    Many,
    Pair,
    Refusal,
    Row,
    ServerError,
)
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

TIMEOUT_SECONDS = 120.0
RETRIES = 4
IN_FLIGHT = 4  # requests at once: the next is there when the server has done one

_FIRST_WAIT, _LONGEST_WAIT = 0.25, 60.0  # seconds, between tries
_BUSY = (429, 503)
# There was no answer, nor will there be one: ask again.
_LOST = (httpx.NetworkError, httpx.ConnectTimeout, httpx.RemoteProtocolError)


class AsyncClient:
    """A server, asked from asyncio.

    Questions about many items go out in several requests, each within the server's limits. A busy
    server is asked again, `retries` times; other failures raise `ServerError`, and a server that
    cannot be reached raises `LatteMixError`.

    Args:
        url: of the server.
        api_key: else LATTEMIX_API_KEY, if the server wants one.
        timeout: seconds to wait for an answer.
        retries: how often to ask again.
        transport: how requests travel; for tests, and for a server in this process.
    """

    def __init__(
        self,
        url: str,
        api_key: str | None = None,
        timeout: float = TIMEOUT_SECONDS,
        retries: int = RETRIES,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self._retries = retries
        self._info: InfoResponse | None = None
        headers = {"Content-Type": "application/json", **_authorization(api_key)}
        self._http = httpx.AsyncClient(headers=headers, timeout=timeout, transport=transport)

    async def __aenter__(self) -> "AsyncClient":
        await self._http.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._http.__aexit__(*error)

    async def aclose(self) -> None:
        """End the connections."""
        await self.__aexit__()

    async def info(self) -> InfoResponse:
        """What is being served, and within which limits."""
        self._info = await self._ask(calls.INFO)
        return self._info

    async def similarity(
        self, pairs: Iterable[Pair], metrics: Sequence[Metric] = METRICS, truncate: bool = True
    ) -> SimilarityResponse:
        """How alike the sentences of each pair are, however many pairs there are."""
        info, rows = await self._all(calls.compare(metrics, truncate), pairs)
        return SimilarityResponse(
            model=info.model,
            similarities=[similarity for similarity, _ in rows],
            tokens=[tokens for _, tokens in rows],
        )

    async def embed(self, texts: Iterable[str], truncate: bool = True) -> NDArray[np.float32]:
        """The mixtures [N, L, C] of any number of sentences."""
        info, rows = await self._all(calls.embed(truncate), texts)
        shape = (len(rows), info.latent_dims, info.classes)
        return np.array([row.mixture for row in rows], np.float32).reshape(shape)

    async def rank(
        self,
        query: str,
        candidates: Iterable[str],
        metric: Metric | None = None,
        top_k: int | None = None,
        truncate: bool = True,
    ) -> RankResponse:
        """Any number of candidates, the most similar to the query first."""
        if top_k is not None and top_k < 1:
            raise LatteMixError(f"top_k is {top_k}: it should be at least 1, or None for all.")
        info, rows = await self._all(calls.rank(query, metric, truncate), candidates)
        results = [calls.at(place, ranked) for place, (ranked, _) in enumerate(rows)]
        return RankResponse(
            model=info.model,
            metric=metric or info.recommended_metric,
            query_truncated=any(answer.query_truncated for _, answer in rows[:1]),
            results=sorted(results, key=lambda ranked: -ranked.score)[:top_k],
        )

    async def matrix(
        self,
        texts: Iterable[str],
        metric: Metric | None = None,
        threshold: float | None = None,
        top_k: int | None = None,
        truncate: bool = True,
    ) -> MatrixResponse:
        """Pairs among sentences that fit one request, the most similar first."""
        return await self._ask(calls.matrix(texts, metric, threshold, top_k, truncate))

    async def explain(
        self, a: str, b: str, metric: Metric | None = None, truncate: bool = True
    ) -> Explanation:
        """Why two sentences are as similar as they are: by tokens, words and latent dims."""
        return await self._ask(calls.explain(a, b, metric, truncate))

    async def iter_similarity(
        self, pairs: Iterable[Pair], metrics: Sequence[Metric] = METRICS, truncate: bool = True
    ) -> AsyncIterator[PairSimilarity | Refusal]:
        """Each pair's similarities, as they come; a pair that is refused costs only itself."""
        async for row in self._each(calls.compare(metrics, truncate), pairs):
            yield row if isinstance(row, Refusal) else row[0]

    async def iter_embed(
        self, texts: Iterable[str], truncate: bool = True
    ) -> AsyncIterator[Embedded | Refusal]:
        """Each sentence's mixture, as they come; one that is refused costs only itself."""
        async for row in self._each(calls.embed(truncate), texts):
            yield row

    async def iter_rank(
        self,
        query: str,
        candidates: Iterable[str],
        metric: Metric | None = None,
        truncate: bool = True,
    ) -> AsyncIterator[RankResult | Refusal]:
        """Each candidate's similarity to the query, in the order of the candidates."""
        place = 0
        async for row in self._each(calls.rank(query, metric, truncate), candidates):
            yield row if isinstance(row, Refusal) else calls.at(place, row[0])
            place += 1

    async def _all(
        self, many: Many[Item, Answer, Row], items: Iterable[Item]
    ) -> tuple[InfoResponse, list[Row]]:
        """Every item's row; raise for the first that is refused."""
        info = await self.limits()
        found = self._each(many, items, strict=True)
        return info, [row async for row in found if not isinstance(row, Refusal)]

    async def _each(
        self, many: Many[Item, Answer, Row], items: Iterable[Item], strict: bool = False
    ) -> AsyncIterator[Row | Refusal]:
        """Every item's row, in order, with a few requests in flight."""
        waiting: deque[asyncio.Task[list[Row | Refusal]]] = deque()
        try:
            for chunk in many.chunks(items, await self.limits()):
                waiting.append(asyncio.create_task(self.settle(many, chunk, strict)))
                if len(waiting) == IN_FLIGHT:
                    for row in await waiting.popleft():
                        yield row
            while waiting:
                for row in await waiting.popleft():
                    yield row
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    async def settle(
        self, many: Many[Item, Answer, Row], chunk: Chunk[Item], strict: bool
    ) -> list[Row | Refusal]:
        """A chunk's rows. Unless `strict`, what is refused is taken out and the rest sent again."""
        places = chunk.places
        refused: list[Refusal] = []
        settled: list[Row | Refusal] = []
        while chunk.items:
            try:
                settled = [*many.rows(await self._ask(many.about(chunk.items)))]
            except ServerError as error:
                moved = many.moved(error, chunk)
                if strict or not many.blames_items(error):
                    raise moved from error
                named = many.named(error, chunk)
                if named is not None:
                    refused.append(Refusal(chunk.places[named], moved.reason))
                    chunk = chunk.without(named)
                    continue
                # Together they are too much.
                left, right = [await self.settle(many, half, strict) for half in chunk.halves()]
                settled = [*left, *right]
            if len(settled) != len(chunk.items):
                raise calls.not_ours(self.url)
            break
        for refusal in sorted(refused, key=lambda refusal: refusal.index):
            settled.insert(places.index(refusal.index), refusal)
        return settled

    async def limits(self) -> InfoResponse:
        """The server's `info`, asked for once."""
        return self._info or await self.info()

    async def _ask(self, call: Call[Answer]) -> Answer:
        return call.read(self.url, await self._send(call))

    async def _send(self, call: Call[Answer]) -> httpx.Response:
        """Send a request until it is answered, or has been sent often enough."""
        method, content = ("GET", None) if call.body is None else ("POST", calls.dumps(call.body))
        tries = 0
        while True:
            last = tries == self._retries
            wait = min(_FIRST_WAIT * 2**tries, _LONGEST_WAIT) * random.uniform(0.5, 1)
            try:
                response = await self._http.request(method, self.url + call.path, content=content)
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                if last or not isinstance(error, _LOST):
                    why = str(error).rstrip(".") or type(error).__name__
                    raise LatteMixError(f"{self.url} does not answer: {why}.") from error
            else:
                if last or response.status_code not in _BUSY:
                    return response
                after = response.headers.get("Retry-After", "")
                if after.isdigit():  # and not all at the same moment
                    wait = min(int(after), _LONGEST_WAIT) * random.uniform(1, 1.25)
            await sleep(wait)
            tries += 1


def _authorization(api_key: str | None) -> dict[str, str]:
    key = (os.environ.get("LATTEMIX_API_KEY", "") if api_key is None else api_key).strip()
    if not (key.isascii() and key.isprintable()):  # said here, where it is not shown
        raise LatteMixError("The API key is not plain ASCII: see LATTEMIX_API_KEY.")
    return {"Authorization": f"Bearer {key}"} if key else {}
