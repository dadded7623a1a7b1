"""Requests to a server as values, and the results in its responses."""

import json
import re
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import httpx
import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError

from lattemix.arguments import Pair, TruncateOption, warn_truncated
from lattemix.calibrated import ThresholdOn
from lattemix.errors import FingerprintError
from lattemix.quantization import DType, quantize
from lattemix.ranking import order
from lattemix.responses import (
    EmbedResponse,
    EncodedText,
    Explanation,
    InfoResponse,
    MatrixResponse,
    ModelResponse,
    PairSimilarity,
    RankResponse,
    RankResult,
    Rejection,
    SimilarityResponse,
)
from lattemix.similarity import MetricError, check
from model_store import LatteMixError, Metric

Body = TypeVar("Body", bound=ModelResponse)
Item = TypeVar("Item")
Row = TypeVar("Row")

Floats = NDArray[np.float32]
Ranked = tuple[RankResult, bool]  # and whether the query was truncated

_MAX_SENTENCES = 256  # per request: enough to fill the server's batches


class ServerError(LatteMixError):
    """The server responded with an error.

    Attributes:
        where: URL of the request.
        status: HTTP status code.
        error_type: the server's kind of error; None if it is not a Latte-Mix server's.
        reason: the server's message.
    """

    def __init__(self, where: str, status: int, error_type: str | None, reason: str) -> None:
        # Another server's message, a proxy's for example, needs its origin.
        super().__init__(reason if error_type else f"{where} answered {status}: {reason}")
        self.where = where
        self.status = status
        self.error_type = error_type
        self.reason = reason


@dataclass(frozen=True)
class Call(Generic[Body]):
    """One request: GET without a body, else POST."""

    path: str
    response: type[Body]
    body: dict[str, Any] | None = None

    def parse(self, url: str, response: httpx.Response) -> Body:
        """Return the response's body, or raise `ServerError`."""
        if not response.is_success:
            raise _server_error(url + self.path, response)
        try:
            return self.response.model_validate_json(response.content)
        except ValidationError as error:
            raise unknown_server(url) from error


@dataclass(frozen=True)
class BulkCall(Generic[Item, Body, Row]):
    """A call about any number of items, split into requests within the server's limits.

    A chunk is the items of one request, by their positions in the caller's list.
    """

    call: Call[Body]  # without items
    field: str  # of the request body: the items
    names: tuple[str, ...]  # of an item's texts, in rejections
    rows: Callable[[Body], list[Row]]  # one per item
    extra: int = 0  # sentences of each request that belong to no item

    def with_items(self, items: Iterable[Item]) -> Call[Body]:
        """Return the request about these items."""
        return replace(self.call, body={**(self.call.body or {}), self.field: list(items)})

    def chunks(self, items: Iterable[Item], info: InfoResponse) -> Iterator[dict[int, Item]]:
        """Split items by the server's limits; an item too large for any request is alone."""
        sentences = min(info.max_client_batch_size, _MAX_SENTENCES) - self.extra
        max_items = sentences // len(self.names)
        max_bytes = info.max_body_bytes - len(to_json(self.with_items([]).body))
        chunk: dict[int, Item] = {}
        used = 0
        for position, item in enumerate(items):
            size = len(to_json(item)) + 1  # a comma
            if chunk and (len(chunk) >= max_items or used + size > max_bytes):
                yield chunk
                chunk, used = {}, 0
            chunk[position] = item
            used += size
        if chunk:
            yield chunk

    def is_about_items(self, error: ServerError) -> bool:
        """Whether the server may accept fewer or other items."""
        if error.status == 413:  # a proxy's names no field
            return not error.reason.startswith("query")
        return error.status in (400, 422) and error.reason.startswith(f"{self.field}[")

    def culprit(self, error: ServerError, chunk: dict[int, Item]) -> int | None:
        """Return the position of the item that an error is about; None if it may be any."""
        match = re.match(rf"{self.field}\[(\d+)\]", error.reason)
        index = int(match[1]) if match else len(chunk)
        if index < len(chunk):
            return [*chunk][index]
        return next(iter(chunk)) if len(chunk) == 1 else None

    def relocated(self, error: ServerError, chunk: dict[int, Item]) -> ServerError:
        """Return an error that names the item's position in the caller's list."""
        position = self.culprit(error, chunk)
        if position is None:
            return error
        reason = re.sub(rf"^{self.field}\[\d+\]", f"{self.field}[{position}]", error.reason)
        return ServerError(error.where, error.status, error.error_type, reason)

    def rejection(self, error: ServerError, position: int) -> Rejection:
        """Return the rejection of an item, which names its text."""

        def name(match: re.Match[str]) -> str:
            return self.names[int(match[1] or 0)]

        reason = re.sub(rf"^{self.field}\[\d+\](?:\[([01])\])?:?", name, error.reason)
        return Rejection(position, reason)


class _Base64Response(EmbedResponse):
    embeddings: list[str]


class _Base64Vector(BaseModel):
    embedding: str


class _VectorResponse(ModelResponse):
    data: list[_Base64Vector]


INFO = Call("/info", InfoResponse)


def encode(truncate: TruncateOption) -> BulkCall[str, _Base64Response, EncodedText]:
    """Request mixtures, in base64: compact, and unlike npy it says what was truncated."""
    body = {"format": "base64", "truncate": truncate}
    return BulkCall(Call("/embed", _Base64Response, body), "inputs", ("text",), _encoded_texts)


def _encoded_texts(response: _Base64Response) -> list[EncodedText]:
    rows = zip(response.embeddings, response.tokens, response.truncated, strict=True)
    try:
        return [
            EncodedText(
                np.frombuffer(b64decode(mixture), "<f4").reshape(response.shape), tokens, truncated
            )
            for mixture, tokens, truncated in rows
        ]
    except ValueError:  # columns of different lengths, invalid base64, or another shape
        return []


def mixtures(rows: Sequence[EncodedText], info: InfoResponse, *, single: bool) -> Floats:
    """Return the result of `encode`: [N, L, C], or [L, C] of a single text."""
    warn_truncated([row.truncated for row in rows], info.max_input_length, stacklevel=4)
    shape = (len(rows), info.latent_dims, info.classes)
    stacked = np.array([row.mixture for row in rows], np.float32).reshape(shape)
    return stacked[0] if single else stacked


def local_metric(metric: Metric | None, info: InfoResponse) -> Metric:
    """Return the metric for mixtures; raise `MetricError` for one that only the server computes."""
    chosen = metric or info.recommended_metric
    if chosen == "centred":
        others = ", ".join(name for name in info.metrics if name != "centred")
        raise MetricError(
            "Metric 'centred' needs the model's centre, which the server does not send: "
            f"choose among {others}."
        )
    check(chosen, None)
    return chosen


def vectors(
    metric: Metric | None, dimensions: int | None, truncate: TruncateOption
) -> BulkCall[str, _VectorResponse, Floats]:
    """Request vectors, in base64."""
    body: dict[str, Any] = {"encoding_format": "base64", "truncate": truncate}
    options = {"metric": metric, "dimensions": dimensions}
    body |= {name: value for name, value in options.items() if value is not None}
    return BulkCall(Call("/v1/embeddings", _VectorResponse, body), "input", ("text",), _vectors)


def _vectors(response: _VectorResponse) -> list[Floats]:
    try:
        return [np.frombuffer(b64decode(row.embedding), "<f4") for row in response.data]
    except ValueError:  # invalid base64
        return []


def quantized(
    rows: Sequence[Floats],
    info: InfoResponse,
    dimensions: int | None,
    dtype: DType,
    *,
    single: bool,
) -> NDArray[Any]:
    """Return the result of `vectors`: [N, D], or [D] of a single text."""
    width = dimensions or info.latent_dims * info.classes
    stacked = quantize(np.array(rows, np.float32).reshape(len(rows), width), dtype)
    return stacked[0] if single else stacked


def similarity(
    metrics: Sequence[Metric], truncate: TruncateOption
) -> BulkCall[Pair, SimilarityResponse, PairSimilarity]:
    """Request similarities of pairs."""
    body = {"metrics": list(metrics), "truncate": truncate}
    call = Call("/similarity", SimilarityResponse, body)
    return BulkCall(call, "pairs", ("a", "b"), _pair_similarities)


def _pair_similarities(response: SimilarityResponse) -> list[PairSimilarity]:
    if len(response.similarities) != len(response.truncated):
        return []
    return [
        PairSimilarity(**similarities.model_dump(), truncated=truncated)
        for similarities, truncated in zip(response.similarities, response.truncated, strict=True)
    ]


def scores(
    rows: Sequence[PairSimilarity],
    info: InfoResponse,
    metrics: Sequence[Metric],
    *,
    single: bool,
    by_metric: bool,
) -> float | Floats | dict[Metric, Floats]:
    """Return the result of `similarity`: one score, an array [N], or an array per metric."""
    truncated = [flag for row in rows for flag in row.truncated]
    warn_truncated(truncated, info.max_input_length, stacklevel=4)
    columns = {name: np.array([getattr(row, name) for row in rows], "f4") for name in metrics}
    if by_metric:
        return columns
    (values,) = columns.values()
    return float(values[0]) if single else values


def rank(
    query: str, metric: Metric | None, truncate: TruncateOption
) -> BulkCall[str, RankResponse, Ranked]:
    """Request similarities to a query."""
    call = Call("/rank", RankResponse, {"query": query, "metric": metric, "truncate": truncate})
    return BulkCall(call, "texts", ("text",), _ranked, extra=1)


def _ranked(response: RankResponse) -> list[Ranked]:
    """Return the results in the order of the request."""
    results = sorted(response.results, key=lambda result: result.index)
    truncated = response.truncated
    if len(results) != len(truncated.texts):
        return []
    return [
        (RankResult(**result.model_dump(), truncated=flag), truncated.query)
        for result, flag in zip(results, truncated.texts, strict=True)
    ]


def best(
    rows: Sequence[Ranked], info: InfoResponse, texts: Sequence[str], top_k: int | None
) -> list[RankResult]:
    """Return the result of `rank`: most similar first."""
    query_truncated = [truncated for _, truncated in rows[:1]]
    truncated = query_truncated + [result.truncated for result, _ in rows]
    warn_truncated(truncated, info.max_input_length, stacklevel=4)
    indices = order(np.array([result.score for result, _ in rows]))[:top_k].tolist()
    return [rows[i][0].model_copy(update={"index": i, "text": texts[i]}) for i in indices]


def matrix(
    texts: Sequence[str],
    metric: Metric | None,
    threshold: float | None,
    threshold_on: ThresholdOn,
    top_k: int | None,
    truncate: TruncateOption,
) -> Call[MatrixResponse]:
    """Request the most similar pairs of a list."""
    body = {
        "inputs": texts,
        "metric": metric,
        "threshold": threshold,
        "threshold_on": threshold_on,
        "top_k": top_k,
        "truncate": truncate,
    }
    return Call("/matrix", MatrixResponse, body)


def explain(a: str, b: str, metric: Metric | None, truncate: TruncateOption) -> Call[Explanation]:
    """Request an explanation of a similarity."""
    body = {"pair": [a, b], "metric": metric, "truncate": truncate}
    return Call("/explain", Explanation, body)


def to_json(content: object) -> bytes:
    """Write ASCII JSON: a lone surrogate reaches the server, whose error names it."""
    return json.dumps(content, separators=(",", ":")).encode("ascii")


def unknown_server(url: str) -> LatteMixError:
    """Return the error about a response that no Latte-Mix server sends."""
    return LatteMixError(f"{url} is not a Latte-Mix server.")


def replaced_model(info: InfoResponse, response: ModelResponse) -> FingerprintError:
    """Return the error about a response of other weights than those that `info` describes."""
    return FingerprintError(
        f"The server replaced model {info.model}: its fingerprint was {info.fingerprint} and is "
        f"now {response.fingerprint}. Repeat the call."
    )


def _server_error(where: str, response: httpx.Response) -> ServerError:
    try:
        body = response.json()
        error, error_type = body["error"], body.get("error_type")
        if isinstance(error, dict):  # OpenAI's shape, under /v1
            error, error_type = error["message"], error.get("code")
        reason = str(error)
    except (ValueError, KeyError, TypeError, AttributeError):
        reason, error_type = response.text[:200], None
    return ServerError(where, response.status_code, error_type, reason)
