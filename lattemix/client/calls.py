"""What can be asked of a server: requests as values, and what is made of the answers."""

import json
import re
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, TypeVar

import httpx
import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError

from lattemix.responses import (
    EmbedResponse,
    Explanation,
    InfoResponse,
    MatrixResponse,
    PairSimilarity,
    RankResponse,
    RankResult,
    SimilarityResponse,
)
from model_store import LatteMixError, Metric

Answer = TypeVar("Answer", bound=BaseModel)
Item = TypeVar("Item")
Row = TypeVar("Row")

Pair = tuple[str, str]
Compared = tuple[PairSimilarity, list[int]]  # and the tokens of both
FromQuery = tuple[RankResult, RankResponse]  # and the answer it was in

METRICS: Sequence[Metric] = ("cosine", "js")  # those of `/similarity` itself

_MOST_SENTENCES = 256  # in a request: enough to fill the server's batches, soon answered


class ServerError(LatteMixError):
    """A request that was answered, but not with what was asked for."""

    def __init__(self, where: str, status: int, error_type: str | None, reason: str) -> None:
        # Latte-Mix's own sentences stand alone; a stranger's need saying whose they are.
        super().__init__(reason if error_type else f"{where} answered {status}: {reason}")
        self.where = where
        self.status = status
        self.error_type = error_type
        self.reason = reason


@dataclass(frozen=True)
class Refusal:
    """Stands in the place of an item that the server does not take."""

    index: int
    reason: str


class Embedded(NamedTuple):
    """A sentence as the model sees it."""

    mixture: NDArray[np.float32]  # [L, C]
    tokens: int
    truncated: bool


@dataclass(frozen=True)
class Call(Generic[Answer]):
    """One request: GET without a body, else POST."""

    path: str
    answer: type[Answer]
    body: dict[str, Any] | None = None

    def read(self, url: str, response: httpx.Response) -> Answer:
        """The answer; raise `ServerError` if it is a failure."""
        if not response.is_success:
            raise _failure(url + self.path, response)
        try:
            return self.answer.model_validate_json(response.content)
        except ValidationError as error:
            raise not_ours(url) from error


@dataclass(frozen=True)
class Chunk(Generic[Item]):
    """Some of the caller's items, and their places among all."""

    places: list[int]
    items: list[Item]

    def halves(self) -> "tuple[Chunk[Item], Chunk[Item]]":
        """Both halves, of at least two items."""
        middle = len(self.items) // 2
        return (
            Chunk(self.places[:middle], self.items[:middle]),
            Chunk(self.places[middle:], self.items[middle:]),
        )

    def without(self, index: int) -> "Chunk[Item]":
        """All but one of them."""
        return Chunk(
            self.places[:index] + self.places[index + 1 :],
            self.items[:index] + self.items[index + 1 :],
        )


@dataclass(frozen=True)
class Many(Generic[Item, Answer, Row]):
    """A question about any number of items, asked in requests that fit the server's limits."""

    call: Call[Answer]  # without its items
    field: str  # of the body, where the items go
    rows: Callable[[Answer], list[Row]]  # an answer, item by item
    sentences: int = 1  # in an item
    others: int = 0  # sentences in each request that belong to no item

    def about(self, items: Sequence[Item]) -> Call[Answer]:
        """The call for some of the items."""
        return replace(self.call, body={**(self.call.body or {}), self.field: items})

    def chunks(self, items: Iterable[Item], info: InfoResponse) -> Iterator[Chunk[Item]]:
        """Items that go together; one that is too large alone is sent alone, and refused."""
        most = (min(info.max_client_batch_size, _MOST_SENTENCES) - self.others) // self.sentences
        room = info.max_body_bytes - len(dumps(self.about([]).body))
        chunk: Chunk[Item] = Chunk([], [])
        used = 0
        for place, item in enumerate(items):
            size = len(dumps(item)) + 1  # and a comma
            if chunk.items and (len(chunk.items) >= most or used + size > room):
                yield chunk
                chunk, used = Chunk([], []), 0
            chunk.places.append(place)
            chunk.items.append(item)
            used += size
        if chunk.items:
            yield chunk

    def blames_items(self, error: ServerError) -> bool:
        """Whether fewer or other items would be taken: one is named, or they are too much."""
        if error.status == 413:  # a proxy's may name nothing
            return not error.reason.startswith("query")
        return error.status in (400, 422) and error.reason.startswith(f"{self.field}[")

    def named(self, error: ServerError, chunk: Chunk[Item]) -> int | None:
        """Which item of the chunk is at fault, if the error says so, or there is only one."""
        match = re.match(rf"{self.field}\[(\d+)\]", error.reason)
        if match and int(match[1]) < len(chunk.items):
            return int(match[1])
        return 0 if len(chunk.items) == 1 else None

    def moved(self, error: ServerError, chunk: Chunk[Item]) -> ServerError:
        """The error, naming the place among all the items instead of in the chunk."""
        named, reason = self.named(error, chunk), error.reason
        if named is not None:
            before, after = f"{self.field}[{named}]", f"{self.field}[{chunk.places[named]}]"
            reason = reason.replace(before, after, 1)
        return ServerError(error.where, error.status, error.error_type, reason)


class _Embeddings(EmbedResponse):
    embeddings: list[str]


INFO = Call("/info", InfoResponse)


def compare(metrics: Sequence[Metric], truncate: bool) -> Many[Pair, SimilarityResponse, Compared]:
    """Similarities of pairs."""
    body = {"metrics": list(metrics), "truncate": truncate}
    call = Call("/similarity", SimilarityResponse, body)
    return Many(call, "pairs", _compared, sentences=2)


def _compared(answer: SimilarityResponse) -> list[Compared]:
    return list(zip(answer.similarities, answer.tokens, strict=False))


def embed(truncate: bool) -> Many[str, _Embeddings, Embedded]:
    """Mixtures of sentences.

    In base64: as compact as npy but for a third, and unlike it, it says which were cut.
    """
    call = Call("/embed", _Embeddings, {"format": "base64", "truncate": truncate})
    return Many(call, "inputs", _embedded)


def _embedded(answer: _Embeddings) -> list[Embedded]:
    found = zip(answer.embeddings, answer.tokens, answer.truncated, strict=False)
    try:
        return [
            Embedded(np.frombuffer(b64decode(text), "<f4").reshape(answer.shape), tokens, cut)
            for text, tokens, cut in found
        ]
    except ValueError:  # not base64, or not of that shape
        return []


def rank(query: str, metric: Metric | None, truncate: bool) -> Many[str, RankResponse, FromQuery]:
    """One sentence against others."""
    body = {"query": query, "metric": metric, "truncate": truncate}
    return Many(Call("/rank", RankResponse, body), "candidates", _ranked, others=1)


def _ranked(answer: RankResponse) -> list[FromQuery]:
    """Each candidate's result, in the order in which they were sent."""
    in_order = sorted(answer.results, key=lambda result: result.index)
    return [(result, answer) for result in in_order]


def at(place: int, ranked: RankResult) -> RankResult:
    """A result, by its place among all the candidates instead of in its request."""
    return ranked.model_copy(update={"index": place})


def matrix(
    texts: Iterable[str],
    metric: Metric | None,
    threshold: float | None,
    top_k: int | None,
    truncate: bool,
) -> Call[MatrixResponse]:
    """Every two of the sentences."""
    body = {
        "inputs": list(texts),
        "metric": metric,
        "threshold": threshold,
        "top_k": top_k,
        "truncate": truncate,
    }
    return Call("/matrix", MatrixResponse, body)


def explain(a: str, b: str, metric: Metric | None, truncate: bool) -> Call[Explanation]:
    """Why two sentences are as similar as they are."""
    body = {"pair": [a, b], "metric": metric, "truncate": truncate}
    return Call("/explain", Explanation, body)


def dumps(content: object) -> bytes:
    """JSON in ASCII: even half a surrogate pair gets to the server, which says what is wrong."""
    return json.dumps(content, separators=(",", ":")).encode("ascii")


def not_ours(url: str) -> LatteMixError:
    """What is said of an answer that no Latte-Mix server gives."""
    return LatteMixError(f"{url} is not a Latte-Mix server.")


def _failure(where: str, response: httpx.Response) -> ServerError:
    try:
        body = response.json()
        reason, error_type = str(body["error"]), body.get("error_type")
    except (ValueError, KeyError, TypeError, AttributeError):
        reason, error_type = response.text[:200], None
    return ServerError(where, response.status_code, error_type, reason)
