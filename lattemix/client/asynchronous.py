"""`AsyncClient`: the methods of `Model`, computed by a server."""

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, overload

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
from lattemix.client.calls import Floats
from lattemix.client.connection import RETRIES, TIMEOUT_SECONDS, Connection
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
from model_store import Metric


class AsyncClient:
    """A server's model, with the methods of `Model` as coroutines.

    Methods compare by the model's recommended metric unless `metric` or `metrics` names others.

    ```python
    async with lattemix.AsyncClient("http://127.0.0.1:8000") as client:
        await client.similarity("A man is eating.", "Someone is having lunch.")
        async for row in client.iter_encode(["A man is eating.", "The sea was calm."]):
            print(row.tokens)
    ```

    Inputs are split into requests within the server's limits, except for `matrix`. Requests are
    retried while the server is busy or unreachable. `truncate` says how to handle texts longer than
    the model's maximum length, as for `Model`; default: the server's `LATTEMIX_TRUNCATE`. Where the
    result does not report truncation, a `TruncationWarning` does.

    Args:
        url: address of the server.
        api_key: else `LATTEMIX_API_KEY`, if the server requires a key.
        timeout: seconds to wait for a response.
        retries: further tries if the server is busy or unreachable.
        transport: httpx transport; for tests.
        model: one of the server's models, `name` or `name:precision`; default: the server's
            default model.

    Raises:
        FingerprintError: the server has replaced the model since the client's last call, or during
            this one. Repeat the call to use the new model.
        ServerError: the server rejects a request.
        LatteMixError: the server cannot be reached.
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

    async def __aenter__(self) -> "AsyncClient":
        await self._connection.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._connection.__aexit__(*error)

    async def aclose(self) -> None:
        """Close the connections."""
        await self.__aexit__()

    async def info(self) -> InfoResponse:
        """Describe the served model and the server's limits."""
        return await self._connection.info()

    async def encode(
        self, texts: str | Iterable[str], *, truncate: TruncateOption = None
    ) -> Floats:
        """Return the mixtures [N, L, C] of texts, or [L, C] of a single text."""
        bulk = calls.encode(truncate)
        rows, info = await self._connection.collect(bulk, as_texts(texts))
        return calls.mixtures(rows, info, single=isinstance(texts, str))

    async def vectors(
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
        rows, info = await self._connection.collect(bulk, as_texts(texts))
        check_dtype(dtype, metric or info.recommended_metric)
        return calls.quantized(rows, info, dimensions, dtype, single=isinstance(texts, str))

    @overload
    async def similarity(
        self, a: str, b: str, *, metric: Metric | None = None, truncate: TruncateOption = None
    ) -> float: ...

    @overload
    async def similarity(
        self, a: Iterable[Pair], *, metric: Metric | None = None, truncate: TruncateOption = None
    ) -> Floats: ...

    @overload
    async def similarity(
        self, a: Iterable[Pair], *, metrics: Sequence[Metric], truncate: TruncateOption = None
    ) -> dict[Metric, Floats]: ...

    async def similarity(
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
        recommended = (await self._connection.cached_info()).recommended_metric
        requested = as_metrics(metric, metrics, recommended)
        rows, info = await self._connection.collect(calls.similarity(requested, truncate), pairs)
        single, by_metric = isinstance(a, str), metrics is not None
        return calls.scores(rows, info, requested, single=single, by_metric=by_metric)

    async def rank(
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
        rows, info = await self._connection.collect(calls.rank(query, metric, truncate), texts)
        return calls.best(rows, info, texts, top_k)

    async def rank_mixtures(
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
        chosen = calls.local_metric(metric, await self._connection.cached_info())
        rows, info = await self._connection.collect(calls.encode(truncate), [query])
        check_fingerprint("mixtures", fingerprint, info)
        (encoded,) = calls.mixtures(rows, info, single=False)
        return rank_stored(encoded, mixtures, chosen, None, top_k, info.calibration)

    async def matrix(
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
        return await self._connection.request(call)

    async def explain(
        self, a: str, b: str, *, metric: Metric | None = None, truncate: TruncateOption = None
    ) -> Explanation:
        """Break the similarity of two sentences down by token, word and latent dim."""
        return await self._connection.request(calls.explain(a, b, metric, truncate))

    async def iter_encode(
        self, texts: Iterable[str], *, truncate: TruncateOption = None
    ) -> AsyncIterator[EncodedText | Rejection]:
        """Yield the mixture of each text; a text that is rejected yields a `Rejection`."""
        info = await self._connection.cached_info()
        bulk = calls.encode(truncate)
        async for row in self._connection.rows(bulk, iter_texts(texts), info):
            yield row

    async def iter_similarity(
        self,
        pairs: Iterable[Pair],
        metrics: Sequence[Metric] | None = None,
        *,
        truncate: TruncateOption = None,
    ) -> AsyncIterator[PairSimilarity | Rejection]:
        """Yield the similarities of each pair; one that is rejected yields a `Rejection`."""
        info = await self._connection.cached_info()
        bulk = calls.similarity(as_metrics(None, metrics, info.recommended_metric), truncate)
        async for row in self._connection.rows(bulk, iter_pairs(pairs), info):
            yield row

    async def iter_rank(
        self,
        query: str,
        texts: Iterable[str],
        metric: Metric | None = None,
        *,
        truncate: TruncateOption = None,
    ) -> AsyncIterator[RankResult | Rejection]:
        """Yield each text's similarity to the query, in order of the texts; or a `Rejection`."""
        bulk, warned = calls.rank(query, metric, truncate), False
        info, position = await self._connection.cached_info(), 0
        async for row in self._connection.rows(bulk, iter_texts(texts), info):
            if isinstance(row, Rejection):
                yield row
            else:
                result, query_truncated = row
                if query_truncated and not warned:
                    warn_truncated([True], info.max_input_length)
                    warned = True
                yield result.model_copy(update={"index": position})
            position += 1
